"""The brokers of a run: one, or an active broker and a standby with the same store."""

from __future__ import annotations

import os
import re
import resource
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.ports import free_ports

__all__ = ["Brokers"]

_START_S: Final = 120.0


class Brokers:
    """Brokers with one store; at most one of them is active."""

    def __init__(
        self, directory: Path, settings: str, *, has_standby: bool, sync: str = "always"
    ) -> None:
        """Prepare; ``settings`` is a configuration without the store."""
        self.data = directory / "data"
        self._directory = directory
        self._settings = directory / "stompkit.toml"
        self._settings.write_text(settings, encoding="utf-8")
        self._sync = sync
        self._has_standby = has_standby
        self._pool = ThreadPoolExecutor(1)
        self._standby: Future[RunningBroker] | None = None
        self._all: list[RunningBroker] = []
        #: Held until the end: each broker of a pair listens again on a port of the two.
        self._held = ExitStack()
        self._ports: list[int] = []
        self.active: RunningBroker

    def begin(self) -> None:
        """Start; return when a broker answers."""
        if self._has_standby:
            self._ports = self._held.enter_context(free_ports(2))
        self.active = self._launched(0)
        self._all.append(self.active)
        self._prepare_standby()

    def _launched(self, number: int) -> RunningBroker:
        arguments = ("--config", str(self._settings), "--data", str(self.data))
        return launch(
            LaunchConfig(
                directory=self._directory / str(number),
                port=self._ports[number % 2] if self._ports else 0,
                arguments=(*arguments, "--sync", self._sync),
                start_timeout_s=_START_S,
            )
        )

    def _prepare_standby(self) -> None:
        if self._has_standby:
            number = len(self._all)
            self._standby = self._pool.submit(self._launched, number)

    @property
    def ports(self) -> list[int]:
        """Ports on which a broker may listen."""
        return self._ports or [self.active.port]

    @property
    def pid(self) -> int:
        """Process id of the active broker, read from its lock."""
        found = re.search(r"\d+", (self.data / "lock").read_text(encoding="utf-8"))
        assert found is not None
        return int(found[0])

    @property
    def is_alive(self) -> bool:
        """True if the active broker has not ended."""
        return self.active.is_running

    @property
    def log(self) -> str:
        """Return the logs of all brokers."""
        return "".join(broker.log for broker in self._all)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the active broker."""
        os.kill(self.pid, number)

    def limit(self, which: int, soft: int) -> None:
        """Limit a resource of the active process; -1 removes the limit."""
        _, hard = resource.prlimit(self.pid, which)
        resource.prlimit(self.pid, which, (hard if soft < 0 else soft, hard))

    def go_on(self) -> None:
        """Restart the broker, or wait for the takeover by the standby; return when one answers."""
        if self._standby is None:
            self.active.restart(kill=True)
            return
        self.active.kill()
        ended, self.active = self.active, self._standby.result()
        self._all.append(self.active)
        ended.stop()
        self._prepare_standby()

    def end(self) -> None:
        """Stop all of them."""
        for broker in self._all:
            broker.kill()
        if self._standby is not None:
            # It takes over now, and can be stopped then.
            self._standby.result().stop()
        for broker in self._all:
            broker.stop()
        self._pool.shutdown()
        self._held.close()
