"""The faults of brokers with a lease, of which a seed draws one to three.

Each is a script as those of :mod:`tests.campaign.faults`: it yields the conditions for which it
waits while the clients continue, and repairs everything before it ends.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.campaign.lease.checks import FAULTS_NOTE
from tests.campaign.lease.network import BACK, FRONT
from tests.campaign.lease.site import Site
from tests.campaign.scene import Script, Until

__all__ = ["FAULTS", "TAMPERING", "LeaseFault", "drawn", "overlapping"]

LeaseFault = Callable[[Site], Script]
#: Longest time in seconds of a planned failover, and of a failover of the database.
_FAILOVER_S: Final = 120.0
_HOUR_S: Final = 3_600


def _kill(site: Site) -> Script:
    member = site.target()
    site.recorder.note(f"{member.name} is killed")
    member.kill()
    yield site.leases(0.0, 2.0)
    member.start()
    site.recorder.note(f"{member.name} is started")


def _stop(site: Site) -> Script:
    member = site.target()
    site.recorder.note(f"{member.name} is shut down")
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(member.stop)
        yield Until(stopped.done, _FAILOVER_S, f"{member.name} ends")
        stopped.result()
    yield site.leases(0.0, 1.0)
    member.start()
    site.recorder.note(f"{member.name} is started")


def _pause(site: Site) -> Script:
    member = site.target()
    site.recorder.note(f"{member.name} is paused")
    member.signal(signal.SIGSTOP)
    yield site.leases(1.1, 2.5)
    member.signal(signal.SIGCONT)
    site.recorder.note(f"{member.name} continues")


def _without_database(site: Site) -> Script:
    yield from _cut(site, BACK)


def _without_clients(site: Site) -> Script:
    yield from _cut(site, FRONT)


def _alone(site: Site) -> Script:
    yield from _cut(site, FRONT, BACK)


def _cut(site: Site, *networks: str) -> Script:
    member = site.target()
    is_silent = site.chance.random() < 0.5
    how = "silently" if is_silent else "with its cables"
    site.recorder.note(f"{member.name} is cut from {' and '.join(networks)}, {how}")
    for each in networks:
        site.network.cut(member.name, each, is_silent=is_silent)
    yield site.leases(0.2, 2.5)
    for each in networks:
        site.network.connect(member.name, each)
    site.recorder.note(f"{member.name} is connected")


def _clock(site: Site) -> Script:
    member = site.chance.choice(site.members)
    seconds = site.chance.choice((-_HOUR_S, _HOUR_S))
    site.recorder.note(f"the clock of {member.name} is {seconds} s ahead")
    member.set_clock(seconds)
    yield site.leases(0.3, 1.5)
    if site.chance.random() < 0.5:
        yield from _kill(site)
    if site.chance.random() < 0.5:
        member.set_clock(0)
        site.recorder.note(f"the clock of {member.name} is right")


def _database(site: Site) -> Script:
    if not site.databases.has_replica:
        return
    site.recorder.note("the primary server is killed")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(site.databases.fail_over)
        yield Until(done.done, _FAILOVER_S, "the replica is promoted")
        done.result()
    site.recorder.note("the replica is promoted")
    yield site.leases(0.0, 1.0)


def _slow_disk(site: Site) -> Script:
    delay_us = site.chance.choice((5_000, 50_000, 300_000))
    site.recorder.note(f"syncs of the database take {delay_us} us longer")
    site.databases.slow_down(delay_us)
    yield site.leases(0.5, 2.0)
    site.databases.slow_down(0)
    site.recorder.note("the disk is as fast as before")


def _planned(site: Site) -> Script:
    old = site.target()
    [new] = [each for each in site.members if each is not old]
    site.recorder.note(f"{old.name} is asked to hand over to {new.name}")
    with site.chance.choice((old, new)).ask_for_failover(new.name) as command:
        yield Until(lambda: command.poll() is not None, _FAILOVER_S, "the command ends")
        assert command.stdout is not None
        site.recorder.note(f"failover {command.returncode}: {command.stdout.read().strip()}")


FAULTS: Final[dict[str, LeaseFault]] = {
    "kill": _kill,
    "stop": _stop,
    "pause": _pause,
    "no-database": _without_database,
    "no-clients": _without_clients,
    "alone": _alone,
    "clock": _clock,
    "database": _database,
    "slow-disk": _slow_disk,
    "planned": _planned,
}


def _tamper(site: Site) -> Script:
    """Write in an earlier term, and delete messages: the checker has to find both."""
    yield site.one_active()
    with site.databases.connection() as connection, connection.transaction():
        connection.execute("UPDATE stompkit_meta SET stamp = '0.1.tampered'")
        deleted = connection.execute("DELETE FROM stompkit_messages RETURNING place").fetchall()
    site.recorder.note(f"{len(deleted)} messages were deleted")


#: A fault that no seed draws.
TAMPERING: Final = "tampering"


def drawn(site: Site) -> list[LeaseFault]:
    """Return the faults of a run, in their order: those of the seed, or the one that is named."""
    _, _, name = site.plan.fault.partition(":")
    if name:
        site.recorder.note(f"{FAULTS_NOTE}{name}")
        return [_tamper if name == TAMPERING else FAULTS[name]]
    count = site.chance.randint(1, 3)
    names = site.chance.sample(sorted(FAULTS), count)
    site.recorder.note(f"{FAULTS_NOTE}{', '.join(names)}")
    return [FAULTS[name] for name in names]


def overlapping(first: LeaseFault, second: LeaseFault) -> LeaseFault:
    """Return a fault during which another one begins and ends."""

    def both(site: Site) -> Script:
        outer = first(site)
        until = next(outer, None)
        yield from second(site)
        if until is not None:
            yield until
            yield from outer

    return both
