"""Sending to the destination: several messages in flight, in order, until each is confirmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from stompkit.bridge._errors import MessageDroppedError, MessageRefusedError
from stompkit.bridge._full import FullDestination, is_for_now, text_of_error
from stompkit.client import BrokerError, Client
from stompkit.frames import LocalProtocolError

__all__ = ["Sender"]

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

    A destination without room refuses no message: all wait in their order, and are sent again.
    """

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        delay_s: Callable[[int], float],
        full: FullDestination,
    ) -> None:
        """Start empty; the client's hook must call :meth:`disconnected`.

        ``delay_s`` returns the wait after some consecutive refusals for want of room.
        """
        self._client = client
        self._clock = clock
        self._delay_s = delay_s
        self._full = full
        self._times_full = 0
        self._pause: IDelayedCall | None = None
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
        if not self._under_way:
            return
        is_alone = len(self._under_way) == 1
        self._suspects = self._take_all_back()
        first = self._suspects[0]
        first.strikes += is_alone
        if first.strikes >= _STRIKES:
            self._suspects.popleft()
            first.done.errback(MessageRefusedError(text_of_error(reason)))
        self._next()

    def drop(self) -> None:
        """Withdraw all messages with :class:`MessageDroppedError`; the source redelivers them."""
        items = self._take_all_back()
        self._suspects.clear()
        self._end_pause()
        for item in items:
            item.done.errback(MessageDroppedError())

    def forget(self) -> None:
        """Withdraw all messages without notifying their senders."""
        self._is_closed = True
        self._take_all_back()
        self._suspects.clear()
        self._end_pause()

    def _take_all_back(self) -> deque[_Item]:
        """Withdraw what is in flight; return all unconfirmed messages in their order."""
        items = deque([*self._under_way, *self._suspects])
        for item in list(self._under_way):
            self._take_back(item)
        return items

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
        self._times_full = 0
        self._full.confirmed()
        item.done.callback(None)
        self._next()

    def _failed(self, failure: Failure, item: _Item) -> None:
        error = failure.value
        if isinstance(error, CancelledError):
            return
        item.sent = None
        if isinstance(error, BrokerError):
            self._named = error
            if is_for_now(error):
                self._wait_for_room(error)
                return
        self._under_way.pop(item, None)
        if isinstance(error, BrokerError):
            item.done.errback(MessageRefusedError(text_of_error(error)))
        elif isinstance(error, LocalProtocolError):
            item.done.errback(MessageRefusedError(str(error)))
        else:
            item.done.errback(failure)
        self._next()

    def _next(self) -> None:
        """Send the next of the messages that are sent one at a time."""
        is_free = not self._under_way and not self._is_closed and self._pause is None
        if self._suspects and is_free:
            self._start(self._suspects.popleft())

    def _wait_for_room(self, error: BrokerError) -> None:
        """Send all messages again after a while, in their order."""
        self._suspects = self._take_all_back()
        self._times_full += 1
        delay_s = self._delay_s(self._times_full)
        self._end_pause()
        self._pause = self._clock.callLater(delay_s, self._go_on)
        self._full.put_off(error, delay_s)

    def _go_on(self) -> None:
        self._pause = None
        self._next()

    def _end_pause(self) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.cancel()
