"""Leases on a machine that sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from stompkit._common.lease import Lease, steady_s
from stompkit.replica._running.lease import ReplicaLease
from stompkit.replica.store import Store
from stompkit.replication.sources._outbox_lease import OutboxLease
from stompkit.replication.sources.outbox_tables import OutboxTables

#: Long enough that no test runs into the end of a lease.
LEASE_S = 600.0

Sleep = Callable[[float], None]


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Sleep:
    """Set forward the clock that counts while the machine sleeps, and no other."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no clock that counts while the machine sleeps")
    read, asleep_s = time.clock_gettime, [0.0]

    def clock_gettime(clock: int) -> float:
        return read(clock) + (asleep_s[0] if clock == time.CLOCK_BOOTTIME else 0.0)

    monkeypatch.setattr(time, "clock_gettime", clock_gettime)

    def advance(seconds: float) -> None:
        asleep_s[0] += seconds

    return advance


@pytest.fixture(params=["replica", "outbox"])
def lease(request: pytest.FixtureRequest) -> Iterator[Lease]:
    """A lease that has just been acquired."""
    shared = {"check_same_thread": False}
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args=shared)
    if request.param == "replica":
        store = Store(engine)
        store.create()
        replica = ReplicaLease(store, LEASE_S)
        replica.acquire()
        yield replica
        replica.release()
    else:
        tables = OutboxTables("stompkit_outbox")
        tables.metadata.create_all(engine)
        outbox = OutboxLease(tables, engine, LEASE_S)
        assert outbox.acquire("app") is not None
        yield outbox
        outbox.release()
    engine.dispose()


def test_a_lease_is_valid_and_not_due_after_it_was_acquired(lease: Lease) -> None:
    """It is renewed when a third of its time has passed."""
    assert lease.is_valid
    assert not lease.is_due
    assert 0 < lease.due_in_s <= LEASE_S / 3


def test_a_lease_is_due_after_a_third_of_its_time_asleep(lease: Lease, sleep: Sleep) -> None:
    """The owner renews it before it does anything else."""
    sleep(LEASE_S / 3)
    assert lease.is_due
    assert lease.is_valid


def test_a_lease_ends_while_the_machine_sleeps(lease: Lease, sleep: Sleep) -> None:
    """Others may have acquired it meanwhile, by the clock of the database."""
    sleep(LEASE_S)
    assert not lease.is_valid
    assert lease.is_due


def test_an_expired_lease_is_due(lease: Lease) -> None:
    """It stays invalid until it is acquired again."""
    lease.expire()
    assert not lease.is_valid
    assert lease.is_due


def test_the_steady_clock_counts_seconds_asleep(sleep: Sleep) -> None:
    """The monotonic clock does not."""
    before, monotonic = steady_s(), time.monotonic()
    sleep(1e9)
    assert steady_s() - before >= 1e9
    assert time.monotonic() - monotonic < 1e9
