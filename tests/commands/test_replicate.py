"""The command ``stompkit replicate``."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from stompkit._commands import main
from stompkit.replication.jobs import masked
from stompkit.replication.sources.outbox import Outbox
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.ports import free_ports

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
        self.engine = create_engine(f"sqlite:///{path}")
        Base.metadata.create_all(self.engine)
        self.sessions = sessionmaker(self.engine)
        outbox = Outbox(self.sessions)
        outbox.create(self.engine)
        self._outbox = outbox
        self.url = f"outbox+sqlite:///{path}"

    def change(self, *changes: Callable[[Session], object]) -> None:
        """Commit some changes together."""
        with self.sessions.begin() as session:
            for change in changes:
                change(session)


def add(number: int) -> Callable[[Session], object]:
    return lambda session: session.add(User(id=number, email=f"{number}@example.org"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(state: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command here; it returns its status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            given = ["replicate", "--state-dir", str(state), *map(str, arguments)]
            status = main(given)
        except SystemExit as error:
            status = int(error.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


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


def test_changes_are_printed(run: Run, shop: Shop) -> None:
    shop.change(add(1), add(2))
    shop.change(lambda session: session.delete(session.get_one(User, 1)))
    status, output, errors = run("--from", shop.url, "--to", "print", "--once")
    assert (status, output.splitlines()) == (
        0,
        ["users_write -> 1", "users_write -> 2", "users_delete -> 1"],
    )
    assert "3 changes in 2 changesets" in errors
    assert run("--from", shop.url, "--to", "print", "--once")[1] == "", "nothing is left"


def test_a_table_of_another_database_follows(run: Run, shop: Shop, tmp_path: Path) -> None:
    copy = target(tmp_path / "copy.db")
    arguments = ("--from", shop.url, "--to", f"sqlite:///{copy}", "--once", "--quiet")
    shop.change(add(1), add(2))
    assert run(*arguments) == (0, "", "")
    shop.change(lambda session: setattr(session.get_one(User, 1), "email", "new"))
    assert run(*arguments)[0] == 0
    assert users(copy) == [(1, "new"), (2, "2@example.org")]


def test_over_a_broker(
    run: Run, shop: Shop, tmp_path: Path, stomp_broker: RunningBroker, state: Path
) -> None:
    """Two processes at both ends of a queue end when they are terminated."""
    copy = target(tmp_path / "copy.db")
    queue = f"{stomp_broker.url}{stomp_broker.queue('changes')}"
    for number in range(1, 101):
        shop.change(add(number))
    command = [sys.executable, "-m", "stompkit", "replicate", "--state-dir", str(state)]
    ends = (("out", shop.url, queue), ("in", queue, f"sqlite:///{copy}"))
    processes = [
        subprocess.Popen(
            [*command, "--name", name, "--from", source, "--to", to], stderr=subprocess.PIPE
        )
        for name, source, to in ends
    ]
    try:
        assert wait_until(lambda: len(users(copy)) == 100, LONG_S)
        streams = re.compile(r"^in: streaming \(process \d+\)$", re.MULTILINE)
        assert wait_until(lambda: bool(streams.search(run("--status")[1])), LONG_S)
        status, _, errors = run("--forget", "in")
        assert status == 1
        assert "is running: end it first" in errors
        again = run("--name", "in", "--from", queue, "--to", f"sqlite:///{copy}")
        assert again[0] == 1
        assert "in is running already" in again[2]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            assert b"changes in" in process.communicate(timeout=LONG_S)[1]
            assert process.returncode == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    status, output, _ = run("--status", "--json")
    assert status == 0
    seen = {each["name"]: each for each in json.loads(output)}
    assert seen["in"]["phase"] == "ended"
    assert not seen["in"]["running"]
    assert seen["in"]["changes"] == seen["out"]["changes"] == 100


def test_what_a_broker_brings_is_printed_as_json(
    run: Run, shop: Shop, stomp_broker: RunningBroker, tmp_path: Path
) -> None:
    queue = f"{stomp_broker.url}{stomp_broker.queue('printed')}"
    shop.change(add(1))
    assert run("--from", shop.url, "--to", queue, "--once")[0] == 0
    command = [sys.executable, "-m", "stompkit", "replicate", "--state-dir", str(tmp_path)]
    with subprocess.Popen(
        [*command, "--from", queue, "--to", "print:json", "--quiet"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG_S) == 0
    assert line["table"] == "users"
    assert line["after"] == {"id": 1, "email": "1@example.org"}


def test_tables_are_selected_and_columns_masked(run: Run, shop: Shop) -> None:
    shop.change(add(1))
    mask = ("--mask", "users.email=constant:hidden")
    status, output, _ = run("--from", shop.url, "--to", "print:json", "--once", *mask)
    assert status == 0
    assert json.loads(output)["after"] == {"id": 1, "email": "hidden"}
    shop.change(add(2))
    assert run("--from", shop.url, "--to", "print", "--once", "--exclude", "users")[1] == ""


def test_a_file_has_the_options(
    run: Run, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "job.toml"
    config.write_text('from = "env:SHOP"\nto = "print"\nonce = true\ntables = ["users"]\n')
    monkeypatch.setenv("SHOP", shop.url)
    shop.change(add(1))
    assert run("--config", config)[:2] == (0, "users_write -> 1\n")
    shop.change(add(2))
    (tmp_path / "url").write_text(f"{shop.url}\n")
    status, output, _ = run("--config", config, "--from", f"file:{tmp_path}/url", "--tables", "x")
    assert (status, output) == (0, ""), "the command line goes before the file"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--from is missing"),
        (["--from", "outbox+sqlite:///x"], "--to is missing"),
        (["--from", "ftp://me:s3cr3t@x", "--to", "print"], "'ftp://me:***@x' does not"),
        (["--from", "stomp://x/queue/a", "--to", "ftp://x"], "--to is a URL"),
        (["--from", "stomp://x", "--to", "print"], "names no destination"),
        (["--from", "stomp://x:y/queue/a", "--to", "print"], "'y' is not a port: 1 to 65535"),
        (["--from", "env:NO_SUCH", "--to", "print"], "no NO_SUCH"),
        (["--from", "file:/no/such", "--to", "print"], "/no/such: No such file"),
        (["--config", "/no/such"], "/no/such: No such file"),
        (["--from", "stomp://x/q", "--to", "print", "--mask", "a.b=x"], "mask of a.b"),
        (["--from", "stomp://x/q", "--to", "print", "--name", "a/b"], "to name files"),
    ],
)
def test_what_is_wrong_is_told(run: Run, arguments: list[str], told: str) -> None:
    status, _, errors = run(*arguments)
    assert status == 2
    assert told in errors
    assert "s3cr3t" not in errors


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("from = 1", "from: must be a string, not a whole number"),
        ("partitions = 'x'", "partitions"),
        ("colour = 'red'", "colour"),
        ("from =", "Invalid value"),
    ],
)
def test_a_mistake_in_a_file_is_told(run: Run, tmp_path: Path, text: str, told: str) -> None:
    config = tmp_path / "job.toml"
    source = "" if "from" in text else "from = 'stomp://x/q'"
    config.write_text(f"to = 'print'\n{source}\n{text}\n")
    status, _, errors = run("--config", config)
    assert status == 2
    assert told in errors
    assert str(config) in errors


def test_a_target_that_fails_is_told_without_its_password(
    run: Run, shop: Shop, stomp_broker: RunningBroker
) -> None:
    shop.change(add(1))
    status, _, errors = run(
        "--from", shop.url, "--to", "sqlite:////no/such/directory/x.db", "--once", "--name", "bad"
    )
    assert status == 1
    assert "there is no folder /no/such/directory: make it" in errors
    status, output, _ = run("--status", "--name", "bad")
    assert status == 1
    assert "bad: failed at 20" in output
    (remedy,) = re.findall(r"stompkit replicate (--forget .*)", output)
    # Jobs that are not listed any more do not change the exit status.
    run("--from", shop.url, "--to", "print", "--once", "--name", "good")
    assert run("--status")[0] == 1
    # The remedy works without further options.
    assert main(["replicate", *shlex.split(remedy)]) == 0
    status, output, _ = run("--status")
    assert status == 0
    assert "bad" not in output
    assert "--forget" not in output
    status, _, errors = run("--forget", "bad")
    assert status == 1
    assert "no job bad has run" in errors


@pytest.mark.parametrize(
    ("library", "arguments", "extra"),
    [
        ("redis", ["--from", "outbox+sqlite:///x.db", "--to", "redis://x/0"], "redis"),
        ("psycopg", ["--from", "postgresql://x/y", "--to", "print"], "postgresql"),
        ("pymysqlreplication", ["--from", "mysql://x/y", "--to", "print"], "mysql"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    library: str, arguments: list[str], extra: str, state: Path
) -> None:
    """Other libraries are not required: SQLAlchemy alone comes without greenlet."""
    missing = f"sys.modules.update({{'greenlet': None, {library!r}: None}})"
    program = f"import sys; {missing}; from stompkit._commands import main; "
    given = ["replicate", "--state-dir", str(state), "--quiet", *arguments]
    command = [sys.executable, "-c", f"{program} sys.exit(main({given!r}))"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith(f"this needs {library}: pip install 'stompkit[{extra}]'\n")


def test_a_table_has_another_name_there(run: Run, shop: Shop, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(copy) as database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, email TEXT)")
    database.close()
    shop.change(add(1))
    to = f"sqlite:///{copy}"
    assert run("--from", shop.url, "--to", to, "--once", "--table-map", "users=people")[0] == 0
    database = sqlite3.connect(copy)
    assert database.execute("SELECT id FROM people").fetchall() == [(1,)]
    database.close()


@pytest.fixture
def port() -> Iterator[int]:
    """A free port for metrics."""
    with free_ports() as (port,):
        yield port


def test_what_a_broker_brings_is_counted_for_prometheus(
    run: Run, shop: Shop, stomp_broker: RunningBroker, tmp_path: Path, state: Path, port: int
) -> None:
    copy = target(tmp_path / "copy.db")
    queue = f"{stomp_broker.url}{stomp_broker.queue('counted')}"
    shop.change(add(1), add(2))
    assert run("--from", shop.url, "--to", queue, "--once")[0] == 0
    with socket.create_server(("127.0.0.1", port)):
        status, _, errors = run("--from", queue, "--to", "print", "--metrics-port", port)
        assert status == 2
        assert f"--metrics-port {port}" in errors
    command = [sys.executable, "-m", "stompkit", "replicate", "--state-dir", str(state)]
    command += ["--from", queue, "--to", f"sqlite:///{copy}", "--metrics-port", str(port)]
    wanted = 'changes_total{action="write",table="users"} 2.0'

    def is_counted() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONG_S) as answer:
                return wanted in answer.read().decode()
        except OSError:  # it has not started
            return False

    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert wait_until(is_counted, LONG_S)
        finally:
            process.terminate()


def test_the_end_is_told_of_what_was_seen_before_it(run: Run, shop: Shop) -> None:
    shop.change(add(1))
    _, _, errors = run("--from", shop.url, "--to", "print", "--once", "--name", "done")
    # On a busy machine there are more lines before.
    assert errors.splitlines()[-1].startswith("ended  1 change in 1 changeset")
    output = run("--status", "--name", "done")[1]
    assert "done: ended" in output
    assert "connection" not in output


def test_tables_of_an_outbox_can_not_be_made(run: Run, shop: Shop) -> None:
    status, _, errors = run("--from", shop.url, "--to", "sqlite:///x.db", "--create")
    assert status == 2
    assert "Create the tables yourself" in errors


def test_there_is_no_status_where_nothing_has_run(run: Run, state: Path) -> None:
    assert run("--status") == (1, f"no job has run with {state}\n", "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://me:secret@h/db", "mysql://me:***@h/db"),
        ("mysql://h/db?password=secret&x=1", "mysql://h/db?password=***&x=1"),
        ("stomp://me@h,g/queue/x", "stomp://me@h,g/queue/x"),
        ("print", "print"),
    ],
)
def test_secrets_in_urls_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_a_lock_that_is_looked_at_keeps_no_job_from_running(
    run: Run, shop: Shop, state: Path
) -> None:
    """A query of the status holds the lock for a moment."""
    state.mkdir()
    with open(state / "job.status.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timer = threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN))
        timer.start()
        assert run("--name", "job", "--from", shop.url, "--to", "print", "--once")[0] == 0
        timer.join()


def test_the_log_has_no_passwords(shop: Shop, state: Path) -> None:
    """Exceptions of libraries may contain a URL."""
    shop.change(add(1))
    url = "opensearch+http://me:s3cr3t@127.0.0.1:1"
    program = (
        "import sys\n"
        "from stompkit._commands import main\n"
        "from stompkit.replication.model.signals import signal\n"
        "def fail(key):\n"
        f"    raise OSError('lost {url}')\n"
        "signal('users_write').connect(fail)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["--from", shop.url, "--to", url, "--once", "--state-dir", str(state)]
    done = subprocess.run(
        [sys.executable, "-c", program, "replicate", *arguments],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 1
    assert "lost opensearch+http://me:***@127.0.0.1:1" in done.stderr
    assert "s3cr3t" not in done.stderr + "".join(
        each.read_text() for each in state.iterdir() if each.is_file()
    )


def test_the_target_s_error_is_told_although_the_status_can_not_be_written(
    run: Run, shop: Shop, state: Path, tmp_path: Path
) -> None:
    shop.change(add(1))
    # The temporary file that replaces the status cannot be written, as it is a directory.
    (state / "job.status.new").mkdir(parents=True)
    arguments = ("--from", shop.url, "--to", f"sqlite:///{tmp_path}/empty.db", "--once")
    status, _, errors = run("--name", "job", *arguments)
    assert status == 1
    assert "no such table" in errors
