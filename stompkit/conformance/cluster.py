"""Several nodes of the target during one case: a client that fails over between them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from stompkit.conformance.extensions import PERSISTENT
from stompkit.conformance.nodes import Nodes
from stompkit.conformance.peer import Peer
from stompkit.conformance.plugin import CONTROL
from stompkit.conformance.target import Target, is_alive
from stompkit.conformance.verdict import FailedError, UnsupportedError

__all__ = ["Cluster", "await_messages", "cluster_of"]

#: Timeout for another node to take over, in multiples of the answer timeout: it may first have to
#: detect the end of the previous node, and to read its store.
_TAKEOVER_ANSWERS: Final = 20
#: Interval in seconds between two checks for an active node.
_PAUSE_S: Final = 0.05


class Cluster:
    """The target's nodes; node 0 of ``target`` is always the active one."""

    def __init__(self, target: Target, nodes: Nodes) -> None:
        """Start a case with the target's nodes, or with launched ones of the same kind."""
        self._target = target
        self._nodes = nodes
        self._targets = [target]
        self._cut: set[Peer] = set()
        self._go_to(nodes.active)

    def take_along(self, target: Target) -> None:
        """Include another case of the same target: it follows the active node from now on."""
        if target not in self._targets:
            self._targets.append(target)
        self._go_to(self._nodes.active)

    def let_go(self, target: Target) -> None:
        """Exclude a finished case from later changes of the nodes."""
        self._targets.remove(target)

    @property
    def reason(self) -> str:
        """Reason why the nodes have no shared store; empty if they have one."""
        return self._nodes.reason

    def name(self, node: int = 0) -> str:
        """Return HOST:PORT of a node, by default of the active one."""
        return str(self._target.address.node(node))

    def serves(self, node: int) -> bool:
        """Return True if a node answers CONNECT now."""
        return is_alive(self._target.address.node(node), self._target.version)

    def fail_over(self) -> float:
        """End the active node, and switch to another one; return the duration in seconds.

        All connections of the case are reset; if the suite cannot end a node, nothing else happens.
        The ended node is restarted if two nodes can run together. Raises :class:`FailedError` if no
        other node takes over.
        """
        nodes = self._nodes
        ended, began = nodes.active, time.monotonic()
        self._say(f"the suite leaves the node {self.name()}")
        try:
            is_ended = nodes.end(ended)
            self._say("it has ended" if is_ended else "it goes on, for all one knows")
            self._cut_off()
            try:
                nodes.active = self._successor(ended, is_ended=is_ended)
                took = time.monotonic() - began
            finally:
                if is_ended:
                    nodes.bring_back(ended)
        except FailedError as error:
            nodes.failure = str(error)
            raise
        finally:
            for target in self._targets:
                target.extend_deadline(time.monotonic() - began)
        self._go_to(nodes.active)
        self._say(f"the suite goes to the node {self.name()}")
        return took

    def _say(self, text: str) -> None:
        for target in self._targets:
            target.recorder.say(0, text)

    def _cut_off(self) -> None:
        """Reset all connections: a node that still runs then detects the loss of its clients."""
        peers = {peer for target in self._targets for peer in target.peers}
        for peer in peers - self._cut:
            peer.reset()
        self._cut |= peers

    def _successor(self, ended: int, *, is_ended: bool) -> int:
        """Wait until another node is active; return its number."""
        address, version = self._nodes.address, self._target.version
        limit_s = _TAKEOVER_ANSWERS * address.timeout_s
        until = time.monotonic() + limit_s
        while True:
            for node in range(address.nodes):
                if node != ended and is_alive(address.node(node), version):
                    return node
            if not is_ended:
                others = ", ".join(
                    str(address.node(each)) for each in range(address.nodes) if each != ended
                )
                raise UnsupportedError(
                    f"{others} does not answer CONNECT while {self.name()} serves, which the suite"
                    " cannot end: see --stop and --start"
                )
            if time.monotonic() >= until:
                raise FailedError(f"no other node answers CONNECT in {limit_s:g} s")
            # This condition cannot be watched: another process detects that it must take over.
            time.sleep(_PAUSE_S)

    def _go_to(self, node: int) -> None:
        """Make this node number 0 of each target; the others follow in order."""
        all_nodes = self._nodes.address
        numbers = [node, *(each for each in range(all_nodes.nodes) if each != node)]
        first, *others = (all_nodes.node(each) for each in numbers)
        address = replace(
            first,
            others=tuple((each.host, each.port) for each in others),
            places=tuple(place for each in (first, *others) for place in each.places),
        )
        for target in self._targets:
            target.address = address

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the active node within the context; raises :class:`UnsupportedError`."""
        active = self._nodes.active
        self._nodes.pause(active)
        self._say("the suite has paused the node")
        try:
            yield
        finally:
            self._nodes.resume(active)
            self._say("the suite has resumed the node")

    def has_one_store(self) -> bool:
        """Return True if nodes share a store; if unknown, test it."""
        nodes, target = self._nodes, self._target
        if nodes.has_one_store is None:
            queue = target.queue()
            target.connect().call("SEND", {"destination": queue, **PERSISTENT}, b"to all nodes")
            self.fail_over()
            nodes.has_one_store = b"to all nodes" in target.leftovers(queue, 1)
        return nodes.has_one_store

    def require_one_store(self) -> None:
        """Raise UnsupportedError if messages sent to one node are not available on another."""
        if not self.has_one_store():
            raise UnsupportedError(self.reason)

    def leave(self) -> None:
        """Make the first node active again, if other cases rely on that."""
        if self._nodes.is_apart:
            return
        # The next case reports a failure of this.
        with contextlib.suppress(FailedError, UnsupportedError):
            for _ in range(self._nodes.address.nodes):
                if not self._nodes.active:
                    break
                if is_alive(self._nodes.address.node(0), self._target.version):
                    self._nodes.active = 0
                else:
                    self.fail_over()


def await_messages(peer: Peer, wanted: Iterable[bytes]) -> list[bytes]:
    """Return the bodies of the messages received until these are among them, or a timeout.

    Messages delivered in auto mode just before a node ended may be redelivered before them.
    """
    missing, came = set(wanted), list[bytes]()
    while missing:
        found = [frame.body for frame in peer.gather_messages(1)]
        if not found:
            break
        came += found
        missing.difference_update(found)
    return came


def cluster_of(request: pytest.FixtureRequest, target: Target) -> Iterator[Cluster]:
    """Yield the target's own nodes, or a launched pair of its kind; the body of a fixture.

    Raises :class:`UnsupportedError` if there is only one node. Raises :class:`FailedError` if no
    other node took over in an earlier case: waiting for that takes long.
    """
    control = request.config.stash.get(CONTROL, None)
    if control is None:
        raise UnsupportedError("nobody has said what nodes the target has: see --mq and --broker")
    began = time.monotonic()
    nodes = control.nodes()
    target.extend_deadline(time.monotonic() - began)
    if nodes.failure:
        raise FailedError(f"{nodes.failure} (so it was before)")
    cluster = Cluster(target, nodes)
    yield cluster
    cluster.leave()
