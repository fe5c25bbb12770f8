"""The command ``stompkit replica``."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from sqlalchemy import create_engine, text

from stompkit._commands import main
from stompkit.replica import Replica, Rules, TableRules, counter
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.ports import free_ports
from tests.replica.running import Nodes
from tests.servers import SqlServer, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

LONG_S = 60.0
COMMAND = [sys.executable, "-m", "stompkit", "replica"]


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs the command here; it returns its status, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = main(["replica", *map(str, arguments)])
        except SystemExit as error:
            status = int(error.code or 0)
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


class Node:
    """A replica in a file, used with the command."""

    def __init__(self, run: Run, path: Path, *settings: object) -> None:
        """Set the path; there is no file yet."""
        self._run = run
        self._path = path
        self._started = 0
        self.name = path.stem
        self.db = f"sqlite:///{path}"
        self.settings = settings

    def __call__(self, command: str, *arguments: object, status: int = 0) -> str:
        """Run a command, which has to end with this status; return its output."""
        ended, output, errors = self._run(command, *arguments, "--db", self.db)
        assert ended == status, output + errors
        return output or errors

    def json(self, command: str, *arguments: object, status: int = 0) -> Any:
        """Return its JSON output."""
        return json.loads(self(command, *arguments, "--json", status=status))

    @contextmanager
    def running(self, *more: object) -> Iterator[Running]:
        """Run it in a process, which has to end with status 0."""
        running = self.start(*more)
        try:
            yield running
            running.process.send_signal(signal.SIGTERM)
            assert running.ended() == 0, running.told
        except BaseException:
            print(running.told)
            raise
        finally:
            running.process.kill()
            running.process.wait()

    def start(self, *more: object) -> Running:
        """Start to run it."""
        arguments = [*COMMAND, "run", "--db", self.db, "--branch-id", self.name]
        self._started += 1
        path = self._path.with_suffix(f".{self._started}.log")
        return Running([*arguments, *map(str, (*self.settings, *more))], path)

    def meet(self, other: Node) -> None:
        """Exchange everything with another one."""
        with other.running():
            running = self.start("--once")
            assert running.ended() == 0, running.told


class Running:
    """A process, and its output."""

    def __init__(self, arguments: list[str], path: Path) -> None:
        """Start it; ``path`` is for its log."""
        self._path = path
        with path.open("w") as file:
            self.process = subprocess.Popen(arguments, stderr=file)

    @property
    def told(self) -> str:
        """Return its output so far."""
        return self._path.read_text()

    def ended(self) -> int:
        """Wait for its end; return the exit status."""
        try:
            return self.process.wait(LONG_S)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a replica with two notes and a change of one of them."""
    path = tmp_path_factory.mktemp("written") / "anna.db"

    def run(*arguments: object) -> tuple[int, str, str]:
        return main(["replica", *map(str, arguments)]), "", ""

    node = Node(run, path)
    node("create", "--branch-id", "anna")
    node("put", "notes", "milk", '{"text": "Buy milk", "n": null}', "--author", "Anna")
    node("put", "notes", "roof", '{"text": "Fix the roof", "id": 7}', "--comment", "It leaks")
    node("put", "notes", "milk", "--set", "done=true", "--remove", "n", "--author", "Anna")
    return path


@pytest.fixture
def anna(run: Run, written: Path, tmp_path: Path) -> Node:
    """A copy of that replica."""
    shutil.copy(written, tmp_path / "anna.db")
    return Node(run, tmp_path / "anna.db")


# Two replicas.


@pytest.fixture
def pair(run: Run, tmp_path: Path, stomp_broker: RunningBroker) -> tuple[Node, Node]:
    """Two replicas that share a channel of a broker."""
    channel = ("--replication-channel", stomp_broker.topic("notes"))
    settings = ("--replication-hosts", f"{stomp_broker.host}:{stomp_broker.port}", *channel)
    nodes = Node(run, tmp_path / "anna.db", *settings), Node(run, tmp_path / "bob.db", *settings)
    for node in nodes:
        node("create", "--branch-id", node.name)
    return nodes


def test_what_one_writes_another_reads_while_both_run(pair: tuple[Node, Node]) -> None:
    anna, bob = pair
    anna("put", "notes", "milk", '{"text": "Buy milk"}')
    with anna.running(), bob.running():
        assert wait_until(lambda: bob("get") == "notes\n", LONG_S)
        bob("put", "notes", "milk", "--set", "done=true")
        assert wait_until(lambda: "done" in anna("get", "notes", "milk"), LONG_S)
        anna("delete", "notes", "milk")
        assert wait_until(lambda: not bob("get", "notes"), LONG_S)
        both = [node.json("status") for node in pair]
        assert both[0]["digests"] == both[1]["digests"]
        # Each sends its state, so that both know that nothing is missing.
        line = [both[1]["origin"], "0", "0"]
        assert wait_until(lambda: anna("peers").splitlines()[1].split()[:3] == line, LONG_S)


def test_a_conflict_of_offline_edits_is_listed_alike_and_resolved(pair: tuple[Node, Node]) -> None:
    anna, bob = pair
    anna("put", "notes", "milk", '{"text": "Buy milk", "done": false}')
    bob.meet(anna)
    assert bob("get", "notes", "milk") == anna("get", "notes", "milk")
    # Both are offline, and write one member; one of them writes another, too.
    anna("put", "notes", "milk", "--set", "text=Buy oat milk", "--author", "Anna")
    bob("put", "notes", "milk", "--set", "text=Buy soy milk", "--set", "done=true")
    assert anna("conflicts") == "nothing is in conflict\n"
    bob.meet(anna)
    conflicts = anna("conflicts").splitlines()
    assert conflicts == bob("conflicts").splitlines()
    assert conflicts[0] == 'doc.notes id="milk"'
    assert re.match(r'  text  winner   "Buy soy milk"  bob~\w{8}:1  ', conflicts[1])
    assert re.match(r'        loser 1  "Buy oat milk"  anna~\w{8}:2  .*  Anna$', conflicts[2])
    assert "1 row: `stompkit replica conflicts`" in anna("status")
    assert json.loads(anna("get", "notes", "milk")) == {"text": "Buy soy milk", "done": True}
    resolved = anna("resolve", "doc.notes", "milk", "--pick", "loser", "1", "--author", "Anna")
    assert resolved.startswith("anna~")
    anna.meet(bob)
    for node in pair:
        assert node("conflicts") == "nothing is in conflict\n"
        assert json.loads(node("get", "notes", "milk")) == {"text": "Buy oat milk", "done": True}
    graph = bob("log", "--graph")
    assert "|-." in graph, graph
    assert graph.count("(head)") == 1


def test_to_end_when_all_is_exchanged_somebody_has_to_be_there(pair: tuple[Node, Node]) -> None:
    running = pair[0].start("--once", "--timeout", "0.5")
    assert running.ended() == 1
    assert "not all is exchanged after 0.5 s: no other node was heard" in running.told


def test_one_process_runs_a_replica_and_tells_what_becomes_of_it(pair: tuple[Node, Node]) -> None:
    anna, _ = pair
    with anna.running() as running:
        assert wait_until(lambda: "runs\n" in running.told, LONG_S)
        second = anna.start("--quiet")
        assert second.ended() == 1
        assert f"run by the process {running.process.pid}" in second.told
        assert wait_until(lambda: "\nconnected to " in running.told, LONG_S)
    assert re.match(r"anna~\w{8} of trunk 0A runs\n", running.told)


@pytest.fixture
def port() -> Iterator[int]:
    """A free port for metrics."""
    with free_ports() as (port,):
        yield port


def test_a_replica_is_measured_for_prometheus(pair: tuple[Node, Node], port: int) -> None:
    anna, bob = pair
    bob("put", "notes", "milk", '{"text": "Buy milk"}')
    with socket.create_server(("127.0.0.1", port)):
        running = anna.start("--metrics-port", port)
        assert running.ended() == 2
        assert f"--metrics-port {port}" in running.told

    def figures() -> str:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONG_S) as answer:
                return str(answer.read().decode())
        except OSError:  # it has not started
            return ""

    with anna.running("--metrics-port", port), bob.running():
        assert wait_until(lambda: "stompkit_replica_applied_total 1.0" in figures(), LONG_S)
        assert "stompkit_replica_healthy 1.0" in figures()


def test_only_what_is_signed_by_those_who_are_trusted_is_taken(
    pair: tuple[Node, Node], run: Run, tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    anna, bob = pair
    status, public, _ = run("keygen", tmp_path / "anna.pem")
    assert status == 0
    assert run("keygen", tmp_path / "anna.pem", "--public") == (0, public, "")
    again = run("keygen", tmp_path / "anna.pem")
    assert again[0] == 1
    assert "--public prints its public key" in again[2]
    private = (tmp_path / "anna.pem").read_text().splitlines()[1]
    assert private not in public + again[2]
    anna("put", "notes", "milk", "{}", "--signing-key", tmp_path / "anna.pem")
    trust = ("--trust", f"anna={public.strip()}")
    with anna.running("--signing-key", tmp_path / "anna.pem"), bob.running(*trust):
        assert wait_until(lambda: bob("get") == "notes\n", LONG_S)


# Documents.


def test_documents_are_read_and_written(anna: Node) -> None:
    assert anna("get") == "notes\n"
    assert anna("get", "notes").splitlines() == [
        '"milk"  {"done": true, "text": "Buy milk"}',
        '"roof"  {"id": 7, "text": "Fix the roof"}',
    ]
    assert anna("get", "notes", "--prefix", "ro").startswith('"roof"')
    assert json.loads(anna("get", "notes", "roof")) == {"id": 7, "text": "Fix the roof"}
    assert anna("delete", "notes", "roof").startswith("anna~")
    assert anna("delete", "notes", "roof") == "nothing has changed\n"
    assert "there is no notes roof" in anna("get", "notes", "roof", status=1)


def test_a_document_comes_from_standard_input(anna: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"text": "from a file"}\n'))
    anna("put", "notes", "new", "-")
    assert json.loads(anna("get", "notes", "new")) == {"text": "from a file"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["milk"], "give a DOCUMENT"),
        (["milk", "{}", "--set", "a=1"], "give a DOCUMENT"),
        (["milk", "[1]"], "a document is an object of JSON, as in"),
        (["milk", "{text: 1}"], "a document is an object of JSON: Expecting"),
        (["milk", "--set", "a"], "--set: 'a' is not NAME=VALUE"),
    ],
)
def test_what_is_no_document_is_told(anna: Node, arguments: list[str], told: str) -> None:
    assert told in anna("put", "notes", *arguments, status=2)


def test_a_name_that_a_document_can_not_have_is_told(anna: Node) -> None:
    assert "a document's id is text of 1 to 255" in anna("put", "notes", "", "{}", status=1)


# History.


def test_the_log_tells_who_has_changed_what(anna: Node) -> None:
    lines = anna("log").splitlines()
    names = [re.split(r"\s\s+", line) for line in lines]
    assert [name[1].partition(":")[2] for name in names] == ["3", "2", "1"]
    assert lines[0].endswith("Anna  (head) doc.notes: 1 updated")
    assert lines[1].endswith("It leaks")
    assert names[2][3:] == ["Anna", "doc.notes: 1 written"]


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        (["--limit", "1"], "3"),
        (["--author", "Anna"], "31"),
        (["--author", "Anna", "--limit", "1"], "3"),
        (["--author", ""], "2"),
        (["--table", "doc.notes", "--key", "milk"], "31"),
        (["--table", "doc.notes", "--key", 'id="roof"'], "2"),
        (["--table", "doc.others"], ""),
        (["--node", "anna"], "321"),
        (["--node", "bob"], ""),
        (["--before", "anna:3"], "21"),
    ],
)
def test_the_log_lists_what_is_asked_for(anna: Node, arguments: list[str], numbers: str) -> None:
    found = anna.json("log", *arguments)
    assert "".join(str(entry["sequence"]) for entry in found) == numbers


def test_a_changeset_is_shown_with_its_changes(anna: Node) -> None:
    change, *members = anna("show", "anna:3").splitlines()[-3:]
    assert change == 'doc.notes id="milk"  update'
    assert sorted(members) == ["  done: (none) -> true", "  n: null -> (none)"]
    told = anna("show", "anna:2")
    assert re.search(r"^comment    It leaks$", told, re.MULTILINE)
    assert re.search(r"^  id: 7$", told, re.MULTILINE)
    shown = anna.json("show", "anna:1")
    assert shown["changes"][0]["key"] == {"id": "milk"}
    assert anna("show", shown["id"][:8]) == anna("show", "anna:1")


def test_rows_are_shown_as_they_were(anna: Node) -> None:
    head, row = anna("at", "anna:1").splitlines()
    assert head == "doc.notes: 1 row"
    assert row.startswith('  id="milk"  {')
    assert json.loads(row[13:]) == {"text": "Buy milk", "n": None}
    assert anna.json("at", "head", "--table", "doc.notes", "--key", "roof") == {
        "doc.notes": [{"id": "roof", "document": {"id": 7, "text": "Fix the roof"}}]
    }
    assert anna("at", "anna:1", "--table", "doc.notes", "--key", "roof", status=1)
    later = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(time.time() + 120))
    assert len(anna.json("at", later)["doc.notes"]) == 2


def test_revisions_are_compared(anna: Node) -> None:
    assert anna("diff", "anna:2", "anna:1").splitlines()[:1] == ['doc.notes id="roof"  delete']
    (change,) = anna.json("diff", "anna:2", "head", "--table", "doc.notes")
    assert change["action"] == "update"
    assert change["after"]["done"] is True


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["show", "anna:9"], 1, "is not known here: the last is anna~"),
        (["show", "ana:1"], 1, "is it anna"),
        (["at", "yesterday"], 1, "is no revision: that is origin and number"),
        (["at", "2026-11-21T12:00"], 1, "say in which zone"),
        (["at", "head", "--table", "none"], 1, "no table 'none' is known here"),
        (["log", "--key", "5"], 2, "give --table, too"),
        (["log", "--limit", "0"], 2, "a whole number of 1 or more"),
    ],
)
def test_what_can_not_be_asked_is_told(
    anna: Node, arguments: list[str], status: int, told: str
) -> None:
    assert told in anna(*arguments, status=status)


def test_pictures_are_drawn(anna: Node, tmp_path: Path) -> None:
    assert anna("picture", "history").startswith("<svg")
    assert anna("picture", "history", "--format", "dot").startswith("digraph")
    (tmp_path / "status.json").write_text(anna("status", "--json"))
    file = tmp_path / "nodes.dot"
    saved = ("--status", tmp_path / "status.json")
    anna("picture", "topology", "--format", "dot", "--output", file, *saved)
    assert "anna" in file.read_text()
    (tmp_path / "status.json").write_text("{}")
    assert "it is of `status --json`" in anna("picture", "topology", *saved, status=2)


# Status and repair.


def test_the_status_is_told(anna: Node) -> None:
    lines = anna("status").splitlines()
    assert re.fullmatch(r"anna~\w{8}  trunk 0A", lines[0])
    assert re.fullmatch(r"  vector  3 changesets: anna~\w{8}:3", lines[1])
    assert "  rows    doc.notes: 2" in lines
    assert anna.json("status")["faults"] == []
    assert anna("peers") == "no other node was ever heard of\n"
    assert anna.json("peers") == []


def test_a_row_that_nobody_was_told_of_is_found(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("INSERT INTO users VALUES (1, 'Ann')")
    database.close()
    shop = Node(run, tmp_path / "shop.db")
    assert shop("create").splitlines()[0] == shop.json("status")["origin"]
    assert shop("check", status=1) == "users id=1  unknown\n"
    assert shop("create", "--import").endswith("1 row imported\n")
    assert shop("check") == "nothing differs\n"
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE users SET name = 'Anne'")
    database.close()
    (row,) = shop.json("check", status=1)["rows"]
    assert row == {"table": "users", "key": {"id": 1}, "kind": "changed", "columns": ["name"]}
    assert shop("at", "head").splitlines() == ["users: 1 row", '  id=1  name="Ann"']
    assert shop("log", "--table", "users", "--key", "1")


def test_others_are_forgotten_and_asked_for_all(anna: Node) -> None:
    assert "'bob' is none of: no others" in anna("forget", "bob", status=1)
    assert "nothing is in conflict in" in anna(
        "resolve", "doc.notes", "milk", "--pick", "winner", status=1
    )
    assert "is not held here" in anna("skip", "bob~00000001:1", status=1)
    assert anna("retry") == "0 changesets applied\n"
    assert anna("bootstrap").startswith("the rows of another node will be taken")
    assert "bootstrap: running" in anna("status", status=1)


def test_rows_that_are_refused_again_fail_a_retry(
    run: Run, stomp_broker: RunningBroker, tmp_path: Path
) -> None:
    with closing(Nodes(stomp_broker, tmp_path)) as nodes:
        anna, bob = (nodes(branch).start() for branch in ("AA", "BB"))
        with bob.engine.begin() as connection:
            connection.exec_driver_sql("CREATE UNIQUE INDEX titles ON notes (title)")
        for number in range(103):
            anna.add(str(number), "same")
        bob.has(anna)
        assert len(bob.replica.status().problems) == 100
        bob.close()
        status, output, _ = run("retry", "--db", bob.url)
        assert status == 1
        assert output.count("a row of notes is still refused: ") == 100


def test_what_need_not_be_kept_is_forgotten(anna: Node) -> None:
    assert anna("compact").startswith("0 changesets with 0 octets")
    assert anna("compact", "--retention", "1 changeset").startswith("2 changesets with ")
    assert "is compacted" in anna("show", "anna:1", status=1)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give --pick winner"),
        (["--set", "a=1", "--pick", "winner"], "and not both"),
        (["--set", "a=1", "--column", "a"], "--column is for --pick"),
        (["--set", "a"], "is not NAME=VALUE"),
    ],
)
def test_how_a_conflict_ends_has_to_be_said(anna: Node, arguments: list[str], told: str) -> None:
    assert told in anna("resolve", "doc.notes", "milk", *arguments, status=2)


# Settings.


def test_a_file_has_the_settings(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "notes.toml"
    monkeypatch.setenv("NOTES", f"sqlite:///{tmp_path}/notes.db")
    config.write_text(
        'db = "env:NOTES"\nbranch_id = "paris"\ntrunk_id = "T"\nauthor = "Paul"\n'
        'documents = true\n[rules.tables."doc.stock"]\ncolumns = {count = "counter"}\n'
    )
    assert run("create", "--config", config)[:2] == (0, run("create", "--config", config)[1])
    assert run("put", "stock", "nails", '{"count": 5}', "--config", config)[0] == 0
    status, output, _ = run("log", "--db", "env:NOTES", "--json")
    (entry,) = json.loads(output)
    assert (status, entry["author"]) == (0, "Paul")
    assert entry["origin"].startswith("paris~")
    rules = Rules(tables={"doc.stock": TableRules(columns={"count": counter()})})
    db = f"sqlite:///{tmp_path}/notes.db"
    program = Replica(db, rules=rules, trunk_id="T", include=["doc.*"])
    program.create()
    program.close()
    # Without the rules of the replica, nothing is written.
    status, _, errors = run("put", "stock", "nails", "--set", "count=6", "--db", "env:NOTES")
    assert status == 1
    assert "rules of this replica are not those" in errors


@pytest.mark.parametrize(
    ("name", "told"), [("RULES", ""), ("OTHER", "is a int, and no Rules"), ("NONE", "has no")]
)
def test_rules_can_be_those_of_a_program(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    module = f"rules_called_{name.lower()}"
    (tmp_path / f"{module}.py").write_text(
        "from stompkit.replica import Rules, custom\n"
        "def longest(found):\n"
        "    return max((each.value for each in found), key=len)\n"
        "RULES = Rules(custom('longest', longest))\n"
        "OTHER = 5\n"
    )
    # As for programs that run in that folder.
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "shop.toml"
    config.write_text(f'db = "sqlite:///shop.db"\nrules = "{module}:{name}"\n')
    status, _, errors = run("create", "--config", config)
    assert status == (2 if told else 0), errors
    assert told in errors


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("branchId = 'a'", "unknown setting 'branchId': is branch_id meant?"),
        ("branch_id = 'a b'", "'a b' is no branch id"),
        ("replication_channel = 'x'", "there are no replication_hosts"),
        ("replication_hosts = 'stomp://me:s3cr3t@h:x'", "replication_hosts: the URL of a broker"),
        (
            "relays = [{replication_hosts = 'stomp://me:s3cr3t@h:x'}]",
            "relays[0]: replication_hosts",
        ),
        ("relays = [{replication_hosts = 'env:NO_SUCH'}]", "there is no NO_SUCH"),
        ("relays = 5", "relays is a list"),
        ("replication_hosts = 'env:NO_SUCH'", "--replication-hosts: there is no NO_SUCH"),
        ("tables = 'users'", "tables is a list"),
        ("metrics_port = 'x'", "metrics_port is the number"),
        ("rules = 5", "rules is a table"),
        ("rules = 'x'", "MODULE:NAME"),
        ("[rules]\nlast = 'x'", "rules has default, on_delete, tables, and not 'last'"),
        ("[rules]\ndefault = 'best'", "rules.default is one of last-writer"),
        ("[rules]\ndefault = 'counter'", "it is a rule that takes one of several versions"),
        ("[rules.tables.a]\ncolumns = {b = 'origin-priority'}", "origin_priority takes branch ids"),
        ("branch_id =", "Invalid value"),
    ],
)
def test_a_mistake_in_a_file_is_told(run: Run, tmp_path: Path, line: str, told: str) -> None:
    config = tmp_path / "notes.toml"
    config.write_text(f"db = 'sqlite:///{tmp_path}/notes.db'\n{line}\n")
    status, _, errors = run("create", "--config", config)
    assert status == 2, errors
    assert told in errors
    assert "s3cr3t" not in errors
    assert str(config) in errors or "--" in errors or "list" in errors or "port" in errors


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ([], 2, "missing: COMMAND"),
        (["statsu"], 2, "did you mean status?"),
        (["status"], 2, "--db is missing"),
        (
            ["status", "--db", "sqlite:////no/such/file.db"],
            2,
            "`stompkit replica create` creates it",
        ),
        (["status", "--db", "notes"], 2, "is not the URL of a database"),
        (["status", "--db", "ftp://me:s3cr3t@h/x"], 2, "'ftp://me:***@h/x' is not the URL"),
        (["status", "--db", "env:NO_SUCH"], 2, "no NO_SUCH"),
        (["status", "--config", "/no/such"], 2, "/no/such: No such file"),
        (["create", "--db", "sqlite:////no/such/file.db"], 1, "unable to open"),
        (["run", "--db", "sqlite:///{}/x.db"], 2, "nobody to exchange with"),
        (["create", "--db", "sqlite:///{}/x.db", "--trust", "a"], 2, "NAME=VALUE"),
        (["create", "--db", "sqlite:///{}/x.db", "--trust", "a=b"], 2, "trusted_keys"),
    ],
)
def test_what_is_wrong_is_told(
    run: Run, tmp_path: Path, arguments: list[str], status: int, told: str
) -> None:
    ended, _, errors = run(*(each.format(tmp_path) for each in arguments))
    assert ended == status, errors
    assert told in errors
    assert "s3cr3t" not in errors


def test_a_database_that_is_no_replica_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "shop.db").close()
    status, _, errors = run("get", "--db", f"sqlite:///{tmp_path}/shop.db")
    assert status == 2
    assert "is no replica yet: `stompkit replica create` makes it one" in errors
    assert (tmp_path / "shop.db").stat().st_size == 0


def test_another_node_s_database_is_not_taken(anna: Node) -> None:
    told = anna("create", "--branch-id", "bob", status=1)
    assert "this database is the replica 'anna', and not 'bob'" in told


def test_errors_have_no_password(run: Run) -> None:
    """The driver's own message may contain the URL."""
    url = "postgresql://me:s3cr3t@127.0.0.1:1/shop"
    status, _, errors = run("status", "--db", url)
    assert status == 1
    assert errors
    assert "s3cr3t" not in errors


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_on_a_database_server(run: Run, kind: str, request: pytest.FixtureRequest) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    url = server.url(server.new_database())
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE users (name VARCHAR(20) PRIMARY KEY, age INT)"))
        connection.execute(text("INSERT INTO users VALUES ('5', 30)"))
    engine.dispose()
    assert run("create", "--branch-id", "x", "--import", "--db", url)[0] == 0
    assert run("put", "notes", "a", "{}", "--db", url)[0] == 0
    status, output, _ = run("at", "head", "--table", "users", "--key", "5", "--db", url)
    assert (status, output) == (0, 'users: 1 row\n  name="5"  age=30\n')
    assert run("check", "--db", url)[:2] == (0, "nothing differs\n")


def test_help_teaches_each_command_with_an_example(run: Run) -> None:
    status, output, _ = run("--help")
    assert status == 0
    commands = re.findall(r"^    ([a-z]+)(?:\s{2,}|$)", output, re.MULTILINE)
    assert {"run", "status", "log", "conflicts", "resolve", "peers", "keygen"} < set(commands)
    for command in commands:
        status, output, _ = run(command, "--help")
        assert status == 0
        assert f"  stompkit replica {command} " in output


def test_a_library_that_is_missing_is_named_with_its_extra(tmp_path: Path) -> None:
    missing = "sys.modules.update({'psycopg': None})"
    program = f"import sys; {missing}; from stompkit._commands import main; "
    given = ["replica", "status", "--db", "postgresql://x/y"]
    command = [sys.executable, "-c", f"{program} sys.exit(main({given!r}))"]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.endswith("this needs psycopg: pip install 'stompkit[postgresql]'\n")
