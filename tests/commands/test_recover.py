"""The command ``stompkit recover``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit._commands import main
from stompkit.replication.eventstore import RedisEventStore, SqlEventStore
from stompkit.replication.model.events import decode
from stompkit.testing import RunningBroker
from tests.servers import RedisServer, redis, redis_server

__all__ = ["redis", "redis_server"]

#: A program that dies after the commit of its database, before the publication.
PROGRAM = """
import os, sys
from sqlalchemy import create_engine
from sqlalchemy.event import listen
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from stompkit.replication.eventstore import redis_es_sub, sql_es_sub, sqlalchemy_es_pub

class Base(DeclarativeBase):
    pass

class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]

database, notes = sys.argv[1:]
engine = create_engine(database)
Base.metadata.create_all(engine)
sessions = sessionmaker(engine)
publisher = sqlalchemy_es_pub(sessions, ["users"])
subscribe = redis_es_sub if notes.startswith("unix:") else sql_es_sub
store, prepared = subscribe(sessions, ["users"], notes)
with sessions() as session:
    session.add_all([User(id=1, name="Ann"), User(id=2, name="Bob")])
    session.flush()
    session.connection().connection.driver_connection.commit()
    os.kill(os.getpid(), 9)
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command here; it returns its status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main(["recover", *map(str, arguments)])
        except SystemExit as error:
            status = int(error.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


@pytest.fixture(params=["redis", "sqlite"])
def notes(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of the program's records and of its store."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        return server.url
    return f"sqlite:///{tmp_path}/notes.db"


@pytest.fixture
def database(tmp_path: Path, notes: str) -> str:
    """The database that the program has left."""
    url = f"sqlite:///{tmp_path}/users.db"
    command = [sys.executable, "-c", PROGRAM, url, notes]
    ended = subprocess.run(command, env=os.environ, check=False, capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    return url


def test_what_a_crash_has_left_is_listed_and_published_once(
    run: Run, database: str, notes: str
) -> None:
    arguments = ("--notes", notes, "--database", database, "--store", notes, "--older-than", 0)
    [document] = map(json.loads, run(*arguments, "--list", "--json")[1].splitlines())
    assert document["event"] == {"users_write": [1, 2]}
    status, output, _ = run(*arguments, "--list")
    assert status == 1
    assert "users_write: 1, 2" in output
    assert "1 to be recovered" in output
    assert run(*arguments) == (0, "users_write -> 1\nusers_write -> 2\n", "1 recovered\n")
    store = RedisEventStore(notes) if notes.startswith("unix:") else SqlEventStore(notes)
    assert sorted(store.replay("users_write")) == [1, 2]
    store.close()
    assert run(*arguments) == (0, "", "0 recovered\n")
    assert run(*arguments, "--list") == (0, "0 to be recovered\n", "")


def test_it_is_published_to_a_broker(
    run: Run, database: str, notes: str, stomp_broker: RunningBroker
) -> None:
    queue = stomp_broker.queue("recovered")
    arguments = ("--notes", notes, "--database", database, "--older-than", 0)
    assert run(*arguments, "--to", f"{stomp_broker.url}{queue}")[0] == 0
    with stomp_broker.client() as client:
        client.subscribe(queue)
        changeset = decode(client.receive().body)
    assert [change.after for change in changeset.changes] == [
        {"id": 1, "name": "Ann"},
        {"id": 2, "name": "Bob"},
    ]


def test_what_can_not_be_read_is_told_and_kept(
    run: Run, database: str, notes: str, tmp_path: Path
) -> None:
    arguments = ("--notes", notes, "--database", f"sqlite:///{tmp_path}/other.db")
    status, _, errors = run(*arguments, "--older-than", 0)
    assert status == 1
    assert "users" in errors
    assert run(*arguments, "--older-than", 0, "--list")[0] == 1


def test_a_server_that_is_not_there_is_told_without_its_password(run: Run) -> None:
    status, _, errors = run("--notes", "redis://:s3cr3t@127.0.0.1:1/0", "--database", "sqlite://")
    assert status == 1
    assert "127.0.0.1" in errors
    assert "s3cr3t" not in errors


def test_urls_have_to_be_given(run: Run) -> None:
    status, _, errors = run()
    assert status == 2
    assert "--notes" in errors


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    program = "import sys; sys.modules['blinker'] = None; from stompkit._commands import main; "
    command = [sys.executable, "-c", f"{program} sys.exit(main(['recover', '--help']))"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    told = "stompkit recover: this needs blinker: pip install 'stompkit[replication]'\n"
    assert ended.stderr == told
