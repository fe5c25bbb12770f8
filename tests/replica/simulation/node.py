"""A node of a simulation: a process that can be killed at any step, and its lasting database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from twisted.internet.interfaces import IDelayedCall

from stompkit.replica.applier import Applier, Bounds, Hooks
from stompkit.replica.engine import Engine, EngineSettings, Outgoing
from stompkit.replica.messages import SignedChangeset, Unpacker
from stompkit.replica.rules import Rules
from stompkit.replica.store import StoreBusyError, Tx
from stompkit.replica.vectors import Dot, dot_text
from stompkit.replication.model.events import RowChange
from tests.replica.simulation.databases import Database
from tests.replica.simulation.network import Delivery
from tests.replica.simulation.ports import Port
from tests.replica.simulation.world import EPOCH_S, World

__all__ = ["Crash", "Make", "Node", "Troubles"]

#: Headers and bodies.
Frames = Sequence[tuple[Mapping[str, str], bytes]]
#: Returns the changes of a transaction, based on its view.
Make = Callable[[Tx], Sequence[RowChange]]

_BUSY_AGAIN_S: Final = 0.2
#: Tolerance for sums of seconds.
_ROUNDING_S: Final = 1e-6


class Crash(BaseException):
    """The process has died in the middle of a step."""


@dataclass(slots=True)
class Troubles:
    """Rates of the faults at nodes: probabilities, and times in seconds."""

    #: A process dies at a step.
    crash: float = 0.0
    #: Range of the time until its restart.
    away_s: tuple[float, float] = (0.1, 8.0)
    #: A database is locked when a transaction begins.
    busy: float = 0.0


class Node:
    """A node; its clock is wrong by ``skew_s``."""

    def __init__(
        self,
        world: World,
        name: str,
        database: Database,
        settings: EngineSettings,
        rules: Rules,
        ports: Sequence[Port],
        troubles: Troubles,
        *,
        bounds: Bounds | None = None,
        hooks: Hooks | None = None,
        skew_s: float = 0.0,
    ) -> None:
        """Create a node that has not been started."""
        self.name: Final = name
        self.database: Final = database
        self.settings: Final = settings
        self.ports: Final = ports
        self.skew_s = skew_s
        #: The step at which it dies next.
        self.dies_at: str | None = None
        #: True if it may be restarted after a crash.
        self.is_wanted = False
        self.engine: Engine | None = None
        #: All changesets committed here, in order.
        self.committed: list[SignedChangeset] = []
        #: Number of crashes by step.
        self.crashes: Counter[str] = Counter()
        self._writes = 0
        self._world = world
        self._rules = rules
        self._bounds = bounds or Bounds()
        self._hooks = hooks or Hooks()
        self._troubles = troubles
        self._applier: Applier | None = None
        self._alarm: IDelayedCall | None = None
        self._reading: list[IDelayedCall | None] = [None for _ in ports]
        self._generation: object = None

    @property
    def is_up(self) -> bool:
        """True if its process runs."""
        return self.engine is not None

    def wall(self) -> float:
        """Return seconds since 1970 by the clock of this node."""
        return EPOCH_S + self._world.now + self.skew_s

    # Processes.

    def start(self) -> None:
        """Start a process, unless one runs; it is restarted after each crash."""
        self.is_wanted = True
        if self.engine is not None:
            return
        world = self._world
        self.database.troubled_by(lambda: world.chance(self._troubles.busy))
        self._applier = Applier(
            self.database.data,
            self._rules,
            wall=self.wall,
            hooks=self._hooks,
            bounds=self._bounds,
            save_history=True,
            chance=world.random,
        )
        self.engine = Engine(
            self.database.store,
            self._applier,
            self.settings,
            wall=self.wall,
            monotonic=world.clock.seconds,
            chance=world.random,
            send=self._send,
            trace=self._trace,
        )
        world.tell(self.name, "start")
        self._run(self._open)

    def _open(self) -> None:
        assert self.engine is not None
        try:
            self.engine.open()
        except StoreBusyError:
            self._abandon()
            self._world.after(_BUSY_AGAIN_S, self._start_again)
            return
        self._generation = self.engine.generation
        for port in self.ports:
            port.open(self)

    def stop(self) -> None:
        """Stop the process gracefully; it stays down."""
        self.is_wanted = False
        if self.engine is not None:
            self._world.tell(self.name, "stop")
            self._abandon()

    def crash(self, step: str = "") -> None:
        """Kill the process, and restart it later."""
        self._world.tell(self.name, "CRASH", at=step)
        self.crashes[step] += 1
        self._abandon()
        self._world.after(self._world.random.uniform(*self._troubles.away_s), self._start_again)

    def _start_again(self) -> None:
        if self.is_wanted:
            self.start()

    def _abandon(self) -> None:
        self.engine = self._applier = None
        for port in self.ports:
            port.close()
        for alarm in (self._alarm, *self._reading):
            if alarm is not None and alarm.active():
                alarm.cancel()
        self._alarm = None
        self._reading = [None for _ in self.ports]

    def _trace(self, step: str, facts: dict[str, object]) -> None:
        self._world.tell(self.name, step, **facts)
        if step == self.dies_at:
            self.dies_at = None
            raise Crash(step)
        if self._world.chance(self._troubles.crash):
            raise Crash(step)

    def _run(self, do: Callable[[], object]) -> None:
        """Run a function in the process, which may crash."""
        if self.engine is None:
            return
        try:
            do()
            self._follow()
        except Crash as crash:
            self.crash(str(crash))

    def _follow(self) -> None:
        """Subscribe to the destinations that the engine wants, and schedule its next wake-up."""
        engine = self.engine
        if engine is None:
            return
        if engine.generation != self._generation:
            self._generation = engine.generation
            for number, port in enumerate(self.ports):
                port.subscribe(engine.destinations(number))
        deadline = engine.deadline
        if self._alarm is not None and self._alarm.active():
            if deadline is not None and self._alarm.getTime() == deadline:
                return
            self._alarm.cancel()
        self._alarm = None
        if deadline is not None:
            delay_s = max(0.0, deadline - self._world.now)
            self._alarm = self._world.after(delay_s, partial(self._run, self._poll))

    def _poll(self, busy_again_s: float = _BUSY_AGAIN_S) -> None:
        assert self.engine is not None
        deadline = self.engine.deadline
        if deadline is None or deadline > self._world.now + _ROUNDING_S:
            return  # the time has changed meanwhile
        try:
            self.engine.poll()
        except StoreBusyError:
            self._world.after(busy_again_s, partial(self._run, self._poll))

    # Callbacks of ports.

    def on_connected(self, port: int) -> None:
        """Subscribe, and notify the engine."""
        self._run(partial(self._connected, port))

    def _connected(self, port: int) -> None:
        assert self.engine is not None
        self._world.tell(self.name, "connected", port=port)
        self.ports[port].subscribe(self.engine.destinations(port))
        self.engine.connected(port)

    def on_disconnected(self, port: int) -> None:
        """Notify the engine."""
        self._world.tell(self.name, "disconnected", port=port)
        if self.engine is not None:
            self._run(partial(self.engine.disconnected, port))

    def on_arrival(self, port: int) -> None:
        """Read the inbox soon, perhaps with later messages."""
        self._read_soon(port, self._world.random.uniform(0, 0.03))

    def _read_soon(self, port: int, delay_s: float) -> None:
        reading = self._reading[port]
        if reading is None or not reading.active():
            self._reading[port] = self._world.after(
                delay_s, partial(self._run, partial(self._read, port))
            )

    def _read(self, port: int) -> None:
        inbox = self.ports[port].inbox
        if not inbox:
            return
        world = self._world
        count = world.random.randint(1, len(inbox)) if world.chance(0.3) else len(inbox)
        taken = [inbox.popleft() for _ in range(count)]
        self._take(port, taken, [(each.packet.headers, each.packet.body) for each in taken])

    def _take(self, port: int, taken: Sequence[Delivery], frames: Frames) -> None:
        """Pass frames to the engine, and the same list again if its store was busy."""
        assert self.engine is not None
        try:
            self.engine.receive(port, frames)
        except StoreBusyError:
            self._reading[port] = self._world.after(
                _BUSY_AGAIN_S, partial(self._run, partial(self._take, port, taken, frames))
            )
            return
        for each in taken:
            self._trace("acknowledge", {"message": each.number})
            connection = self.ports[port].connection
            if connection is not None:
                connection.acknowledge(each)
        if self.ports[port].inbox:
            self._read_soon(port, 0.01)

    def _send(self, outgoing: Outgoing) -> None:
        if self._world.is_recording:
            self._world.tell(self.name, "send", to=outgoing.destination, **_said(outgoing))
        self.ports[outgoing.port].send(outgoing.destination, outgoing.packets)

    # Actions of an application.

    def write(self, make: Make, label: str = "") -> bool:
        """Commit a transaction if the process runs and the database is not locked.

        Return True if something was committed.
        """
        before = len(self.committed)
        self._run(partial(self._write, make, label))
        return len(self.committed) > before

    def _write(self, make: Make, label: str) -> None:
        assert self.engine is not None and self._applier is not None
        # This identifies it, even after a renumbering.
        self._writes += 1
        comment = f"{self.name}.{self._writes} {label}".rstrip()
        try:
            with self.database.store.transaction() as tx:
                signed = self._applier.write(tx, make(tx), comment=comment)
                self._trace("commit", {"comment": comment})
        except StoreBusyError:
            return
        if signed is None:
            return
        self.committed.append(signed)
        self._trace("committed", {"id": signed.id[:8]})
        self.engine.wake()

    def skip(self, dot: Dot) -> None:
        """Skip a changeset that could not be applied."""
        self._run(partial(self._skip, dot))

    def _skip(self, dot: Dot) -> None:
        assert self.engine is not None and self._applier is not None
        with self.database.store.transaction() as tx:
            self._applier.skip(tx, dot)
        self.engine.wake()

    def compact(self, *, is_careful: bool) -> None:
        """Remove the changesets that all nodes are known to have; else all of them."""
        self._run(partial(self._compact, is_careful=is_careful))

    def _compact(self, *, is_careful: bool) -> None:
        assert self.engine is not None
        try:
            with self.database.store.transaction() as tx:
                upto = self.engine.stable() if is_careful else tx.vector()
                dropped = tx.drop_changesets(upto)
                self._trace("compact", {"dropped": dropped})
        except StoreBusyError:
            return


#: The facts of a message that traces show.
_TOLD: Final = (
    "ask",
    "counter",
    "vector",
    "seen",
    "forgotten",
    "number",
    "ranges",
    "count",
    "floor",
    "above",
)


def _said(outgoing: Outgoing) -> dict[str, object]:
    """Return a readable description of a message."""
    unpacker = Unpacker()
    for packet in outgoing.packets:
        message = unpacker.add(packet.headers, packet.body)
    assert message is not None
    said: dict[str, object] = {"kind": message.kind, "of": message.sender}
    if message.kind == "changes":
        dots = [SignedChangeset.decode(item).dot for item in message.items]
        said["changesets"] = [dot_text(dot) for dot in dots]
    return said | {name: message.facts[name] for name in _TOLD if name in message.facts}
