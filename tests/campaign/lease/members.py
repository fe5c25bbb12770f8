"""Brokers that share a store by a lease, each on a host."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.campaign.disk import Disk, Number
from tests.campaign.lease.network import BACK, FRONT, Network
from tests.campaign.wire import Address
from tests.server.processes import TWIST, Process

__all__ = ["Member", "Term"]

_PORT: Final = 61613
_ADMIN: Final = 15613
_STOP_S: Final = 60.0


class Term(NamedTuple):
    """The time for which a broker had the lease, as its log says."""

    epoch: int
    is_open: bool
    """True if it has not ended."""
    is_clean: bool
    """True if it ended by a planned failover or a shutdown, after everything was stored."""


class Member:
    """A broker on a host; it can be killed and started again."""

    def __init__(
        self, name: str, network: Network, directory: Path, library: Path, stack: ExitStack
    ) -> None:
        """Create the host; the stack ends the broker. ``library`` is that of the clock."""
        self.name = name
        self._network = network
        self._directory = directory / name
        self._directory.mkdir()
        network.add(name, [FRONT, BACK])
        #: Where clients reach it.
        self.address: Address = (network.address(name, FRONT), _PORT)
        beside = directory / f"{name}-clock"
        beside.mkdir()
        self._clock = Disk(library, beside / "nothing", beside, has_shadow=False)
        stack.callback(self._clock.close)
        stack.callback(self.kill)
        self._settings = ""
        self._processes: list[Process] = []
        self._stopped: list[Process] = []

    def configure(self, url: str, lease_s: float, settings: str) -> None:
        """Set the settings for the next starts."""
        self._settings = (
            f'{settings}[store]\nurl = "{url}"\n'
            f'[high_availability]\nlease = "database"\nname = "{self.name}"\nlease_s = {lease_s}\n'
            f'[admin]\nendpoints = ["tcp:{_ADMIN}:interface=127.0.0.1"]\n'
            '[auth]\nanonymous = true\n[log]\nformat = "json"\n'
            f'[[listen]]\nendpoint = "tcp:{_PORT}:interface={self.address[0]}"\n'
        )

    def start(self) -> None:
        """Start a process."""
        file = self._directory / "stompkit.toml"
        file.write_text(self._settings, encoding="utf-8")
        command = [*self._network.inside(self.name), *TWIST, "stompkit", "--config", str(file)]
        with self._clock.preloaded():
            self._processes.append(Process(command, self._directory))

    @property
    def is_running(self) -> bool:
        """True if its process has not ended."""
        return bool(self._processes) and self._processes[-1].popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; does nothing after the end."""
        if self.is_running:
            self._processes[-1].popen.send_signal(number)

    def kill(self) -> None:
        """End it with ``kill -9``."""
        if self.is_running:
            self._processes[-1].kill()

    def stop(self) -> None:
        """Shut it down; blocks."""
        if self.is_running:
            process = self._processes[-1]
            self.signal(signal.SIGTERM)
            if process.popen.wait(_STOP_S) == 0:
                self._stopped.append(process)

    def set_clock(self, seconds: int) -> None:
        """Set the clock of the day; 0 is the right time."""
        self._clock[Number.CLOCK] = seconds

    def ask_for_failover(self, successor: str) -> subprocess.Popen[str]:
        """Start the command that hands the lease over."""
        command = [*self._network.inside(self.name), sys.executable, "-m", "stompkit", "failover"]
        command += ["--admin", f"127.0.0.1:{_ADMIN}", "--to", successor]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    # Its log.

    @property
    def log(self) -> str:
        """Return the output of all its processes."""
        return "".join(f"{self.name}: {line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for process in self._processes:
            yield from process.log.rpartition("\n")[0].splitlines()

    def terms(self) -> list[Term]:
        """Return all terms so far in which it has listened."""
        return [
            term
            for process in self._processes
            for term in _terms(
                _events(process),
                is_running=process.popen.poll() is None,
                was_stopped=process in self._stopped,
            )
        ]

    @property
    def epoch(self) -> int:
        """The epoch of its term; 0 while it is passive."""
        terms = self.terms()
        return terms[-1].epoch if terms and terms[-1].is_open else 0


def _events(process: Process) -> list[dict[str, Any]]:
    lines = process.log.rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def _terms(events: list[dict[str, Any]], *, is_running: bool, was_stopped: bool) -> list[Term]:
    """Return the terms of a process, which is running, was shut down, or died."""
    found: list[Term] = []
    epoch = 0
    for each in events:
        match each["event"]:
            case "lease-acquired":
                epoch = each["epoch"]
            case "listening" if epoch and each["protocol"] != "HTTP":
                found.append(Term(epoch, is_open=True, is_clean=False))
                epoch = 0
            case "lease-handed-over" if found and found[-1].is_open:
                found[-1] = found[-1]._replace(is_open=False, is_clean=True)
            case "lease-lost" if found and found[-1].epoch == each["epoch"]:
                # Also after a planned failover, if not everything could be stored.
                found[-1] = found[-1]._replace(is_open=False, is_clean=False)
    if found and found[-1].is_open and not is_running:
        found[-1] = found[-1]._replace(is_open=False, is_clean=was_stopped)
    return found
