"""The client of the control socket, by which tests control a stompkit broker.

The protocol is described in ``stompkit/testing/server/_control.py``.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stompkit.testing.launching.errors import BrokerError

__all__ = ["BrokerClock", "ControlSocket", "DestinationInfo", "SessionInfo", "server_path"]

#: Maximum length in bytes of a Unix socket address that all systems support.
_MOST_PATH_BYTES: Final = 100
#: Timeout in seconds for an answer; advancing the clock far can trigger a lot of work.
_ANSWER_S: Final = 30.0


class ControlSocket:
    """Sends requests to a broker and waits for its answers; connects on the first request."""

    def __init__(self, path: Path) -> None:
        """Store the path of the socket; do not connect yet."""
        self._path = path
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Send a request to the broker; return the fields of its answer.

        Raises BrokerError if the broker cannot be reached or cannot do it.
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
        """Close the connection; the next request opens another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @staticmethod
    def _line(connection: socket.socket) -> bytes:
        """Return the broker's answer, a line."""
        line = b""
        while not line.endswith(b"\n"):
            octets = connection.recv(65_536)
            if not octets:
                raise ConnectionError("it has closed the connection")
            line += octets
        return line


class BrokerClock:
    """The clock of a broker: the real time plus the time added by tests."""

    def __init__(self, ask: Callable[..., dict[str, Any]]) -> None:
        """Send requests by ``ask``, which works as ``ControlSocket.ask``."""
        self._ask = ask
        #: True if this process may have moved the clock since it last was the real time.
        self.is_moved = False
        #: The seconds by which this process has advanced it since then.
        self.offset_s = 0.0

    def now(self) -> float:
        """Return the broker's time, in seconds since the epoch."""
        now: float = self._ask("now")["now"]
        return now

    def advance(self, seconds: float) -> None:
        """Advance the clock: everything due within *seconds* happens immediately.

        Raises BrokerError for a negative number of seconds.
        """
        if not 0 <= seconds < math.inf:
            raise BrokerError(
                f"the broker could not do advance by {seconds} s: its clock only goes forward;"
                " clock.reset() returns it to the real time"
            )
        # Before the request: the clock moves even if the answer comes too late.
        self.is_moved = True
        self.offset_s += seconds
        self._ask("advance", seconds=float(seconds))

    def reset(self) -> None:
        """Return to the real time; pending timers keep their remaining time."""
        self._ask("realtime")
        self.was_reset()

    def was_reset(self) -> None:
        """Note that the clock shows the real time."""
        self.is_moved = False
        self.offset_s = 0.0


@dataclass(frozen=True)
class DestinationInfo:
    """Contents of one destination or durable subscription of a broker."""

    name: str
    """The destination."""
    kind: str
    """``queue``, ``topic``, ``fanout``, ``temp-queue``, ``temp-topic``, ``dlq`` or ``durable``."""
    host: str
    """The virtual host."""
    ready: int
    """Number of messages ready for delivery."""
    in_flight: int
    """Number of messages that were delivered and not acknowledged."""
    delayed: int
    """Number of messages with delayed delivery."""
    consumers: int
    """Number of subscriptions."""


@dataclass(frozen=True)
class SessionInfo:
    """A client session of a broker."""

    peer: str
    """The client's address, or that of the proxy in between."""
    version: str | None
    """The version of the session; ``None`` before CONNECTED."""
    user: str
    """Name of the logged-in user."""
    host: str
    """The virtual host."""
    subscriptions: int
    """Number of subscriptions."""
    in_flight: int
    """Number of messages that were delivered to the client and not acknowledged."""


def server_path(path: Path) -> str:
    """Return the socket's address for a broker that runs in the directory of the socket.

    Raises BrokerError if the path is too long for a socket and there is no shorter one.
    """
    if len(os.fsencode(path)) <= _MOST_PATH_BYTES:
        return str(path)
    if sys.platform != "linux":
        raise BrokerError(
            f"{path} is too long for a socket: name a shorter directory by TMPDIR or"
            " LaunchConfig(directory=...)"
        )
    return f"/proc/self/cwd/{path.name}"


def _connected(path: Path) -> socket.socket:
    """Connect to a socket, regardless of the length of its path."""
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
    """Connect to a socket by the short path that Linux has for its open directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)
