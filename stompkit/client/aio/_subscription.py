"""Subscriptions of the asyncio client, and their messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Self

from twisted.internet.defer import CancelledError, Deferred

from stompkit.client import _messages, _subscription
from stompkit.client._content import Content
from stompkit.client._errors import SubscriptionEndedError
from stompkit.client._messages import AckMode
from stompkit.client.aio._loop import future_of

__all__ = ["Handler", "Message", "Subscription", "leave", "when_awaited"]


class Message(Content):
    """A message from the broker, like :class:`stompkit.client.Message`."""

    __slots__ = ("_loop", "_message")

    def __init__(self, message: _messages.Message, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap a message; called by the client."""
        self.headers = message.headers
        self.body = message.body
        self._message = message
        self._loop = loop

    @property
    def is_settled(self) -> bool:
        """True if :meth:`ack` and :meth:`nack` would have no effect."""
        return self._message.is_settled

    def ack(self, *, receipt: bool = False) -> asyncio.Future[bool]:
        """Acknowledge the message.

        Completes with true when ACK has been given to the transport, or with ``receipt`` when the
        broker has confirmed it. Completes with false if the message is settled, or if the
        connection is lost before the receipt. Fails with :class:`~stompkit.client.BrokerError` if
        the broker refuses it.
        """
        return future_of(self._message.ack(receipt=receipt), self._loop)

    def nack(
        self, *, receipt: bool = False, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[bool]:
        """Reject the message; completes as :meth:`ack` does.

        Fails with ``LocalProtocolError`` on STOMP 1.0, which has no NACK.
        """
        return future_of(self._message.nack(receipt=receipt, headers=headers), self._loop)


#: Function that handles a message; an awaitable that it returns is awaited.
Handler = Callable[[Message], Awaitable[Any] | None]


class Subscription:
    """A subscription; :meth:`Client.subscribe` creates it.

    Without a handler it is an asynchronous iterator of its messages, and :meth:`get` returns the
    next one. It is restored with the same ``id`` on every connection.
    """

    def __init__(
        self, subscription: _subscription.Subscription, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Wrap a subscription; called by the client."""
        self._subscription = subscription
        self._loop = loop

    def __repr__(self) -> str:
        """Return the id and destination."""
        return repr(self._subscription)

    @property
    def id(self) -> str:
        """Id of the subscription, unique within its connection."""
        return self._subscription.id

    @property
    def destination(self) -> str:
        """Destination of the subscription."""
        return self._subscription.destination

    @property
    def ack(self) -> AckMode:
        """Acknowledgement mode of the subscription."""
        return self._subscription.ack

    async def get(self) -> Message:
        """Return the next message.

        Raises :class:`~stompkit.client.SubscriptionEndedError` when the subscription has ended, and
        ``RuntimeError`` if it has a handler. A cancelled call takes no message.
        """
        while True:
            # No message is taken before this task resumes: a cancel would lose it.
            if taken := self._subscription.take(1, 1):
                return Message(taken[0], self._loop)
            await future_of(self._subscription.when_filled(), self._loop)

    def take(self, max_messages: int, max_bytes: int) -> list[Message]:
        """Return the waiting messages; see :meth:`stompkit.client.Subscription.take`."""
        found = self._subscription.take(max_messages, max_bytes)
        return [Message(each, self._loop) for each in found]

    def ack_all(self, messages: Iterable[Message]) -> int:
        """Acknowledge messages of this subscription without receipts; return their number."""
        return self._subscription.ack_all([each._message for each in messages])

    def __aiter__(self) -> Self:
        """Iterate over the messages, until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; raises the error that ended the subscription, if one did."""
        try:
            return await self.get()
        except SubscriptionEndedError as end:
            if end.reason is not None:
                raise end.reason from None
            raise StopAsyncIteration from None

    def unsubscribe(self, headers: dict[str, str] | None = None) -> asyncio.Future[None]:
        """End the subscription; completes when the broker has confirmed it.

        See :meth:`stompkit.client.Subscription.unsubscribe`.
        """
        return future_of(self._subscription.unsubscribe(headers), self._loop)

    def when_ended(self) -> asyncio.Future[None]:
        """Return a future that completes when the subscription ends, or fails with its error."""
        return future_of(self._subscription.when_ended(), self._loop)


def leave(subscription: Subscription) -> None:
    """End a subscription that no caller has received."""
    left = subscription._subscription.unsubscribe()
    left.addErrback(lambda _: None)  # no caller waits for the result


def when_awaited(outcome: object) -> Deferred[Any] | None:
    """Return a Deferred that fires when *outcome* has been awaited; None if it is not awaitable."""
    if not isawaitable(outcome):
        return None
    return Deferred.fromFuture(asyncio.ensure_future(_awaited(outcome)))


async def _awaited(outcome: Awaitable[Any]) -> Any:
    try:
        return await outcome
    except asyncio.CancelledError:
        # Only the handler is cancelled; the client continues, as after any other error.
        raise CancelledError("it was cancelled") from None
