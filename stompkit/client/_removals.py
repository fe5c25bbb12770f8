"""The removal of durable subscriptions, which has to reach the broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from stompkit.client._errors import ClientClosedError, ConnectionGoneError
from stompkit.client._outbox import Outbox
from stompkit.client._waiters import Waiters
from stompkit.frames import Frame

__all__ = ["MOST_SUSPICIONS", "Removal", "Removals"]

_R = TypeVar("_R")

#: Number of consecutive connections on which a frame has to seem refused by an ERROR without
#: ``receipt-id``. A single one can have another reason, such as the end of the broker.
MOST_SUSPICIONS: Final = 3
#: Beginning of ActiveMQ's refusal to remove what does not exist.
_REMOVED: Final = "No durable subscription exists"


class Removal:
    """An UNSUBSCRIBE with headers, which ends more than what its connection ends.

    It is sent on each new connection, until a broker has confirmed or refused it.
    """

    def __init__(
        self,
        outbox: Outbox,
        id: str,
        subscribe: Callable[[], Frame],
        leave: Callable[[], Frame],
        unsubscribe: Callable[[], Frame],
        *,
        receipt: bool,
    ) -> None:
        """Start unsent; the functions return a new frame each time.

        *leave* returns an UNSUBSCRIBE that ends nothing but the delivery on the connection.
        """
        self.id: Final = id
        #: True when it is confirmed, refused or given up.
        self.is_over = False
        #: The reason why it failed.
        self.error: Exception | None = None
        #: True if UNSUBSCRIBE may have reached a broker.
        self.was_sent = False
        self._outbox = outbox
        self._subscribe = subscribe
        self._leave = leave
        self._unsubscribe = unsubscribe
        self._receipt = receipt
        self._suspicions = 0
        #: True if a frame seemed refused on the last connection.
        self._is_suspect = False
        self._waiters = Waiters[None]()

    def wait(self) -> Deferred[None]:
        """Fire when it is confirmed; fails with the errors of :meth:`Subscription.unsubscribe`."""
        if not self.is_over:
            return self._waiters.wait()
        return succeed(None) if self.error is None else fail(self.error)

    def send(self, *, is_subscribed: bool) -> Deferred[None]:
        """Send UNSUBSCRIBE on the current connection, if there is one; fires after its answer.

        RabbitMQ removes only what the connection is subscribed to. ActiveMQ refuses just that.
        """
        if not self._is_suspect:
            self._suspicions = 0
        self._is_suspect = False
        is_activemq = self._outbox.is_activemq
        if is_subscribed == is_activemq:
            frame = self._leave() if is_activemq else self._subscribe()
            self._outbox.send_now(frame, receipt=self._receipt).addErrback(self._failed)
        if self.is_over:
            return succeed(None)
        left = self._outbox.send_now(self._unsubscribe(), receipt=self._receipt)
        return left.addCallbacks(lambda _: self.finish(), self._failed)

    def finish(self, error: Exception | None = None) -> None:
        """Notify those who wait."""
        if self.is_over:
            return
        self.is_over = True
        self.error = error
        if error is None:
            self._waiters.callback(None)
        else:
            self._waiters.errback(error)

    def _failed(self, failure: Failure) -> None:
        error: object = failure.value
        if isinstance(error, ConnectionGoneError):
            self.was_sent = self.was_sent or error.written
            if error.is_suspect:
                self._is_suspect = True
                self._suspicions += 1
            if not error.is_suspect or self._suspicions < MOST_SUSPICIONS:
                return  # it is sent again on the next connection
            error = error.reason
        assert isinstance(error, Exception)  # one of the outbox's
        # If the answer of an earlier connection was lost, that one has removed it.
        is_removed = self.was_sent and str(error).startswith(_REMOVED)
        self.finish(None if is_removed else error)


class Removals:
    """The removals of a client that are not over, and all ids whose UNSUBSCRIBE has no answer."""

    def __init__(
        self, outbox: Outbox, is_in_use: Callable[[str], bool], on_left: Callable[[str], object]
    ) -> None:
        """Start without removals; *is_in_use* tells if a subscription has an id.

        *on_left* is called with an id when every UNSUBSCRIBE with it is answered, or its connection
        is lost.
        """
        self._outbox = outbox
        self._is_in_use = is_in_use
        self._on_left = on_left
        self._open: list[Removal] = []
        self._leaving: Counter[str] = Counter()

    def is_leaving(self, id: str) -> bool:
        """Return True if messages for an UNSUBSCRIBE's id may still arrive."""
        return id in self._leaving

    def leave(self, id: str, left: Deferred[None]) -> None:
        """Record an UNSUBSCRIBE that *left* waits for."""

        def over(result: _R) -> _R:
            self._leaving[id] -= 1
            if not self._leaving[id]:
                del self._leaving[id]
                self._on_left(id)
            return result

        self._leaving[id] += 1
        left.addBoth(over)

    def add(self, removal: Removal, *, is_subscribed: bool) -> None:
        """Send a removal now or on the next connection."""
        if self._outbox.refusal is not None:
            removal.finish(self._outbox.refusal)
            return
        if self._is_in_use(removal.id):
            # As in send_all: its messages are those of another subscription now.
            removal.finish()
            return
        self._open = [each for each in self._open if not each.is_over]
        self._open.append(removal)
        self.leave(removal.id, removal.send(is_subscribed=is_subscribed))

    def send_all(self) -> None:
        """Send the removals on a new connection."""
        self._open = [each for each in self._open if not each.is_over]
        for removal in list(self._open):
            if removal.was_sent and self._is_in_use(removal.id):
                # Another subscription has replaced it, whose messages must not be removed.
                removal.finish()
            else:
                self.leave(removal.id, removal.send(is_subscribed=False))

    def close(self, closed: ClientClosedError) -> None:
        """Fail the removals of a client that is closed."""
        removals, self._open = self._open, []
        for removal in removals:
            removal.finish(closed)
