"""Subscriptions of the client for asyncio, and the messages that they get."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Self

from twisted.internet.defer import CancelledError, Deferred

from stompkit.client import _messages, _subscription
from stompkit.client._errors import SubscriptionEnded
from stompkit.client._messages import AckMode
from stompkit.client.aio._loop import future_of

__all__ = ["Handler", "Message", "Subscription", "when_awaited"]


class Message:
    """A message from the broker, as :class:`stompkit.client.Message` is."""

    __slots__ = ("_loop", "_message")

    def __init__(self, message: _messages.Message, loop: asyncio.AbstractEventLoop) -> None:
        """Stand for a message; the client does it."""
        self._message = message
        self._loop = loop

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the MESSAGE frame."""
        return self._message.headers

    @property
    def body(self) -> bytes:
        """Its body."""
        return self._message.body

    @property
    def text(self) -> str:
        """The body as UTF-8; raises UnicodeDecodeError where it is something else."""
        return self._message.text

    @property
    def destination(self) -> str:
        """The destination that it was sent to, as the broker names it."""
        return self._message.destination

    @property
    def id(self) -> str:
        """The broker's ``message-id``."""
        return self._message.id

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it has delivered the message before."""
        return self._message.redelivered

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to settle by :meth:`ack` or :meth:`nack`."""
        return self._message.is_settled

    def ack(self, *, receipt: bool = False) -> asyncio.Future[bool]:
        """Tell the broker that the message has been consumed.

        Done with true when ACK has been given to the transport, or with ``receipt`` when the
        broker has confirmed it; with false where the message is settled, or where the connection
        is lost before the receipt. Fails with :class:`~stompkit.client.BrokerError` if the broker
        refuses it.
        """
        return future_of(self._message.ack(receipt=receipt), self._loop)

    def nack(
        self, *, receipt: bool = False, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[bool]:
        """Tell the broker that the message could not be consumed; done as :meth:`ack` is.

        Fails with ``LocalProtocolError`` on STOMP 1.0, which has no NACK.
        """
        return future_of(self._message.nack(receipt=receipt, headers=headers), self._loop)

    def __repr__(self) -> str:
        """Say which one it is."""
        return repr(self._message)


#: What a message is given to; an awaitable is waited for.
Handler = Callable[[Message], Awaitable[Any] | None]


class Subscription:
    """A subscription; :meth:`Client.subscribe` makes it.

    Without a handler it is an asynchronous iterator of its messages, and :meth:`get` gives the
    next one. It is made again with the same ``id`` on every connection.
    """

    def __init__(
        self, subscription: _subscription.Subscription, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Stand for a subscription; the client does it."""
        self._subscription = subscription
        self._loop = loop

    def __repr__(self) -> str:
        """Say which one it is."""
        return repr(self._subscription)

    @property
    def id(self) -> str:
        """What tells it from the other subscriptions of its connection."""
        return self._subscription.id

    @property
    def destination(self) -> str:
        """What it is a subscription to."""
        return self._subscription.destination

    @property
    def ack(self) -> AckMode:
        """How its messages are acknowledged."""
        return self._subscription.ack

    async def get(self) -> Message:
        """Return the next message.

        Raises :class:`~stompkit.client.SubscriptionEnded` when there will be none, and
        ``RuntimeError`` where a handler gets the messages. Who is cancelled takes none.
        """
        while True:
            # Nothing is taken before this goes on: a message that was would be lost by a cancel.
            if taken := self._subscription.take(1, 1):
                return Message(taken[0], self._loop)
            await future_of(self._subscription.when_filled(), self._loop)

    def take(self, max_messages: int, max_bytes: int) -> list[Message]:
        """Return what waits already; see :meth:`stompkit.client.Subscription.take`."""
        found = self._subscription.take(max_messages, max_bytes)
        return [Message(each, self._loop) for each in found]

    def ack_all(self, messages: Iterable[Message]) -> int:
        """Acknowledge messages of this subscription, without receipts, and say how many."""
        return self._subscription.ack_all([each._message for each in messages])

    def __aiter__(self) -> Self:
        """Iterate over the messages, until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """Return the next message; raises the error that ended the subscription, if one did."""
        try:
            return await self.get()
        except SubscriptionEnded as end:
            if end.reason is not None:
                raise end.reason from None
            raise StopAsyncIteration from None

    def unsubscribe(self, headers: dict[str, str] | None = None) -> asyncio.Future[None]:
        """End the subscription; done when the broker has confirmed it.

        See :meth:`stompkit.client.Subscription.unsubscribe`.
        """
        return future_of(self._subscription.unsubscribe(headers), self._loop)

    def when_ended(self) -> asyncio.Future[None]:
        """Return what is done when the subscription has ended, or fails with why it did."""
        return future_of(self._subscription.when_ended(), self._loop)


def when_awaited(outcome: object) -> Deferred[Any] | None:
    """Return what fires when an outcome has been awaited, and None where there is nothing to."""
    if not isawaitable(outcome):
        return None
    return Deferred.fromFuture(asyncio.ensure_future(_awaited(outcome)))


async def _awaited(outcome: Awaitable[Any]) -> Any:
    try:
        return await outcome
    except asyncio.CancelledError:
        # That ends no more than what it was: the client goes on, as after any other error.
        raise CancelledError("it was cancelled") from None
