"""Several nodes of the target during one case: a client that goes from one to the other."""

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
from stompkit.conformance.verdict import Failed, Unsupported

__all__ = ["Cluster", "await_messages", "cluster_of"]

#: How long another node may take to serve, in times of an answer: it may have to notice first that
#: the one before has ended, and to read its store.
_TAKEOVER_ANSWERS: Final = 20
#: Between two looks whether one serves, in seconds.
_PAUSE_S: Final = 0.05


class Cluster:
    """The target's nodes, of which node 0 of ``target`` is always the one that serves."""

    def __init__(self, target: Target, nodes: Nodes) -> None:
        """Begin a case with the target's nodes, or with others of its kind."""
        self._target = target
        self._nodes = nodes
        self._targets = [target]
        self._cut: set[Peer] = set()
        self._go_to(nodes.active)

    def take_along(self, target: Target) -> None:
        """Have another case of the same target be at the same node, from now on."""
        if target not in self._targets:
            self._targets.append(target)
        self._go_to(self._nodes.active)

    def let_go(self, target: Target) -> None:
        """Have a case that is over take no more part in what becomes of the nodes."""
        self._targets.remove(target)

    @property
    def reason(self) -> str:
        """Why they have no store in common, where they have none."""
        return self._nodes.reason

    def name(self, node: int = 0) -> str:
        """HOST:PORT of a node; of the one that serves unless told otherwise."""
        return str(self._target.address.node(node))

    def serves(self, node: int) -> bool:
        """Whether a node answers CONNECT now."""
        return is_alive(self._target.address.node(node), self._target.version)

    def fail_over(self) -> float:
        """End the node that serves, and go to another one; gives the seconds that this took.

        All connections of the case are reset; where nobody can end a node that is all. The node
        that has ended is started again where two can run together.
        Raises :class:`Failed` where no other node takes over.
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
        except Failed as error:
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
        """Have the node see that its clients are gone, in case it still sees anything."""
        peers = {peer for target in self._targets for peer in target.peers}
        for peer in peers - self._cut:
            peer.reset()
        self._cut |= peers

    def _successor(self, ended: int, *, is_ended: bool) -> int:
        """Wait until another node serves; gives its number."""
        address, version = self._nodes.address, self._target.version
        limit_s = _TAKEOVER_ANSWERS * address.timeout_s
        until = time.monotonic() + limit_s
        while True:
            for node in range(address.nodes):
                if node != ended and is_alive(address.node(node), version):
                    return node
            if not is_ended:
                raise Unsupported(
                    f"no other node serves while {self.name()} does, which the suite can't end:"
                    " see --stop and --start"
                )
            if time.monotonic() >= until:
                raise Failed(f"no other node answers CONNECT in {limit_s:g} s")
            # Not a condition that could be watched: another process notices that it is its turn.
            time.sleep(_PAUSE_S)

    def _go_to(self, node: int) -> None:
        """Have each target's node 0 be this one, and the others follow in their order."""
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
        """Have the node that serves stand still for a while; raises :class:`Unsupported`."""
        active = self._nodes.active
        self._nodes.pause(active)
        self._say("the suite has paused the node")
        try:
            yield
        finally:
            self._nodes.resume(active)
            self._say("the suite has resumed the node")

    def has_one_store(self) -> bool:
        """Whether another node delivers what one has taken; tried out if nobody has said so."""
        nodes, target = self._nodes, self._target
        if nodes.has_one_store is None:
            queue = target.queue()
            target.connect().call("SEND", {"destination": queue, **PERSISTENT}, b"to all nodes")
            self.fail_over()
            nodes.has_one_store = b"to all nodes" in target.leftovers(queue, 1)
        return nodes.has_one_store

    def require_one_store(self) -> None:
        """Raise :class:`Unsupported` where what one node has taken is not there at another."""
        if not self.has_one_store():
            raise Unsupported(self.reason)

    def leave(self) -> None:
        """Have the first of the nodes serve again, where other cases count on that."""
        if self._nodes.is_apart:
            return
        # Whoever comes next is told if it does not.
        with contextlib.suppress(Failed, Unsupported):
            for _ in range(self._nodes.address.nodes):
                if not self._nodes.active:
                    break
                if is_alive(self._nodes.address.node(0), self._target.version):
                    self._nodes.active = 0
                else:
                    self.fail_over()


def await_messages(peer: Peer, wanted: Iterable[bytes]) -> list[bytes]:
    """Bodies of the messages that come until these are among them, or nothing comes any more.

    What was delivered in the mode auto just before a node ended may come again, before them.
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
    """The target's own nodes, or a pair of its kind that is launched; to make a fixture of.

    Raises :class:`Unsupported` where there is only one node, and :class:`Failed` where no other
    one has taken over in a case before: to wait for that takes long.
    """
    control = request.config.stash.get(CONTROL, None)
    if control is None:
        raise Unsupported("nobody has said what nodes the target has: see --mq and --broker")
    began = time.monotonic()
    nodes = control.nodes()
    target.extend_deadline(time.monotonic() - began)
    if nodes.failure:
        raise Failed(f"{nodes.failure} (so it was before)")
    cluster = Cluster(target, nodes)
    yield cluster
    cluster.leave()
