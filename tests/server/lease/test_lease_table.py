"""The lease in a PostgreSQL database, and the fence of the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from stompkit.server.interfaces import CreateLane, FencedError, Put, StoreError
from stompkit.server.lease.election import Ask, LeaseState, Request
from stompkit.server.lease.table import LeaseTable
from stompkit.server.stores.postgresql.stamps import epoch_of
from stompkit.server.stores.postgresql.store import PostgresStore, Term
from stompkit.server.stores.postgresql.url import parsed

SECRET = "hush"
SECONDS = 60.0


class Member:
    """A broker's part in the lease of a database."""

    def __init__(self, url: str, name: str) -> None:
        """Create the tables if they are missing."""
        self.url = url
        self.instance = f"instance-{name}"
        self.table = LeaseTable(url, name, self.instance, SECONDS)
        self.table.prepare()
        self.lost: list[str] = []

    def acquire(self) -> LeaseState | None:
        """Look, and acquire the lease whether it is free or not."""
        state = self.table.look("passive").state
        return self.table.make(Request(Ask.ACQUIRE, state.epoch, state.renewals))

    def store(self, epoch: int) -> PostgresStore:
        """Return the store for a term; it is not open."""
        return PostgresStore(self.url, term=Term(epoch, self.instance, 5.0, self.lost.append))


@pytest.fixture
def members(url: str) -> Iterator[tuple[Member, Member]]:
    """Two brokers that take part in a lease."""
    a, b = Member(url, "a"), Member(url, "b")
    yield a, b
    for each in (a, b):
        each.table.close()


def stamps(url: str) -> psycopg.Connection[tuple[str]]:
    """Record the stamp of each commit from now on; return a connection that can read them."""
    connection: psycopg.Connection[tuple[str]] = psycopg.connect(
        **parsed(url).parameters, autocommit=True
    )
    connection.execute("CREATE TABLE written (number serial, stamp text)")
    connection.execute(
        "CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN"
        " INSERT INTO written (stamp) VALUES (NEW.stamp); RETURN NEW; END $$ LANGUAGE plpgsql"
    )
    connection.execute(
        "CREATE TRIGGER note AFTER UPDATE ON stompkit_meta FOR EACH ROW EXECUTE FUNCTION note()"
    )
    return connection


# The row.


def test_a_lease_is_acquired_renewed_and_released(members: tuple[Member, Member]) -> None:
    a, b = members
    first = a.table.look("passive").state
    assert (first.epoch, first.owner, first.remaining_s < 0) == (0, "", True)
    taken = a.acquire()
    assert taken is not None
    assert (taken.epoch, taken.owner, taken.instance) == (1, "a", "instance-a")
    assert SECONDS - 5 < taken.remaining_s <= SECONDS
    renewed = a.table.make(Request(Ask.RENEW, 1))
    assert renewed is not None
    assert renewed.renewals == taken.renewals + 1
    assert b.table.look("passive").state._replace(remaining_s=0, held_s=0) == renewed._replace(
        remaining_s=0, held_s=0
    )
    assert b.table.make(Request(Ask.RENEW, 1)) is None
    assert b.table.make(Request(Ask.RELEASE, 1)) is None
    released = a.table.make(Request(Ask.RELEASE, 1, successor="b"))
    assert released is not None
    assert (released.owner, released.successor) == ("", "b")
    assert SECONDS - 5 < released.remaining_s <= SECONDS
    assert a.table.make(Request(Ask.RENEW, 1)) is None


def test_a_lease_that_has_changed_since_is_not_acquired(members: tuple[Member, Member]) -> None:
    a, b = members
    seen = b.table.look("passive").state
    assert a.acquire() is not None
    assert b.table.make(Request(Ask.ACQUIRE, seen.epoch, seen.renewals)) is None
    seen = b.table.look("passive").state
    assert a.table.make(Request(Ask.RENEW, 1)) is not None
    assert b.table.make(Request(Ask.ACQUIRE, seen.epoch, seen.renewals)) is None


def test_of_many_one_acquires_the_lease(url: str) -> None:
    members = [Member(url, f"m{number}") for number in range(8)]
    seen = members[0].table.look("passive").state
    request = Request(Ask.ACQUIRE, seen.epoch, seen.renewals)
    taken: list[LeaseState] = []

    def acquire(member: Member) -> None:
        state = member.table.make(request)
        if state is not None:
            taken.append(state)

    threads = [threading.Thread(target=acquire, args=(each,)) for each in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [state.epoch for state in taken] == [1]
    for each in members:
        each.table.close()


def test_all_brokers_are_listed_with_their_roles(members: tuple[Member, Member]) -> None:
    a, b = members
    a.table.look("active")
    listed = b.table.look("passive").brokers
    assert [(each.name, each.role, each.seen_s < 60) for each in listed] == [
        ("a", "active", True),
        ("b", "passive", True),
    ]
    b.table.leave()
    assert [each.name for each in a.table.look("active").brokers] == ["a"]


def test_a_second_broker_of_the_same_name_is_noticed(members: tuple[Member, Member]) -> None:
    a, _ = members
    assert a.table.look("active").previous == ""
    assert a.table.look("active").previous == "instance-a"
    other = LeaseTable(a.url, "a", "other", SECONDS)
    assert other.look("passive").previous == "instance-a"
    assert a.table.look("active").previous == "other"
    other.close()


def test_the_owner_is_asked_to_leave(members: tuple[Member, Member]) -> None:
    a, b = members
    assert b.table.ask_to_leave("b") is None
    a.acquire()
    assert b.table.ask_to_leave("b") is not None
    assert a.table.look("active").state.successor == "b"


def test_a_request_that_waits_is_given_up(members: tuple[Member, Member]) -> None:
    a, _ = members
    a.acquire()
    failures: list[StoreError] = []

    def renew() -> None:
        try:
            a.table.make(Request(Ask.RENEW, 1))
        except StoreError as error:
            failures.append(error)

    with psycopg.connect(**parsed(a.url).parameters, autocommit=True) as other:
        with other.transaction():
            other.execute("UPDATE stompkit_lease SET seconds = seconds")
            thread = threading.Thread(target=renew)
            thread.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            with psycopg.connect(**parsed(a.url).parameters, autocommit=True) as looker:
                while looker.execute(waiting).fetchone() != (1,):
                    time.sleep(0.01)
            a.table.abort()
            thread.join(30.0)
            assert not thread.is_alive()
    assert len(failures) == 1
    # It connects again.
    assert a.table.look("active").state.owner == "a"


def test_no_secret_is_in_an_error() -> None:
    table = LeaseTable(f"postgresql://u:{SECRET}@127.0.0.1:1/d", "a", "instance", SECONDS)
    for call in (table.prepare, table.leave):
        with pytest.raises(StoreError, match="refused") as caught:
            call()
        assert SECRET not in str(caught.value)
    assert SECRET not in table.name


# The fence.


def test_who_has_lost_the_lease_can_write_no_more(members: tuple[Member, Member]) -> None:
    a, b = members
    assert a.acquire() is not None
    old = a.store(1)
    old.open()
    written = stamps(a.url)
    old.apply([CreateLane(1, "/queue/a", 4), Put(1, 1, 10, 0, 0, "id", b"", b"x")])
    # Until the other one has opened the store, nothing is lost by going on.
    assert b.acquire() is not None
    old.apply([Put(1, 2, 10, 0, 0, "id", b"", b"x")])
    new = b.store(2)
    new.open()
    for _ in range(2):
        with pytest.raises(FencedError, match="another broker has taken over"):
            old.apply([Put(1, 3, 10, 0, 0, "id", b"", b"x")])
    assert len(a.lost) == 2
    new.apply([Put(1, 3, 10, 0, 0, "id", b"", b"y")])
    assert [each.body for each in new.read(1, 0, 9, 99)] == [b"x", b"x", b"y"]
    epochs = [epoch_of(stamp) for (stamp,) in written.execute("SELECT stamp FROM written")]
    assert epochs == [1, 1, 2, 2]
    written.close()
    new.close()
    old.abort()
    old.close()


def test_who_does_not_have_the_lease_can_not_open_the_store(
    members: tuple[Member, Member],
) -> None:
    a, b = members
    assert a.acquire() is not None
    current = a.store(1)
    current.open()
    for late in (b.store(1), a.store(2)):
        with pytest.raises(FencedError):
            late.open()
    current.apply([CreateLane(1, "/queue/a", 4)])
    current.close()


def test_a_broker_without_the_lease_is_kept_out_while_there_is_one(
    members: tuple[Member, Member],
) -> None:
    a, _ = members
    assert a.acquire() is not None
    store = a.store(1)
    store.open()
    other = PostgresStore(a.url)
    with pytest.raises(StoreError, match="in use by the broker a, which has a lease"):
        other.open()
    store.close()
    a.table.make(Request(Ask.RELEASE, 1))
    other.open()
    other.close()


def test_a_batch_that_the_old_broker_has_sent_in_part_does_not_delay_the_new_one(
    members: tuple[Member, Member],
) -> None:
    a, b = members
    assert a.acquire() is not None
    old = a.store(1)
    old.open()
    # A session of that broker holds the lock that each commit takes.
    parameters = parsed(a.url).parameters | {"application_name": "stompkit-store paused"}
    paused = psycopg.connect(**parameters)
    paused.execute("UPDATE stompkit_meta SET stamp = stamp")
    assert b.acquire() is not None
    new = b.store(2)
    new.open()
    new.apply([CreateLane(1, "/queue/a", 4)])
    new.close()
    old.abort()
    old.close()
    paused.close()
