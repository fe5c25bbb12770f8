"""Senders, a broker, and a program with its own disk that stores messages; all of it fails."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from stompkit.testing.launching.polling import wait_until
from tests.campaign.chain import Chain, Misfortune, until
from tests.campaign.checker import Finding
from tests.campaign.commands import Command
from tests.campaign.disk import Disk, Number, built
from tests.campaign.history import Note
from tests.campaign.keeping import Confirmed, Kept
from tests.campaign.plan import Plan
from tests.campaign.sending import confirmed, destination_of, event_of, message_in

__all__ = ["Posted", "kept"]

_SENDERS: Final = 2
_USUAL_ROUNDS: Final = 6
#: Number of writes after which the program has opened its store.
_OPENING: Final = 3
_OPENING_S: Final = 5.0


class Posted(ABC):
    """A run; a :class:`tests.campaign.stage.Stage`."""

    #: Longest time in seconds until all confirmed messages have arrived, after the last fault.
    patience_s = 60.0

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare without starting anything."""
        self.plan = plan
        self._directory = directory
        self._quota = plan.quota // _SENDERS
        self.chain = Chain(plan, directory, built(report))
        #: The store of the program.
        self.folder = directory / "kept"
        self.folder.mkdir(mode=0o700)
        beside = directory / "kept-disk"
        beside.mkdir()
        self.disk = Disk(built(report), self.folder, beside, has_shadow=True)
        self._senders: list[Command] = []
        self.receiver: Command

    # Hooks of the subclasses.

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def look(self, *, anew: bool = False) -> int:
        """Look at the store, with ``anew`` at all of it; return the number of messages so far."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until all confirmed messages have arrived, or until the timeout.

        No more faults happen.
        """

    @abstractmethod
    def seen(self) -> Sequence[Struct]:
        """Return the views of the store."""

    @abstractmethod
    def check(self) -> Finding:
        """Check the run."""

    # The run.

    def play(self) -> None:
        """Run it."""
        try:
            with self.chain as chain:
                self.begin()
                misfortunes = self.misfortunes()
                for share in chain.moments(_USUAL_ROUNDS):
                    self._wait(share)
                    chain.happen(misfortunes)
                    self.look(anew=True)
                chain.wait(lambda: all(each.has_done for each in self._senders), self._how_far)
                self.finish()
        finally:
            self.disk.close()

    def begin(self) -> None:
        """Start all programs."""
        chance = self.plan.chance("clients")
        for number in range(_SENDERS):
            window, pause_ms = chance.choice((1, 8, 128)), chance.choice((1, 3, 6))
            where = str(self._confirmations(number))
            numbers = (self.chain.proxy.port, number, self._quota, window, pause_ms)
            words = ("tests.campaign.sending", *map(str, numbers), where)
            sender = Command(f"sender-{number}", self._directory, *words)
            self._senders.append(self.chain.start(sender))
        _, name, *_ = words = ("stompkit", *self.command())
        environment = self.disk.environment
        self.receiver = Command(name, self._directory, *words, environment=environment)
        self.chain.start(self.receiver)

    def _confirmations(self, sender: int) -> Path:
        return self._directory / f"confirmed-{sender}"

    def _wait(self, share: float) -> None:
        wanted = share * self._quota * _SENDERS
        self.chain.wait(lambda: self.look() >= wanted, self._how_far)

    def _how_far(self) -> str:
        return f"{self.look()} messages have come"

    # Faults.

    def misfortunes(self) -> list[Misfortune]:
        """Return the possible faults."""
        chain = self.chain
        return [
            *chain.usual(),
            *(partial(self._kill, power=power) for power in (False, False, True)),
            self._kill_all,
            self._kill_in_write,
            partial(self._fail, Number.GROW_ERROR, errno.ENOSPC),
            partial(self._fail, Number.SYNC_ERROR, errno.EIO),
            partial(self._fail, Number.WRITE_ERROR, errno.EIO),
            partial(self._fail, Number.SHORT_WRITES, 1),
            lambda: chain.pause(self.receiver),
            lambda: chain.kill(chain.chance.choice(self._senders)),
        ]

    def lose_power(self) -> None:
        """Discard the unsynced data of its disk; the program is not running."""
        self.chain.note("the power of its disk fails")
        # A disk without writes has no files yet.
        if self.disk[Number.WRITES]:
            self.disk.lose_power()

    def _kill(self, *, power: bool = False) -> None:
        self.chain.note(f"{self.receiver.name} killed")
        self.receiver.check()
        self.receiver.kill()
        self._start_again(power=power)

    def _start_again(self, *, power: bool) -> None:
        self.disk.heal()
        if power:
            self.lose_power()
        self.disk.settle()
        self.receiver.start()

    def _kill_all(self) -> None:
        """Kill broker and receiver, as a power failure of their common machine does."""
        self.receiver.check()
        self.receiver.kill()
        self.chain.lose_power()
        self._start_again(power=True)

    def _kill_in_write(self) -> None:
        self.chain.note(f"{self.receiver.name} killed within a write")
        self.disk[Number.DIE_AFTER] = self.disk[Number.WRITES] + self.chain.chance.randint(1, 20)
        wait_until(lambda: not self.receiver.is_running, 2.0)
        self.receiver.kill()
        self._start_again(power=self.chain.chance.random() < 0.5)

    def _fail(self, number: Number, value: int) -> None:
        """Inject errors of its disk for a while; then kill the program, or let it continue."""
        self.chain.note(f"its disk: {number.name}")
        chance = self.chain.chance
        self.disk[Number.EVERY] = chance.choice((1, 2, 5))
        self.disk[number] = value
        wanted = self.disk[Number.STRUCK] + chance.randint(1, 10)
        wait_until(lambda: self.disk[Number.STRUCK] >= wanted, 2.0)
        if not self.receiver.is_running or chance.random() < 0.4:
            self._begin_anew(power=chance.random() < 0.5)
        self.disk.heal()
        # A program that could not open its store while starting reports that, and ends.
        written = self.disk[Number.WRITES] + _OPENING
        until(
            lambda: not self.receiver.is_running or self.disk[Number.WRITES] >= written,
            _OPENING_S,
        )
        if not self.receiver.is_running:
            self._begin_anew(power=False)

    def _begin_anew(self, *, power: bool) -> None:
        what = "killed" if self.receiver.is_running else "has ended"
        self.chain.note(f"{self.receiver.name} {what}")
        self.receiver.kill()
        self._start_again(power=power)

    # Sent messages.

    def confirmed(self) -> list[Confirmed]:
        """Return the messages that the broker has confirmed."""
        return [
            Confirmed(sender, number)
            for sender in range(_SENDERS)
            for number in sorted(confirmed(self._confirmations(sender)))
        ]

    def sent(self) -> set[Kept]:
        """Return all messages of the senders, with their destinations."""
        return {
            Kept(sender, number, destination_of(sender, number))
            for sender in range(_SENDERS)
            for number in range(self._quota)
        }

    @property
    def log(self) -> str:
        """Return the output of all programs."""
        return self.chain.log

    @property
    def events(self) -> Sequence[Struct]:
        """Return the observations and the faults."""
        return [*map(Note, self.chain.notes), *self.confirmed(), *self.seen()]


def kept(destination: str, event: str, body: bytes) -> Kept:
    """Return the message with this body and ``event-id``, if there is one."""
    found = message_in(body)
    if found is None or event_of(*found) != event:
        return Kept(-1, -1, destination)
    return Kept(*found, destination)
