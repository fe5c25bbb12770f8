"""The broker: its virtual hosts, its connections and the numbers that it gives."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stompkit.frames import Frame
from stompkit.server.domain.commits.commit_queue import CommitQueue
from stompkit.server.domain.commits.store_commits import StoreCommitQueue
from stompkit.server.domain.deliveries import (
    ConnectionBase,
    DestinationBase,
    MessageReference,
    Subscription,
)
from stompkit.server.domain.destinations import BrokerBase
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.hosts.virtual_host import VirtualHost
from stompkit.server.domain.scheduling.scheduler import Scheduler
from stompkit.server.domain.scheduling.selector_time import SelectorTime
from stompkit.server.domain.settlements import Settlement
from stompkit.server.domain.settler import Settler
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
from stompkit.server.log import store_events
from stompkit.server.log.once_log import OnceLog
from stompkit.server.log.rate_limited_log import RateLimitedLog
from stompkit.server.login.addresses import counted_as
from stompkit.server.settings.broker import BrokerConfig
from stompkit.server.stores.records import (
    DURABLE_RECORDS,
    MAKER_RECORDS,
    DurableRecord,
    MakerRecord,
    unpacked,
)

__all__ = ["Broker"]


#: Maximum number of characters of the names of virtual hosts in a log line.
_MOST_NAMED: Final = 500


class Broker(BrokerBase):
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
        #: The error for all who connect while the broker stands by.
        self.refusal: RefusedError | None = None
        self.connections = set()
        #: Log of refused clients, limited in rate.
        self.refusals = RateLimitedLog(clock)
        self.traps = OnceLog()
        self._runner = runner
        self._sync_interval_s = sync_interval_s
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
        self.scheduler = Scheduler(clock, self.config.max_uncommitted_bytes)
        self.scheduler.commit_queue = self._new_commit_queue()
        self.selector_time = SelectorTime(self.scheduler)
        self.settler = Settler(self.scheduler)
        self.hosts: dict[str, VirtualHost] = {}
        for name in self.config.hosts or ("",):
            self.hosts[name] = VirtualHost(name, self)

    def _new_commit_queue(self) -> CommitQueue:
        store, runner = self.store, self._runner
        if store is None:
            return CommitQueue()
        assert runner is not None, "a store needs a runner"
        interval_s = self._sync_interval_s
        return StoreCommitQueue(store, runner, self.scheduler, sync_interval_s=interval_s)

    # Opening, reloading and closing.

    def open(self) -> None:
        """Open the store and restore its content; blocks. Raises ``StoreError``."""
        store, runner = self.store, self._runner
        if store is None or runner is None:
            return
        # The store's thread must start before memory or threads may run out.
        failures: list[StoreError] = []
        runner.run(lambda: None, lambda _: None, failures.append)
        for failure in failures:
            raise failure
        store.open()
        self._restore(store.lanes(), store.records())

    def begin(
        self,
        store: MessageStore,
        runner: StoreRunner,
        lanes: Iterable[LaneState],
        records: Mapping[str, bytes],
    ) -> None:
        """Begin with an open store that has this content, after it was used by others.

        The broker has no clients yet, and forgets everything else.
        """
        self.store, self._runner = store, runner
        self.refusal = None
        self._start_over()
        self._restore(lanes, records)

    def stand_by(self, refusal: RefusedError) -> None:
        """Stop using the store, which others use, without waiting for it.

        Clients get an ERROR with the message and code of *refusal*, now and when they connect.
        Operations that are not stored yet are discarded. Call this between two cycles.
        """
        self.refusal = refusal
        self.scheduler.guard = None
        self._forget(refusal.message, refusal.code)
        self.store = self._runner = None
        self._start_over()
        self.flush()

    def _restore(self, lanes: Iterable[LaneState], records: Mapping[str, bytes]) -> None:
        """Restore the content of the store."""
        queues: dict[str, dict[str, list[LaneState]]] = defaultdict(lambda: defaultdict(list))
        for lane in lanes:
            self._last_lane = max(self._last_lane, lane.lane)
            host, _, name = lane.queue.partition("\n")
            queues[host][name].append(lane)
        durables: dict[str, list[DurableRecord]] = defaultdict(list)
        makers: dict[str, dict[str, MakerRecord]] = defaultdict(dict)
        for key, value in records.items():
            if key.startswith(DURABLE_RECORDS):
                record = unpacked(value, DurableRecord)
                durables[record.host].append(record)
            elif key.startswith(MAKER_RECORDS):
                maker = unpacked(value, MakerRecord)
                makers[maker.host][maker.name] = maker
        # Lanes of a host that is no longer configured stay in the store.
        for name in self.hosts.keys() & {*queues, *durables, *makers}:
            self.hosts[name].restore(queues[name], durables[name], makers[name])
        unreachable = [
            name
            for name in sorted({*queues, *durables} - self.hosts.keys())
            if durables[name]
            or any(lane.messages for each in queues[name].values() for lane in each)
        ]
        if unreachable:
            names = ", ".join(ascii(name) if name else "the default host" for name in unreachable)
            store_events.hosts_not_configured(hosts=names[:_MOST_NAMED])
        self.flush()

    def reload(self, config: BrokerConfig) -> None:
        """Apply new settings, except ``hosts`` and ``storage``, which cannot change.

        Connections keep the settings that were fixed when they were made.
        """
        self.config = config.changed(hosts=self.config.hosts)
        self.scheduler.max_uncommitted_bytes = self.config.max_uncommitted_bytes
        for host in self.hosts.values():
            host.configure()
        self.flush()

    def close(self) -> None:
        """Return unacknowledged messages, and wait until the store has everything."""
        for connection in list(self.connections):
            connection.lost()
        self.settler.finish()
        self.flush()
        self.scheduler.cancel_all()
        self.commit_queue.close()

    def reset(self, done: Callable[[StoreError | None], None] | None = None) -> None:
        """Restart empty with the current settings: close clients with an ERROR, delete all else.

        Messages, destinations, durable subscriptions and the content of the store are deleted.
        Identifiers continue, so that no late frame refers to a new object. ``done`` is called, at
        once or later, when the store is empty, or with the error that prevented it. After an error
        the store keeps its content, for a broker that opens it. Call this between two cycles, not
        from a callback of the broker.
        """
        self._forget("the broker was reset", "reset")
        self._start_over()
        self.traps.clear()
        self.flush()
        self.commit_queue.empty(done or (lambda _: None))

    def _start_over(self) -> None:
        self.scheduler.commit_queue = self._new_commit_queue()
        for host in self.hosts.values():
            host.reset()

    def _forget(self, message: str, code: str) -> None:
        """Close all clients with an ERROR, and discard all pending work."""
        for connection in list(self.connections):
            connection.fail(message, code)
            connection.lost()
        self.scheduler.discard(RefusedError(message, code))
        # Its timer is cancelled, too.
        self.selector_time = SelectorTime(self.scheduler)
        self.settler = Settler(self.scheduler)

    # Connections.

    def connected(self, connection: ConnectionBase) -> None:
        """Register a connection; raises :class:`RefusedError` if none, or no more, may connect."""
        if self.refusal is not None:
            raise RefusedError(self.refusal.message, self.refusal.code)
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

    def logged_in(self, connection: ConnectionBase, user: User) -> None:
        """Register a connection for its user; raises RefusedError if the user has too many."""
        most = self.config.max_connections_per_user
        if user.name:
            if self._users[user.name] >= most:
                raise RefusedError(
                    f"too many connections of one user: at most {most}", "too-many-connections"
                )
            self._users[user.name] += 1
        connection.user = user

    def disconnected(self, connection: ConnectionBase) -> None:
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
    def last_message(self) -> int:
        """The number of the newest message."""
        return self._last_message

    def message_number(self, message_id: str) -> int | None:
        """Return the number in the id of a message; None if another process has assigned it."""
        boot, _, number = message_id.rpartition("-")
        is_own = boot == self._boot and number.isascii() and number.isdecimal()
        return int(number) if is_own and len(number) < 20 else None

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
        """Apply an ACK or NACK; return the removed references."""
        return self.settler.settle(settlement)

    def give_back(self, entries: list[MessageReference]) -> None:
        """Return the unsettled messages of an ended connection to their destinations."""
        self.settler.give_back(entries)

    # The scheduler, for plug-ins.

    @property
    def now(self) -> float:
        """Time of the current cycle."""
        return self.scheduler.now

    @now.setter
    def now(self, value: float) -> None:
        self.scheduler.start_cycle(value)

    @property
    def commit_queue(self) -> CommitQueue:
        """Pending operations for the store."""
        return self.scheduler.commit_queue

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call a function after a delay in seconds, in a separate cycle."""
        return self.scheduler.later(delay_s, call)

    def cancel(self, timer: Timer) -> None:
        """Cancel a delayed call."""
        self.scheduler.cancel(timer)

    def touch(self, destination: DestinationBase) -> None:
        """Schedule a destination to be pumped at the end of the cycle."""
        self.scheduler.touch(destination)

    def feed(self, subscription: Subscription) -> None:
        """Schedule a subscription to receive messages at the end of the cycle."""
        self.scheduler.feed(subscription)

    def wait_for_store(self, connection: ConnectionBase) -> bool:
        """Return True if a connection must wait for the store, which will resume it."""
        return self.scheduler.wait_for_store(connection)

    def disconnect(self, connection: ConnectionBase, text: str, code: str) -> None:
        """Schedule a connection to be closed with an ERROR at the end of the cycle."""
        self.scheduler.disconnect(connection, text, code)

    def flush(self) -> None:
        """End the cycle: deliver, store and write until nothing more can be done now."""
        self.scheduler.flush()
