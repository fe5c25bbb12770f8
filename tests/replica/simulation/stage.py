"""The setup of nodes and brokers, and the end of all faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stompkit.replica.applier import Bounds, Hooks
from stompkit.replica.engine import EngineSettings
from tests.replica.simulation.databases import Databases
from tests.replica.simulation.network import Broker, Faults, Traits
from tests.replica.simulation.node import Node, Troubles
from tests.replica.simulation.ports import Port
from tests.replica.simulation.tables import RULES
from tests.replica.simulation.world import World

__all__ = ["Place", "Stage"]

#: A broker, and the name of a channel there.
Place = tuple[Broker, str]

#: Longest simulated time in seconds until nodes are settled: their retries back off.
_SETTLING_S: Final = 3600.0
#: Most events meanwhile: far more than ever happen, even if nodes wait for changesets that were
#: lost with a backup.
_MOST_STEPS: Final = 50_000


class Stage:
    """Brokers and nodes of one world."""

    def __init__(
        self,
        world: World,
        databases: Databases,
        *,
        faults: Faults | None = None,
        troubles: Troubles | None = None,
    ) -> None:
        """Start empty; by default there are no faults."""
        self.world: Final = world
        self.faults: Final = faults or Faults()
        self.troubles: Final = troubles or Troubles()
        self.brokers: Final[list[Broker]] = []
        self.nodes: Final[list[Node]] = []
        self._databases = databases
        databases.begin()

    @property
    def messages(self) -> int:
        """Number of messages sent to all brokers."""
        return sum(each.sent for each in self.brokers)

    def add_broker(self, traits: Traits | None = None) -> Broker:
        """Add a broker."""
        broker = Broker(self.world, f"broker{len(self.brokers)}", traits or Traits(), self.faults)
        self.brokers.append(broker)
        return broker

    def add_node(
        self,
        branch_id: str,
        places: Sequence[Place],
        *,
        bounds: Bounds | None = None,
        hooks: Hooks | None = None,
        skew_s: float = 0.0,
        **settings: Any,
    ) -> Node:
        """Add a node, which is not started; ``settings`` are those of engines."""
        name = f"n{len(self.nodes)}"
        node = Node(
            self.world,
            name,
            self._databases.take(),
            EngineSettings(
                trunk_id="T",
                branch_id=branch_id,
                channels=tuple(channel for _, channel in places),
                **{"digest_interval_s": 0.0, **settings},
            ),
            RULES,
            [
                Port(self.world, broker, f"{name}.{number}", number)
                for number, (broker, _) in enumerate(places)
            ],
            self.troubles,
            bounds=bounds,
            hooks=hooks,
            skew_s=skew_s,
        )
        self.nodes.append(node)
        return node

    def settle(self) -> float:
        """End all faults, and wait until all nodes are idle.

        Return the time taken in seconds; raise AssertionError after the timeout.
        """
        world, faults, troubles = self.world, self.faults, self.troubles
        world.tell("world", "faults end")
        faults.loss = faults.repeats = faults.late = troubles.crash = troubles.busy = 0.0
        for broker in self.brokers:
            broker.is_up = True
        for node in self.nodes:
            for port in node.ports:
                port.mend(is_noticed=True)
            node.start()
        begun = world.now
        assert world.run_until_idle(_SETTLING_S, _MOST_STEPS), "nodes talk without an end"
        return world.now - begun
