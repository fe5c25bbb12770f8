"""Messages from senders over a broker into a spool, and all of it is killed in its turn."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from stompkit.spool import BrokenSpool, Record, SpoolProblem, SpoolReader, SpoolWriter
from stompkit.testing._launching.polling import wait_until
from tests.campaign.chain import Chain, Misfortune, until
from tests.campaign.checker import Finding
from tests.campaign.commands import Command
from tests.campaign.disk import Disk, Number, built
from tests.campaign.history import Note
from tests.campaign.keeping import Confirmed, Kept, Looked, check_spool
from tests.campaign.plan import Plan
from tests.campaign.sending import QUEUES, confirmed, destination_of, event_of, message_in

__all__ = ["Spooled"]

_SENDERS: Final = 2
_USUAL_ROUNDS: Final = 6


class Spooled:
    """A run of ``stompkit spool run``; a :class:`tests.campaign.stage.Stage`."""

    #: How long what is confirmed may take to its place in the end, in seconds.
    patience_s = 60.0

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare; nothing runs yet."""
        self._plan = plan
        self._directory = directory
        self._quota = plan.quota // _SENDERS
        self.chain = Chain(plan, directory, built(report))
        self._spool = directory / "spool"
        self._spool.mkdir(mode=0o700)
        beside = directory / "spool-disk"
        beside.mkdir()
        self._disk = Disk(built(report), self._spool, beside, has_shadow=True)
        self._looks: list[Looked] = []
        #: How many messages of each partition were seen, and which.
        self._seen: dict[int, int] = {}
        self._known: set[tuple[int, int]] = set()
        self._receiver: Command

    # The run.

    def play(self) -> None:
        """Make it."""
        try:
            with self.chain as chain:
                self.begin()
                misfortunes = self.misfortunes()
                for share in chain.moments(_USUAL_ROUNDS):
                    self._wait(share)
                    chain.happen(misfortunes)
                    self._look(anew=True)
                chain.wait(lambda: all(each.has_done for each in self._senders()), self._how_far)
                self._end()
        finally:
            self._disk.close()

    def begin(self) -> None:
        """Start all programs."""
        chance = self._plan.chance("clients")
        for number in range(_SENDERS):
            window, pause_ms = chance.choice((1, 8, 128)), chance.choice((1, 3, 6))
            where = str(self._confirmations(number))
            numbers = (self.chain.proxy.port, number, self._quota, window, pause_ms)
            words = ("tests.campaign.sending", *map(str, numbers), where)
            self.chain.start(Command(f"sender-{number}", self._directory, *words))
        ends = [word for queue in QUEUES for word in ("--from", self.chain.url(queue))]
        words = ("stompkit", "spool", "run", str(self._spool), *ends, *self.options(), "--quiet")
        environment = self._disk.environment
        self._receiver = Command("receiver", self._directory, *words, environment=environment)
        self.chain.start(self._receiver)

    def options(self) -> list[str]:
        """What the receiver is told."""
        chance = self._plan.chance("options")
        options = ["--ack", chance.choice(("client-individual", "client"))]
        options += ["--group", chance.choice(("5", "50", "500"))]
        return [*options, "--partitions", chance.choice(("1", "1", "2"))]

    def _senders(self) -> list[Command]:
        return [each for each in self.chain.commands if each is not self._receiver]

    def _confirmations(self, sender: int) -> Path:
        return self._directory / f"confirmed-{sender}"

    def _wait(self, share: float) -> None:
        wanted = share * self._quota * _SENDERS

        def is_there() -> bool:
            self._look()
            return len(self._known) >= wanted

        self.chain.wait(is_there, self._how_far)

    def _how_far(self) -> str:
        return f"{len(self._known)} messages are in the spool"

    def _end(self) -> None:
        """Wait until all is there, have it die once more, and look what there is."""
        wanted = {(each.sender, each.number) for each in self._confirmed()}

        def is_all_there() -> bool:
            self._receiver.check()
            self._look()
            return wanted <= self._known

        # Whether it is, says the checker.
        until(is_all_there, self.patience_s)
        self._receiver.kill()
        if self.chain.chance.random() < 0.5:
            self._lose_power()
        SpoolWriter(self._spool).close()
        self._look(anew=True, is_last=True)

    # What happens to it.

    def misfortunes(self) -> list[Misfortune]:
        """What can happen."""
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
            lambda: chain.pause(self._receiver),
            lambda: chain.kill(chain.chance.choice(self._senders())),
        ]

    def _lose_power(self) -> None:
        self.chain.note("the spool's power fails")
        # What has not been written to was not begun.
        if self._disk[Number.WRITES]:
            self._disk.lose_power()

    def _kill(self, *, power: bool = False) -> None:
        self.chain.note("receiver killed")
        self._receiver.check()
        self._receiver.kill()
        self._start_again(power=power)

    def _start_again(self, *, power: bool) -> None:
        self._disk.heal()
        if power:
            self._lose_power()
        self._disk.settle()
        self._receiver.on_end = None
        self._receiver.start()

    def _kill_all(self) -> None:
        """Broker and receiver are on one machine, which loses its power."""
        self._receiver.check()
        self._receiver.kill()
        self.chain.lose_power()
        self._start_again(power=True)

    def _kill_in_write(self) -> None:
        self.chain.note("receiver killed within a write")
        self._disk[Number.DIE_AFTER] = self._disk[Number.WRITES] + self.chain.chance.randint(1, 20)
        wait_until(lambda: not self._receiver.is_running, 2.0)
        self._receiver.kill()
        self._start_again(power=self.chain.chance.random() < 0.5)

    def _fail(self, number: Number, value: int) -> None:
        """Have its disk fail for a while; it dies with what it has written, or goes on."""
        self.chain.note(f"the spool's disk: {number.name}")
        chance = self.chain.chance
        self._disk[Number.EVERY] = chance.choice((1, 2, 5))
        self._disk[number] = value
        wanted = self._disk[Number.STRUCK] + chance.randint(1, 10)
        wait_until(lambda: self._disk[Number.STRUCK] >= wanted, 2.0)
        # One that is being started can't open its spool, says so, and ends.
        self._receiver.on_end = self._revive
        if chance.random() < 0.4:
            self._kill(power=chance.random() < 0.5)
        self._disk.heal()

    def _revive(self) -> None:
        self.chain.note("the receiver had ended")
        self._start_again(power=False)

    # What is seen.

    def _look(self, *, anew: bool = False, is_last: bool = False) -> None:
        """Read what has come, or ``anew`` all of it."""
        try:
            reader = SpoolReader(self._spool)
            heads = reader.head()
        except (SpoolProblem, OSError) as error:
            # It is not made yet, or not opened again.
            if is_last:
                self._looks.append(Looked(0, 0, (), damage=str(error)))
            return
        for partition, head in enumerate(heads):
            first = 0 if anew else self._seen.get(partition, 0)
            if head <= first and not is_last:
                continue
            messages: list[Kept] = []
            damage = ""
            try:
                for block in reader.blocks(partition, first, head):
                    messages += map(_kept, block.records())
            except BrokenSpool as error:
                # While it is being opened again that is nothing to rely on.
                damage = str(error)
                if not is_last:
                    return
            self._looks.append(Looked(partition, first, tuple(messages), damage))
            self._seen[partition] = max(self._seen.get(partition, 0), first + len(messages))
            self._known |= {(each.sender, each.number) for each in messages if each.sender >= 0}

    def _confirmed(self) -> list[Confirmed]:
        return [
            Confirmed(sender, number)
            for sender in range(_SENDERS)
            for number in sorted(confirmed(self._confirmations(sender)))
        ]

    # What came of it.

    @property
    def log(self) -> str:
        """What all programs have written."""
        return self.chain.log

    @property
    def events(self) -> Sequence[Struct]:
        """What was seen, and what has happened."""
        return [*map(Note, self.chain.notes), *self._confirmed(), *self._looks]

    def check(self) -> Finding:
        """Judge it."""
        sent = {
            Kept(sender, number, destination_of(sender, number))
            for sender in range(_SENDERS)
            for number in range(self._quota)
        }
        return check_spool(self._confirmed(), self._looks, sent)


def _kept(record: Record) -> Kept:
    found = message_in(record.body)
    if found is None or event_of(*found) != record.event_id:
        return Kept(-1, -1, record.destination)
    return Kept(*found, record.destination)
