"""The client program, which runs once for each case."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Final, Protocol, cast

__all__ = ["CANNOT", "Call", "Launcher", "Process", "Program", "fill"]

#: The exit status of a program that does not support the feature under test.
CANNOT: Final = 77
#: The environment variable with all addresses: HOST:PORT,HOST:PORT.
_HOSTS: Final = "STOMPKIT_HOSTS"
_KEPT_BYTES: Final = 4_096
_READ_BYTES: Final = 65_536
#: Time in seconds for which output is read after the end: another process may have it open.
_DRAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """Parameters for a program: the addresses and the case."""

    case: str
    #: Hosts and ports, in the order in which to try them.
    nodes: tuple[tuple[str, int], ...]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for the program."""
        return {_HOSTS: ",".join(f"{host}:{port}" for host, port in self.nodes)}


class Program(Protocol):
    """A running client."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit status, or ``None`` after the timeout."""

    def stop(self) -> None:
        """End it in any state; harmless after its end."""

    def said(self) -> str:
        """Return the end of its output."""


#: Function that starts the client for a case.
Launcher = Callable[[Call], Program]


def fill(words: list[str], call: Call) -> list[str]:
    """Return a command with its placeholders replaced: ``{host}``, ``{port}``, ``{case}``."""
    host, port = call.nodes[0]
    values: Mapping[str, str] = {"{host}": host, "{port}": str(port), "{case}": call.case}
    filled = []
    for word in words:
        for placeholder, value in values.items():
            word = word.replace(placeholder, value)
        filled.append(word)
    return filled


class Process:
    """The program as a process, in its own process group with all its children."""

    def __init__(self, words: list[str], call: Call) -> None:
        """Start a command; raises ``OSError`` on failure."""
        self._process = subprocess.Popen(
            fill(words, call),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **call.environment},
            start_new_session=True,
        )
        self._output = cast("IO[bytes]", self._process.stdout)
        self._kept = b""
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        """Read all output, so that the program never blocks on it, and keep the end."""
        descriptor = self._output.fileno()
        while octets := os.read(descriptor, _READ_BYTES):
            self._kept = (self._kept + octets)[-_KEPT_BYTES:]

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end; return its exit status, or ``None`` after the timeout."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(_DRAIN_S)
        return status

    def stop(self) -> None:
        """End it with all its children, unless it has ended already."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(_DRAIN_S)
        if not self._reader.is_alive():
            self._output.close()

    def said(self) -> str:
        """Return the end of its output, to standard output or standard error."""
        return self._kept.decode("utf-8", "replace").strip()
