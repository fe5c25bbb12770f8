"""The broker as a real process, and clients that are sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import stompkit
from stompkit.testing.launching.polling import wait_until

__all__ = [
    "CONNECT",
    "DEADLINE_S",
    "LOOPBACK",
    "TWIST",
    "TWISTD",
    "Client",
    "Process",
    "Start",
    "announced",
    "processes",
    "talk",
    "tcp",
]

DEADLINE_S = 20.0
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"
LOOPBACK = "tcp:0:interface=127.0.0.1"
TWIST = [sys.executable, "-m", "twisted", "--log-format", "text"]
TWISTD = [sys.executable, str(Path(sysconfig.get_path("scripts"), "twistd")), "--nodaemon"]


class Process:
    """A command that runs in a given directory, with its output."""

    def __init__(
        self,
        command: list[str],
        directory: Path,
        *,
        path: str = "",
        descriptors: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        """Start the command; ``path`` is the first entry of the module search path.

        The process inherits ``descriptors``. ``stdin`` is its standard input, by default not the
        terminal of the tests.
        """
        self._log = directory / f"log.{len(list(directory.iterdir()))}"
        paths = [path, str(Path(stompkit.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=stdin,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
            )

    @property
    def log(self) -> str:
        """Output so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def ended(self) -> int:
        """Wait for the end; return the exit status."""
        return self.popen.wait(DEADLINE_S)

    def terminate(self) -> int:
        """Send SIGTERM, and wait for the end."""
        self.popen.send_signal(signal.SIGTERM)
        return self.ended()

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        self.popen.kill()
        self.ended()

    def wait_until(self, condition: Callable[[], object], within_s: float = DEADLINE_S) -> None:
        """Wait until a condition is true; fail if the process ends before."""
        happened = wait_until(lambda: condition() or self.popen.poll() is not None, within_s)
        assert happened, f"not within {within_s} s:\n{self.log}"
        assert condition(), f"the process has ended:\n{self.log}"

    def wait_for(self, text: str, count: int = 1, within_s: float = DEADLINE_S) -> None:
        """Wait until the log contains a text *count* times."""
        self.wait_until(lambda: self.log.count(text) >= count, within_s)


class Start(Protocol):
    """Starts ``COMMAND stompkit ARGUMENTS``."""

    def __call__(self, command: list[str], *arguments: str, path: str = "") -> Process:
        """Start the process; ``path`` is that of :class:`Process`."""


@contextmanager
def processes(directory: Path) -> Iterator[Start]:
    """Yield a function that starts commands in a directory; end all that still run."""
    started: list[Process] = []

    def start(command: list[str], *arguments: str, path: str = "") -> Process:
        process = Process([*command, "stompkit", *arguments], directory, path=path)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.popen.poll() is None:
                process.kill()


def announced(process: Process, path: Path) -> list[dict[str, Any]]:
    """Return the announced endpoints of a process when its file exists."""
    process.wait_until(path.exists)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["pid"] == process.popen.pid
    endpoints: list[dict[str, Any]] = document["endpoints"]
    return endpoints


def talk(where: socket.socket, data: bytes) -> bytes:
    """Send bytes and return all bytes until the end."""
    with where:
        where.settimeout(DEADLINE_S)
        where.sendall(data)
        pieces = []
        while piece := where.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


def tcp(endpoint: dict[str, Any]) -> socket.socket:
    """Return a connection to an announced endpoint."""
    return socket.create_connection((endpoint["host"], endpoint["port"]), DEADLINE_S)


class Client:
    """A session of 1.2; a context manager."""

    def __init__(self, endpoint: dict[str, Any], login: str = "") -> None:
        """Connect; ``login`` is USER:PASSCODE."""
        self._socket = tcp(endpoint)
        self._received = b""
        user, _, passcode = login.partition(":")
        words = f"login:{user}\npasscode:{passcode}\n".encode() if login else b""
        self.first = self.ask(CONNECT.replace(b"\n\n", b"\n" + words + b"\n"))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> bytes:
        """Send a frame and return the next one."""
        self._socket.sendall(frame)
        return self.receive()

    def receive(self) -> bytes:
        """Return the next frame without its NUL, or nothing at the end of the stream."""
        while b"\0" not in self._received:
            piece = self._socket.recv(65_536)
            if not piece:
                return b""
            self._received += piece
        frame, _, self._received = self._received.partition(b"\0")
        return frame.lstrip(b"\n")

    def send(self, destination: str, body: str = "") -> bytes:
        """Send a message with a receipt and return the reply."""
        head = f"SEND\ndestination:{destination}\nreceipt:r\n\n{body}\0"
        return self.ask(head.encode())

    def send_all(self, destination: str, bodies: Sequence[str]) -> None:
        """Send messages, and wait until the last one is confirmed."""
        *first, last = bodies
        frames = "".join(f"SEND\ndestination:{destination}\n\n{each}\0" for each in first)
        self._socket.sendall(frames.encode())
        assert self.send(destination, last).startswith(b"RECEIPT\n")

    def subscribe(self, destination: str) -> bytes:
        """Subscribe in the mode "client-individual", and return the next frame."""
        head = f"SUBSCRIBE\nid:1\ndestination:{destination}\nack:client-individual\n\n\0"
        return self.ask(head.encode())

    def take(self, destination: str, count: int) -> list[bytes]:
        """Subscribe in the mode "auto", and return so many frames."""
        head = f"SUBSCRIBE\nid:{destination}\ndestination:{destination}\n\n\0"
        self._socket.sendall(head.encode())
        return [self.receive() for _ in range(count)]
