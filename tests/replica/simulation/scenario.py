"""A run of nodes that write, fail and recover; it depends on a seed only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from stompkit.replica.applier import Bounds
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Tx
from stompkit.replication.model.events import RowChange
from tests.replica.simulation.checks import check
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.deeds import look
from tests.replica.simulation.network import Faults, Traits
from tests.replica.simulation.node import Node, Troubles
from tests.replica.simulation.plans import Plan, choose
from tests.replica.simulation.stage import Stage
from tests.replica.simulation.tables import changes_of
from tests.replica.simulation.world import World

__all__ = ["Scenario", "Summary"]


@dataclass(slots=True)
class Summary:
    """Statistics of a run."""

    kind: str
    shape: str
    #: Messages to the brokers, and those of them after the last fault.
    messages: int
    settling: int
    #: Simulated seconds from the last fault to silence.
    settled_s: float
    committed: int
    conflicts: int
    #: Number of crashes by step.
    crashes: Counter[str] = field(default_factory=Counter)


class Scenario:
    """One scenario; a repeated run needs a new object."""

    def __init__(
        self,
        seed: int,
        databases: Databases,
        *,
        is_recording: bool = False,
        plan: Plan | None = None,
    ) -> None:
        """Choose a plan, unless one is given."""
        self.world: Final = World(seed, is_recording=is_recording)
        chosen = choose(self.world.random)
        self.plan: Final = chosen if plan is None else plan
        self.stage: Final = Stage(
            self.world,
            databases,
            faults=Faults(self.plan.loss, self.plan.repeats, self.plan.late),
            troubles=Troubles(self.plan.crash, busy=self.plan.busy),
        )
        self.nodes: Final = self.stage.nodes
        #: Changesets that were only in a database that was replaced by an older one.
        self._lost: list[SignedChangeset] = []
        for _ in range(1 + max(self.plan.brokers)):
            self.stage.add_broker(Traits(self.plan.is_durable, self.plan.acknowledges))

    def run(self) -> Summary:
        """Run it; raise AssertionError if an invariant fails."""
        plan = self.plan
        self.world.tell("plan", str(plan))
        for number in range(len(plan.branches)):
            self._add(number)
        self._schedule()
        self.world.run(plan.duration_s)
        before = self.stage.messages
        settled_s = self.stage.settle()
        conflicts = check(self.nodes, self._lost)
        messages = self.stage.messages
        return Summary(
            plan.kind,
            plan.shape,
            messages,
            messages - before,
            settled_s,
            sum(len(each.committed) for each in self.nodes),
            conflicts,
            sum((each.crashes for each in self.nodes), Counter()),
        )

    def _add(self, number: int) -> Node:
        plan = self.plan
        return self.stage.add_node(
            plan.branches[number],
            [
                (self.stage.brokers[plan.brokers[channel]], f"c{channel}")
                for channel in plan.ports[number]
            ],
            bounds=Bounds(hold_max=plan.hold_max),
            skew_s=self.world.random.uniform(-plan.skew_s, plan.skew_s),
            direction=plan.directions[number],
            window=plan.window,
            max_body_bytes=plan.max_body_bytes,
        )

    def write(self, node: Node) -> bool:
        """Commit changes of some documents at a node; return True if it has."""
        if node.settings.direction == "receive":
            return False
        random = self.world.random

        def make(tx: Tx) -> list[RowChange]:
            return changes_of(random, partial(look, node, tx), weight=self.plan.weight)

        return node.write(make)

    # The schedule of events.

    def _schedule(self) -> None:
        plan, random = self.plan, self.world.random
        late = 1 if plan.kind.startswith("late joiner") else 0
        for node in self.nodes[: len(self.nodes) - late]:
            node.start()
        if plan.is_written_first:
            for node in self.nodes:
                self.write(node)
        for _ in range(plan.writes):
            self._sometime(self._write)
        for _ in range(plan.cuts):
            self._sometime(self._cut)
        for _ in range(plan.stops):
            self._sometime(self._stop)
        for _ in range(plan.replacements):
            self._sometime(self._replace)
        for _ in range(plan.jumps):
            self._sometime(self._jump)
        match plan.kind:
            case "clone":
                self._sometime(self._clone)
            case "restored backup":
                self._sometime(self._back_up)
            case "late joiner" | "late joiner after compaction":
                self._sometime(self.nodes[-1].start)
        if plan.kind == "late joiner after compaction":
            for _ in range(random.randint(1, 3)):
                self._sometime(self._compact)

    def _sometime(self, do: Callable[[], object]) -> None:
        self.world.after(self.world.random.uniform(0, self.plan.duration_s), do)

    def _soon(self, do: Callable[[], object]) -> None:
        self.world.after(self.world.random.uniform(0.1, self.plan.duration_s / 2), do)

    def _write(self) -> None:
        self.write(self.world.random.choice(self.nodes))

    def _cut(self) -> None:
        """Break a connection, or block it for a while."""
        node = self.world.random.choice(self.nodes)
        port = self.world.random.choice(node.ports)
        is_noticed = self.world.chance(0.7)
        if self.world.chance(0.3):
            self.world.tell(node.name, "cut off")
            if port.connection is not None:
                port.connection.break_off()
            return
        self.world.tell(node.name, "severed", is_noticed=is_noticed)
        port.sever()
        self._soon(partial(port.mend, is_noticed=is_noticed))

    def _stop(self) -> None:
        node = self.world.random.choice(self.nodes)
        if node.is_up:
            node.stop()
            self._soon(node.start)

    def _replace(self) -> None:
        """Kill a broker; an empty one replaces it after a while."""
        broker = self.world.random.choice(self.stage.brokers)
        broker.is_up = False
        broker.replace()

        def come_back() -> None:
            broker.is_up = True

        self._soon(come_back)

    def _jump(self) -> None:
        node = self.world.random.choice(self.nodes)
        node.skew_s += self.world.random.uniform(-2, 2) * max(self.plan.skew_s, 10.0)
        self.world.tell(node.name, "clock set", skew_s=round(node.skew_s, 3))

    def _clone(self) -> None:
        """Start a copy of a database beside the original."""
        original = self.world.random.choice(self.nodes)
        copy = self._add(self.nodes.index(original))
        self.world.tell(copy.name, "clone", of=original.name)
        copy.database.put_back(original.database.content())
        copy.start()

    def _back_up(self) -> None:
        node = self.world.random.choice(self.nodes)
        content = node.database.content()
        self.world.tell(node.name, "backed up")
        self._soon(partial(self._restore, node, content))

    def _restore(self, node: Node, content: bytes) -> None:
        self.world.tell(node.name, "restored")
        node.stop()
        here = set(node.database.bodies())
        elsewhere = {id for each in self.nodes if each is not node for id in each.database.bodies()}
        node.database.put_back(content)
        gone = here - elsewhere - set(node.database.bodies())
        self._lost += [each for each in node.committed if each.id in gone]
        node.start()

    def _compact(self) -> None:
        """Compact a node's history, perhaps including changesets that others lack."""
        self.world.random.choice(self.nodes).compact(is_careful=self.world.chance(0.5))
