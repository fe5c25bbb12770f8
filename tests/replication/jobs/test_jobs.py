"""Replication jobs: invalid configurations, the status, and the end."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool

from stompkit.client.blocking import LinkClosedError
from stompkit.replication.jobs import Job, JobError, JobSettings, masked
from stompkit.replication.model.events import Changeset
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sources.outbox import Outbox
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.launching.polling import wait_until
from tests.ports import free_ports
from tests.replication.brokers import broker_url
from tests.servers import SqlServer, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

LONG_S = 60.0


class Base(DeclarativeBase):
    """Tables of these tests."""


class User(Base):
    """A replicated row."""

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]


class Shop:
    """A database with an outbox."""

    def __init__(self, path: Path) -> None:
        """Create it."""
        engine = create_engine(f"sqlite:///{path}")
        Base.metadata.create_all(engine)
        self._sessions = sessionmaker(engine)
        self._outbox = Outbox(self._sessions)
        self._outbox.create(engine)
        self.url = f"outbox+sqlite:///{path}"

    def add(self, *numbers: int) -> None:
        """Insert users, each in its own transaction."""
        for number in numbers:
            with self._sessions.begin() as session:
                session.add(User(id=number, email=f"{number}@example.org"))


class Running:
    """A job in a thread."""

    def __init__(self, job: Job) -> None:
        """Start it."""
        self.job = job
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.job.run()
        except BaseException as error:
            self.error = error

    def join(self) -> BaseException | None:
        """Wait for its end; return the error that it raised, if any."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "the job does not end"
        return self.error


@contextmanager
def running(settings: JobSettings) -> Iterator[Running]:
    """Run a job that is stopped at the end of the block."""
    found = Running(Job(settings))
    try:
        yield found
    finally:
        found.job.stop()
        found.join()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


@pytest.fixture
def described(tmp_path: Path) -> Callable[..., JobSettings]:
    """A function that describes a job whose files are in this folder."""

    def described(source: str, to: str, **more: Any) -> JobSettings:
        return JobSettings(source=source, to=to, state_dir=str(tmp_path / "state"), **more)

    return described


Described = Callable[..., JobSettings]


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a broker that does not run."""
    with free_ports() as (port,):
        yield f"stomp://me:s3cr3t@127.0.0.1:{port}/queue/a"


def target(path: Path) -> Path:
    """An SQLite file with a table for users."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT)")
    database.close()
    return path


def users(path: Path) -> list[tuple[object, ...]]:
    database = sqlite3.connect(path)
    try:
        return database.execute("SELECT * FROM users ORDER BY id").fetchall()
    finally:
        database.close()


# How they end.


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_job_can_be_stopped_while_its_broker_is_away(
    described: Described, shop: Shop, nobody: str, partitions: int
) -> None:
    """Four frames for each changeset are more than may wait for the broker."""
    shop.add(*range(600))
    with running(described(shop.url, nobody, partitions=partitions)) as found:
        assert wait_until(lambda: found.job.status().changesets >= 400, LONG_S)
        status = found.job.status()
        assert status.phase == "streaming"
        assert status.disconnected == [masked(nobody)]
    assert found.error is None
    assert found.job.status().phase == "ended"


def test_a_job_can_be_stopped_while_its_database_is_away(described: Described, shop: Shop) -> None:
    shop.add(*range(1200))
    with free_ports() as (port,):
        away = f"postgresql://me@127.0.0.1:{port}/copy"
    with running(described(shop.url, away)) as found:
        assert wait_until(lambda: found.job.status().changesets >= 1000, LONG_S)
        # The source does not wait for the target's first attempt.
        assert wait_until(lambda: "refused" in found.job.status().error, LONG_S)
    assert found.error is None


@pytest.mark.stomp_requires("ack", "client-individual", "receipt")
def test_a_job_between_brokers_can_be_stopped_while_one_is_away(
    described: Described, shop: Shop, nobody: str, stomp_broker: RunningBroker
) -> None:
    queue = broker_url(stomp_broker, stomp_broker.queue("bridged"))
    shop.add(1)
    Job(described(shop.url, queue, once=True)).run()
    with running(described(queue, nobody)) as found:
        assert wait_until(lambda: found.job.status().disconnected == [masked(nobody)], LONG_S)
    assert found.error is None
    with running(described(queue, "print:json")) as found:
        assert wait_until(lambda: found.job.status().changesets == 1, LONG_S), "it was kept"


def test_what_a_target_never_takes_ends_the_job(
    described: Described, shop: Shop, tmp_path: Path
) -> None:
    shop.add(1)
    found = Running(Job(described(shop.url, f"sqlite:///{tmp_path}/empty.db")))
    assert isinstance(found.join(), ApplyError)
    status = found.job.status()
    assert status.phase == "failed"
    assert "no such table" in status.error


def test_database_that_is_away_is_not_taken_for_the_broker(
    described: Described, nobody: str
) -> None:
    with free_ports() as (port,):
        found = Running(Job(described(f"postgresql://me@127.0.0.1:{port}/shop", nobody)))
        assert found.join() is not None
    status = found.job.status()
    assert (status.phase, status.disconnected) == ("failed", [])
    assert status.error.startswith("--from: ")
    assert str(port) in status.error


def test_a_refused_login_ends_a_job_that_has_nothing_to_send(
    described: Described, shop: Shop
) -> None:
    with launch(LaunchConfig(login="me", passcode="right")) as broker:
        url = f"stomp://me:s3cr3t@{broker.host}:{broker.port}/queue/a"
        found = Running(Job(described(shop.url, url)))
        assert isinstance(found.join(), LinkClosedError)
        assert "login" in found.job.status().error
        assert "s3cr3t" not in f"{found.error} {found.job.status()}"


# Their status.


def test_what_is_over_is_not_told_any_more(
    described: Described, shop: Shop, tmp_path: Path
) -> None:
    shop.add(1)
    made, directory = tmp_path / "made", tmp_path / "later"
    made.mkdir()
    target(made / "copy.db")
    # A directory that is not mounted yet.
    (tmp_path / "copy.db").symlink_to(directory / "copy.db")
    with running(described(shop.url, f"sqlite:///{tmp_path}/copy.db")) as found:
        assert wait_until(lambda: "unable to open" in found.job.status().error, LONG_S)
        # Atomically: in a directory without the file SQLite would create one without tables.
        made.rename(directory)
        assert wait_until(lambda: found.job.status().error == "", LONG_S)
        assert users(directory / "copy.db") == [(1, "1@example.org")]


def test_the_status_of_a_job_whose_source_is_away_says_so(
    described: Described, shop: Shop, tmp_path: Path
) -> None:
    with running(described(shop.url, "print")) as found:
        assert wait_until(lambda: found.job.status().position != "", LONG_S)
        database = sqlite3.connect(tmp_path / "shop.db", timeout=LONG_S)
        database.execute("DROP TABLE stompkit_outbox")
        database.close()
        assert wait_until(lambda: "cannot be read" in found.job.status().error, LONG_S)
        assert found.job.status().phase == "streaming"


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_the_status_of_a_job_whose_server_is_away_says_so(
    request: pytest.FixtureRequest, described: Described, tmp_path: Path, kind: str
) -> None:
    shared: SqlServer = request.getfixturevalue(kind)
    copy = target(tmp_path / "copy.db")
    with type(shared)() as server:
        url = server.url(server.new_database())
        engine = create_engine(url, poolclass=NullPool)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE users (id INT PRIMARY KEY, email VARCHAR(20))"))
            connection.execute(text("INSERT INTO users VALUES (1, NULL)"))
        source = engine.url.set(drivername=kind).render_as_string(hide_password=False)
        with running(described(source, f"sqlite:///{copy}", slot="away")) as found:
            assert wait_until(lambda: len(users(copy)) == 1, LONG_S), found.error
            server.kill()
            assert wait_until(lambda: found.job.status().error != "", LONG_S)
            assert found.job.status().phase == "streaming"
            server.start()
            with engine.begin() as connection:
                connection.execute(text("INSERT INTO users VALUES (2, NULL)"))
            assert wait_until(lambda: len(users(copy)) == 2, LONG_S), found.error
            assert wait_until(lambda: found.job.status().error == "", LONG_S)
    assert found.error is None


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_snapshot_is_over_when_its_last_row_is_there(
    request: pytest.FixtureRequest, described: Described, tmp_path: Path, kind: str
) -> None:
    """The server estimates more rows than there are."""
    server: SqlServer = request.getfixturevalue(kind)
    url = server.url(server.new_database())
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE users (id INT PRIMARY KEY, email VARCHAR(20))",
            f"INSERT INTO users VALUES {', '.join(f'({each}, NULL)' for each in range(50))}",
            "ANALYZE users" if kind == "postgresql" else "ANALYZE TABLE users",
            "DELETE FROM users WHERE id > 4",
        ):
            connection.execute(text(statement))
    copy = target(tmp_path / "copy.db")
    source = engine.url.set(drivername=kind).render_as_string(hide_password=False)
    with running(described(source, f"sqlite:///{copy}", slot="over")) as found:
        assert wait_until(lambda: len(users(copy)) == 5, LONG_S)
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO users VALUES (100, NULL)"))
        assert wait_until(lambda: len(users(copy)) == 6, LONG_S)
        status = found.job.status()
        assert (status.phase, status.snapshot) == ("streaming", {})
    assert found.error is None


@pytest.mark.stomp_requires("ack", "client-individual", "receipt")
def test_what_comes_from_a_broker_is_selected_and_masked(
    described: Described, shop: Shop, tmp_path: Path, stomp_broker: RunningBroker
) -> None:
    queue = broker_url(stomp_broker, stomp_broker.queue("selected"))
    shop.add(1)
    Job(described(shop.url, queue, once=True)).run()
    copy = target(tmp_path / "copy.db")
    masks = {"users.email": "constant:hidden"}
    with running(described(queue, f"sqlite:///{copy}", masks=masks)):
        assert wait_until(lambda: users(copy) == [(1, "hidden")], LONG_S)
    shop.add(2)
    Job(described(shop.url, queue, once=True)).run()
    with running(described(queue, f"sqlite:///{copy}", exclude=["users"])) as found:
        assert wait_until(lambda: found.job.status().changesets == 1, LONG_S)
    assert users(copy) == [(1, "hidden")]


@pytest.mark.stomp_requires("ack", "client-individual", "receipt")
@pytest.mark.parametrize("is_observed", [False, True])
def test_changes_of_an_outbox_are_counted_and_signalled(
    described: Described,
    shop: Shop,
    tmp_path: Path,
    stomp_broker: RunningBroker,
    *,
    is_observed: bool,
) -> None:
    """The job decodes changes only for other receivers in this process."""
    queue = broker_url(stomp_broker, stomp_broker.queue("counted"))
    shop.add(1, 2, 3)
    seen: list[int] = []

    def receive(changeset: Changeset) -> None:
        seen.append(len(changeset.changes))

    job = Job(described(shop.url, queue, once=True))
    if is_observed:
        CHANGESET.connect(receive)
    try:
        job.run()
    finally:
        CHANGESET.disconnect(receive)
    status = job.status()
    assert (status.changesets, status.changes, status.backlog) == (3, 3, 0)
    assert seen == ([1, 1, 1] if is_observed else [])
    copy = target(tmp_path / "copy.db")
    with running(described(queue, f"sqlite:///{copy}")):
        assert wait_until(lambda: len(users(copy)) == 3, LONG_S)
    assert users(copy) == [(number, f"{number}@example.org") for number in (1, 2, 3)]


# Their configuration.

QUEUE = "stomp://mq/queue/a"


@pytest.mark.parametrize(
    ("source", "to", "more", "told"),
    [
        (QUEUE, "stomp://mq:61613,other/queue/a", {}, "round for ever"),
        (QUEUE, "print", {"durable": "me"}, "for topics"),
        (QUEUE, "print", {"dead_letter": "/queue/a"}, "round for ever"),
        (QUEUE, "print", {"partitions": 2}, "read by a job of its own"),
        ("mysql://h", "print", {"durable": "me"}, "reads a broker"),
        ("mysql://h", "print", {"dead_letter": "/queue/d"}, "reads a broker"),
        ("mysql://h", QUEUE, {"partitions": 0}, "at least 1"),
        ("mysql://h", "print", {"batch": 0}, "at least 1"),
    ],
)
def test_what_would_do_something_else_than_it_says_is_refused(
    source: str, to: str, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(JobError, match=told):
        Job(JobSettings(source=source, to=to, **more))


def test_jobs_with_long_urls_have_names_of_their_own() -> None:
    host = f"stomp://{'a-long-name.' * 8}example.org/queue/"
    names = {Job(JobSettings(source="mysql://h", to=host + each)).name for each in "abc"}
    assert len(names) == 3
    again = JobSettings(source="mysql://me:one@h", to=host + "a")
    other = JobSettings(source="mysql://me:two@h", to=host + "a")
    assert Job(again).name == Job(other).name, "a new password is no new job"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://me:pa/s3cr3t@h/db", "mysql://me:***@h/db"),
        ("mysql://me:s3cr3t/s3cr3t@h", "mysql://me:***@h"),
        ("stomp://h:61613/queue/a@b", "stomp://h:61613/queue/a@b"),
        ("stomp://h,[::1]:5/queue/a:b@c", "stomp://h,[::1]:5/queue/a:b@c"),
        ("stomp://me:s3cr3t@h/queue/a@b", "stomp://me:***@h/queue/a@b"),
    ],
)
def test_passwords_that_are_not_encoded_are_masked_and_nothing_else(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:s3cr3t@h/db",
        "mysql://me:s3%63r3t@h/db",
        "mysql://h/db?user=me&password=s3cr3t",
        "mysql://me:s3cr3t@[::1/db",
    ],
)
def test_texts_of_libraries_are_told_without_passwords(url: str) -> None:
    job = Job(JobSettings(source=url, to="print", name="job"))
    text = job.without_secrets(f"cannot connect to {url}, me, with s3cr3t")
    assert "s3" not in text
    assert text.startswith("cannot connect to mysql://")


@pytest.mark.parametrize("password", ["shop", "a", "table"])
def test_a_password_that_is_a_word_garbles_no_message(password: str) -> None:
    job = Job(JobSettings(source=f"mysql://me:{password}@h/shop", to="print", name="job"))
    said = "the table shop has a column; mysql://me:{}@h:3306/shop?password={} failed"
    assert job.without_secrets(said.format(password, password)) == said.format("***", "***")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [("mysql://me@h/shop", False), ("mariadb+pymysql://h/", True), ("postgresql://h/shop", True)],
)
def test_a_database_of_mysql_is_all_that_is_read_of_its_server(url: str, *, wanted: bool) -> None:
    settings = JobSettings(source=url, to="print")
    assert settings.selection().wants("other", "users") is wanted
    assert settings.selection().wants("shop", "users")
    assert not settings.selection().wants("shop", "stompkit_offsets")
    chosen = JobSettings(source=url, to="print", tables=["other.*"])
    assert chosen.selection().wants("other", "users")


def test_two_jobs_of_one_process_do_not_hear_each_other(
    tmp_path: Path, described: Described
) -> None:
    """Each target has the rows of its own source only."""
    ends = []
    for name in ("one", "two"):
        source = Shop(tmp_path / f"{name}.db")
        target = tmp_path / f"{name}.copy.db"
        Base.metadata.create_all(create_engine(f"sqlite:///{target}"))
        ends.append((name, source, target))
    with contextlib.ExitStack() as stack:
        for name, source, target in ends:
            stack.enter_context(running(described(source.url, f"sqlite:///{target}", name=name)))
        ends[0][1].add(1, 2)
        ends[1][1].add(3)

        def rows(path: Path) -> list[int]:
            with sqlite3.connect(path) as connection:
                return [row[0] for row in connection.execute("SELECT id FROM users ORDER BY 1")]

        assert wait_until(lambda: len(rows(ends[0][2])) > 1 and len(rows(ends[1][2])) > 0, LONG_S)
        ends[0][1].add(4)
        assert wait_until(lambda: 4 in rows(ends[0][2]), LONG_S)
    assert [rows(target) for _, _, target in ends] == [[1, 2, 4], [3]]
