"""Clusters of two nodes: proxies in front of one broker, of which only one serves at a time.

Both nodes use the same broker, so messages accepted by one exist on the other. Stopping a node
takes no time. A fault changes the frames that pass through either node.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import ClassVar, Self

from stompkit.conformance.address import Address
from stompkit.conformance.nodes import Nodes
from stompkit.conformance.report import Report
from stompkit.conformance.verdict import UnsupportedError
from tests.conformance.proxy import Fault, behind
from tests.conformance.scripted import Line, ScriptedServer

#: Ids of the cases of the chapter.
NODES = (
    "failover/nodes/same-versions",
    "failover/nodes/refused",
    "failover/nodes/served",
    "failover/nodes/subscription-resumed",
    "failover/nodes/hanging",
)
SHARED = "failover/storage/shared"
#: Cases that are UNSUPPORTED if the nodes have no common store.
STORAGE = tuple(
    f"failover/storage/{name}"
    for name in (
        "receipted",
        "order",
        "unacknowledged",
        "acknowledged",
        "transaction-open",
        "transaction-committed",
        "durable-subscription",
        "old-node",
    )
)
NAMES = "failover/names/every-address"

#: Time in seconds within which the broker notices that a node has lost all its clients.
_LONG_S = 30.0


class NodeFault(Fault):
    """A rule that a cluster breaks; one object for each connection to either node."""

    #: The node of the connection.
    node: ClassVar[Node]

    @property
    def is_first(self) -> bool:
        """True if this node served first."""
        return self.node.number == 0

    @staticmethod
    def wait_for_turn(line: Line) -> None:
        """Handle a client of a node that does not serve: reset its connection."""
        line.reset()

    def while_paused(self) -> None:
        """Act while the node is paused; called repeatedly. By default, do nothing."""

    def octets_from_server(self, octets: bytes) -> Iterable[bytes]:
        """Pass bytes to the client when the node is no longer paused."""
        while not self.node.is_going.wait(0.1):
            self.while_paused()
        return super().octets_from_server(octets)


class Node:
    """A proxy that can be stopped and started again."""

    def __init__(self, number: int, fault: type[NodeFault], broker: tuple[str, int]) -> None:
        """Listen, but do not serve yet."""
        self.number = number
        self.serves = False
        self.is_going = threading.Event()
        self.is_going.set()
        own = type(fault.__name__, (fault,), {"node": self})
        self._fault: type[NodeFault] = own
        self._through = behind(own, *broker)
        self._lines: set[Line] = set()
        self._changed = threading.Condition()
        self.server = ScriptedServer(self._behave)

    def _behave(self, line: Line) -> None:
        with self._changed:
            if self.serves:
                self._lines.add(line)
        if line not in self._lines:
            self._fault.wait_for_turn(line)
            return
        try:
            self._through(line)
        finally:
            with self._changed:
                self._lines.discard(line)
                self._changed.notify_all()

    def end(self) -> None:
        """Close all connections, and wait until the broker has noticed."""
        with self._changed:
            self.serves = False
            for line in self._lines:
                line.end()
            assert self._changed.wait_for(lambda: not self._lines, _LONG_S)


class Cluster(Nodes):
    """Two such nodes, with the interface by which the suite controls the nodes of a target."""

    def __init__(
        self,
        fault: type[NodeFault],
        broker: tuple[str, int],
        *,
        timeout_s: float = 2.0,
        quiet_s: float = 0.3,
    ) -> None:
        """Start both nodes in front of a broker; the first one serves."""
        self._nodes = [Node(number, fault, broker) for number in range(2)]
        self._nodes[0].serves = True
        ports = [node.server.port for node in self._nodes]
        address = Address(
            "127.0.0.1",
            ports[0],
            others=(("127.0.0.1", ports[1]),),
            timeout_s=timeout_s,
            quiet_s=quiet_s,
        )
        super().__init__(address, has_one_store=True)

    def end(self, node: int) -> bool:
        """Stop one node; the other one serves then."""
        self._nodes[node].end()
        self._nodes[1 - node].serves = True
        return True

    def bring_back(self, node: int) -> None:
        """Do nothing: the node exists, and waits until it serves."""

    def pause(self, node: int) -> None:
        """Pause a node, so that it forwards nothing."""
        self._nodes[node].is_going.clear()

    def resume(self, node: int) -> None:
        """Resume a node."""
        self._nodes[node].is_going.set()

    # Interface of target controls, for the runner.

    def nodes(self) -> Nodes:
        """Return the cluster itself."""
        return self

    def restart(self) -> None:
        """Raise UnsupportedError: no case about nodes calls this."""
        raise UnsupportedError("a cluster of proxies has nothing to restart")

    def __enter__(self) -> Self:
        """Return the cluster itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop both nodes."""
        with ExitStack() as stack:
            for node in self._nodes:
                stack.callback(node.server.stop)
                stack.callback(node.is_going.set)


def verdicts(report: Report) -> dict[str, str]:
    """Return the verdicts by the ids of the cases; fail if the run is incomplete."""
    assert not report.errors, report.errors
    assert report.complete, report.cut_short
    return {each.id: str(each.verdict) for each in report.results}
