"""Cases without sockets and without waiting: an in-memory network, and a simulated clock.

The suite runs unchanged, in one thread. Its sockets are in memory. A wait for something that does
not arrive advances the clock to the next timer or to the end of the wait. So a run takes only
computing time, and is deterministic.
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
from stompkit.conformance.plugin import excuse, is_valid, judge
from stompkit.conformance.run.runner import cases_folder
from stompkit.conformance.target import Capabilities, Target
from stompkit.conformance.verdict import CaseResult, FailedError, UnsupportedError
from stompkit.frames import VERSIONS, Version
from stompkit.testing.memory import MemoryBroker
from tests.conformance.raw import Raw, Splitter
from tests.conformance.second_server.connection import Connection, Handle, Server

#: Exceptions that are about the target; all others are errors of the case.
ABOUT_THE_TARGET: Final = (AssertionError, UnsupportedError, LookupError, ValueError)
#: Start of the clock, in seconds since 1970; it is used for durations and dates.
_EPOCH_S: Final = 1_700_000_000.0
_PORT: Final = 61_613

Function = Callable[..., None]


class Upstream(Protocol):
    """Interface of the server's side of a connection, for the client's end."""

    def deliver(self, octets: bytes) -> None:
        """Pass bytes from the client to the server."""

    def take(self) -> bytes:
        """Return the bytes that the server has written since the last call."""

    @property
    def is_ended(self) -> bool:
        """True if the server has ended its stream."""

    @property
    def is_reset(self) -> bool:
        """True if the server has reset the connection."""

    def end(self) -> None:
        """End the client's stream."""

    def lose(self) -> None:
        """Report the loss of the connection to the server."""


class SecondUpstream:
    """A connection to the second server, which uses this object as its transport."""

    def __init__(self, server: Server) -> None:
        """Connect to that server."""
        self._octets = bytearray()
        self.is_ended = self.is_reset = self._is_lost = False
        self._client = Connection(server)
        self._client.connection_made(self)

    def deliver(self, octets: bytes) -> None:
        """Pass bytes to the server immediately."""
        if not self._is_lost:
            self._client.data_received(octets)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        octets = bytes(self._octets)
        self._octets.clear()
        return octets

    def end(self) -> None:
        """End both directions, as asyncio does."""
        self.is_ended = True
        self.lose()

    def lose(self) -> None:
        """End the connection."""
        if not self._is_lost:
            self._is_lost = True
            self._client.connection_lost(None)

    def write(self, octets: bytes) -> None:
        """Store bytes for the client."""
        self._octets += octets

    def write_eof(self) -> None:
        """End the stream."""
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
        """Pass bytes to the broker immediately."""
        self._client.transport.deliver(octets)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        return self._client.transport.take()

    @property
    def is_ended(self) -> bool:
        """True if the broker has ended its stream."""
        return self._client.transport.eof

    @property
    def is_reset(self) -> bool:
        """True if the broker has reset the connection."""
        return self._client.transport.lost and not self._client.transport.eof

    def end(self) -> None:
        """End the client's stream."""
        self._client.end()

    def lose(self) -> None:
        """End the connection."""
        self._client.close()


class Timer:
    """A call of Twisted with the interface of asyncio: a finished call can be cancelled."""

    def __init__(self, call: IDelayedCall) -> None:
        """Store the call."""
        self._call = call

    def cancel(self) -> None:
        """Cancel the call."""
        if self._call.active():
            self._call.cancel()


class Network:
    """Connections to one server with one or two nodes, and a simulated clock."""

    def __init__(self) -> None:
        """Create a network with the second server."""
        self.clock = Clock()
        self.clock.rightNow = _EPOCH_S
        self.open: Callable[[], Upstream] = lambda: SecondUpstream(Server(self))
        #: Inspects frames before the server, and may handle them in another way.
        self.guard: Guard | None = None
        self.ends: list[End] = []
        #: Ports that refuse connections, and ports that do not reply.
        self.down: set[int] = set()
        self.paused: set[int] = set()

    # Interface of a clock, for the second server and Python's ``time``.

    def time(self) -> float:
        """Return the time of the clock, in seconds."""
        return self.clock.seconds()

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        """Schedule a call after *delay* seconds."""
        return Timer(self.clock.callLater(delay, callback, *args))

    def advance(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Advance the clock by *seconds*, or until ``is_enough`` is true."""
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
        """Return a replacement for ``select.poll``."""
        return Poller(self)


class Guard(Protocol):
    """Interface of an object between clients and a server."""

    def pass_on(self, end: End, frame: Raw) -> bool:
        """Return True to forward a frame of the client; otherwise the guard has handled it."""


class End:
    """The client's end of a connection, with the interface of a socket."""

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
        """True if there is data to read, or the end of the stream."""
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
        """Return bytes that the server has written."""
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
        """Pass bytes to the server immediately."""
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
        """Return True if sent bytes are lost."""
        return self._is_ended or self._is_deaf

    def shutdown(self, how: int) -> None:
        """End the sending side."""
        self._upstream.end()

    def close(self) -> None:
        """End the connection."""
        self._upstream.lose()

    # Methods for guards.

    def answer(self, octets: bytes) -> None:
        """Send the client bytes that are not from the server."""
        self._octets += self._upstream.take() + octets

    def finish(self) -> None:
        """Close gracefully."""
        self.answer(b"")
        self._is_ended = True
        self._upstream.lose()

    def fall_silent(self) -> None:
        """Stop replying, but do not close."""
        self.answer(b"")
        self._is_deaf = True

    def cut(self) -> None:
        """Reset the connection."""
        self._is_cut = True
        self._upstream.lose()


class Poller:
    """Waits for one end by advancing the clock."""

    def __init__(self, network: Network) -> None:
        """Start without an end."""
        self._network = network
        self._events = 0
        self._end: End | None = None

    def register(self, end: End, events: int = 0) -> None:
        """Register the end."""
        self._end, self._events = end, events

    modify = register

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        """Wait for the registered events, up to a timeout."""
        end = self._end
        assert end is not None
        if self._events & select.POLLOUT:
            # The server processes calls that it has postponed.
            self._network.advance(0)
            return [(0, select.POLLOUT | (select.POLLIN if end.is_readable else 0))]
        self._network.advance(milliseconds / 1000, lambda: end.is_readable)
        return [(0, select.POLLIN)] if end.is_readable else []


class VirtualNodes(Nodes):
    """Two nodes, which are one server on two ports."""

    def __init__(self, network: Network, address: Address) -> None:
        """Store the network and the addresses of both nodes."""
        super().__init__(address, has_one_store=True)
        self._network = network

    def _port(self, node: int) -> int:
        return self.address.node(node).port

    def end(self, node: int) -> bool:
        """Make the port of a node refuse connections."""
        self._network.down.add(self._port(node))
        self._network.cut(self._port(node))
        return True

    def bring_back(self, node: int) -> None:
        """Make the port of a node accept connections again."""
        self._network.down.discard(self._port(node))

    def pause(self, node: int) -> None:
        """Pause a node: it accepts data, but does not reply."""
        self._network.paused.add(self._port(node))

    def resume(self, node: int) -> None:
        """Resume a node."""
        self._network.paused.discard(self._port(node))


class VirtualControl:
    """Restarts the server, as visible to a client, and controls its nodes."""

    def __init__(self, network: Network, address: Address) -> None:
        """Store the network and the addresses."""
        self._network = network
        self._nodes = VirtualNodes(network, address)

    def restart(self) -> None:
        """Reset all connections."""
        self._network.cut()

    def nodes(self) -> Nodes:
        """Return both nodes."""
        return self._nodes


@contextmanager
def virtual() -> Iterator[Network]:
    """Replace the sockets and clocks of this process by those of an in-memory network."""
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
    """A case with its function."""

    case: Case
    function: Function

    def run(self, target: Target, control: VirtualControl) -> CaseResult:
        """Run the case; raises exceptions that are not about the target."""
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
        # Only fixtures may raise these before the case begins.
        try:
            if "cluster" in names:
                given["cluster"] = Cluster(target, control.nodes())
            if "peer" in names:
                given["peer"] = target.connect()
        except (FailedError, UnsupportedError) as error:
            raise _Early from error
        given = {name: value for name, value in given.items() if name in names}
        if story is None:
            self.function(**given)
            return
        halves = story(given["target"], given["cluster"])
        for _ in halves:  # at most once
            with suppress(StopIteration):
                halves.send(given["cluster"].fail_over())


class _Early(Exception):
    """A case that ended in its fixtures."""


@cache
def runnables() -> dict[str, Runnable]:
    """Return all cases by their ids."""
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
    """Run a case on a new server; raises exceptions that are not about the target."""
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
    target.has_valid_frames = is_valid(runnable.case)
    try:
        result = runnable.run(target, control)
        # What the suite tries afterwards is not part of the case.
        network.guard = None
        excuse(result, target)
    finally:
        target.finish()
    result.violations = target.violations
    return result


def second_server(switch: str = "") -> Callable[[Network], Callable[[], Upstream]]:
    """Return a factory for the second server with a switch."""

    def make(network: Network) -> Callable[[], Upstream]:
        server = Server(network, switch)
        return lambda: SecondUpstream(server)

    return make


def own_broker(network: Network) -> Callable[[], Upstream]:
    """Return a factory for connections to our broker."""
    broker = MemoryBroker(clock=network.clock)
    return lambda: OwnUpstream(broker)
