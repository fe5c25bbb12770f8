"""Cases without sockets and without waiting: a network in memory, and a clock that it moves.

The suite runs as it is, in one thread. Its sockets are in memory, and a wait for something that
does not come moves the clock to the next timer or to the end of the wait, so that a run takes as
long as it computes, and is the same each time.
"""

from __future__ import annotations

import errno
import inspect
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, Final, Protocol, cast

import pytest
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock

from stompkit.conformance.address import Address
from stompkit.conformance.case import NEWEST, Case, cases_of
from stompkit.conformance.cluster import Cluster
from stompkit.conformance.crossing import Story
from stompkit.conformance.nodes import Nodes
from stompkit.conformance.peer import Recorder
from stompkit.conformance.plugin import judge
from stompkit.conformance.runner import cases_folder
from stompkit.conformance.target import Capabilities, Target
from stompkit.conformance.verdict import CaseResult, Failed, Unsupported
from stompkit.frames import VERSIONS, Version
from stompkit.testing.memory import MemoryBroker
from tests.conformance.raw import Raw, Splitter
from tests.conformance.second_server import Client, Handle, Server

#: Exceptions that are about the target; all others are mistakes of the case.
ABOUT_THE_TARGET: Final = (AssertionError, Unsupported, LookupError, ValueError)
#: When the clock begins, in seconds since 1970: durations and dates are by the same clock.
_EPOCH_S: Final = 1_700_000_000.0
_PORT: Final = 61_613

Function = Callable[..., None]


class Upstream(Protocol):
    """The server's side of a connection, as its client's end drives it."""

    def deliver(self, octets: bytes) -> None:
        """Take octets from the client."""

    def take(self) -> bytes:
        """Give the octets that the server has written since the last call."""

    @property
    def is_ended(self) -> bool:
        """Whether the server writes nothing more."""

    @property
    def is_reset(self) -> bool:
        """Whether the server has cut the connection off."""

    def end(self) -> None:
        """Tell the server that the client sends nothing more."""

    def lose(self) -> None:
        """Tell the server that the connection is gone."""


class SecondUpstream:
    """A connection to the second server, whose transport this is."""

    def __init__(self, server: Server) -> None:
        """Connect to that server."""
        self._octets = bytearray()
        self.is_ended = self.is_reset = self._is_lost = False
        self._client = Client(server)
        self._client.connection_made(self)

    def deliver(self, octets: bytes) -> None:
        """Let the server have it at once."""
        if not self._is_lost:
            self._client.data_received(octets)

    def take(self) -> bytes:
        """What was written."""
        octets = bytes(self._octets)
        self._octets.clear()
        return octets

    def end(self) -> None:
        """End both ways, as asyncio does."""
        self.is_ended = True
        self.lose()

    def lose(self) -> None:
        """End the connection."""
        if not self._is_lost:
            self._is_lost = True
            self._client.connection_lost(None)

    def write(self, octets: bytes) -> None:
        """Keep octets for the client."""
        self._octets += octets

    def write_eof(self) -> None:
        """Say that no more come."""
        self.is_ended = True

    def abort(self) -> None:
        """Reset the connection."""
        self.is_reset = True
        self.lose()


class OwnUpstream:
    """A connection to our own broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        """Connect to that broker."""
        self._client = broker.connect()

    def deliver(self, octets: bytes) -> None:
        """Let the broker have it at once."""
        self._client.transport.deliver(octets)

    def take(self) -> bytes:
        """What was written."""
        return self._client.transport.take()

    @property
    def is_ended(self) -> bool:
        """Whether nothing more is written."""
        return self._client.transport.eof

    @property
    def is_reset(self) -> bool:
        """Whether the broker has cut the connection off."""
        return self._client.transport.lost and not self._client.transport.eof

    def end(self) -> None:
        """End the client's direction."""
        self._client.end()

    def lose(self) -> None:
        """End the connection."""
        self._client.close()


class Timer:
    """A call of Twisted's, as asyncio has them: to cancel one that was made is no mistake."""

    def __init__(self, call: IDelayedCall) -> None:
        """Take the call."""
        self._call = call

    def cancel(self) -> None:
        """Do not make it."""
        if self._call.active():
            self._call.cancel()


class Network:
    """Connections to one server of one or two nodes, and the time."""

    def __init__(self) -> None:
        """Make one where the second server is."""
        self.clock = Clock()
        self.clock.rightNow = _EPOCH_S
        self.open: Callable[[], Upstream] = lambda: SecondUpstream(Server(self))
        #: What stands before the server, and may do something else with a frame.
        self.guard: Guard | None = None
        self.ends: list[End] = []
        #: Ports where nobody listens, and those that do not answer.
        self.down: set[int] = set()
        self.paused: set[int] = set()

    # A clock, as the second server and Python's ``time`` have it.

    def time(self) -> float:
        """The seconds of the clock."""
        return self.clock.seconds()

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        """Call back after that many seconds."""
        return Timer(self.clock.callLater(delay, callback, *args))

    def advance(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Let that time go by, but no more than until something has come that is enough."""
        until = self.time() + seconds
        while not is_enough():
            # In steps, so that each call is made at its time.
            due = min((call.getTime() for call in self.clock.getDelayedCalls()), default=until)
            self.clock.advance(max(0.0, min(due, until) - self.time()))
            if due > until or (due == until and self.time() >= until):
                return

    # Sockets.

    def connect(self, address: tuple[str, int], timeout: float | None = None) -> End:
        """Open a connection, as ``socket.create_connection`` does."""
        if address[1] in self.down:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        end = End(self, self.open(), address[1])
        self.ends.append(end)
        return end

    def cut(self, port: int | None = None) -> None:
        """Reset all connections, or those to a port."""
        for end in self.ends:
            if port in (None, end.port):
                end.cut()

    def poller(self) -> Poller:
        """Stand for ``select.poll``."""
        return Poller(self)


class Guard(Protocol):
    """What stands between clients and a server."""

    def pass_on(self, end: End, frame: Raw) -> bool:
        """Whether a frame of the client's is for the server; what is not was dealt with."""


class End:
    """The client's end of a connection, for who expects a socket."""

    def __init__(self, network: Network, upstream: Upstream, port: int) -> None:
        """Connect to a server at that port."""
        self.port = port
        self._network = network
        self._upstream = upstream
        self._splitter = Splitter()
        self._octets = bytearray()
        self._is_cut = self._is_ended = self._is_deaf = False

    @property
    def is_readable(self) -> bool:
        """Whether there is something to read, be it the end."""
        if self._is_cut or self._is_ended:
            return True
        if self._is_deaf or self.port in self._network.paused:
            return bool(self._octets)
        self._octets += self._upstream.take()
        return bool(self._octets) or self._upstream.is_ended or self._upstream.is_reset

    def setblocking(self, is_blocking: bool) -> None:  # noqa: FBT001 (the name of socket's)
        """Do nothing: no call blocks."""

    def setsockopt(self, *option: object) -> None:
        """Do nothing."""

    def recv(self, number: int) -> bytes:
        """What the server has written."""
        if not self.is_readable:
            raise BlockingIOError
        if self._octets:
            octets = bytes(self._octets[:number])
            del self._octets[:number]
            return octets
        if self._is_cut or (self._upstream.is_reset and not self._is_ended):
            raise ConnectionResetError
        return b""

    def send(self, octets: bytes) -> int:
        """Let the server have it at once."""
        if self._is_cut or self._upstream.is_reset:
            raise ConnectionResetError
        if self._is_lost() or self.port in self._network.paused:
            return len(octets)
        guard = self._network.guard
        if guard is None:
            self._upstream.deliver(bytes(octets))
            return len(octets)
        for frame in self._splitter.feed(bytes(octets)):
            if not frame.command or guard.pass_on(self, frame):
                self._upstream.deliver(frame.octets())
            if self._is_lost():
                break
        return len(octets)

    def _is_lost(self) -> bool:
        """Whether what is sent gets nowhere."""
        return self._is_ended or self._is_deaf

    def shutdown(self, how: int) -> None:
        """End the sending side."""
        self._upstream.end()

    def close(self) -> None:
        """End the connection."""
        self._upstream.lose()

    # What a guard can do.

    def answer(self, octets: bytes) -> None:
        """Send the client what the server knows nothing of."""
        self._octets += self._upstream.take() + octets

    def finish(self) -> None:
        """Close in an orderly way."""
        self.answer(b"")
        self._is_ended = True
        self._upstream.lose()

    def fall_silent(self) -> None:
        """Answer nothing any more, and close nothing."""
        self.answer(b"")
        self._is_deaf = True

    def cut(self) -> None:
        """Reset the connection."""
        self._is_cut = True
        self._upstream.lose()


class Poller:
    """Waits for one end by moving the clock."""

    def __init__(self, network: Network) -> None:
        """Watch nothing yet."""
        self._network = network
        self._events = 0
        self._end: End | None = None

    def register(self, end: End, events: int = 0) -> None:
        """Watch this end."""
        self._end, self._events = end, events

    modify = register

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        """Wait for what was asked for, at most that long."""
        end = self._end
        assert end is not None
        if self._events & select.POLLOUT:
            # A server is given time for what it puts off until later.
            self._network.advance(0)
            return [(0, select.POLLOUT | (select.POLLIN if end.is_readable else 0))]
        self._network.advance(milliseconds / 1000, lambda: end.is_readable)
        return [(0, select.POLLIN)] if end.is_readable else []


class VirtualNodes(Nodes):
    """Two nodes that are one server at two ports."""

    def __init__(self, network: Network, address: Address) -> None:
        """Take the network and the addresses of both."""
        super().__init__(address, has_one_store=True)
        self._network = network

    def _port(self, node: int) -> int:
        return self.address.node(node).port

    def end(self, node: int) -> bool:
        """Have nobody listen there."""
        self._network.down.add(self._port(node))
        self._network.cut(self._port(node))
        return True

    def bring_back(self, node: int) -> None:
        """Have somebody listen again."""
        self._network.down.discard(self._port(node))

    def pause(self, node: int) -> None:
        """Take what comes and answer nothing."""
        self._network.paused.add(self._port(node))

    def resume(self, node: int) -> None:
        """Answer again."""
        self._network.paused.discard(self._port(node))


class VirtualControl:
    """Restarts the server, as far as a client can see, and has its nodes."""

    def __init__(self, network: Network, address: Address) -> None:
        """Take the network and the addresses."""
        self._network = network
        self._nodes = VirtualNodes(network, address)

    def restart(self) -> None:
        """Reset all connections."""
        self._network.cut()

    def nodes(self) -> Nodes:
        """Both."""
        return self._nodes


@contextmanager
def virtual() -> Iterator[Network]:
    """Have sockets and clocks of this process be those of a network in memory."""
    network = Network()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", network.connect)
        patch.setattr(select, "poll", network.poller)
        patch.setattr(time, "monotonic", network.time)
        patch.setattr(time, "time", network.time)
        patch.setattr(time, "time_ns", lambda: int(network.time() * 1_000_000_000))
        patch.setattr(time, "sleep", network.advance)
        yield network


@dataclass(frozen=True)
class Runnable:
    """A case, and the function that it is."""

    case: Case
    function: Function

    def run(self, target: Target, control: VirtualControl) -> CaseResult:
        """Run it; raises what is not about the target."""
        try:
            self._call(target, control)
        except _Early as early:
            return judge(self.case, target, early.__cause__)
        except ABOUT_THE_TARGET as error:
            return judge(self.case, target, error)
        return judge(self.case, target, None)

    def _call(self, target: Target, control: VirtualControl) -> None:
        story: Story | None = getattr(self.function, "stompkit_story", None)
        names = inspect.signature(story or self.function).parameters
        given: dict[str, Any] = {"target": target}
        # A fixture may raise these only.
        try:
            if "cluster" in names:
                given["cluster"] = Cluster(target, control.nodes())
            if "peer" in names:
                given["peer"] = target.connect()
        except (Failed, Unsupported) as error:
            raise _Early from error
        given = {name: value for name, value in given.items() if name in names}
        if story is None:
            self.function(**given)
            return
        halves = story(given["target"], given["cluster"])
        for _ in halves:  # once, unless it ends before that
            with suppress(StopIteration):
                halves.send(given["cluster"].fail_over())


class _Early(Exception):
    """A case that did not begin."""


@cache
def runnables() -> dict[str, Runnable]:
    """All cases by their ids."""
    found = {}
    for path in sorted(cases_folder().glob("*/test_*.py")):
        if path.parent.name == "clients":
            continue
        spec = spec_from_file_location(f"virtual_{path.parent.name}_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for function in vars(module).values():
            if inspect.isfunction(function):
                for case in cases_of(function).values():
                    found[case.id] = Runnable(case, cast("Function", function))
    return found


def run_case(
    runnable: Runnable,
    network: Network,
    server: Callable[[Network], Callable[[], Upstream]],
    guard: Guard | None = None,
    **settings: float,
) -> CaseResult:
    """Run a case on a new server; raises what is not about the target."""
    network.clock.calls.clear()
    network.ends.clear()
    network.down.clear()
    network.paused.clear()
    network.open, network.guard = server(network), guard
    newest = runnable.case.version == NEWEST
    version = cast("Version", VERSIONS[-1] if newest else runnable.case.version)
    is_cluster = runnable.case.chapter == "failover"
    address = Address(
        "localhost",
        _PORT,
        others=(("localhost", _PORT + 1),) if is_cluster else (),
        **{"fuzz_sessions": 20, **settings},  # type: ignore[arg-type]
    )
    control = VirtualControl(network, address)
    target = Target(address, Capabilities(VERSIONS, ""), version, Recorder(), control)
    try:
        return runnable.run(target, control)
    finally:
        target.finish()


def second_server(switch: str = "") -> Callable[[Network], Callable[[], Upstream]]:
    """The second server with a switch on."""

    def make(network: Network) -> Callable[[], Upstream]:
        server = Server(network, switch)
        return lambda: SecondUpstream(server)

    return make


def own_broker(network: Network) -> Callable[[], Upstream]:
    """Our broker, with all that it has."""
    broker = MemoryBroker(clock=network.clock)
    return lambda: OwnUpstream(broker)
