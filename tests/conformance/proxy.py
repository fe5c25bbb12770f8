"""A server that breaks one rule: our broker behind a proxy that changes frames.

A fault is a subclass of :class:`Fault`, or a function from which :func:`answers` or
:func:`requests` makes one. Each connection has a separate fault object. Those of one server refer
to each other by ``connections``, and share data by reading the attributes of the others.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import ClassVar, Self

from tests.conformance.raw import Raw, Splitter
from tests.conformance.scripted import Behaviour, Gone, Line

_READ_BYTES = 65_536
#: Time in seconds within which the broker ends a connection after its client.
_PARTING_S = 5.0
_numbers = itertools.count(1)


class Fault:
    """A broken rule, which the docstring of the class describes; one object for each connection.

    Frames of the client and of the broker are processed in two threads: ``from_client`` is called
    by one, ``from_server`` by the other.
    """

    #: Ids of the cases that detect the fault, including NON-STRICT ones.
    found_by: ClassVar[tuple[str, ...]]
    #: Bytes that the client receives immediately after connecting.
    greeting: ClassVar[bytes] = b""
    #: The version in CONNECTED.
    version = "1.0"
    #: True if the client has ended the connection, or it was closed.
    is_over = False

    def __init__(self, line: Line) -> None:
        """Start before any frame has passed."""
        self.line = line
        #: True to keep the client's connection open after the broker has closed.
        self.keeps_open = False
        #: All connections of the same server, including this one and ended ones.
        self.connections: list[Self] = []
        self._upstream: socket.socket | None = None
        self._to_client, self._to_broker = threading.Lock(), threading.Lock()
        self._requests, self._answers = Splitter(), Splitter()

    # Methods that faults override.

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Yield the frames that the broker gets instead of a frame of the client."""
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Yield the frames that the client gets instead of a frame of the broker."""
        yield frame

    def at_end(self) -> Iterable[Raw]:
        """Return further frames for the broker after the client has ended the connection."""
        return ()

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        """Yield bytes for the broker for each read; overridden by faults that need raw bytes."""
        for frame in self._requests.feed(octets):
            for each in self.from_client(frame):
                yield each.octets()

    def octets_from_server(self, octets: bytes) -> Iterable[bytes]:
        """Yield bytes for the client for each read; overridden by faults that need raw bytes."""
        for frame in self._answers.feed(octets):
            if frame.command == b"CONNECTED":
                self.version = frame.get("version") or "1.0"
            for each in self.from_server(frame):
                yield each.octets()

    # Methods that faults can call at any time, in any thread, for any connection.

    def to_client(self, frame: Raw) -> None:
        """Send the client a frame that is not from the broker, unless the client has gone."""
        with contextlib.suppress(Gone):
            self.send_client(frame.octets())

    def to_broker(self, frame: Raw) -> None:
        """Send the broker a frame that is not from the client, unless the broker has closed."""
        with contextlib.suppress(OSError):
            self.send_broker(frame.octets())

    # Methods that the proxy calls.

    def send_client(self, octets: bytes) -> None:
        """Send all bytes; raises :class:`Gone`."""
        with self._to_client:
            self.line.send(octets)

    def send_broker(self, octets: bytes) -> None:
        """Send all bytes; raises ``OSError``."""
        with self._to_broker:
            if self._upstream is not None:
                self._upstream.sendall(octets)

    def join(self, upstream: socket.socket, connections: list[Self]) -> None:
        """Store this connection to the broker, and add the fault to those of the server."""
        self._upstream = upstream
        self.connections = connections
        connections.append(self)


Spoiler = Callable[[Raw], None]


def in_versions(versions: str, *names: str) -> tuple[str, ...]:
    """Return the ids of cases that several versions have."""
    return tuple(f"{version}/{name}" for version in versions.split() for name in names)


ALL = "1.0 1.1 1.2"
NEW = "1.1 1.2"


def answers(command: str, *found_by: str) -> Callable[[Spoiler], type[Fault]]:
    """Make a fault of a function that changes the server's frames with these commands, or all."""
    return _making("from_server", command, found_by)


def requests(command: str, *found_by: str) -> Callable[[Spoiler], type[Fault]]:
    """Make a fault of a function that changes the client's frames with these commands, or all."""
    return _making("from_client", command, found_by)


def _making(
    method: str, command: str, found_by: tuple[str, ...]
) -> Callable[[Spoiler], type[Fault]]:
    commands = command.encode().split()

    def make(spoil: Spoiler) -> type[Fault]:
        def spoiled(self: Fault, frame: Raw) -> Iterable[Raw]:
            if not commands or frame.command in commands:
                spoil(frame)
            yield frame

        members = {
            "found_by": found_by,
            method: spoiled,
            "__doc__": spoil.__doc__,
            "__module__": spoil.__module__,
        }
        return type(spoil.__name__, (Fault,), members)

    return make


def make_harmless(frame: Raw) -> None:
    """Turn a frame into one whose only effect is the requested RECEIPT."""
    receipt = frame.get("receipt")
    frame.command, frame.body = b"BEGIN", b""
    frame.lines = [b"transaction:harmless-%d" % next(_numbers)]
    if receipt is not None:
        frame.put("receipt", receipt)


def refuse(frame: Raw) -> None:
    """Turn a frame into one that the broker refuses with ERROR."""
    frame.command = b"REFUSED"


def faults_of(*modules: ModuleType) -> dict[str, type[Fault]]:
    """Return all faults that modules define, by name; raises ``ValueError`` for a duplicate."""
    faults: dict[str, type[Fault]] = {}
    for module in modules:
        for name, each in vars(module).items():
            if isinstance(each, type) and issubclass(each, Fault) and _is_defined(each, module):
                key = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
                if key in faults:
                    raise ValueError(f"{module.__name__}: there is another fault called {key}")
                faults[key] = each
    return faults


def _is_defined(fault: type[Fault], module: ModuleType) -> bool:
    """Return True if the module defines the fault, and it is not only a base class."""
    return fault.__module__ == module.__name__ and hasattr(fault, "found_by")


def behind(fault: type[Fault], host: str, port: int) -> Behaviour:
    """Return the behaviour of a proxy in front of the broker at that address."""
    connections: list[Fault] = []

    def behaviour(line: Line) -> None:
        upstream = socket.create_connection((host, port))
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        spoiler = fault(line)
        spoiler.join(upstream, connections)
        back = threading.Thread(target=_answers, args=(upstream, spoiler))
        try:
            spoiler.send_client(spoiler.greeting)
            back.start()
            _pump(line.receive, spoiler.send_broker, spoiler.octets_from_client)
            for frame in spoiler.at_end():
                spoiler.to_broker(frame)
            with contextlib.suppress(OSError):
                upstream.shutdown(socket.SHUT_WR)
            back.join(_PARTING_S)
        finally:
            spoiler.is_over = True
            with contextlib.suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)
            if back.ident is not None:
                back.join()
            upstream.close()

    return behaviour


def _answers(upstream: socket.socket, spoiler: Fault) -> None:
    def receive() -> bytes:
        return upstream.recv(_READ_BYTES)

    _pump(receive, spoiler.send_client, spoiler.octets_from_server)
    if not spoiler.keeps_open:
        spoiler.line.end()


def _pump(
    receive: Callable[[], bytes],
    send: Callable[[bytes], None],
    spoil: Callable[[bytes], Iterable[bytes]],
) -> None:
    with contextlib.suppress(OSError, Gone):
        while octets := receive():
            for each in spoil(octets):
                send(each)
