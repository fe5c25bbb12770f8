"""A client of the broker in any protocol: its state, its limits, its opening and its end."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from stompkit.frames import RemoteProtocolError
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deliveries import DestinationBase, MessageReference, Subscription
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.session.acks import PendingAcks
from stompkit.server.domain.session.output import Output
from stompkit.server.domain.settlements import Transaction
from stompkit.server.domain.topics import Topic
from stompkit.server.interfaces import Outlet, User

__all__ = ["BrokerSession", "sessions_of"]


@mypyc_attr(allow_interpreted_subclasses=True)
class BrokerSession(Output):
    """One client, without its protocol: what it holds in the broker, and how that ends.

    A protocol derives from it, turns input into calls of the broker, and writes the replies.
    """

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start before any input."""
        super().__init__(broker, outlet, now)
        config = broker.config
        #: The error for which the connection was closed, if any.
        self.failure: RemoteProtocolError | None = None
        #: For the log: the destination of the refused frame, and the login of a refused client.
        self.refused_destination = ""
        self.claimed_user = ""
        self.ledger = PendingAcks("1.0")
        self.user = User()
        self.host = next(iter(broker.hosts.values()))
        self.client_id: str | None = None
        #: The id of the session, as the client knows it; None before login, or in other protocols.
        self.session_id: str | None = None
        self.subscriptions = {}
        self.transactions: dict[str, Transaction] = {}
        self.backlog = 0
        #: Temporary destinations that end with the connection.
        self.temporaries: list[Destination] = []
        self.has_room = True
        self.is_limited = config.flow == "one-in-flight"
        self.slots = config.max_in_flight if self.is_limited else sys.maxsize
        #: True if acknowledgements in an open transaction free slots.
        self.frees_in_transactions = True
        self._turns = 0
        #: True once the client sends no more.
        self._at_end = False
        #: The destination without room that the client waits for.
        self._blocked_by: Queue | Topic | None = None

    @property
    def protocol(self) -> str:
        """The name of the protocol for people; for STOMP, its version."""
        raise NotImplementedError

    @property
    def is_logged_in(self) -> bool:
        """True if the client's login has been accepted."""
        raise NotImplementedError

    @property
    def is_login_pending(self) -> bool:
        """True while the client's login is being checked."""
        return False

    @property
    def is_blocked(self) -> bool:
        """True while the client waits for room in a destination."""
        return self._blocked_by is not None

    # Input.

    def opened(self) -> None:
        """Register the connection; if there are too many, refuse and close it."""
        try:
            self.broker.connected(self)
        except RefusedError as refused:
            self.fail(refused.message, refused.code)

    def receive(self, data: bytes, now: float) -> None:
        """Process bytes from the client."""
        raise NotImplementedError

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that complete the frame being received; 0 if that is unknown."""
        return 0

    def ended(self, now: float) -> None:
        """Record that the client sends no more."""
        raise NotImplementedError

    def _wait_for(self, destination: Queue | Topic) -> None:
        """Be called by :meth:`try_again` once the destination has room."""
        self._blocked_by = destination
        destination.blocked.append(self)

    # Timers.

    def on_deadline(self, now: float) -> None:
        """Do what is due."""

    def next_deadline(self) -> float | None:
        """Return the time of the next call of :meth:`on_deadline`, or None."""
        return None

    @property
    def _has_unread(self) -> bool:
        # An outlet without this attribute passes on everything at once.
        return bool(getattr(self.outlet, "has_unread", False))

    # Output.

    def set_writable(self, writable: bool, now: float) -> None:  # noqa: FBT001 (a state, not a choice)
        """Record if the transport accepts more bytes; messages wait while it does not."""
        self.scheduler.start_cycle(now)
        self.has_room = writable and not self._closing
        if not self.has_room or not self.subscriptions:
            return
        self.feed()

    def pull(self) -> None:
        """Fill the free slots, from one queue after the other."""
        while self.slots > 0 and self.has_room:
            # Subscriptions in the mode auto use no slots; they receive messages like all others.
            waiting = [
                each for each in self.subscriptions.values() if each.waiting and not each.is_auto
            ]
            waiting.sort(key=lambda each: each.turn)
            if not any(map(self._pull_from, waiting)):
                return

    @staticmethod
    def _pull_from(subscription: Subscription) -> bool:
        waiting = subscription.waiting
        for _ in range(len(waiting)):
            queue = next(iter(waiting), None)
            if queue is None:
                break
            # It is re-added as the last one if it has more messages.
            del waiting[queue]
            if queue.serve(subscription):
                return True
        return False

    def served(self, subscription: Subscription) -> None:
        """Record that a subscription has been served."""
        self._turns += 1
        subscription.turn = self._turns

    # Subscriptions.

    def include(self, key: str, subscription: Subscription) -> None:
        """Add a new subscription."""
        self.subscriptions[key] = subscription

    def remove(self, subscription: Subscription) -> None:
        """End a subscription; its deliveries from queues can still be acknowledged."""
        # Unsettled deliveries keep the subscription alive, but must not keep its undelivered
        # backlog.
        subscription.drop_backlog()
        if subscription.pattern is not None:
            self.host.unsubscribe_pattern(subscription)
        else:
            for home in list(subscription.homes):
                home.remove(subscription)
                self.scheduler.touch(home)
        subscription.is_over = True
        first = next(iter(subscription.unsettled.values()), None)
        if first is not None and not first.home.is_queue:
            self.lapse(list(subscription.unsettled.values()))

    def lapse(self, entries: Iterable[MessageReference]) -> None:
        """Withdraw those deliveries of topics whose subscription has ended.

        Nobody else gets the copy of a topic's message, so that its ACK has no effect. Those that an
        open transaction has acknowledged follow with ABORT.
        """
        was_full = self.ledger.is_full
        for entry in entries:
            subscription = entry.subscription
            is_held = entry.home.is_queue or entry.holder is not None
            if subscription is not None and subscription.is_over and not is_held:
                self.ledger.lapse(entry)
        if was_full and not self.ledger.is_full and self.has_room:
            self.feed()

    def feed(self) -> None:
        """Schedule all subscriptions to receive messages at the end of the cycle."""
        # The first one rotates, so that a busy destination does not starve the others.
        first = next(iter(self.subscriptions), None)
        if first is not None:
            self.subscriptions[first] = self.subscriptions.pop(first)
        for subscription in self.subscriptions.values():
            self.scheduler.feed(subscription)
        self.scheduler.pull(self)

    def log_lost_copy(self, home: DestinationBase) -> None:
        """Log that it reads a topic too slowly and loses a message."""
        self.broker.traps.warn_slow_reader(
            self.host.name, home.name, self.peer, address=self.address, user=self.user.name
        )

    def drop_from_longest_backlog(self) -> None:
        """Drop the oldest message of the subscription with the longest backlog."""
        longest = max(self.subscriptions.values(), key=lambda each: len(each.backlog))
        if longest.backlog:
            longest.drop_oldest()

    # The end.

    def lost(self) -> None:
        """Record the end of the stream, and return unsettled messages to their destinations."""
        self.scheduler.start_cycle(self.scheduler.clock.seconds())
        self._closing = True
        self.release()
        self.broker.disconnected(self)

    def refuse(self, error: RemoteProtocolError) -> None:
        """Close because of an error, which the client is told if the protocol has words for it."""
        if self._closing:
            return
        self._closing = True
        self.failure = error
        self._tell(error)
        self._end()

    def _tell(self, error: RemoteProtocolError) -> None:
        """Write the error to the client, if the protocol has words for it."""

    def _end(self) -> None:
        """Write the remaining output, close, and release everything."""
        self.release()
        self.write_out()
        self.outlet.close()

    def release(self) -> None:
        """Abort transactions, end subscriptions, and return unsettled messages."""
        self.has_room = False
        for transaction in self.transactions.values():
            self.end_transaction(transaction)
        self.transactions.clear()
        for subscription in self.subscriptions.values():
            self.remove(subscription)
        self.subscriptions.clear()
        if self._blocked_by is not None:
            self._blocked_by.blocked.remove(self)
            self.scheduler.has_room(self._blocked_by)
            self.scheduler.touch(self._blocked_by)
            self._blocked_by = None
        # Entries held now are being settled, which continues: all transactions have ended.
        left = [each for each in self.ledger.clear() if each.holder is None]
        self.broker.settler.give_back(left)
        for temporary in self.temporaries:
            self.host.discard(temporary)
        self.temporaries.clear()

    def end_transaction(self, transaction: Transaction) -> None:
        """Release the entries of a transaction, for ABORT or before COMMIT."""
        transaction.release()
        self.stop_timer(transaction)

    def stop_timer(self, transaction: Transaction) -> None:
        """Stop the timeout of a transaction."""
        if transaction.timer is not None:
            self.scheduler.cancel(transaction.timer)
            transaction.timer = None


def sessions_of(broker: Broker) -> list[BrokerSession]:
    """Return the clients of a broker, of all protocols."""
    return [each for each in broker.connections if isinstance(each, BrokerSession)]
