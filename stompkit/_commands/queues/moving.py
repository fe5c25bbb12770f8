"""Purges and moves messages with plain STOMP, on any broker."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

from twisted.internet.defer import Deferred

from stompkit._commands.shared.broker_options import Broker
from stompkit._commands.shared.message_lines import without_delivery
from stompkit._commands.shared.progress import Progress
from stompkit._commands.shared.session import InterruptedSessionError, Session, run
from stompkit.client import ClientError, Message, Subscription, SubscriptionEndedError

__all__ = ["MovedBackError", "Work", "move", "moving", "purge"]

_PREFETCH: Final = 100
#: Time in seconds between checks whether the queue is empty.
_CHECK_S: Final = 0.25
#: Header with a text that is different for each run.
_MARK: Final = "stompkit-moved"


class MovedBackError(ClientError):
    """A moved message has come back, so that moving would never end."""


def purge(broker: Broker, destination: str, quiet_s: float) -> tuple[int, int]:
    """Receive and acknowledge all messages; returns the exit status and their number."""

    async def remove(session: Session, message: Message) -> bool:
        return await message.ack()

    work = Work(destination, remove, quiet_s, "removed")
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
    work = moving(source, target, quiet_s, limit=limit, selector=selector)
    return run("move", broker, work.all), work.done


def moving(
    source: str,
    target: str,
    quiet_s: float,
    *,
    limit: int | None = None,
    selector: str | None = None,
) -> Work:
    """Return the work that sends messages to another destination."""
    mark = secrets.token_hex(8)

    async def carry(session: Session, message: Message) -> bool:
        if message.headers.get(_MARK) == mark:
            raise MovedBackError(
                f"a message that was moved to {target} has come back to {source}: they are one"
                " queue for this broker, or something moves messages back. No message is lost"
            )
        headers = {**without_delivery(message.headers), _MARK: mark}
        await session.client.send(target, message.body, headers)
        return await message.ack()

    return Work(source, carry, quiet_s, "moved", limit, selector)


class Work:
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
        """Start with no messages; ``deal`` returns True if a message is settled.

        If it raises :class:`MovedBackError`, the message stays, and the work ends with that error
        when all messages before it are settled.
        """
        self._destination = destination
        self._deal = deal
        self._quiet_s = quiet_s
        self._progress = Progress(what, limit)
        self._limit = limit
        self._headers = {} if selector is None else {"selector": selector}
        self._started = self._running = 0
        self._last = 0.0
        self._over: Deferred[None] = Deferred()
        self._has_room: Deferred[None] | None = None
        self._reason: MovedBackError | None = None
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
        self._last = monotonic()
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
            # If a connection is lost, the broker redelivers these, and they are processed again.
            while self._started == self._limit and not self._over.called:
                self._has_room = Deferred()
                await self._has_room
            try:
                message = await subscription.get()
            except SubscriptionEndedError as ended:
                if ended.reason is None:
                    return
                raise ended.reason from None
            if self._over.called or self._reason is not None:
                return
            self._started += 1
            self._running += 1
            # The next messages proceed while this one is confirmed: the prefetch limits them.
            dealing = Deferred.fromCoroutine(self._deal_with(session, message))
            dealing.addErrback(lambda failure: self._end(failure.value))

    async def _deal_with(self, session: Session, message: Message) -> None:
        self._last = monotonic()
        is_settled = False
        try:
            is_settled = await self._deal(session, message)
        except MovedBackError as reason:
            self._reason = reason
        finally:
            self._running -= 1
            self._last = monotonic()
        if self._reason is not None:
            self.done += is_settled
            if not self._running:
                self._end(self._reason)
            return
        if not is_settled:  # the connection was lost, and it is redelivered
            self._started -= 1
            self._notify_room()
            return
        self.done += 1
        self._progress(self.done)
        if self.done == self._limit:
            self._end()

    def _notify_room(self) -> None:
        has_room, self._has_room = self._has_room, None
        if has_room is not None:
            has_room.callback(None)

    def _look(self, session: Session) -> None:
        now = monotonic()
        # A queue is not empty because its broker cannot be reached.
        if self._running or not session.client.is_connected:
            self._last = now
        elif now - self._last >= self._quiet_s:
            self._end()
        if not self._over.called:
            session.reactor.callLater(_CHECK_S, self._look, session)

    def _end(self, reason: BaseException | None = None) -> None:
        if self._over.called:
            return
        if reason is None:
            self._over.callback(None)
        else:
            self._over.errback(reason)
        self._notify_room()
