"""The broker: its virtual hosts, and the cycle in which one chunk of input takes effect.

First, all input of one chunk is applied. Then :meth:`Broker.flush` pumps each destination that
changed once, passes pending operations to the store, and writes once to each connection with
output. If there are many connections, the remaining ones are written to in later reactor
iterations.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from stompkit.frames import Frame
from stompkit.server.domain.commit_queue import CommitQueue
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts import VirtualHost
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.selector_time import SelectorTime
from stompkit.server.domain.session.subscriptions import Subscription
from stompkit.server.domain.session.transactions import MOST_SETTLED, Acknowledged, Settlement
from stompkit.server.domain.sliced import Slices
from stompkit.server.interfaces import (
    Authenticator,
    Authoriser,
    Clock,
    LaneState,
    MessageStore,
    StoreError,
    StoreRunner,
    Timer,
    User,
)
from stompkit.server.login.addresses import counted_as
from stompkit.server.process.once_log import OnceLog
from stompkit.server.process.rate_limited_log import RateLimitedLog
from stompkit.server.settings.broker import BrokerConfig
from stompkit.server.stores.records import (
    DURABLE_RECORDS,
    MAKER_RECORDS,
    DurableRecord,
    MakerRecord,
    unpacked,
)

if TYPE_CHECKING:
    from stompkit.server.domain.session.connection import Connection

__all__ = ["Broker"]

#: Maximum time in seconds of deferrable work in one cycle, and number of queues that a subscription
#: examines between two checks of the clock.
_TURN_S: Final = 0.01
_QUEUES_FED: Final = 32
#: Maximum number of connections written to in one reactor iteration. Most of the cost of a write is
#: the reactor's, and delays all other connections.
_MOST_WRITTEN: Final = 50
#: Number of messages returned to their queue at a time when a connection held many.
_MOST_RETURNED: Final = 250


class _Returned(NamedTuple):
    """A part of an ended connection's messages of one queue; the last part is the oldest."""

    destination: Destination
    entries: list[MessageReference]
    is_last: bool


class _Settled:
    """A part of the messages of an ACK or NACK; after the last part the sender can continue."""

    __slots__ = ("done", "sender", "settlement")

    def __init__(
        self, settlement: Settlement, sender: Connection, done: Callable[[None], None] | None
    ) -> None:
        """Start with the part; ``done`` is called if it is the last one."""
        self.settlement = settlement
        self.sender = sender
        self.done = done


class _Reckoned:
    """A part of a transaction's acknowledged messages; the last part allows its commit."""

    __slots__ = ("done", "entries", "found", "sender")

    def __init__(
        self,
        found: Acknowledged,
        entries: list[MessageReference],
        sender: Connection,
        done: Callable[[Acknowledged], None] | None,
    ) -> None:
        """Start with the part; ``done`` is called if it is the last one."""
        self.found = found
        self.entries = entries
        self.sender = sender
        self.done = done


def _in_parts(entries: list[MessageReference]) -> list[list[MessageReference]]:
    return [entries[begin : begin + MOST_SETTLED] for begin in range(0, len(entries), MOST_SETTLED)]


class Broker:
    """Routes messages between connections; independent of any transport."""

    def __init__(
        self,
        config: BrokerConfig | None,
        clock: Clock,
        *,
        store: MessageStore | None = None,
        runner: StoreRunner | None = None,
        sync_interval_s: float | None = None,
        authenticator: Authenticator | None = None,
        authoriser: Authoriser | None = None,
    ) -> None:
        """Create a broker; with a ``store``, call :meth:`open` before anything else.

        ``runner`` calls the store. ``sync_interval_s`` is the interval in seconds between syncs of
        a store that does not sync by itself. Without ``authenticator`` everybody is let in. Without
        ``authoriser`` everybody may do everything.
        """
        self.config = BrokerConfig() if config is None else config
        self.clock = clock
        self.store = store
        self.authenticator = authenticator
        self.authoriser = authoriser
        #: Called for each frame except MESSAGE, with a direction (``"<"`` from clients, ``">"`` to
        #: them), the peer and the frame.
        self.frame_log: Callable[[str, str, Frame], None] | None = None
        #: Called in the same way while an operator observes frames.
        self.frame_watch: Callable[[str, str, Frame], None] | None = None
        self.connections: set[Connection] = set()
        #: Log of refused clients, limited in rate.
        self.refusals = RateLimitedLog(clock)
        #: Log of pitfalls for clients, once for each destination.
        self.traps = OnceLog()
        #: Time of the current cycle.
        self.now = clock.seconds()
        self._runner = runner
        self._sync_interval_s = sync_interval_s
        self.journal = self._new_journal()
        self._addresses: Counter[str] = Counter()
        #: Number of connections by user name.
        self._users: Counter[str] = Counter()
        #: Distinguishes message and session ids of this process from those of earlier processes.
        self._boot = secrets.token_hex(4)
        self._last_message = 0
        self._last_session = 0
        self._last_connection = 0
        self._last_subscription = 0
        self._last_lane = 0
        self._timers: set[Timer] = set()
        self._dirty: dict[Destination, None] = {}
        self._written: dict[Connection, None] = {}
        #: Connections to write to in later reactor iterations, since there are many.
        self._late: deque[Connection] = deque()
        self._is_late = False
        self._pulling: dict[Connection, None] = {}
        self._to_feed: dict[Subscription, None] = {}
        self._new: dict[Subscription, None] = {}
        self._to_unblock: dict[Destination, None] = {}
        self._woken: dict[Connection, None] = {}
        self._waiting: dict[Connection, None] = {}
        self._to_disconnect: list[tuple[Connection, str, str]] = []
        self._flushing = False
        #: True while a check runs during which nothing may change.
        self.is_checking = False
        self.selector_time = SelectorTime(self)
        self._returns: Slices[_Returned] = Slices(self, self._return, step=1)
        self._settled: Slices[_Settled] = Slices(self, self._settle_part, step=1)
        self._reckoned: Slices[_Reckoned] = Slices(self, self._reckon_part, step=1)
        self._leaving: Slices[list[MessageReference]] = Slices(self, self._let_go, step=1)
        self.hosts: dict[str, VirtualHost] = {}
        for name in self.config.hosts or ("",):
            self.hosts[name] = VirtualHost(name, self)

    def _new_journal(self) -> CommitQueue | None:
        store, runner = self.store, self._runner
        if store is None:
            return None
        assert runner is not None, "a store needs a runner"
        interval_s = self._sync_interval_s
        return CommitQueue(store, runner, self.clock, self.flush, sync_interval_s=interval_s)

    # Opening, reloading and closing.

    def open(self) -> None:
        """Open the store and restore its content; blocks. Raises ``StoreError``."""
        store, journal, runner = self.store, self.journal, self._runner
        if store is None or journal is None or runner is None:
            return
        # The store's thread must start before memory or threads may run out.
        failures: list[StoreError] = []
        runner.run(lambda: None, lambda _: None, failures.append)
        for failure in failures:
            raise failure
        store.open()
        queues: dict[str, dict[str, list[LaneState]]] = defaultdict(lambda: defaultdict(list))
        for lane in store.lanes():
            self._last_lane = max(self._last_lane, lane.lane)
            host, _, name = lane.queue.partition("\n")
            queues[host][name].append(lane)
        records: dict[str, list[DurableRecord]] = defaultdict(list)
        makers: dict[str, dict[str, MakerRecord]] = defaultdict(dict)
        for key, value in store.records().items():
            if key.startswith(DURABLE_RECORDS):
                record = unpacked(value, DurableRecord)
                records[record.host].append(record)
            elif key.startswith(MAKER_RECORDS):
                maker = unpacked(value, MakerRecord)
                makers[maker.host][maker.name] = maker
        for name in {*queues, *records, *makers}:
            # Lanes of a host that is no longer configured stay in the store.
            if name in self.hosts:
                self.hosts[name].restore(queues[name], records[name], makers[name])
        self.flush()

    def reload(self, config: BrokerConfig) -> None:
        """Apply new settings, except ``hosts`` and ``storage``, which cannot change.

        Connections keep the settings that were fixed when they were made.
        """
        self.config = config.changed(hosts=self.config.hosts)
        for host in self.hosts.values():
            host.configure()
        self.flush()

    def close(self) -> None:
        """Return unacknowledged messages, and wait until the store has everything."""
        for connection in list(self.connections):
            connection.lost()
        self._settled.finish()
        self._leaving.finish()
        self._returns.finish()
        self.flush()
        self._cancel_timers()
        if self.journal is not None:
            self.journal.close()

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            if timer.active():
                timer.cancel()
        self._timers.clear()
        # The connections that the timer would have written to are gone.
        self._late.clear()
        self._is_late = False

    def reset(self, done: Callable[[StoreError | None], None] | None = None) -> None:
        """Restart empty with the current settings: close clients with an ERROR, delete all else.

        Messages, destinations, durable subscriptions and the content of the store are deleted.
        Identifiers continue, so that no late frame refers to a new object. ``done`` is called, at
        once or later, when the store is empty, or with the error that prevented it. After an error
        the store keeps its content, for a broker that opens it. Call this between two cycles, not
        from a callback of the broker.
        """
        for connection in list(self.connections):
            connection.fail("the broker was reset", "reset")
            connection.lost()
        self._cancel_timers()
        self._returns = Slices(self, self._return, step=1)
        self._settled = Slices(self, self._settle_part, step=1)
        self._reckoned = Slices(self, self._reckon_part, step=1)
        self._leaving = Slices(self, self._let_go, step=1)
        if self.journal is not None:
            self.journal.abandon()
        self.journal = journal = self._new_journal()
        for host in self.hosts.values():
            host.reset()
        self.traps.clear()
        self.flush()
        told = done or (lambda _: None)
        if journal is None:
            told(None)
        else:
            journal.empty(told)

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call a function after a delay in seconds, in a separate cycle."""

        def fire() -> None:
            self._timers.discard(timer)
            self.now = self.clock.seconds()
            call()
            self.flush()

        timer = self.clock.callLater(delay_s, fire)
        self._timers.add(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a delayed call."""
        self._timers.discard(timer)
        if timer.active():
            timer.cancel()

    # Connections.

    def connected(self, connection: Connection) -> None:
        """Register a connection; raises :class:`RefusedError` if there are too many."""
        config = self.config
        if len(self.connections) >= config.max_connections:
            raise RefusedError(
                f"too many connections: at most {config.max_connections}", "too-many-connections"
            )
        address = counted_as(connection.peer)
        if self._addresses[address] >= config.max_connections_per_address:
            raise RefusedError(
                f"too many connections from one address: at most"
                f" {config.max_connections_per_address}",
                "too-many-connections",
            )
        self._addresses[address] += 1
        self.connections.add(connection)

    def logged_in(self, connection: Connection, user: User) -> None:
        """Register a connection for its user; raises RefusedError if the user has too many."""
        most = self.config.max_connections_per_user
        if user.name:
            if self._users[user.name] >= most:
                raise RefusedError(
                    f"too many connections of one user: at most {most}", "too-many-connections"
                )
            self._users[user.name] += 1
        connection.user = user

    def disconnected(self, connection: Connection) -> None:
        """Unregister a connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            address = counted_as(connection.peer)
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]
            user = connection.user.name
            if user:
                self._users[user] -= 1
                if not self._users[user]:
                    del self._users[user]

    def host(self, name: str) -> VirtualHost:
        """Return the virtual host that a client asks for; raises RefusedError if unknown."""
        if not self.config.hosts:
            return self.hosts[""]
        host = self.hosts.get(name)
        if host is None:
            raise RefusedError(f"virtual host {name[:100]!a} is unknown", "unknown-host")
        return host

    def new_connection(self) -> str:
        """Return a unique identifier for a connection."""
        self._last_connection += 1
        return f"{self._boot}-{self._last_connection}"

    def watch_frames(self, watch: Callable[[str, str, Frame], None] | None) -> None:
        """Start or stop passing the frames of all clients to an operator."""
        self.frame_watch = watch
        for connection in self.connections:
            connection.is_logged = watch is not None or self.frame_log is not None

    def new_session(self) -> str:
        """Return a unique session identifier."""
        self._last_session += 1
        return f"{self._boot}-{self._last_session}"

    def new_message(self) -> str:
        """Return a unique message identifier."""
        self._last_message += 1
        return f"{self._boot}-{self._last_message}"

    @property
    def last_subscription(self) -> int:
        """The number of the newest subscription."""
        return self._last_subscription

    def new_subscription(self) -> int:
        """Return a number greater than that of every other subscription."""
        self._last_subscription += 1
        return self._last_subscription

    def new_lane(self) -> int:
        """Return a number that no other lane of the store has."""
        self._last_lane += 1
        return self._last_lane

    # Effects of frames.

    def settle(self, settlement: Settlement) -> list[MessageReference]:
        """Apply an ACK or NACK.

        Return the removed references; :meth:`CommitQueue.take` restores them if the store fails.
        """
        for entry in settlement.entries:
            entry.holder = None
            self._release(entry)
        if settlement.accepted:
            for entry in settlement.entries:
                entry.home.settled(entry)
            return settlement.entries
        if settlement.entries:
            host = settlement.entries[0].home.host
            return host.reject(settlement.entries, requeue=settlement.requeue, reason="rejected")
        return []

    def settle_in_parts(
        self, settlement: Settlement, sender: Connection, done: Callable[[None], None]
    ) -> None:
        """Apply an ACK or NACK in parts, serving others in between; then call ``done``.

        All parts are applied even if the sender disconnects meanwhile.
        """
        entries = settlement.entries
        for entry in entries:
            entry.holder = settlement
        parts: list[_Settled] = []
        for some in _in_parts(entries):
            part = Settlement(some, accepted=settlement.accepted, requeue=settlement.requeue)
            parts.append(_Settled(part, sender, None))
        parts[-1].done = done
        self._settled.add(parts)

    def _settle_part(self, part: _Settled) -> None:
        if self.journal is not None:
            self.journal.cut()
        self.settle(part.settlement)
        if part.done is not None:
            part.done(None)
        else:
            part.sender.did_part()

    def reckon_up(
        self,
        settlements: Sequence[Settlement],
        sender: Connection,
        done: Callable[[Acknowledged], None],
    ) -> None:
        """Sum up what an open transaction has acknowledged in parts, serving others in between.

        ``done`` is not called if the sender ends before.
        """
        found = Acknowledged()
        parts = [
            _Reckoned(found, some, sender, None)
            for settlement in settlements
            for some in _in_parts(settlement.entries)
        ]
        parts[-1].done = done
        self._reckoned.add(parts)

    def _reckon_part(self, part: _Reckoned) -> None:
        if part.sender.is_closing:
            return
        for entry in part.entries:
            part.found.add(entry)
        if part.done is not None:
            part.done(part.found)

    def forget(self, acknowledged: Acknowledged) -> None:
        """Remove acknowledged messages from their queues at once; clean up after them in parts."""
        for home, share in acknowledged.shares.items():
            home.settled_many(share.messages, share.octets)
        if self.journal is not None:
            self.journal.forget(acknowledged)
        for entry in acknowledged.entries:
            entry.holder = acknowledged
        self._leaving.add(_in_parts(acknowledged.entries))

    def finish_forgetting(self) -> None:
        """Finish the clean-up after removed messages."""
        self._leaving.finish()

    def _let_go(self, entries: Sequence[MessageReference]) -> None:
        for entry in entries:
            entry.holder = None
            self._release(entry)
            entry.home.let_go(entry)

    def take_away(self, entry: MessageReference) -> None:
        """Take back a message that has not been acknowledged in time."""
        subscription = entry.subscription
        assert subscription is not None  # only delivered entries time out
        connection = subscription.connection
        if connection.ledger.is_full:
            connection.feed()
        connection.ledger.lapse(entry)
        self._freed(entry, subscription)
        entry.home.put_last(subscription)
        entry.home.host.reject([entry], requeue=True, reason="ack-timeout")

    def _release(self, entry: MessageReference) -> None:
        subscription = entry.subscription
        assert subscription is not None  # only delivered entries are settled
        if not entry.key:
            # Its connection has ended meanwhile.
            self._dirty[entry.home] = None
            return
        ledger = subscription.connection.ledger
        if ledger.is_full:
            # Other subscriptions of the connection may have waited for a free slot.
            subscription.connection.feed()
        ledger.discard(entry)
        self._freed(entry, subscription)

    def _freed(self, entry: MessageReference, subscription: Subscription) -> None:
        self._dirty[entry.home] = None
        self._to_feed[subscription] = None
        connection = subscription.connection
        if connection.is_limited and entry.home.is_queue:
            connection.slots += 1
            self.pull(connection)

    def give_back(self, entries: list[MessageReference]) -> None:
        """Return the unsettled messages of an ended connection to their destinations."""
        back: dict[Destination, list[MessageReference]] = {each.home: [] for each in entries}
        if len(back) == 1:
            back = dict.fromkeys(back, entries)
        else:
            for entry in entries:
                back[entry.home].append(entry)
        parts: list[_Returned] = []
        for destination, returned in back.items():
            if not destination.is_queue:
                self._dirty[destination] = None
                continue
            destination.returning += 1
            # Newest first: each part is placed ahead of those returned before. Nothing is delivered
            # before all are back.
            for end in range(len(returned), 0, -_MOST_RETURNED):
                begin = max(0, end - _MOST_RETURNED)
                parts.append(_Returned(destination, returned[begin:end], is_last=begin == 0))
        self._returns.add(parts)

    def _return(self, part: _Returned) -> None:
        destination = part.destination
        destination.given_back(part.entries)
        if part.is_last:
            destination.returning -= 1
            self._dirty[destination] = None

    # The cycle.

    def touch(self, destination: Destination) -> None:
        """Schedule a destination to be pumped at the end of the cycle."""
        self._dirty[destination] = None

    def is_touched(self, destination: Destination) -> bool:
        """Return True if a destination will be pumped at the end of the cycle."""
        return destination in self._dirty

    def feed(self, subscription: Subscription) -> None:
        """Schedule a subscription to receive messages at the end of the cycle."""
        self._to_feed[subscription] = None

    def begin(self, subscription: Subscription) -> None:
        """Schedule a new pattern subscription to get existing messages at the end of the cycle."""
        self._new[subscription] = None

    def pull(self, connection: Connection) -> None:
        """Schedule a connection with a slot limit to fill its free slots."""
        if connection.is_limited:
            self._pulling[connection] = None

    def has_room(self, destination: Destination) -> None:
        """Schedule the connections that wait for room in a destination to resume."""
        self._to_unblock[destination] = None

    def wrote(self, connection: Connection) -> None:
        """Schedule the output of a connection to be written at the end of the cycle."""
        self._written[connection] = None

    def wait_for_store(self, connection: Connection) -> bool:
        """Return True if a connection must wait for the store, which will resume it."""
        journal = self.journal
        if journal is None or journal.octets <= self.config.max_uncommitted_bytes:
            return False
        self._waiting[connection] = None
        return True

    def disconnect(self, connection: Connection, text: str, code: str) -> None:
        """Schedule a connection to be closed with an ERROR at the end of the cycle."""
        self._to_disconnect.append((connection, text, code))

    def flush(self) -> None:
        """End the cycle: deliver, store and write until nothing more can be done now."""
        if self._flushing or self.is_checking:
            return
        self._flushing = True
        self.now = self.clock.seconds()
        journal = self.journal
        try:
            while True:
                if self._pulling:
                    pulling, self._pulling = self._pulling, {}
                    for connection in pulling:
                        connection.pull()
                elif self._new:
                    new, self._new = self._new, {}
                    for subscription in new:
                        self._feed_first(subscription)
                elif self._to_feed:
                    to_feed, self._to_feed = self._to_feed, {}
                    for subscription in to_feed:
                        self._feed(subscription)
                elif self._dirty:
                    dirty, self._dirty = self._dirty, {}
                    for destination in dirty:
                        self._pump(destination)
                elif journal is not None and journal.has_work:
                    journal.flush()
                elif self._written:
                    written, self._written = self._written, {}
                    if len(written) > _MOST_WRITTEN:
                        self._write_to_many(written)
                    else:
                        for connection in written:
                            connection.write_out()
                elif self._to_disconnect:
                    to_disconnect, self._to_disconnect = self._to_disconnect, []
                    for connection, text, code in to_disconnect:
                        connection.fail(text, code)
                elif self._woken:
                    woken, self._woken = self._woken, {}
                    for connection in woken:
                        connection.go_on()
                elif self._to_unblock:
                    to_unblock, self._to_unblock = self._to_unblock, {}
                    for destination in to_unblock:
                        destination.let_in()
                elif (
                    self._waiting
                    and journal is not None
                    and journal.octets <= self.config.max_uncommitted_bytes
                ):
                    self._woken, self._waiting = self._waiting, {}
                else:
                    break
            if journal is not None:
                journal.flush()
        finally:
            self._flushing = False

    def _write_to_many(self, connections: Iterable[Connection]) -> None:
        """Write to the first of many connections now, and to the rest in later iterations."""
        # Connections left over from earlier cycles are written to first, so that their delay never
        # exceeds one cycle.
        self._write_late(len(self._late))
        self._late.extend(connections)
        self._write_late(_MOST_WRITTEN)

    def _write_late(self, most: int) -> None:
        """Write to at most *most* of the remaining connections, and to the rest later."""
        late = self._late
        for _ in range(min(most, len(late))):
            connection = late.popleft()
            if not connection.is_closing:
                connection.write_out()
        if late and not self._is_late:
            self._is_late = True
            self.later(0.0, self._write_more)

    def _write_more(self) -> None:
        self._is_late = False
        self._write_late(_MOST_WRITTEN)

    def _feed_first(self, subscription: Subscription) -> None:
        """Deliver from the first queue of a pattern, and move it to the end if it has more."""
        if subscription.connection.is_limited:
            self.pull(subscription.connection)
        for queue in subscription.waiting:
            self._pump(queue)
            break
        self._to_feed[subscription] = None

    def _feed(self, subscription: Subscription) -> None:
        subscription.catch_up(self.now)
        waiting = subscription.waiting
        for count in range(len(waiting)):
            if not subscription.wants():
                break
            if count % _QUEUES_FED == _QUEUES_FED - 1 and self._has_taken_long:
                # Others are served before the rest.
                self.later(0.0, partial(self.feed, subscription))
                break
            queue = next(iter(waiting))
            # It is re-added as the last one if it has more messages.
            del waiting[queue]
            self._dirty.pop(queue, None)
            self._pump(queue)

    @property
    def _has_taken_long(self) -> bool:
        return self.clock.seconds() - self.now > _TURN_S

    @staticmethod
    def _pump(destination: Destination) -> None:
        destination.pump()
        destination.host.forget_if_idle(destination)
