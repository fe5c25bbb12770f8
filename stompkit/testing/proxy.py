"""A proxy between clients and a broker that breaks on purpose what passes, and can log it."""

from __future__ import annotations

import errno
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from stompkit.testing._frames.events import End
from stompkit.testing._frames.log import FrameLog
from stompkit.testing._frames.matching import Direction
from stompkit.testing._launching.brokers._launcher import url_host
from stompkit.testing._launching.ports import Ports
from stompkit.testing._proxy.faults import (
    Ending,
    Fault,
    FaultMethods,
    FaultNotSeen,
    Injection,
    Passage,
    Rule,
)
from stompkit.testing._proxy.pieces import Lane, Reader
from stompkit.testing._proxy.script import FaultScript, FaultScriptError

if TYPE_CHECKING:  # it takes a while to import, and only a proxy that runs needs it
    from asyncio import AbstractEventLoop, TimerHandle

__all__ = [
    "Direction",
    "Fault",
    "FaultNotSeen",
    "FaultScript",
    "FaultScriptError",
    "FrameLog",
    "Proxy",
]

_T = TypeVar("_T")
#: Family and address, as ``socket.getaddrinfo`` gives them.
_Address = tuple[socket.AddressFamily, Any]

#: Rules about arrivals leave nothing to chance.
_NO_RANDOM: Final = Random(0)
_READ_BYTES: Final = 65_536
#: What one direction of a connection keeps, because it is delayed or held, before it reads no more.
_MOST_KEPT_BYTES: Final = 16 * 1024 * 1024
#: How long the broker may take to accept a connection, in seconds.
_CONNECT_S: Final = 10.0
#: How long a connection that was closed is still read from: to close it with something unread would
#: turn the close into a reset.
_LINGER_S: Final = 2.0
#: How long all octets that ``bandwidth`` allows to go out at once may take, in seconds.
_SLICE_S: Final = 0.05
_BACKLOG: Final = 128
_SENDER: Final[dict[Direction, End]] = {"received": "client", "sent": "broker"}
_OTHER: Final[dict[End, End]] = {"client": "broker", "broker": "client"}


class Proxy(FaultMethods):
    """Passes on what clients and a broker say to each other, with faults on request.

    Without any fault all octets pass as they come, TLS and garbage too. Frames that are longer
    than 64 MiB, and what is no STOMP, always do: only faults about all octets act on them.

    ``frames`` gets every frame as its sender sent it, before any fault. ``told`` is called with a
    line of text for every connection and fault that happens, in the thread of the proxy.

    Everything random comes from ``seed``, for each fault, connection and direction separately: the
    same seed, faults and traffic give the same result.

    All methods can be called from any thread. What they do is in force when they return. A context
    manager: entering starts the proxy, leaving stops it.
    """

    def __init__(
        self,
        upstream_host: str,
        upstream_port: int,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
        frames: FrameLog | None = None,
        told: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare a proxy that listens on ``host`` and ``port``; 0 takes a free port.

        Raises OSError for a name that can't be resolved.
        """
        self.host = host
        self.seed = seed
        self.frames = frames
        self._port = port
        self._upstream = upstream_host, upstream_port
        self._ports = Ports(host)
        self._server = _Server(seed, frames, told)
        self._server.upstream = _resolved(upstream_host, upstream_port)
        self._thread: threading.Thread | None = None
        self._loop: AbstractEventLoop | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        """The TCP port that it listens on; what was asked for before it has started."""
        return self._port

    @property
    def url(self) -> str:
        """The address as ``stomp://host:port``."""
        return f"stomp://{url_host(self.host)}:{self.port}"

    @property
    def upstream(self) -> tuple[str, int]:
        """Where the broker is. When it is changed, new connections go to the new place.

        Raises OSError for a name that can't be resolved.
        """
        return self._upstream

    @upstream.setter
    def upstream(self, address: tuple[str, int]) -> None:
        resolved = _resolved(*address)

        def change() -> None:
            self._server.accept()  # who has connected so far goes to the old place
            self._server.upstream = resolved

        self._call(change)
        self._upstream = address

    def __repr__(self) -> str:
        """Where it listens, and what is behind it."""
        host, port = self._upstream
        return f"<Proxy {self.url} to {url_host(host)}:{port}>"

    def start(self) -> Self:
        """Listen, and return the proxy; faults can be made before.

        Raises OSError where the port can't be had, and RuntimeError the second time.
        """
        import asyncio

        if self._thread is not None or self._is_stopped:
            raise RuntimeError("a proxy can be started once only: make another one")
        if not self._port:
            # Kept, so that nobody else gets the port while connections are refused.
            self._port = self._ports.take()
        loop = asyncio.SelectorEventLoop()
        try:
            self._server.start(loop, self.host, self._port)
        except OSError:
            loop.close()
            self._ports.close()
            raise
        with self._lock:
            self._loop = loop
            self._thread = threading.Thread(target=_run, args=(loop,), name=repr(self), daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Close all connections, and stop listening. Harmless the second time.

        Raises RuntimeError if something has gone wrong in the proxy itself.
        """
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._server.stop)
        if self._thread is not None:
            self._thread.join()
        self._ports.close()
        if self._server.failure is not None:
            raise RuntimeError("the proxy has failed") from self._server.failure

    def __enter__(self) -> Self:
        """Start it if need be."""
        return self if self._thread is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def heal(self) -> None:
        """Remove all faults; what they hold or delay goes out.

        Raises OSError if new connections were refused, and the port is somebody else's now.
        """
        self._call(self._server.remove_all)

    def disconnect(self) -> None:
        """Close all connections that are open now, both sides, in the orderly way."""
        self.close().remove()

    def _put(self, rule: Rule) -> Fault:
        if self._is_stopped:
            raise RuntimeError("the proxy has stopped")
        self._call(lambda: self._server.put(rule))
        return Fault(rule, self._remove)

    def _remove(self, rule: Rule) -> None:
        self._call(lambda: self._server.remove(rule))

    def _call(self, function: Callable[[], None]) -> None:
        """Call something in the thread of the proxy, where there is one, and wait for it."""
        done: Future[None] = Future()

        def call() -> None:
            try:
                function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        with self._lock:
            is_running = self._loop is not None and not self._is_stopped
            if self._loop is not None and is_running and not self._is_own_thread():
                self._loop.call_soon_threadsafe(call)
        if not is_running and self._thread is not None:
            self._thread.join()  # so that only one thread ever touches the server
        if not is_running or self._is_own_thread():
            call()
        done.result()

    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread


def _run(loop: AbstractEventLoop) -> None:
    """Run a loop until it is stopped; the thread of a proxy."""
    try:
        loop.run_forever()
    finally:
        loop.close()


def _resolved(host: str, port: int) -> list[_Address]:
    """The addresses of a host, each to be tried."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class _Server:
    """Where connections arrive. Once started, only the thread of the loop touches it."""

    loop: AbstractEventLoop

    def __init__(
        self, seed: int, frames: FrameLog | None, told: Callable[[str], None] | None
    ) -> None:
        self.seed = seed
        self.frames = frames
        self.upstream: Sequence[_Address] = ()
        self.rules: list[Rule] = []
        #: The first thing that went wrong in a callback.
        self.failure: BaseException | None = None
        self._told = told
        self._made = 0  # rules so far
        self._accepted = 0  # connections so far
        self._connections: dict[int, _Connection] = {}
        self._lingering: dict[socket.socket, TimerHandle] = {}
        self._listener: socket.socket | None = None
        self._address: _Address | None = None

    def start(self, loop: AbstractEventLoop, host: str, port: int) -> None:
        self.loop = loop
        loop.set_exception_handler(self._failed)
        self._address = _resolved(host, port)[0]
        if self._may_listen():
            self._listen()

    def stop(self) -> None:
        self._address = None
        self._stop_listening()
        for connection in list(self._connections.values()):
            connection.over("the proxy was stopped")
        for each in list(self._lingering):
            self._stop_lingering(each)
        self.loop.stop()

    def _failed(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep an error that nobody would see otherwise."""
        failure = context.get("exception") or RuntimeError(context["message"])
        self.failure = self.failure or failure

    def tell(self, line: str) -> None:
        if self._told is not None:
            try:
                self._told(line)
            except Exception as error:  # whatever it is, the connections need not suffer
                self.failure = self.failure or error

    # Arrivals.

    def _may_listen(self) -> bool:
        return not any(rule.about == "listening" and rule.times is None for rule in self.rules)

    def _listen(self) -> None:
        if self._address is None or self._listener is not None:
            return
        family, address = self._address
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform != "win32":  # where it would share the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self.loop.add_reader(listener, self.accept)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def accept(self) -> None:
        """Take the clients that have connected."""
        while self._listener is not None:
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # it is gone already
                continue
            except OSError:  # no more descriptors, for example: it would go on like that
                self._stop_listening()
                raise
            self._take(client)

    def _take(self, client: socket.socket) -> None:
        for rule in self.rules:
            if rule.about == "listening" and rule.times is not None and rule.strikes(_NO_RANDOM):
                self.struck(rule)
                _reset(client)
                return
        self._accepted += 1
        connection = _Connection(self, self._accepted, client)
        self._connections[connection.number] = connection
        self.tell(f"#{connection.number} opened")
        if self.frames is not None:
            self.frames.opened(connection.number)
        connection.connect()

    def forget(self, connection: _Connection, reason: str, by: End | None) -> None:
        """Let go of a connection that has ended."""
        del self._connections[connection.number]
        by_whom = f" by the {by}" if by is not None else ""
        self.tell(f"#{connection.number} closed{by_whom}" + f": {reason}" * bool(reason))
        if self.frames is not None:
            self.frames.closed(connection.number, reason, by=by)

    # Rules.

    def put(self, rule: Rule) -> None:
        """Put a rule in force."""
        self.accept()  # who has connected is there, even if nobody has looked yet
        self._made += 1
        rule.number = self._made
        self.rules.append(rule)
        if rule.about == "listening" and rule.times is None:
            self._stop_listening()
            rule.happened()
            self.struck(rule)
        for connection in list(self._connections.values()):
            connection.strike(rule)
        self._changed()

    def remove(self, rule: Rule) -> None:
        """Put a rule out of force."""
        if rule in self.rules:
            self.accept()
            self.rules.remove(rule)
            self._removed([rule])

    def remove_all(self) -> None:
        """Put all rules out of force."""
        self.accept()
        removed, self.rules = self.rules, []
        self._removed(removed)

    def _removed(self, rules: Sequence[Rule]) -> None:
        for connection in list(self._connections.values()):
            for rule in rules:
                connection.heal(rule)
        self._changed()
        if self._may_listen():
            self._listen()

    def _changed(self) -> None:
        for connection in list(self._connections.values()):
            connection.change()

    def struck(self, rule: Rule, connection: int | None = None) -> None:
        """Tell that a rule has had its effect."""
        self.tell(f"#{connection} {rule}" if connection is not None else str(rule))

    # Connections that were closed, and whose other end has not seen that yet.

    def linger(self, closed: socket.socket) -> None:
        """Close a socket once the other end has, or after a while."""
        with suppress(OSError):
            closed.shutdown(socket.SHUT_WR)
        timer = self.loop.call_later(_LINGER_S, self._stop_lingering, closed)
        self._lingering[closed] = timer
        self.loop.add_reader(closed, self._drain, closed)

    def _drain(self, closed: socket.socket) -> None:
        try:
            is_open = bool(closed.recv(_READ_BYTES))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_open = False
        if not is_open:
            self._stop_lingering(closed)

    def _stop_lingering(self, closed: socket.socket) -> None:
        self._lingering.pop(closed).cancel()
        self.loop.remove_reader(closed)
        closed.close()


class _Connection:
    """A client, the broker, and what passes between them."""

    def __init__(self, server: _Server, number: int, client: socket.socket) -> None:
        self.number = number
        self.server = server
        self.is_over = False
        self._sockets: dict[End, socket.socket] = {"client": client}
        self._addresses = deque(server.upstream)
        self._timer: TimerHandle | None = None
        #: Why and by whom it is ended, as far as that is known.
        self._cause: tuple[str, End | None] = "", None
        #: The rule by which one of its ends is gone, without the other one's knowledge.
        self._half_open_by: Rule | None = None
        self._stops: dict[Rule, End] = {}
        #: Rules that are to take effect as soon as the broker has accepted the connection.
        self._postponed: list[Rule] = []
        self._reader = Reader()
        self._flows: dict[Direction, _Flow] = {
            "received": _Flow(self, "received", self._reader),
            "sent": _Flow(self, "sent", self._reader),
        }
        client.setblocking(False)
        self.change()

    # The way to the broker.

    def connect(self) -> None:
        """Connect to the next of the broker's addresses."""
        loop = self.server.loop
        if self._timer is None:
            self._timer = loop.call_later(_CONNECT_S, self._refused, "the broker did not answer")
        while self._addresses:
            family, address = self._addresses.popleft()
            try:
                broker = socket.socket(family, socket.SOCK_STREAM)
            except OSError:  # no IPv6 here, for example
                continue
            broker.setblocking(False)
            status = broker.connect_ex(address)
            if status in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                self._sockets["broker"] = broker
                loop.add_writer(broker, self._tried)
                return
            broker.close()
        self._refused("the broker refused the connection")

    def _tried(self) -> None:
        broker = self._sockets["broker"]
        self.server.loop.remove_writer(broker)
        if broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or _is_loop(broker):
            self._sockets.pop("broker").close()
            self.connect()
            return
        self._stop_timer()
        for each in self._sockets.values():
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction, flow in self._flows.items():
            sender = _SENDER[direction]
            flow.start(self._sockets[sender], self._sockets[_OTHER[sender]])
        for rule in self.server.rules:
            if rule.later or rule in self._postponed:
                self.strike(rule)
        self.change()

    def _refused(self, reason: str) -> None:
        self._cause = reason, "broker"
        self.end("reset")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _is_through(self) -> bool:
        """Whether the broker has accepted it."""
        return self._timer is None

    # Faults.

    def strike(self, rule: Rule) -> None:
        """Have a rule about connections take effect, if it means this one."""
        if self.is_over or rule.act_on is None or rule.match.connection not in (None, self.number):
            return
        if not self._is_through and (rule.later or rule.kind == "half_open"):
            self._postponed.append(rule)  # there has to be something whose end is not seen
        elif rule.strikes(self._flows["sent"].lane.random(rule)):
            self.server.struck(rule, self.number)
            rule.act_on(self, rule)

    def heal(self, rule: Rule) -> None:
        """Undo what a rule about connections has done."""
        self._stops.pop(rule, None)
        if rule is self._half_open_by:
            self.end("reset", rule)

    def change(self) -> None:
        """Go by the rules of the proxy as they are now."""
        for flow in self._flows.values():
            flow.change(self.server.rules)

    def stop_reading(self, side: End, why: Rule) -> None:
        """Read nothing any more that is sent to ``side``."""
        self._stops[why] = side

    def is_stopped(self, reader: End) -> bool:
        """Whether one end seems not to read."""
        return reader in self._stops.values()

    def inject(self, injection: Injection) -> None:
        """Put something in."""
        self._flows[injection.direction].lane.inject(injection.octets(self._reader.version))

    # The end.

    def ended(self, sender: End, *, is_reset: bool) -> None:
        """Know that one end has closed its direction, or has cut everything off."""
        if self._cause == ("", None):
            self._cause = "reset" if is_reset else "", sender
        if is_reset:
            self._flow_to(sender).discard()
            self._close(sender, "reset")
        if self._half_open_by is not None:
            self.over()

    def lost(self, end: End) -> None:
        """Know that one end takes nothing any more; what it has said before is still read."""
        self._flow_to(end).discard()
        self._flow_to(_OTHER[end]).break_off()

    def _flow_to(self, end: End) -> _Flow:
        return self._flows["received" if end == "broker" else "sent"]

    def passed_end(self) -> None:
        """Know that one end has got the end of what the other one sent."""
        if all(flow.is_finished for flow in self._flows.values()):
            self.over()

    def end(self, ending: Ending, why: Rule | None = None) -> None:
        """End it, or one of its sides."""
        if self.is_over:
            return
        if why is not None:
            self._cause = f"fault: {why.kind}", None
        if ending in ("client gone", "broker gone"):
            gone: End = "client" if ending == "client gone" else "broker"
            self._half_open_by = why
            self._flow_to(gone).discard()
            self._flow_to(_OTHER[gone]).stop()
            self._close(gone, "reset")
            return
        for flow in self._flows.values():
            flow.stop()
        for end in list(self._sockets):
            self._close(end, ending)
        self.over()

    def over(self, reason: str | None = None) -> None:
        """Let go of everything."""
        if self.is_over:
            return
        self.is_over = True
        self._stop_timer()
        for flow in self._flows.values():
            flow.stop()
        for end in list(self._sockets):
            self._close(end, None)
        cause, by = self._cause
        self.server.forget(self, *((cause, by) if reason is None else (reason, None)))

    def _close(self, end: End, ending: Ending | None) -> None:
        """Close one socket: by a reset, or with patience, or simply."""
        closed = self._sockets.pop(end, None)
        if closed is None:
            return
        self.server.loop.remove_reader(closed)
        self.server.loop.remove_writer(closed)
        if ending == "reset":
            _reset(closed)
        elif ending == "close" and self._is_through:
            self.server.linger(closed)
        else:
            closed.close()


@dataclass(slots=True, eq=False)
class _Item:
    """What waits to go out."""

    octets: memoryview
    """What has not gone out yet."""
    passage: Passage
    """How it goes, and what comes then."""
    came: float = 0.0
    """When it came, by the clock of the loop."""
    due: float = 0.0
    """When it may go."""

    @property
    def is_plain(self) -> bool:
        """Whether it can go out together with others."""
        return not self.due and not self.passage.slice_bytes and self.passage.ending is None


class _Flow:
    """One direction of a connection, from one socket to the other."""

    def __init__(self, connection: _Connection, direction: Direction, reader: Reader) -> None:
        server = connection.server
        self.is_finished = False  # the end has been passed on
        self.lane = Lane(
            direction,
            connection.number,
            reader,
            seed=server.seed,
            log=server.frames,
            out=self._put,
            inject=connection.inject,
            struck=lambda rule: server.struck(rule, connection.number),
        )
        self._connection = connection
        self._loop = server.loop
        self._number = connection.number
        self._direction: Direction = direction
        self._sender = _SENDER[direction]
        self._source: socket.socket | None = None
        self._target: socket.socket | None = None
        self._queue: deque[_Item] = deque()
        self._queued_bytes = 0
        self._timer: TimerHandle | None = None
        self._is_reading = False
        self._is_feeding = False
        self._is_blocked = False  # the target takes no more
        self._has_ended = False  # the source sends no more
        self._is_discarding = False
        self._is_broken = False  # its end will not be one in order
        self._rates: list[Rule] = []
        self._free_at = 0.0  # when the bandwidth allows more

    def start(self, source: socket.socket, target: socket.socket) -> None:
        """Begin to pass octets."""
        self._source, self._target = source, target
        self._pump()
        self._choose_reading()

    def change(self, rules: Sequence[Rule]) -> None:
        """Go on with these rules."""
        self._rates = [
            rule
            for rule in rules
            if rule.about == "rate"
            and rule.match.direction in (None, self._direction)
            and rule.match.connection in (None, self._number)
        ]
        for item in self._queue:
            if not item.passage.delays.keys() <= set(rules):
                item.passage.delays = {r: s for r, s in item.passage.delays.items() if r in rules}
                item.due = _due(item)
        if not self._is_discarding:
            self.lane.change(rules)
            self._pump()
        self._choose_reading()

    def discard(self) -> None:
        """Lose all that is on the way, and all that still comes."""
        self._is_discarding = True
        self._queue.clear()
        self._queued_bytes = 0
        self._stop_timer()
        if self._is_blocked and self._target is not None:
            self._loop.remove_writer(self._target)
        self._is_blocked = False
        self._target = None
        self._choose_reading()

    def stop(self) -> None:
        """Touch the sockets no more."""
        self._has_ended = True
        self.discard()
        self._source = None

    # Reading.

    def _choose_reading(self) -> None:
        """Read if there is a reason to, and none not to."""
        if self._source is None:
            return
        wants = (
            not self._has_ended
            and not self._is_blocked
            and self._queued_bytes + self.lane.kept_bytes < _MOST_KEPT_BYTES
            and not self._connection.is_stopped(_OTHER[self._sender])
        )
        if wants and not self._is_reading:
            self._loop.add_reader(self._source, self._read)
        elif self._is_reading and not wants:
            self._loop.remove_reader(self._source)
        self._is_reading = wants

    def _read(self) -> None:
        assert self._source is not None  # or nobody would have said that it is readable
        try:
            octets = self._source.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(is_reset=True)
            return
        if not octets:
            self._end(is_reset=self._is_broken)
        elif not self._is_discarding:
            self._is_feeding = True  # what comes of these octets goes out together
            try:
                self.lane.feed(octets)
            finally:
                self._is_feeding = False
            self._pump()

    def _end(self, *, is_reset: bool) -> None:
        self._has_ended = True
        self._choose_reading()
        if is_reset:
            self._source = None
        self._connection.ended(self._sender, is_reset=is_reset)
        if not self._is_discarding:
            self.lane.finish("reset" if is_reset else "eof")

    def break_off(self) -> None:
        """Know that the source is gone; it may have said something before."""
        self._is_broken = True
        if self._has_ended and self._source is not None:
            self._end(is_reset=True)

    # Writing.

    def _put(self, passage: Passage) -> None:
        if self._is_discarding:
            return
        item = _Item(memoryview(passage.octets), passage)
        if passage.delays:
            item.came = self._loop.time()
            item.due = _due(item)
        self._queue.append(item)
        self._queued_bytes += len(passage.octets)
        if not self._is_feeding:
            self._pump()

    def _pump(self) -> None:
        """Let out what may go."""
        self._stop_timer()
        while self._queue and self._target is not None and not self._is_blocked:
            item = self._queue[0]
            due = max(item.due, self._free_at if self._rates and item.octets else 0.0)
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self._pump)
                break
            if item.is_plain and len(self._queue) > 1:
                self._join()
                item = self._queue[0]
            if item.octets and not self._write(item, self._target):
                continue
            if not item.octets:
                self._queue.popleft()
                self._conclude(item.passage)
            elif item.passage.slice_bytes:
                item.due = self._loop.time() + item.passage.pause_s
                self._timer = self._loop.call_at(item.due, self._pump)
                break
        self._choose_reading()

    def _join(self) -> None:
        """Make one item of the first ones, as far as they can go out together."""
        plain = list(takewhile(lambda item: item.is_plain, self._queue))
        if len(plain) > 1:
            for _ in plain:
                self._queue.popleft()
            octets = memoryview(b"".join(item.octets for item in plain))
            self._queue.appendleft(_Item(octets, Passage(b"")))

    def _write(self, item: _Item, target: socket.socket) -> bool:
        """Write octets of an item, and tell whether any have gone."""
        octets = item.octets
        rate = min((rule.bytes_per_s for rule in self._rates), default=0.0)
        if rate:
            octets = octets[: max(1, int(rate * _SLICE_S))]
        if item.passage.slice_bytes:
            octets = octets[: item.passage.slice_bytes]
        try:
            sent = target.send(octets)
        except (BlockingIOError, InterruptedError):
            self._is_blocked = True
            self._loop.add_writer(target, self._unblocked)
            return False
        except OSError:
            self._connection.lost(_OTHER[self._sender])
            return False
        item.octets = item.octets[sent:]
        self._queued_bytes -= sent
        if rate:
            self._free_at = max(self._loop.time(), self._free_at) + sent / rate
            for rule in self._rates:
                if self._queued_bytes and rule.bytes_per_s == rate:
                    rule.happened()
        return True

    def _unblocked(self) -> None:
        assert self._target is not None  # it was, when it was blocked
        self._is_blocked = False
        self._loop.remove_writer(self._target)
        self._pump()

    def _conclude(self, passage: Passage) -> None:
        """Do what comes after an item."""
        ending = passage.ending
        if ending == "eof":
            self.is_finished = True
            if self._target is not None:
                with suppress(OSError):
                    self._target.shutdown(socket.SHUT_WR)
            self._connection.passed_end()
        elif ending is not None:
            self._connection.end(ending, passage.ended_by)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _due(item: _Item) -> float:
    """When an item may go by its delays."""
    delays = item.passage.delays
    return item.came + sum(delays.values()) if delays else 0.0


def _is_loop(connection: socket.socket) -> bool:
    """Whether a socket is connected to itself, as one can be where nobody listens."""
    with suppress(OSError):
        return bool(connection.getsockname() == connection.getpeername())
    return False


#: Linger for no time: close() sends a reset.
_NO_LINGER: Final = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


def _reset(connection: socket.socket) -> None:
    """Close with a TCP reset."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    connection.close()
