"""The processes of measured peers."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks._process import memory, processes
from stompkit.testing import BrokerError, RunningBroker
from stompkit.testing.launching.processes.process import GuardedProcess
from tests.servers import PostgreSql

__all__ = ["Broker", "BrokerOnServer", "Running", "start_program"]

#: Longest time in seconds until a program listens, and the interval between two attempts.
_READY_S: Final = 10.0
_POLL_S: Final = 0.01


def processes_in(directory: Path) -> list[int]:
    """Return all processes that were launched with this directory, found by their environment."""
    sign = os.fsencode(f"STOMPKIT_BROKER_DIRECTORY={directory}")
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if sign in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


class Running(ABC):
    """A peer that has been started."""

    def __init__(self, port: int, directory: Path) -> None:
        """Set the port on 127.0.0.1, and the folder of its files."""
        self.port = port
        self.directory = directory

    def pids(self) -> list[int]:
        """Return all its processes."""
        return processes_in(self.directory)

    def memory_bytes(self) -> int:
        """Return the anonymous memory of all its processes except their guard."""
        found = 0
        for pid, process in processes(self.pids()).items():
            if process.parent == os.getpid():
                continue
            try:
                found += memory(pid)[0]
            except (OSError, KeyError):
                continue  # it has ended
        return found

    @abstractmethod
    def restart(self) -> None:
        """Kill it, start it again with its data, and wait until it listens. Raise BrokerError."""

    @abstractmethod
    def pause(self) -> None:
        """Stop all its processes until it is resumed."""

    @abstractmethod
    def resume(self) -> None:
        """Continue after a pause."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it, and remove its files."""


class Broker(Running):
    """A broker that stompkit.testing has launched."""

    def __init__(self, broker: RunningBroker) -> None:
        assert broker.directory is not None
        super().__init__(broker.port, broker.directory)
        self.broker = broker

    def restart(self) -> None:
        self.broker.restart(kill=True)

    def pause(self) -> None:
        self.broker.pause()

    def resume(self) -> None:
        self.broker.resume()

    def stop(self) -> None:
        self.broker.kill()
        self.broker.stop()


class BrokerOnServer(Broker):
    """A broker whose messages are stored by a database server."""

    def __init__(self, broker: RunningBroker, server: PostgreSql) -> None:
        super().__init__(broker)
        self._server = server

    def pids(self) -> list[int]:
        # PostgreSQL writes the titles of its processes over their environment.
        server = processes_in(self._server.directory)
        below = [pid for pid, process in processes().items() if process.parent in server]
        return list({*super().pids(), *server, *below})

    def stop(self) -> None:
        super().stop()
        self._server.remove()


class _Program(Running):
    """Any other program, under the same guard."""

    def __init__(self, command: list[str], port: int, directory: Path) -> None:
        super().__init__(port, directory)
        self._command = command
        self._process = self._begin()

    def _begin(self) -> GuardedProcess:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return GuardedProcess(self._command, environment, self.directory, _READY_S, temporary=True)

    def wait(self) -> None:
        """Return when it listens; raise BrokerError if it does not."""
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                if self._process.status() is not None or time.monotonic() > deadline:
                    raise BrokerError(f"it does not start: {self._process.log()}") from None
                time.sleep(_POLL_S)

    def restart(self) -> None:
        self._process.kill()
        self._process = self._begin()
        self.wait()

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def stop(self) -> None:
        self._process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def start_program(make: Callable[[int, Path], list[str]]) -> Running:
    """Start the command that ``make`` returns for a port and a directory, and wait for it."""
    directory = Path(tempfile.mkdtemp(prefix="stompkit-load-"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    program = _Program(make(port, directory), port, directory)
    try:
        program.wait()
    except BaseException:
        program.stop()
        raise
    return program
