"""A chain: a broker with its disk and its network, and programs that use it.

The subclasses and users of a chain define its purpose, such as a spool or a replica. This module
has the faults that they share: programs are killed or paused, the broker is killed or loses its
power, and the network fails.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from stompkit.testing.launching.polling import wait_until
from stompkit.testing.proxy import Proxy
from tests.campaign.brokers import Brokers
from tests.campaign.commands import Command
from tests.campaign.disk import Disk
from tests.campaign.plan import Plan

__all__ = ["Chain", "Misfortune", "until"]

#: Longest time in seconds without progress when nothing is broken.
_PROGRESS_S: Final = 90.0
_LOOK_EVERY_S: Final = 0.05
_SLICE_S: Final = 1.0

#: A fault; afterwards everything runs again, except what it has killed.
Misfortune = Callable[[], None]


def until(condition: Callable[[], bool], at_most_s: float) -> bool:
    """Wait for a condition; return True if it came true in time.

    A pause of the whole process does not count as waiting time.
    """
    return any(
        wait_until(condition, _SLICE_S, interval_s=_LOOK_EVERY_S)
        for _ in range(math.ceil(at_most_s / _SLICE_S))
    )


class Chain:
    """A broker, and programs around it; a context manager that ends all of them."""

    def __init__(self, plan: Plan, directory: Path, library: Path, settings: str = "") -> None:
        """Prepare without starting anything. ``library`` is that of the disk."""
        self.chance: random.Random = plan.chance("faults")
        self.directory = directory
        #: Descriptions of the faults, for readers of a history.
        self.notes: list[str] = []
        self.commands: list[Command] = []
        self._rounds = plan.rounds
        self._seed = plan.seed
        self._begun = time.monotonic()
        self._stack = ExitStack()
        self.brokers = Brokers(directory, settings, has_standby=False)
        beside = directory / "disk"
        beside.mkdir()
        self._library = library
        self.disk = Disk(library, self.brokers.data, beside, has_shadow=True)
        self._stack.callback(self.disk.close)
        self._stack.enter_context(self.disk.preloaded())
        self.proxy: Proxy

    def __enter__(self) -> Self:
        """Start the broker and the network proxy."""
        try:
            self._stack.callback(self.brokers.end)
            self.brokers.begin()
            [port] = self.brokers.ports
            self.proxy = Proxy("127.0.0.1", port, seed=self._seed)
            self._stack.enter_context(self.proxy)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._stack.close()

    @property
    def log(self) -> str:
        """Return the output of the broker and of all programs."""
        logs = [f"--- {command.name}\n{command.log}" for command in self.commands]
        return "\n".join(["--- broker", self.brokers.log, *logs])

    def url(self, destination: str) -> str:
        """Return the URL of a destination of the broker, through the network proxy."""
        return f"stomp://127.0.0.1:{self.proxy.port}{destination}"

    def start(self, command: Command) -> Command:
        """Start a program, which is ended with the chain."""
        command.start()
        self.commands.append(command)
        self._stack.callback(command.kill)
        # A stopped process cannot end.
        self._stack.callback(command.resume)
        return command

    def note(self, text: str) -> None:
        """Record a fault."""
        self.notes.append(f"{time.monotonic() - self._begun:.2f} s: {text}")

    # Waiting.

    def wait(
        self,
        has_happened: Callable[[], bool],
        how_far: Callable[[], str],
        at_most_s: float = _PROGRESS_S,
    ) -> None:
        """Wait for a condition; fail if a program has ended with an error."""

        def is_over() -> bool:
            for command in self.commands:
                command.check()
            assert self.brokers.is_alive, "the broker has ended of itself"
            return has_happened()

        assert until(is_over, at_most_s), f"it does not go on for {at_most_s:g} s: {how_far()}"

    def rest(self, seconds: float) -> None:
        """Sleep while all processes continue."""
        wait_until(lambda: False, seconds, interval_s=_LOOK_EVERY_S)

    # Faults.

    def moments(self, usual: int) -> list[float]:
        """Return the shares of the work after which a fault happens."""
        count = self._rounds or usual
        return sorted(self.chance.uniform(0.02, 0.95) for _ in range(count))

    def kill(self, command: Command) -> None:
        """Kill a program, and start it again."""
        self.note(f"{command.name} killed")
        command.check()
        command.kill()
        command.start()

    def pause(self, command: Command) -> None:
        """Pause a program for a while."""
        self.note(f"{command.name} stands still")
        command.pause()
        self.rest(self.chance.uniform(0.05, 1.0))
        command.resume()

    def crash(self, *, power: bool = False) -> None:
        """Kill the broker and start it again; with ``power`` its disk keeps only synced data."""
        self.note("power failure" if power else "broker killed")
        self.brokers.active.kill()
        if power:
            self.disk.lose_power()
        else:
            self.disk.forget()
        self.brokers.go_on()

    def lose_power(self) -> None:
        """Simulate a power failure of the broker's machine."""
        self.crash(power=True)

    def cut(self) -> None:
        """Cut connections immediately, or within one of the next frames."""
        command = self.chance.choice(("SEND", "ACK", "MESSAGE", "RECEIPT", None))
        proxy = self.proxy
        if command is None:
            self.note("connections cut")
            self.chance.choice((proxy.reset, proxy.close))()
            return
        how = self.chance.choice((proxy.reset, proxy.close, proxy.truncate))
        self.note(f"{how.__name__} at {command}")
        fault = how(command, nth=self.chance.randint(1, 20))
        wait_until(lambda: fault.count > 0, 1.0)
        fault.remove()

    def part(self) -> None:
        """Block all network traffic for a while."""
        self.note("the network is cut")
        with self.proxy.hold():
            self.rest(self.chance.choice((0.1, 0.5, 2.0)))
            if self.chance.random() < 0.5:
                self.proxy.reset()
        self.note("the network is whole")

    def usual(self) -> list[Misfortune]:
        """Return the faults of broker and network, repeated by their weight."""
        return [self.crash, self.crash, self.lose_power, self.cut, self.cut, self.part]

    def happen(self, misfortunes: Sequence[Misfortune]) -> None:
        """Run one of these faults; sometimes another one right after it."""
        self.chance.choice(misfortunes)()
        while self.chance.random() < 0.25:
            self.rest(self.chance.uniform(0.0, 0.3))
            self.chance.choice(misfortunes)()
