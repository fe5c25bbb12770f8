"""How tests have a say in a broker of ours: the other end of its control socket.

The protocol is described in ``stompkit/testing/server/_control.py``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stompkit.testing._launching.errors import BrokerError

__all__ = ["BrokerClock", "ControlSocket", "DestinationInfo", "SessionInfo", "server_path"]

#: How many octets the address of a Unix socket may have everywhere.
_MOST_PATH_BYTES: Final = 100
#: How long an answer may take, in seconds; moving the clock far can set off a lot.
_ANSWER_S: Final = 30.0


class ControlSocket:
    """Asks a broker for something, and waits for its answer; connected from the first time on."""

    def __init__(self, path: Path) -> None:
        """Name the socket, which is not yet connected to."""
        self._path = path
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Have the broker do something; return the fields of its answer.

        Raises BrokerError where it can't be asked, or can't do it.
        """
        request = json.dumps({"do": do, **fields}).encode() + b"\n"
        with self._lock:
            try:
                if self._socket is None:
                    self._socket = _connected(self._path)
                self._socket.sendall(request)
                line = self._line(self._socket)
            except OSError as error:
                self.close()
                raise BrokerError(f"the broker could not be asked for {do}: {error}") from error
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BrokerError(f"the broker could not do {do}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Leave the broker alone; it is connected to again when it is asked again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @staticmethod
    def _line(connection: socket.socket) -> bytes:
        """The line that the broker answers with."""
        line = b""
        while not line.endswith(b"\n"):
            octets = connection.recv(65_536)
            if not octets:
                raise ConnectionError("it has closed the connection")
            line += octets
        return line


class BrokerClock:
    """The clock of a broker: the real time, and what tests have added to it."""

    def __init__(self, ask: Callable[..., dict[str, Any]]) -> None:
        """Ask by ``ask``, as by ``ControlSocket.ask``."""
        self._ask = ask
        #: Whether this process has moved it since it was right.
        self.is_moved = False

    def now(self) -> float:
        """The broker's time, in seconds since the epoch."""
        now: float = self._ask("now")["now"]
        return now

    def advance(self, seconds: float) -> None:
        """Let time pass for the broker: all that happens in so many seconds happens at once.

        Raises BrokerError for a negative number of seconds.
        """
        self._ask("advance", seconds=float(seconds))
        self.is_moved = True

    def reset(self) -> None:
        """Go back to the real time; what waits does so for as long as it would have."""
        self._ask("realtime")
        self.is_moved = False


@dataclass(frozen=True)
class DestinationInfo:
    """What a broker has in one destination, or durable subscription."""

    name: str
    """The destination."""
    kind: str
    """``queue``, ``topic``, ``fanout``, ``temp-queue``, ``temp-topic``, ``dlq`` or ``durable``."""
    host: str
    """The virtual host."""
    ready: int
    """Messages that wait to be delivered."""
    in_flight: int
    """Messages that were delivered and not acknowledged."""
    delayed: int
    """Messages that wait for their time."""
    consumers: int
    """Subscriptions."""


@dataclass(frozen=True)
class SessionInfo:
    """One client of a broker."""

    peer: str
    """Its address, or that of the proxy in between."""
    version: str | None
    """The version of the session; ``None`` before CONNECTED."""
    user: str
    """Who has logged in."""
    host: str
    """The virtual host."""
    subscriptions: int
    """How many it has."""
    in_flight: int
    """Messages that it has got and not acknowledged."""


def server_path(path: Path) -> str:
    """What to call a socket for a broker that is run in the directory of the socket.

    Raises BrokerError where the path is too long for a socket and there is no shorter one.
    """
    if len(os.fsencode(path)) <= _MOST_PATH_BYTES:
        return str(path)
    if sys.platform != "linux":
        raise BrokerError(f"{path} is too long for a socket: name a shorter directory")
    return f"/proc/self/cwd/{path.name}"


def _connected(path: Path) -> socket.socket:
    """Connect to a socket, however long its path is."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_ANSWER_S)
        if len(os.fsencode(path)) <= _MOST_PATH_BYTES:
            connection.connect(str(path))
        else:
            _connect_within(path.parent, path.name, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_within(directory: Path, name: str, connection: socket.socket) -> None:
    """Connect to a socket by the short name that Linux has for its directory once it is open."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
