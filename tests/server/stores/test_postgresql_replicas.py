"""The store in PostgreSQL whose commits wait for replicas, and sessions that others have used."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from stompkit.server.interfaces import CreateLane, Operation, Put, StoreError
from stompkit.server.lease.election import Ask, Request
from stompkit.server.lease.table import LeaseTable
from stompkit.server.stores.postgresql.store import PostgresStore
from stompkit.server.stores.postgresql.url import parsed
from stompkit.testing.launching.polling import wait_until
from tests.server.synchronous_replicas import WAITING, Operator, require_replica
from tests.servers import SqlServer

LONG_S = 60.0
CREATE = CreateLane(1, "/queue/a", 4)
PUT = Put(1, 1, 10, 0, 0, "id", b"", b"x")


def operator_of(url: str) -> Operator:
    """Return a connection whose own changes wait for nothing."""
    operator = psycopg.connect(**parsed(url).parameters, autocommit=True)
    operator.execute("SET synchronous_commit = local")
    return operator


@pytest.fixture
def url(postgresql: SqlServer) -> str:
    """The URL of an empty database."""
    return postgresql.url(postgresql.new_database())


@pytest.fixture
def operator(url: str) -> Iterator[Operator]:
    """A connection of somebody who can change the settings of the server."""
    with operator_of(url) as operator:
        yield operator
        require_replica(operator, "")


class Applying:
    """A batch that a thread applies."""

    def __init__(self, store: PostgresStore, *operations: Operation) -> None:
        """Start."""
        self.failures: list[StoreError] = []
        self._thread = threading.Thread(target=self._apply, args=(store, operations))
        self._thread.start()

    def _apply(self, store: PostgresStore, operations: tuple[Operation, ...]) -> None:
        try:
            store.apply(operations)
        except StoreError as error:
            self.failures.append(error)

    @property
    def is_done(self) -> bool:
        """True once the store has answered."""
        return not self._thread.is_alive()


def cancel(operator: Operator, applying: Applying) -> None:
    """Cancel the wait for the replica, once there is one: the commit is done on this server."""

    def cancelled() -> bool:
        waiting = operator.execute(f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) AS w")
        return bool(waiting.fetchall()) or applying.is_done

    assert wait_until(cancelled, LONG_S)


def test_a_commit_that_no_longer_waits_for_its_replica_is_not_confirmed(
    url: str, operator: Operator
) -> None:
    store = PostgresStore(url)
    store.open()
    store.apply([CREATE])
    require_replica(operator)
    applying = Applying(store, PUT)
    while not applying.is_done:
        cancel(operator, applying)
    assert ["is not known" in str(error) for error in applying.failures] == [True]
    store.close()


def test_a_commit_that_no_longer_waits_is_confirmed_when_a_later_one_is_on_the_replica(
    url: str, operator: Operator
) -> None:
    store = PostgresStore(url)
    store.open()
    store.apply([CREATE])
    require_replica(operator)
    applying = Applying(store, PUT)
    cancel(operator, applying)
    # The commit that shows the outcome waits, too.
    assert wait_until(lambda: operator.execute(WAITING).fetchall(), LONG_S)
    assert not applying.is_done
    require_replica(operator, "")
    assert wait_until(lambda: applying.is_done, LONG_S)
    assert applying.failures == []
    assert [each.id for each in store.read(1, 0, 9, 99)] == ["id"]
    store.close()


def note_settings(operator: Operator, table: str) -> None:
    """Record with which setting each change of a table is committed."""
    operator.execute("CREATE TABLE IF NOT EXISTS noted (setting text)")
    operator.execute(
        "CREATE OR REPLACE FUNCTION note() RETURNS trigger AS $$ BEGIN INSERT INTO noted VALUES"
        " (current_setting('synchronous_commit')); RETURN NEW; END $$ LANGUAGE plpgsql"
    )
    operator.execute(
        f"CREATE CONSTRAINT TRIGGER note AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )


def noted(operator: Operator) -> list[object]:
    return [setting for (setting,) in operator.execute("SELECT setting FROM noted").fetchall()]


@pytest.mark.parametrize(("synchronous", "setting"), [(True, "on"), (False, "off")])
def test_a_commit_is_durable_in_a_session_that_another_client_has_changed(
    url: str, operator: Operator, *, synchronous: bool, setting: str
) -> None:
    """A pooler that gives sessions to others has the same effect as this trigger."""
    store = PostgresStore(url, synchronous=synchronous)
    store.open()
    store.apply([CREATE])
    note_settings(operator, "stompkit_meta")
    operator.execute(
        "CREATE FUNCTION weaken() RETURNS trigger AS $$ BEGIN"
        " SET synchronous_commit = off; RETURN NEW; END $$ LANGUAGE plpgsql"
    )
    operator.execute(
        "CREATE TRIGGER weaken BEFORE INSERT ON stompkit_messages"
        " FOR EACH ROW EXECUTE FUNCTION weaken()"
    )
    store.apply([PUT])
    operator.execute("TRUNCATE noted")
    operator.execute("DROP TRIGGER weaken ON stompkit_messages")
    store.apply([PUT._replace(place=2)])
    assert noted(operator) == [setting]
    store.close()


def test_the_lease_waits_for_no_replica(url: str, operator: Operator) -> None:
    table = LeaseTable(url, "a", "instance", 60.0)
    table.prepare()
    require_replica(operator)
    state = table.look("passive").state
    assert table.make(Request(Ask.ACQUIRE, state.epoch, state.renewals)) is not None
    assert table.make(Request(Ask.RENEW, 1)) is not None
    table.leave()
    table.close()
