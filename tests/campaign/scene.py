"""The interface of a run for faults: brokers, a disk, a proxy, clients, and waiting."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stompkit.testing.proxy import Proxy
from tests.campaign.brokers import Brokers
from tests.campaign.disk import Disk, Number, built
from tests.campaign.load import Load
from tests.campaign.plan import SETTING, Plan, settings
from tests.campaign.recorder import Recorder
from tests.campaign.wire import LOCAL, Address

__all__ = ["Needs", "Scene", "Script", "Until"]

#: Longest time for a broker to shut down, in seconds.
_STOP_S = 60.0
#: Longest time without a receipt when nothing is broken, in seconds.
_PROGRESS_S = 60.0


class Until(NamedTuple):
    """A condition for which a fault waits while all clients continue, and a timeout.

    With a ``claim`` the condition has to come true; the claim is the text of the failure.
    """

    is_enough: Callable[[], bool]
    at_most_s: float
    claim: str = ""


#: The actions of a fault: a generator that yields the conditions for which it waits.
Script = Iterator[Until]


class Needs(NamedTuple):
    """Requirements of a fault."""

    disk: bool = False
    power: bool = False
    proxy: bool = False
    standby: bool = False
    may_end: bool = False
    """True if the broker may end by itself, also some time after the fault."""


class Scene:
    """All components of one run; a context manager that ends all of them."""

    def __init__(
        self, plan: Plan, needs: Needs, directory: Path, library: Path, sync: str = "always"
    ) -> None:
        """Prepare without starting anything. ``library`` is the directory for that of the disk."""
        self.plan = plan
        self.chance = plan.chance("faults")
        self.recorder = Recorder(SETTING)
        self.directory = directory
        self._stack = ExitStack()
        self._stack.enter_context(_telling())
        self.brokers = Brokers(directory, settings(plan), has_standby=needs.standby, sync=sync)
        self.disk: Disk | None = None
        if needs.disk or needs.power:
            beside = directory / "disk"
            beside.mkdir()
            store = self.brokers.data
            self.disk = Disk(built(library), store, beside, has_shadow=needs.power)
            self._stack.callback(self.disk.close)
            self._stack.enter_context(self.disk.preloaded())
        self._has_proxy = needs.proxy
        self._may_end = needs.may_end
        self.proxy: Proxy | None = None
        self.load: Load

    def __enter__(self) -> Scene:
        """Start everything."""
        try:
            self._stack.callback(self.brokers.end)
            self.brokers.begin()
            assert self.disk is None or self.disk[Number.WRITES], "the broker is on another disk"
            if self._has_proxy:
                [port] = self.brokers.ports
                self.proxy = Proxy("127.0.0.1", port, seed=self.plan.seed)
                self._stack.enter_context(self.proxy)
            self.recorder.began()
            self.load = Load(self.plan, self.recorder, self._addresses)
            self._stack.callback(self.load.close)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._stack.close()

    def _addresses(self) -> list[Address]:
        ports = [self.proxy.port] if self.proxy is not None else self.brokers.ports
        return [(LOCAL, port) for port in ports]

    # Waiting.

    def moments(self, count: int) -> list[float]:
        """Return the shares of the quota after which a round happens."""
        return sorted(self.chance.uniform(0.05, 0.9) for _ in range(count))

    def reached(self, share: float) -> Until:
        """Wait until that share of the quota has its receipts."""
        wanted = share * self.plan.quota
        return Until(
            lambda: self.recorder.receipted >= wanted,
            _PROGRESS_S,
            f"{wanted:.0f} messages get their receipts",
        )

    def wait(self, until: Until) -> None:
        """Iterate until the condition holds, or until the timeout."""

        def is_over() -> bool:
            if self._may_end:
                self.revive()
            return until.is_enough()

        is_done = self.load.turn_until(is_over, until.at_most_s)
        if is_done or not until.claim:
            return
        assert self.brokers.is_alive, "the broker has ended of itself"
        has = f"{self.recorder.receipted} have them"
        # The broker dumps its stack into its log.
        self.brokers.signal(signal.SIGABRT)
        self._wait_for_end()
        raise AssertionError(f"not within {until.at_most_s:g} s: {until.claim}; {has}")

    def refusals(self, count: int, at_most_s: float) -> Until:
        """Wait until this many more operations are refused."""
        wanted = self.recorder.refused + count
        return Until(lambda: self.recorder.refused >= wanted, at_most_s)

    def while_(self, seconds: float) -> Until:
        """Wait a while."""
        return Until(lambda: False, seconds)

    # Actions on brokers.

    def crash(self, *, power: bool = False) -> None:
        """Kill the broker, if it runs, and restart it, or wait for the takeover by the standby."""
        recorder = self.recorder
        recorder.note("power failure" if power else "killed")
        if self.brokers.is_alive:
            self.brokers.signal(signal.SIGKILL)
        self._wait_for_end()
        self.load.drop_all()
        recorder.ended("crash")
        self._go_on(power=power)

    def stop(self, *, is_sound: bool = True) -> None:
        """Shut the broker down gracefully with clients connected, and start it again.

        ``is_sound`` is False if the broker could not save its state at the end.
        """
        recorder = self.recorder
        recorder.note("stopped")
        self.brokers.signal(signal.SIGTERM)
        self._wait_for_end()
        self.load.drop_all()
        recorder.ended("stop" if is_sound else "crash")
        self._go_on(power=False)

    def _wait_for_end(self) -> None:
        is_over = self.load.turn_until(lambda: not self.brokers.is_alive, _STOP_S)
        assert is_over, f"the broker has not ended within {_STOP_S:g} s"

    def _go_on(self, *, power: bool) -> None:
        if self.disk is not None:
            self.disk.heal()
            if power:
                self.disk.lose_power()
            else:
                self.disk.forget()
        if self.proxy is not None:
            self.proxy.heal()
        self.brokers.go_on()
        self.recorder.began()

    def limit(self, which: int, soft: int) -> None:
        """Limit a resource of the broker; -1 removes the limit."""
        if self.brokers.is_alive:
            # The process may end meanwhile.
            with suppress(ProcessLookupError):
                self.brokers.limit(which, soft)

    @property
    def descriptors(self) -> int:
        """Return the number of open file descriptors of the broker."""
        return len(list(Path(f"/proc/{self.brokers.pid}/fd").iterdir()))

    @property
    def address_space(self) -> int:
        """Return the size in bytes of the broker's address space."""
        pages = Path(f"/proc/{self.brokers.pid}/statm").read_text(encoding="ascii").split()[0]
        return int(pages) * resource.getpagesize()

    def revive(self) -> None:
        """Start the broker again if it has ended by itself."""
        if not self.brokers.is_alive:
            self.recorder.note("it had ended")
            self.crash()


@contextmanager
def _telling() -> Iterator[None]:
    """Enable the fault handler of Python, so that an aborted broker dumps its stack."""
    name = "PYTHONFAULTHANDLER"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
