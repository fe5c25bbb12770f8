"""Purges and moves messages with plain STOMP, on any broker."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from twisted.internet.defer import Deferred

from stompkit._commands.shared.broker_options import Broker
from stompkit._commands.shared.message_lines import without_delivery
from stompkit._commands.shared.progress import Progress
from stompkit._commands.shared.session import InterruptedSessionError, Session, run
from stompkit.client import Message, Subscription, SubscriptionEndedError

__all__ = ["move", "purge"]

_PREFETCH: Final = 100


def purge(broker: Broker, destination: str, quiet_s: float) -> tuple[int, int]:
    """Receive and acknowledge all messages; returns the exit status and their number."""

    async def remove(session: Session, message: Message) -> bool:
        return await message.ack()

    work = _Work(destination, remove, quiet_s, "removed")
    return run("purge", broker, work.all), work.done


def move(
    broker: Broker,
    source: str,
    target: str,
    quiet_s: float,
    *,
    limit: int | None = None,
    selector: str | None = None,
) -> tuple[int, int]:
    """Send messages to another destination; returns the exit status and their number."""

    async def carry(session: Session, message: Message) -> bool:
        await session.client.send(target, message.body, without_delivery(message.headers))
        return await message.ack()

    work = _Work(source, carry, quiet_s, "moved", limit, selector)
    return run("move", broker, work.all), work.done


class _Work:
    """Processes the messages of a queue concurrently, until no more arrive."""

    def __init__(
        self,
        destination: str,
        deal: Callable[[Session, Message], Awaitable[bool]],
        quiet_s: float,
        what: str,
        limit: int | None = None,
        selector: str | None = None,
    ) -> None:
        self._destination = destination
        self._deal = deal
        self._quiet_s = quiet_s
        self._progress = Progress(what, limit)
        self._limit = limit
        self._headers = {} if selector is None else {"selector": selector}
        self._started = self._running = 0
        self._last = 0.0
        self._over: Deferred[None] = Deferred()
        #: Number of processed messages.
        self.done = 0

    async def all(self, session: Session) -> int:
        """Process all messages; returns the exit status."""
        session.on_signal(self._end)
        subscription = await session.client.subscribe(
            self._destination,
            headers=self._headers,
            prefetch=min(_PREFETCH, self._limit or _PREFETCH),
        )
        self._last = time.monotonic()
        taking = Deferred.fromCoroutine(self._take(session, subscription))
        taking.addErrback(lambda failure: self._end(failure.value))
        self._look(session)
        try:
            await self._over
        finally:
            self._progress.end()
        if session.signal is not None:
            raise InterruptedSessionError(session.signal)
        return 0

    async def _take(self, session: Session, subscription: Subscription) -> None:
        while True:
            try:
                message = await subscription.get()
            except SubscriptionEndedError as ended:
                if ended.reason is None:
                    return
                raise ended.reason from None
            if self._over.called:
                return
            if self._started == self._limit:
                continue  # the broker takes it back when the connection ends
            self._started += 1
            self._running += 1
            # The next messages proceed while this one is confirmed: the prefetch limits them.
            dealing = Deferred.fromCoroutine(self._deal_with(session, message))
            dealing.addErrback(lambda failure: self._end(failure.value))

    async def _deal_with(self, session: Session, message: Message) -> None:
        self._last = time.monotonic()
        is_settled = False
        try:
            is_settled = await self._deal(session, message)
        finally:
            self._running -= 1
            self._last = time.monotonic()
        if not is_settled:  # the connection was lost, and it is redelivered
            self._started -= 1
            return
        self.done += 1
        self._progress(self.done)
        if self.done == self._limit:
            self._end()

    def _look(self, session: Session) -> None:
        left_s = self._last + self._quiet_s - time.monotonic()
        if self._running:
            left_s = self._quiet_s
        if left_s <= 0:
            self._end()
        if not self._over.called:
            session.reactor.callLater(left_s, self._look, session)

    def _end(self, reason: BaseException | None = None) -> None:
        if self._over.called:
            return
        if reason is None:
            self._over.callback(None)
        else:
            self._over.errback(reason)
