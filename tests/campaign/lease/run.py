"""A run of brokers with a lease: ``python -m tests.campaign.lease.run`` plays it inside."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.campaign.apart import APART, Apart, play_inside
from tests.campaign.checker import Finding
from tests.campaign.drain import drain
from tests.campaign.history import Event
from tests.campaign.lease.checks import check_lease
from tests.campaign.lease.faults import drawn, overlapping
from tests.campaign.lease.site import Site
from tests.campaign.plan import Plan
from tests.campaign.running import Verdict, run
from tests.campaign.scene import Script
from tests.campaign.stage import Line

__all__ = ["LEASE", "lease_plan", "run_lease_seed"]

#: Name of the fault in plans and verdicts.
_FAULT: Final = "lease"
_NAMESPACES: Final = ("--net", "--mount", "--mount-proc")
_PROGRAMS: Final = ("unshare", "ip", "mount", "setpriv")
#: Operations that are not allowed everywhere.
_TRIAL: Final = (
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add trial"
    " && ip link add name trial-bridge type bridge"
    " && ip link add trial-veth type veth peer name front netns trial"
)
#: Probability that a fault begins and ends during the one before.
_OVERLAP: Final = 0.4


def _missing() -> str:
    """Return a description of what this machine lacks or forbids."""
    programs = [each for each in _PROGRAMS if shutil.which(each) is None]
    if programs:
        return f"the programs {', '.join(programs)}"
    command = ["unshare", *_NAMESPACES, *APART, "sh", "-c", _TRIAL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"what is not allowed here ({done.stderr.strip()})" if done.returncode else ""


class Leased:
    """Clients that use brokers with a lease; a :class:`tests.campaign.stage.Stage`."""

    def __init__(self, plan: Plan, directory: Path, library: Path) -> None:
        """Prepare without starting anything."""
        self._site = Site(plan, directory, library)
        self.log = ""
        self.events: Sequence[Event] = self._site.recorder.events

    def play(self) -> None:
        """Run it."""
        with self._site as site:
            try:
                _play(site)
            finally:
                self.log = site.log
                self.events = site.history()

    def check(self) -> Finding:
        """Check the history."""
        return check_lease(self.events)


def _play(site: Site) -> None:
    for until in _script(site):
        site.wait(until)
    site.wait(site.reached(1.0))
    site.wait(site.one_active())
    chance = site.plan.chance("end")
    site.load.leave(all_of_them=chance.random() < 0.3)
    drain(site.end_all(kill=chance.random() < 0.5), site.recorder)
    site.collect()


def _script(site: Site) -> Script:
    faults = drawn(site)
    while len(faults) > 1 and site.chance.random() < _OVERLAP:
        second = faults.pop()
        faults.append(overlapping(faults.pop(), second))
    moments = sorted(site.chance.uniform(0.05, 0.8) for _ in faults)
    late = site.plan.chance("late").randrange(len(faults) + 1)
    for number, (share, fault) in enumerate(zip(moments, faults, strict=True)):
        yield site.reached(share)
        if number == late:
            site.load.let_late_one_try()
        yield from fault(site)


def _outside(plan: Plan, directory: Path, report: Path) -> Apart:
    return Apart(
        plan,
        directory,
        report,
        namespaces=_NAMESPACES,
        module=__name__,
        checks=check_lease,
    )


LEASE: Final = Line("brokers with a lease, each on a host", _outside, _missing)


def lease_plan(seed: int, fault: str = "", quota: int = 0) -> Plan:
    """Return the plan of a seed; ``fault`` and ``quota`` replace what it draws."""
    name = f"{_FAULT}:{fault}" if fault else _FAULT
    drawn = Plan(seed=seed, fault=name, quota=0).chance("quota").randint(1_050, 1_400)
    return Plan(seed=seed, fault=name, quota=quota or drawn)


def run_lease_seed(seed: int, report: Path) -> Verdict:
    """Run a seed."""
    return run(lease_plan(seed), report, fault=LEASE)


if __name__ == "__main__":
    play_inside(Leased)
