"""A commit of a session on a replica's database becomes a changeset in the same transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replica._running.busy_retry import within
from stompkit.replica.capture import ReadOnlyReplicaError
from stompkit.replica.nodes import IdentityError
from stompkit.replica.store import StoreBusyError
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.sources.session import UnseenChangeError
from tests.replica.notes import (
    Base,
    Label,
    Log,
    Note,
    Site,
    make_engine,
    sqlite_url,
    written,
)

KINDS = ("sqlite", "postgresql", "mariadb")


def only(*kinds: str) -> pytest.MarkDecorator:
    """Return a decorator that collects a test for these kinds of databases only."""
    return pytest.mark.parametrize("engine", kinds, indirect=True)


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path)
    else:
        server = request.getfixturevalue(request.param)
        url = server.url(server.new_database())
    engine = make_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def site(engine: Engine) -> Iterator[Site]:
    """A replica in it."""
    site = Site(engine)
    yield site
    site.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Site]:
    """Another replica."""
    other = Site(make_engine(sqlite_url(tmp_path, "other")), "B")
    yield other
    other.close()


def told(changeset: Changeset) -> list[tuple[str, str, dict[str, Any], dict[str, Any] | None]]:
    """Return its changes in short form."""
    return [(each.action, each.name, each.key, each.after) for each in changeset.changes]


def note(key: str, title: str = "t") -> Note:
    return Note(id=key, title=title, body="b")


def test_what_a_session_commits_is_a_changeset(site: Site) -> None:
    with site.sessions.begin() as session:
        session.info["stompkit.author"] = "ada"
        session.info["stompkit.comment"] = "the first one"
        session.add(note("1"))
        session.flush()
        session.add(Label(note_id="1", word="red"))
        session.add(Log(text="not replicated"))
    (made,) = site.changesets
    assert told(made) == [
        ("write", "notes", {"id": "1"}, {"title": "t", "body": "b", "stars": 0}),
        ("write", "labels", {"note_id": "1", "word": "red"}, {}),
    ]
    assert (made.origin, made.sequence) == (site.origin, 1)
    assert made.revision is not None
    assert (made.revision.author, made.revision.comment) == ("ada", "the first one")
    assert site.commits == 1


def test_updates_and_deletes_are_told_against_what_was_merged(site: Site) -> None:
    with site.sessions.begin() as session:
        session.add(note("1"))
    with site.sessions.begin() as session:
        session.get_one(Note, "1").title = "u"
    with site.sessions.begin() as session:
        session.delete(session.get_one(Note, "1"))
    _, second, third = site.changesets
    assert told(second) == [("update", "notes", {"id": "1"}, {"title": "u"})]
    assert second.changes[0].before == {"title": "t"}
    assert third.changes[0].before == {"title": "u", "body": "b", "stars": 0}
    assert second.parents and third.parents


def test_what_is_rolled_back_takes_no_number(site: Site) -> None:
    with site.sessions() as session:
        session.add(note("1"))
        session.flush()
        session.rollback()
        session.add(note("2"))
        with session.begin_nested() as savepoint:
            session.add(note("3"))
            session.flush()
            savepoint.rollback()
        session.commit()
        session.add(note("2"))
        with pytest.raises(DBAPIError):
            session.commit()
        session.rollback()
        session.add(note("4"))
        session.commit()
    first, second = site.changesets
    assert [first.sequence, second.sequence] == [1, 2]
    assert [first.changes[0].key, second.changes[0].key] == [{"id": "2"}, {"id": "4"}]
    assert site.commits == 2


def test_a_transaction_without_effect_is_no_changeset(site: Site) -> None:
    with site.sessions.begin() as session:
        session.add(note("1"))
    with site.sessions.begin() as session:
        session.execute(update(Note).values(title="t"))
        session.add(Log(text="beside"))
    assert len(site.changesets) == 1


def test_a_key_that_changes_is_another_row(site: Site) -> None:
    with site.sessions.begin() as session:
        session.add(note("1"))
    with site.sessions.begin() as session:
        session.get_one(Note, "1").id = "2"
    assert told(site.changesets[1]) == [
        ("delete", "notes", {"id": "1"}, None),
        ("write", "notes", {"id": "2"}, {"title": "t", "body": "b", "stars": 0}),
    ]


def test_statements_are_recorded_row_by_row(site: Site) -> None:
    with site.sessions.begin() as session:
        session.execute(insert(Note), [{"id": "1", "title": "a"}, {"id": "2", "title": "b"}])
        session.execute(update(Note).where(Note.id == "2").values(stars=Note.stars + 1))
    (made,) = site.changesets
    assert [(each.key["id"], each.after) for each in made.changes] == [
        ("1", {"title": "a", "body": None, "stars": 0}),
        ("2", {"title": "b", "body": None, "stars": 1}),
    ]
    with site.sessions() as session, pytest.raises(UnseenChangeError):
        session.execute(text("DELETE FROM notes"))


# One transaction is one changeset.


def test_what_hooks_add_during_the_commit_is_in_the_same_changeset(site: Site) -> None:
    added = iter(("2", "3"))

    def more(session: Session) -> None:
        for key in added:
            session.add(note(key))
            session.flush()

    event.listen(site.sessions, "before_commit", more)
    with site.sessions.begin() as session:
        session.add(note("1"))
    (made,) = site.changesets
    assert [each.key["id"] for each in made.changes] == ["1", "2", "3"]


def test_a_hook_can_be_the_first_to_use_the_database(site: Site) -> None:
    added = iter("1")
    event.listen(site.sessions, "before_commit", lambda session: session.add_all(map(note, added)))
    with site.sessions() as session:
        session.begin()
        session.commit()
    (made,) = site.changesets
    assert [each.key["id"] for each in made.changes] == ["1"]


def test_what_a_hook_takes_back_is_not_told(site: Site) -> None:
    event.listen(
        site.sessions,
        "before_commit",
        lambda session: session.execute(update(Note).values(title="last")),
    )
    with site.sessions.begin() as session:
        session.add(note("1"))
    (made,) = site.changesets
    assert made.changes[0].after == {"title": "last", "body": "b", "stars": 0}


def test_what_comes_behind_the_last_moment_is_refused(site: Site) -> None:
    with site.sessions() as session:
        session.add(note("1"))
        session.flush()

        def late(connection: Connection) -> None:
            connection.execute(insert(Note).values(id="2", title="late"))

        event.listen(
            site.sessions,
            "before_commit",
            lambda session: event.listen(session.connection(), "commit", late),
        )
        with pytest.raises(UnseenChangeError, match="recorded already"):
            session.commit()
    assert site.changesets == []
    assert site.rows() == []


def test_a_transaction_that_can_not_be_recorded_is_not_committed(engine: Engine) -> None:
    site = Site(engine)
    with site.store.transaction() as tx:
        tx.set_meta("identity", None)
    with site.sessions() as session:
        session.add(note("1"))
        with pytest.raises(IdentityError, match="create"):
            session.commit()
        session.rollback()
    with engine.connect() as connection:
        # The connection belongs to the caller, who may continue to use it.
        with Session(connection) as session:
            site.watch(session)
            session.add(note("2"))
            with pytest.raises(IdentityError):
                session.commit()
            session.rollback()
        connection.execute(insert(Log).values(text="after"))
        connection.commit()
    assert site.rows() == []
    site.close()


# Sessions in transactions of others.


def test_a_session_that_joins_a_transaction_is_recorded_in_it(site: Site) -> None:
    with site.engine.connect() as connection:
        for is_kept in (False, True):
            transaction = connection.begin()
            with Session(connection) as session:
                capture = site.watch(session)
                session.add(note("1"))
                session.commit()
                session.add(note("2"))
                session.commit()
                capture.close()
            assert site.changesets == []
            (transaction.commit if is_kept else transaction.rollback)()
    assert [(each.sequence, each.changes[0].key["id"]) for each in site.changesets] == [
        (1, "1"),
        (2, "2"),
    ]
    assert [row[0] for row in site.rows()] == ["1", "2"]


def test_what_is_rolled_back_around_a_session_is_not_recorded(site: Site) -> None:
    with site.engine.begin() as connection:
        with connection.begin_nested() as savepoint:
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                capture = site.watch(session)
                session.add(note("1"))
                session.commit()
            savepoint.rollback()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            other = site.watch(session)
            session.add(note("2"))
            session.commit()
    capture.close()
    other.close()
    assert [(each.sequence, each.changes[0].key["id"]) for each in site.changesets] == [(1, "2")]
    assert [row[0] for row in site.rows()] == ["2"]


def test_a_session_that_could_not_commit_leaves_nothing_to_record(site: Site) -> None:
    def refuse(_: Session) -> None:
        raise RuntimeError("not today")

    with site.engine.begin() as connection:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            capture = site.watch(session)
            event.listen(session, "before_commit", refuse)
            session.add(note("1"))
            session.flush()
            with pytest.raises(RuntimeError):
                session.commit()
            session.rollback()
        connection.execute(insert(Log).values(text="beside"))
    capture.close()
    assert site.rows() == []
    assert site.changesets == []


@only("postgresql")
def test_a_table_of_the_same_name_in_another_schema_is_another_table(site: Site) -> None:
    other = Table("notes", MetaData(), Column("id", String, primary_key=True), schema="other")
    with site.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA other")
        other.create(connection)
    with site.sessions.begin() as session:
        session.execute(insert(other).values(id="1"))
        session.add(note("2"))
    (made,) = site.changesets
    assert [each.key["id"] for each in made.changes] == ["2"]


@only("mariadb")
def test_a_transaction_of_two_phases_is_recorded_in_the_first(site: Site) -> None:
    factory = sessionmaker(site.engine, twophase=True)
    capture = site.watch(factory)
    with factory() as session:
        session.add(note("1"))
        session.prepare()
        assert site.changesets == []
        session.commit()
        session.add(note("2"))
        session.prepare()
        session.rollback()
    capture.close()
    assert [each.changes[0].key["id"] for each in site.changesets] == ["1"]


# Several databases.


def test_a_session_of_several_databases_is_recorded_where_the_replica_is(
    site: Site, tmp_path: Path
) -> None:
    beside = make_engine(sqlite_url(tmp_path, "beside"))
    Base.metadata.create_all(beside)
    factory = sessionmaker(binds={Note: site.engine, Label: site.engine, Log: beside})
    capture = site.watch(factory)
    with factory.begin() as session:
        session.add_all([note("1"), Log(text="beside")])
    capture.close()
    (made,) = site.changesets
    assert [each.name for each in made.changes] == ["notes"]
    beside.dispose()


def test_another_engine_of_the_same_database_is_known(site: Site) -> None:
    second = make_engine(site.engine.url)
    factory = sessionmaker(second)
    capture = site.watch(factory)
    with factory.begin() as session:
        session.add(note("1"))
    capture.close()
    second.dispose()
    assert len(site.changesets) == 1


def test_a_like_table_of_another_database_is_told_to_be_left_out(
    site: Site, other: Site, caplog: pytest.LogCaptureFixture
) -> None:
    other.capture.close()
    capture = site.watch(other.sessions)
    with caplog.at_level(logging.WARNING), other.sessions.begin() as session:
        session.add(note("1"))
    capture.close()
    assert site.changesets == other.changesets == []
    assert "not the database of the replica" in caplog.text


# Other nodes.


def test_columns_that_were_only_loaded_are_not_told(site: Site, other: Site) -> None:
    """They may be older than the values of other nodes."""
    with site.sessions(expire_on_commit=False) as session:
        mine = note("1")
        session.add(mine)
        session.commit()
        other.apply(site.last)
        with other.sessions.begin() as theirs:
            theirs.get_one(Note, "1").title = "theirs"
        site.apply(other.last)
        # The session still has the title that it has written itself.
        mine.body = "mine"
        session.commit()
    assert told(site.changesets[-1]) == [("update", "notes", {"id": "1"}, {"body": "mine"})]
    assert site.state("1") == {"title": "theirs", "body": "mine", "stars": 0}
    assert site.rows() == [("1", "theirs", "mine", 0)]


@only("postgresql", "mariadb")
def test_a_transaction_that_sees_an_old_state_loses_nothing_of_others(
    site: Site, other: Site
) -> None:
    with site.sessions.begin() as session:
        session.add(note("1"))
    made = other.write(written("2", title="theirs", body=None, stars=0))
    again = sessionmaker(site.engine.execution_options(isolation_level="REPEATABLE READ"))
    capture = site.watch(again)
    with again() as session:
        assert len(session.scalars(select(Note)).all()) == 1
        site.apply(made)
        site.write(written("3", title="ours", body=None, stars=0))
        session.add(note("4"))
        try:
            session.commit()
        except (DBAPIError, StoreBusyError):
            # As databases do that refuse the write of such a transaction: it must be repeated.
            session.rollback()
            session.add(note("4"))
            session.commit()
    capture.close()
    assert [row[0] for row in site.rows()] == ["1", "2", "3", "4"]
    last = site.changesets[-1]
    assert last.sequence == 3
    assert last.revision is not None
    assert site.state("2") == {"title": "theirs", "body": None, "stars": 0}
    with site.store.reading() as reader:
        assert reader.vector() == {site.origin: 3, other.origin: 1}


def test_threads_that_commit_at_the_same_time_are_numbered_without_gaps(site: Site) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        for number in range(10):
            try:
                with site.sessions.begin() as session:
                    session.add(note(f"{name}{number}"))
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [each.sequence for each in site.changesets] == list(range(1, 41))
    assert len(site.rows()) == 40


@only("postgresql", "mariadb")
def test_what_is_applied_beside_lets_no_commit_fail(site: Site, other: Site) -> None:
    """The applying node waits for rows that a session has locked, and backs off."""
    keys = [str(number) for number in range(5)]
    with site.sessions.begin() as session:
        session.add_all(map(note, keys))
    other.apply(site.last)
    theirs = [
        other.write(
            *(
                RowChange(table="notes", action="update", key={"id": key}, after={"body": str(n)})
                for key in keys
            )
        )
        for n in range(10)
    ]
    errors: list[BaseException] = []

    def apply() -> None:
        try:
            for each in theirs:
                within(60.0, lambda each=each: site.apply(each))  # type: ignore[misc]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=apply)
    thread.start()
    for n in range(10):
        with site.sessions.begin() as session:
            for key in keys:
                session.execute(update(Note).where(Note.id == key).values(title=str(n)))
    thread.join()
    assert errors == []
    assert site.rows() == [(key, "9", "9", 0) for key in keys]
    with site.store.reading() as reader:
        assert reader.vector() == {site.origin: 11, other.origin: 10}


# A receive-only replica.


@only("sqlite")
def test_a_read_only_replica_refuses_local_changes(engine: Engine) -> None:
    site = Site(engine, is_read_only=True)
    changes: list[Callable[[Session], object]] = [
        lambda session: session.add(note("1")),
        lambda session: session.execute(insert(Note).values(id="2")),
    ]
    for change in changes:
        with site.sessions() as session:
            with pytest.raises(ReadOnlyReplicaError, match="notes"):
                change(session)
                session.flush()
            with pytest.raises(Exception):  # noqa: B017  # some have rolled back, some refuse again
                session.commit()
    with site.sessions.begin() as session:
        session.add(Log(text="not replicated"))
    assert site.rows() == []
    assert site.changesets == []
    site.close()


@only("sqlite")
def test_a_capture_that_is_closed_sees_nothing(site: Site) -> None:
    site.capture.close()
    site.capture.close()
    with site.sessions.begin() as session:
        session.add(note("1"))
    assert site.changesets == []
