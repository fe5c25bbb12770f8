"""Clusters of two nodes: proxies in front of one broker, of which only one serves at a time.

Since both have the broker behind them, what the one has taken is there at the other, and to end a
node takes no time. A fault spoils what passes through either.
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
from stompkit.conformance.verdict import Unsupported
from tests.conformance.proxy import Fault, behind
from tests.conformance.scripted import Line, ScriptedServer

#: The ids of the chapter's cases.
NODES = (
    "failover/nodes/same-versions",
    "failover/nodes/refused",
    "failover/nodes/served",
    "failover/nodes/subscription-resumed",
    "failover/nodes/hanging",
)
SHARED = "failover/storage/shared"
#: What is UNSUPPORTED where the nodes have no store in common.
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

#: How long the broker may take to notice that a node has lost all its clients, in seconds.
_LONG_S = 30.0


class NodeFault(Fault):
    """A rule that a cluster breaks; one for each connection to either node."""

    #: The node that the connection is to.
    node: ClassVar[Node]

    @property
    def is_first(self) -> bool:
        """Whether this is the node that served first."""
        return self.node.number == 0

    @staticmethod
    def wait_for_turn(line: Line) -> None:
        """What a client gets of a node that does not serve: its connection is reset."""
        line.reset()

    def while_paused(self) -> None:
        """What a client gets of a node that stands still, every now and then: nothing."""

    def octets_from_server(self, octets: bytes) -> Iterable[bytes]:
        """What the client gets, once the node does not stand still any more."""
        while not self.node.is_going.wait(0.1):
            self.while_paused()
        return super().octets_from_server(octets)


class Node:
    """A proxy that can be ended and started again."""

    def __init__(self, number: int, fault: type[NodeFault], broker: tuple[str, int]) -> None:
        """Listen; nobody is served yet."""
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
        """Cut all connections off, and wait until the broker has noticed."""
        with self._changed:
            self.serves = False
            for line in self._lines:
                line.end()
            assert self._changed.wait_for(lambda: not self._lines, _LONG_S)


class Cluster(Nodes):
    """Two such nodes, with the rest of what the suite wants to know of a target's nodes."""

    def __init__(
        self,
        fault: type[NodeFault],
        broker: tuple[str, int],
        *,
        timeout_s: float = 2.0,
        quiet_s: float = 0.3,
    ) -> None:
        """Start both in front of a broker; the first one serves."""
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
        """End one node, and have the other one serve."""
        self._nodes[node].end()
        self._nodes[1 - node].serves = True
        return True

    def bring_back(self, node: int) -> None:
        """Nothing: it is there, and waits for its turn."""

    def pause(self, node: int) -> None:
        """Have it pass on nothing."""
        self._nodes[node].is_going.clear()

    def resume(self, node: int) -> None:
        """Have it pass everything on."""
        self._nodes[node].is_going.set()

    # What the runner asks of whoever has a say in the target.

    def nodes(self) -> Nodes:
        """These."""
        return self

    def restart(self) -> None:
        """Not asked for by any case about nodes."""
        raise Unsupported("a cluster of proxies has nothing to restart")

    def __enter__(self) -> Self:
        """Return it."""
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
    """What was found, by the ids of the cases; the run has to be complete."""
    assert not report.errors, report.errors
    assert report.complete, report.cut_short
    return {each.id: str(each.verdict) for each in report.results}
