"""Sending to the destination: several messages in flight, in order, until each is confirmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from stompkit.bridge._errors import MessageDroppedError, MessageRefusedError
from stompkit.client import BrokerError, Client
from stompkit.frames import LocalProtocolError

__all__ = ["Sender", "text_of_error"]

#: Number of connection losses by an ERROR without a receipt id after which the only message in
#: flight is blamed. A broker that shuts down may also send ERROR.
_STRIKES: Final = 3


class _Item:
    """A message in flight."""

    __slots__ = ("body", "destination", "done", "headers", "sent", "strikes")

    def __init__(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        self.destination = destination
        self.body = body
        self.headers = headers
        self.done: Deferred[None] = Deferred()
        self.sent: Deferred[None] | None = None
        self.strikes = 0


class Sender:
    """Sends messages with receipts, and finds the message that a broker refuses.

    The client handles lost connections: it sends unconfirmed messages again. An ERROR that names
    a message refuses that message. After an ERROR that names none, all messages in flight are sent
    one at a time. A message that is alone in flight at repeated ERRORs is refused.
    """

    def __init__(self, client: Client) -> None:
        """Start empty; the client's hook must call :meth:`disconnected`."""
        self._client = client
        self._under_way: dict[_Item, None] = {}
        self._suspects: deque[_Item] = deque()
        self._named: Exception | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        """Number of unconfirmed messages."""
        return len(self._under_way) + len(self._suspects)

    def send(self, destination: str, body: bytes, headers: Mapping[str, str]) -> Deferred[None]:
        """Send a message; fires when it is confirmed, or fails with :class:`MessageRefusedError`.

        It fails with :class:`~stompkit.client.ClientClosedError` if the client has given up.
        """
        item = _Item(destination, body, headers)
        if self._suspects:
            self._suspects.append(item)
        else:
            self._start(item)
        return item.done

    def disconnected(self, reason: Exception) -> None:
        """Handle the end of a connection."""
        if self._is_closed or not isinstance(reason, BrokerError) or self._named is reason:
            return
        items = [*self._under_way, *self._suspects]
        if not self._under_way:
            return
        first = items[0]
        if len(self._under_way) == 1:
            first.strikes += 1
        for item in list(self._under_way):
            self._take_back(item)
        self._suspects = deque(items)
        if first.strikes >= _STRIKES:
            self._suspects.popleft()
            first.done.errback(MessageRefusedError(text_of_error(reason)))
        self._next()

    def drop(self) -> None:
        """Withdraw all messages with :class:`MessageDroppedError`; the source redelivers them."""
        items = [*self._under_way, *self._suspects]
        self._suspects.clear()
        for item in list(self._under_way):
            self._take_back(item)
        for item in items:
            item.done.errback(MessageDroppedError())

    def forget(self) -> None:
        """Withdraw all messages without notifying their senders."""
        self._is_closed = True
        self._suspects.clear()
        for item in list(self._under_way):
            self._take_back(item)

    def _take_back(self, item: _Item) -> None:
        self._under_way.pop(item, None)
        sent, item.sent = item.sent, None
        if sent is not None:
            sent.cancel()

    def _start(self, item: _Item) -> None:
        self._under_way[item] = None
        item.sent = sent = self._client.send(
            item.destination, item.body, dict(item.headers), wait=True
        )
        sent.addCallbacks(self._confirmed, self._failed, callbackArgs=(item,), errbackArgs=(item,))

    def _confirmed(self, _: None, item: _Item) -> None:
        self._under_way.pop(item, None)
        item.sent = None
        item.done.callback(None)
        self._next()

    def _failed(self, failure: Failure, item: _Item) -> None:
        error = failure.value
        if isinstance(error, CancelledError):
            return
        self._under_way.pop(item, None)
        item.sent = None
        if isinstance(error, BrokerError):
            self._named = error
            item.done.errback(MessageRefusedError(text_of_error(error)))
        elif isinstance(error, LocalProtocolError):
            item.done.errback(MessageRefusedError(str(error)))
        else:
            item.done.errback(failure)
        self._next()

    def _next(self) -> None:
        """Send the next of the messages that are sent one at a time."""
        if self._suspects and not self._under_way and not self._is_closed:
            self._start(self._suspects.popleft())


def text_of_error(error: BrokerError) -> str:
    """Return the message of an ERROR, and the first line of its body."""
    body = error.body[:300].decode("utf-8", "replace").strip().partition("\n")[0]
    return f"{error.message}: {body}" if body and body != error.message else error.message
