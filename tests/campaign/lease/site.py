"""The hosts of a run with their programs, and what faults do to them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from stompkit.testing.launching.polling import wait_until
from tests.campaign.disk import built
from tests.campaign.history import Event
from tests.campaign.lease.checks import with_terms, writes
from tests.campaign.lease.databases import Databases
from tests.campaign.lease.members import Member, Term
from tests.campaign.lease.network import Network
from tests.campaign.load import Load
from tests.campaign.plan import SETTING, Plan, settings
from tests.campaign.recorder import Recorder
from tests.campaign.scene import Until
from tests.campaign.wire import Address

__all__ = ["Site"]

_NAMES: Final = ("mq-1", "mq-2")
#: Time in seconds within which a broker is active.
_START_S: Final = 300.0
#: Longest time without a receipt when nothing is broken, in seconds.
_PROGRESS_S: Final = 300.0
#: Seconds of a lease that does not expire while queues are drained.
_LONG_S: Final = 600.0


class Site:
    """Two brokers, two databases, and clients; a context manager that ends all of them."""

    def __init__(self, plan: Plan, directory: Path, library: Path) -> None:
        """Prepare without starting anything. ``library`` is the directory for that of the disk."""
        self.plan = plan
        self.chance = plan.chance("faults")
        self.lease_s = plan.chance("lease").choice((2.0, 2.0, 3.0))
        self.recorder = Recorder(SETTING)
        self.members: list[Member] = []
        self.network: Network
        self.databases: Databases
        self.load: Load
        self._directory = directory
        self._library = library
        self._stack = ExitStack()
        self._sessions: list[tuple[str, int]] = []
        self._stamps: list[str] = []

    def __enter__(self) -> Site:
        """Start everything; return when a broker is active."""
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        # A run that is killed must not leave the files of databases elsewhere.
        tempfile.tempdir = str(self._directory)
        self.network = Network()
        self.databases = Databases(self.network, self._directory, self._library, self._stack)
        library = built(self._library)
        for name in _NAMES:
            member = Member(name, self.network, self._directory, library, self._stack)
            member.configure(self.databases.url, self.lease_s, settings(self.plan))
            self.members.append(member)
        for member in self.members:
            member.start()
        assert wait_until(lambda: self.active, _START_S), f"no broker is active:\n{self.log}"
        self.databases.note_commits()
        addresses = [member.address for member in self.members]
        self.load = Load(self.plan, self.recorder, lambda: addresses, self._life)
        self._stack.callback(self.load.close)

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._stack.close()

    def _life(self, address: Address, session: str) -> int:
        """Return the last epoch of the broker with an address."""
        [member] = [each for each in self.members if each.address == address]
        life = member.terms()[-1].epoch
        self._sessions.append((session, life))
        return life

    # Brokers.

    @property
    def active(self) -> list[Member]:
        """The brokers that are active by their logs; a paused one may not have noticed its end."""
        found = [member for member in self.members if member.epoch]
        return sorted(found, key=lambda member: member.epoch, reverse=True)

    def target(self) -> Member:
        """Return the active broker, or any broker if none is active."""
        return (self.active or [self.chance.choice(self.members)])[0]

    @property
    def log(self) -> str:
        """Return the logs of all brokers."""
        return "".join(member.log for member in self.members)

    # Waiting.

    def wait(self, until: Until) -> None:
        """Iterate until the condition holds, or until the timeout."""
        is_done = self.load.turn_until(until.is_enough, until.at_most_s)
        has = f"{self.recorder.receipted} have receipts"
        assert is_done or not until.claim, f"not within {until.at_most_s:g} s: {until.claim}; {has}"

    def leases(self, least: float, most: float) -> Until:
        """Wait for a multiple of the time of the lease."""
        return Until(lambda: False, self.chance.uniform(least, most) * self.lease_s)

    def reached(self, share: float) -> Until:
        """Wait until that share of the quota has its receipts."""
        wanted = share * self.plan.quota
        claim = f"{wanted:.0f} messages get their receipts"
        return Until(lambda: self.recorder.receipted >= wanted, _PROGRESS_S, claim)

    def one_active(self) -> Until:
        """Wait until both brokers run, and one is active."""

        def is_so() -> bool:
            return len(self.active) == 1 and all(each.is_running for each in self.members)

        return Until(is_so, _PROGRESS_S, "one broker is active")

    # The end.

    def end_all(self, *, kill: bool) -> Address:
        """End both brokers; return the address of one that keeps its lease."""
        for member in self.members:
            if kill:
                member.kill()
            else:
                member.stop()
        self.load.drop_all()
        last = self.members[0]
        last.set_clock(0)
        last.configure(self.databases.url, _LONG_S, settings(self.plan))
        last.start()
        assert wait_until(lambda: last.epoch, _START_S), f"no broker is active:\n{self.log}"
        return last.address

    def collect(self) -> None:
        """Read the commits from the database."""
        self._stamps = self.databases.stamps()

    @property
    def terms(self) -> list[Term]:
        """All terms of all brokers."""
        return [term for member in self.members for term in member.terms()]

    def history(self) -> list[Event]:
        """Return the history with the terms and commits of brokers."""
        events = with_terms(self.recorder.events, self.terms, self._sessions)
        return [*events, *writes(self._stamps)]
