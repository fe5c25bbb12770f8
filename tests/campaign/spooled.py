"""Messages from senders over a broker into a spool, each process killed in turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from stompkit.spool import BrokenSpoolError, Record, SpoolError, SpoolReader, SpoolWriter
from tests.campaign.chain import until
from tests.campaign.checker import Finding
from tests.campaign.keeping import Kept, Looked, check_spool
from tests.campaign.plan import Plan
from tests.campaign.posted import Posted, kept
from tests.campaign.sending import QUEUES

__all__ = ["Spooled"]


class Spooled(Posted):
    """A run of ``stompkit spool run``."""

    def __init__(self, plan: Plan, directory: Path, report: Path) -> None:
        """Prepare without starting anything."""
        super().__init__(plan, directory, report)
        self._looks: list[Looked] = []
        #: Number of messages of each partition that were seen, and the views.
        self._seen: dict[int, int] = {}
        self._known: set[tuple[int, int]] = set()

    def command(self) -> Sequence[str]:
        """Return the program and its arguments."""
        ends = [word for queue in QUEUES for word in ("--from", self.chain.url(queue))]
        return ("spool", "run", str(self.folder), *ends, *self.options(), "--quiet")

    def options(self) -> list[str]:
        """Return options with random values."""
        chance = self.plan.chance("options")
        options = ["--ack", chance.choice(("client-individual", "client"))]
        options += ["--group", chance.choice(("5", "50", "500"))]
        return [*options, "--partitions", chance.choice(("1", "1", "2"))]

    def finish(self) -> None:
        """Wait until all messages have arrived, kill the program once more, and read the spool."""
        wanted = {(each.sender, each.number) for each in self.confirmed()}

        def is_all_there() -> bool:
            self.receiver.check()
            self.look()
            return wanted <= self._known

        # The checker decides whether all messages arrived.
        until(is_all_there, self.patience_s)
        self.receiver.kill()
        if self.chain.chance.random() < 0.5:
            self.lose_power()
        SpoolWriter(self.folder).close()
        self._read(anew=True, is_last=True)

    # Views.

    def look(self, *, anew: bool = False) -> int:
        """Read the new messages, or with ``anew`` all of them."""
        self._read(anew=anew, is_last=False)
        return len(self._known)

    def _read(self, *, anew: bool, is_last: bool) -> None:
        try:
            reader = SpoolReader(self.folder)
            heads = reader.head()
        except (SpoolError, OSError) as error:
            # The spool does not exist yet, or is being opened again.
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
            except BrokenSpoolError as error:
                # While the spool is being opened again, damage is not conclusive.
                damage = str(error)
                if not is_last:
                    return
            self._looks.append(Looked(partition, first, tuple(messages), damage))
            self._seen[partition] = max(self._seen.get(partition, 0), first + len(messages))
            self._known |= {(each.sender, each.number) for each in messages if each.sender >= 0}

    def seen(self) -> Sequence[Struct]:
        """Return the views of readers."""
        return self._looks

    # Results.

    def check(self) -> Finding:
        """Check the run."""
        return check_spool(self.confirmed(), self._looks, self.sent())


def _kept(record: Record) -> Kept:
    return kept(record.destination, record.event_id, record.body)
