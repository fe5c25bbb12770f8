"""A server that breaks one rule: our broker behind a proxy that spoils what passes through."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import ClassVar

from tests.conformance.raw import Raw, Splitter
from tests.conformance.scripted import Behaviour, Gone, Line

_READ_BYTES = 65_536


class Fault:
    """A rule that is broken, in the words of the class's docstring; one for each connection."""

    #: Ids of the cases that find out, NON-STRICT ones included.
    found_by: ClassVar[tuple[str, ...]]
    #: What the client gets as soon as it has connected.
    greeting: ClassVar[bytes] = b""

    def __init__(self, line: Line) -> None:
        """Begin with a connection that nothing has passed through."""
        self.line = line
        #: Whether the client is not told that the broker has closed.
        self.keeps_open = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """What the broker gets instead of a frame of the client's."""
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """What the client gets instead of a frame of the broker's."""
        yield frame


Spoiler = Callable[[Raw], None]


def in_versions(versions: str, *names: str) -> tuple[str, ...]:
    """Ids of cases that several versions have."""
    return tuple(f"{version}/{name}" for version in versions.split() for name in names)


ALL = "1.0 1.1 1.2"
NEW = "1.1 1.2"


def answers(command: str, *found_by: str) -> Callable[[Spoiler], type[Fault]]:
    """Make a fault of a function that spoils the server's frames with this command, or all."""
    return _making("from_server", command, found_by)


def requests(command: str, *found_by: str) -> Callable[[Spoiler], type[Fault]]:
    """Make a fault of a function that spoils the client's frames with this command, or all."""
    return _making("from_client", command, found_by)


def _making(
    method: str, command: str, found_by: tuple[str, ...]
) -> Callable[[Spoiler], type[Fault]]:
    def make(spoil: Spoiler) -> type[Fault]:
        def spoiled(self: Fault, frame: Raw) -> Iterable[Raw]:
            if command in (frame.command.decode(), ""):
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


def faults_of(*modules: ModuleType) -> dict[str, type[Fault]]:
    """All that modules define, by names in one style."""
    return {
        re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, Fault) and each is not Fault
    }


def behind(fault: type[Fault], host: str, port: int) -> Behaviour:
    """The behaviour of a proxy in front of the broker at that address."""

    def behaviour(line: Line) -> None:
        upstream = socket.create_connection((host, port))
        upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        spoiler = fault(line)
        back = threading.Thread(target=_answers, args=(upstream, line, spoiler))
        try:
            line.send(spoiler.greeting)
            back.start()
            _pump(line.receive, upstream.sendall, spoiler.from_client)
        finally:
            with contextlib.suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)
            if back.ident is not None:
                back.join()
            upstream.close()

    return behaviour


def _answers(upstream: socket.socket, line: Line, spoiler: Fault) -> None:
    with contextlib.suppress(OSError, Gone):
        _pump(lambda: upstream.recv(_READ_BYTES), line.send, spoiler.from_server)
    if not spoiler.keeps_open:
        line.end()


def _pump(
    receive: Callable[[], bytes],
    send: Callable[[bytes], None],
    spoil: Callable[[Raw], Iterable[Raw]],
) -> None:
    splitter = Splitter()
    with contextlib.suppress(OSError, Gone):
        while octets := receive():
            for frame in splitter.feed(octets):
                for each in spoil(frame):
                    send(each.octets())
