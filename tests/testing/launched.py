"""Common parts of the tests that launch brokers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import stompkit
from stompkit.testing import LaunchConfig, RunningBroker
from stompkit.testing.launching.brokers import Access, Prepared, launcher_for
from tests.effort import in_matrix

LONG_S = 60.0
#: Brokers that ``make servers`` downloads.
FETCHED = ("activemq:6", "artemis", "rabbitmq:4")
#: Those of them that are other versions of brokers tested anyway.
VERSIONS = [in_matrix(name) for name in FETCHED if ":" in name]
ROOT = Path(stompkit.__file__).resolve().parents[1]
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are looked up in /proc"
)


def require(name: str) -> str:
    """Skip the test if the broker's server is not installed, with an instruction to install it.

    Servers from ``make servers`` are optional everywhere; their absence is never a failure.
    """
    missing = launcher_for(name).missing()
    is_optional = name in FETCHED
    if missing and not is_optional and os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
        pytest.fail(f"{name} is not installed: {missing}")
    if missing is not None:
        pytest.skip(f"{name} is not installed: {missing}")
    return name


def processes_below(directory: Path) -> list[str]:
    """Return the command lines of the processes of brokers whose directory is below this one."""
    return _processes(f"STOMPKIT_BROKER_DIRECTORY={directory}/")


def pids(broker: RunningBroker, *, with_guard: bool = False) -> list[int]:
    """Return the process ids of a broker, by default without its guard."""
    processes = _processes(f"STOMPKIT_BROKER_DIRECTORY={broker.directory}\0")
    if with_guard:
        return [int(each.partition(":")[0]) for each in processes]
    found = [int(each.partition(":")[0]) for each in processes if "/guard.py" not in each]
    return [pid for pid in found if Path(f"/proc/{pid}/comm").read_text() != "guard\n"]


def kill_from_outside(broker: RunningBroker) -> None:
    """Kill the processes of a broker without its help, as the system does when memory is short."""
    for pid in pids(broker):
        # Some may end with the first.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def states(broker: RunningBroker) -> set[str]:
    """Return the states of these processes, as /proc names them."""
    stats = [Path(f"/proc/{pid}/stat").read_text() for pid in pids(broker)]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def _processes(variable: str) -> list[str]:
    """Return number and command of the processes with this text in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if variable.encode() in (process / "environ").read_bytes():
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(f"{process.name}: {command.decode()}")
        except OSError:
            continue
    return found


#: Listens on the given port, and answers every CONNECT with the frame in its second argument.
ANSWERING = r"""
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = server.accept()
    connection.recv(4096)
    connection.sendall(sys.argv[2].encode() + b"\0")
"""
CONNECTED = "CONNECTED\nversion:1.2\n\n"


class Scripted:
    """A launcher for a Python program that takes its port as argument."""

    chooses_port = False
    versions = "1.2"
    start_timeout_s = LONG_S
    login: str | None = None
    passcode: str | None = None
    features: frozenset[str] = frozenset()

    def __init__(
        self,
        program: str,
        *arguments: str,
        accesses: tuple[Access, ...] = (),
        started_text: str = "",
    ) -> None:
        """Launch ``program`` with its port and these arguments."""
        self._program = program
        self._arguments = arguments
        self._accesses = accesses
        self._started_text = started_text

    def vhost(self, config: LaunchConfig) -> str:
        """Return the configured virtual host."""
        return config.host

    def missing(self) -> str | None:
        """Return nothing, as nothing is missing."""
        return None

    def prepare(
        self, config: LaunchConfig, directory: Path, take_port: Callable[[], int]
    ) -> Prepared:
        """Return the command that runs the program by this interpreter."""
        command = [sys.executable, "-c", self._program, str(config.port), *self._arguments]
        return Prepared(
            command, os.environ, accesses=self._accesses, started_text=self._started_text
        )
