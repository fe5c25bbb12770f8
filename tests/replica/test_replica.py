"""Replicas on a broker: every write reaches every node."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, sessionmaker

from stompkit.replica import (
    ChannelSettingsError,
    IdentityError,
    LeaseLostError,
    ReadOnlyReplicaError,
    RefuseChangesetError,
    Replica,
    ReplicaInUseError,
    ReplicaStoppedError,
    Rules,
    TableRules,
    WriteRefusedError,
    counter,
    custom,
    generate_key,
    origin_priority,
)
from stompkit.replica._reconciling import Difference
from stompkit.replica.rules import Candidate, OnDelete
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.testing import LaunchConfig, RunningBroker, launch
from stompkit.testing.proxy import Proxy
from tests.ports import free_ports
from tests.replica.notes import (
    TABLES,
    Base,
    Label,
    Note,
    make_engine,
    sqlite_url,
    written,
)
from tests.replica.running import LONG_S, Node, Nodes, everywhere, offline, until
from tests.replication.broker.place import Dead

pytestmark = pytest.mark.stomp_requires("topic")

#: Nodes send nothing by themselves, which might reveal a change, too.
SILENT = {"repeat_s": 3600.0, "repeat_max_s": 3600.0, "announce_delay_s": 3600.0}


@pytest.fixture
def nodes(stomp_broker: RunningBroker, tmp_path: Path) -> Iterator[Nodes]:
    """A factory of nodes."""
    nodes = Nodes(stomp_broker, tmp_path)
    yield nodes
    nodes.close()


@pytest.fixture
def a(nodes: Nodes) -> Node:
    """The trunk, as Vesper's tests call it."""
    return nodes("AA").start()


@pytest.fixture
def b(nodes: Nodes) -> Node:
    """A branch."""
    return nodes("BB").start()


def test_a_single_message(a: Node, b: Node) -> None:
    """The first of the two tests that Vesper had."""
    a.add("1", "only")
    b.has(a)
    assert b.rows == [("1", "only", None, 0)]


def test_a_message_sequence(a: Node, b: Node) -> None:
    """The second one: add, add, change, add."""
    a.add("1", "one")
    a.add("2", "two")
    a.change("1", title="changed")
    a.add("3", "three")
    b.has(a)
    assert (
        b.rows
        == a.rows
        == [
            ("1", "changed", None, 0),
            ("2", "two", None, 0),
            ("3", "three", None, 0),
        ]
    )


def test_what_is_written_anywhere_is_everywhere(a: Node, b: Node, nodes: Nodes) -> None:
    c = nodes("C").start()
    for node, key in ((b, "1"), (c, "2"), (a, "3")):
        node.add(key, f"of {key}")
    everywhere(a, b, c)
    b.delete("2")
    c.change("3", title="changed", stars=5)
    everywhere(a, b, c)
    assert a.titles == {"1": "of 1", "3": "changed"}


def test_rows_that_refer_to_others_arrive_with_them(a: Node, b: Node) -> None:
    with a.sessions.begin() as session:
        session.add(Note(id="1", title="t"))
        session.flush()
        session.add_all([Label(note_id="1", word=word) for word in ("red", "green")])
    b.has(a)
    with b.sessions() as session:
        assert {label.word for label in session.scalars(select(Label))} == {"red", "green"}
    with b.sessions.begin() as session:
        for label in session.scalars(select(Label)):
            session.delete(label)
        session.flush()
        session.delete(session.get_one(Note, "1"))
    a.has(b)
    assert a.rows == []


def test_each_writes_before_it_has_heard_of_the_other(nodes: Nodes) -> None:
    """Vesper's stores then refused each other for ever."""
    a, b = nodes("AA"), nodes("B")
    a.add("1", "of a")
    b.add("2", "of b")
    a.start()
    b.start()
    everywhere(a, b)
    assert a.titles == {"1": "of a", "2": "of b"}


def test_edits_of_different_columns_are_merged(a: Node, b: Node) -> None:
    a.add("1", "t", "b")
    b.has(a)
    offline(a, b, lambda: a.change("1", title="of a"), lambda: b.change("1", body="of b"))
    everywhere(a, b)
    assert a.rows == [("1", "of a", "of b", 0)]
    assert a.replica.conflicts() == b.replica.conflicts() == []


def test_a_conflict_has_the_same_winner_everywhere_and_keeps_the_loser(a: Node, b: Node) -> None:
    a.add("1", "t", "b")
    b.has(a)
    offline(a, b, lambda: a.change("1", title="of a"), lambda: b.change("1", title="of b"))
    everywhere(a, b)
    for node in (a, b):
        (row,) = node.replica.conflicts()
        assert (row.table, row.key, row.row) == (
            "notes",
            {"id": "1"},
            {"title": "of b", "body": "b", "stars": 0},
        )
        (conflict,) = row.conflicts
        assert (conflict.column, conflict.winner.value) == ("title", "of b")
        assert [each.value for each in conflict.losers] == ["of a"]
    assert a.titles == {"1": "of b"}
    assert a.replica.status().conflicts == 1


@pytest.mark.parametrize(
    ("decision", "title"),
    [
        ({"pick": "winner"}, "of b"),
        ({"pick": "loser 1"}, "of a"),
        ({"pick": "loser", "column": "title"}, "of a"),
        ({"values": {"title": "of both"}}, "of both"),
        ({"values": {"title": "of b"}}, "of b"),
    ],
)
def test_a_decision_ends_a_conflict_everywhere(
    a: Node, b: Node, decision: dict[str, Any], title: str
) -> None:
    a.add("1", "t", "b")
    b.has(a)
    offline(a, b, lambda: a.change("1", title="of a"), lambda: b.change("1", title="of b"))
    everywhere(a, b)
    made = a.replica.resolve("notes", {"id": "1"}, author="ada", **decision)
    assert made is not None
    everywhere(a, b)
    for node in (a, b):
        assert node.replica.conflicts() == []
        assert node.titles == {"1": title}
        assert node.replica.history(limit=1)[0].author == "ada"
    with pytest.raises(LookupError, match="nothing is in conflict"):
        a.replica.resolve("notes", {"id": "1"}, pick="winner")


@pytest.mark.parametrize(
    ("decision", "is_there"),
    [({"pick": "winner"}, True), ({"pick": "loser 1"}, False), ({"values": {"stars": 3}}, True)],
)
@pytest.mark.parametrize("on_delete", ["update-wins", "delete-wins"])
def test_whether_a_row_is_there_can_be_decided(
    nodes: Nodes, on_delete: OnDelete, decision: dict[str, Any], *, is_there: bool
) -> None:
    rules = Rules(on_delete=on_delete)
    a, b = nodes("AA", rules=rules).start(), nodes("BB", rules=rules).start()
    a.add("1", "t", "b")
    b.has(a)
    offline(a, b, lambda: a.delete("1"), lambda: b.change("1", title="of b"))
    everywhere(a, b)
    assert bool(a.rows) == (on_delete == "update-wins")
    if on_delete == "delete-wins" and "pick" in decision:
        # The winner is the opposite of before.
        is_there = not is_there
    b.replica.resolve("notes", {"id": "1"}, **decision)
    everywhere(a, b)
    stars = decision.get("values", {}).get("stars", 0)
    assert a.rows == ([("1", "of b", "b", stars)] if is_there else [])
    assert a.replica.conflicts() == b.replica.conflicts() == []


def test_a_decision_that_can_not_be_is_refused(a: Node, b: Node) -> None:
    a.add("1")
    b.has(a)
    offline(a, b, lambda: a.change("1", title="of a"), lambda: b.change("1", title="of b"))
    everywhere(a, b)
    resolve = a.replica.resolve
    with pytest.raises(LookupError, match="no notes"):
        resolve("notes", {"id": "2"}, pick="winner")
    with pytest.raises(LookupError, match="column body"):
        resolve("notes", {"id": "1"}, pick="winner", column="body")
    wrong: dict[str, Any]
    for wrong in ({}, {"pick": "best"}, {"values": {}}, {"values": {"id": "3"}}):
        with pytest.raises(ValueError, match=r"values|pick|which row"):
            resolve("notes", {"id": "1"}, **wrong)
    assert len(a.replica.conflicts()) == 1


def test_counters_and_priorities_merge_by_their_rules(nodes: Nodes) -> None:
    notes = TableRules(columns={"stars": counter(), "title": origin_priority("AA")})
    rules = Rules(tables={"notes": notes})
    a, b = nodes("AA", rules=rules).start(), nodes("BB", rules=rules).start()
    a.add("1")
    b.has(a)
    offline(
        a,
        b,
        lambda: a.change("1", stars=2, title="of a"),
        lambda: b.change("1", stars=3, title="of b"),
    )
    everywhere(a, b)
    assert b.rows == [("1", "of a", None, 5)]


# Life.


def test_a_node_goes_on_where_it_was_after_a_restart(a: Node, b: Node) -> None:
    a.add("1")
    b.has(a)
    b.replica.stop()
    a.add("2")
    a.restart()
    a.add("3")
    b.add("4")
    b.restart()
    everywhere(a, b)
    a.change("4", title="changed")
    everywhere(a, b)
    assert b.titles == {"1": "t", "2": "t", "3": "t", "4": "changed"}
    assert [entry.sequence for entry in a.replica.history(origin="AA")] == [4, 3, 2, 1]


def test_what_was_committed_while_nothing_ran_is_sent_later(nodes: Nodes, b: Node) -> None:
    a = nodes("AA")
    for number in range(50):
        a.add(f"{number:02}")
    a.start()
    b.has(a)
    assert len(b.rows) == 50


def test_what_is_committed_last_is_sent_before_the_end(nodes: Nodes) -> None:
    a, b = (nodes(name, poll_s=3600.0, **SILENT).start() for name in ("AA", "BB"))
    until(lambda: a.replica.status().channels[0][1] and b.replica.status().channels[0][1])
    # The process that runs the engine does not know of this one.
    other = make_engine(a.url, has_savepoints=False)
    sessions = sessionmaker(other)
    replica = a.another(session_factory=sessions)
    with sessions.begin() as session:
        session.add(Note(id="1", title="last"))
    a.replica.stop()
    b.has(a)
    assert b.titles == {"1": "last"}
    replica.close()
    other.dispose()


def test_who_comes_late_gets_everything(a: Node, b: Node, nodes: Nodes) -> None:
    a.add("1")
    b.add("2")
    everywhere(a, b)
    a.replica.stop()
    c = nodes("C").start()
    c.replica.wait_until("caught-up", LONG_S)
    assert c.titles == {"1": "t", "2": "t"}


def test_what_another_process_commits_is_noticed(nodes: Nodes) -> None:
    """The other process captures its sessions, and runs no engine."""
    a, b = (nodes(name, **SILENT).start() for name in ("AA", "BB"))
    until(lambda: a.replica.status().channels[0][1] and b.replica.status().channels[0][1])
    other = make_engine(a.url, has_savepoints=False)
    sessions = sessionmaker(other)
    replica = Replica(
        other,
        [Base.metadata.tables[name] for name in TABLES],
        session_factory=sessions,
        branch_id="AA",
        trunk_id="AA",
    )
    with sessions.begin() as session:
        session.add(Note(id="1", title="beside"))
    b.replica.wait_until(replica.vector, LONG_S)
    assert b.titles == {"1": "beside"}
    replica.close()
    other.dispose()


def test_a_lost_connection_loses_nothing(nodes: Nodes, b: Node, stomp_proxy: Proxy) -> None:
    a = nodes("AA", stomp_proxy).start()
    for number in range(5):
        a.add(f"a{number}")
        stomp_proxy.disconnect()
        b.add(f"b{number}")
    everywhere(a, b)
    assert len(a.rows) == 10


@pytest.fixture
def dead() -> Iterator[Dead]:
    """An address where nothing listens."""
    with free_ports() as (port,):
        yield Dead("127.0.0.1", port)


def test_the_next_host_is_taken_where_the_first_is_dead(nodes: Nodes, b: Node, dead: Dead) -> None:
    a = nodes("AA", dead, nodes.broker).start()
    a.add("1")
    b.has(a)


def test_no_broker_has_to_be_there(nodes: Nodes, dead: Dead) -> None:
    a = nodes("AA", dead).start()
    a.add("1")
    status = a.replica.status()
    assert status.channels == [(nodes.channel, False)]
    assert status.vector == {a.replica.origin: 1}
    with pytest.raises(TimeoutError, match="no other node"):
        a.replica.wait_until("caught-up", 0.01)


def test_a_message_that_comes_while_the_database_is_locked_waits(a: Node, b: Node) -> None:
    """Vesper's receiver ended for ever when a local transaction was open."""
    a.add("1")
    b.has(a)
    engine = make_engine(b.url, has_savepoints=False)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        a.add("2")
        a.add("3")
        until(lambda: a.replica.status().channels[0][1])
        connection.rollback()
    engine.dispose()
    b.has(a)
    assert len(b.rows) == 3


def test_only_one_runs_the_replica_of_a_database(a: Node) -> None:
    other = a.another()
    with pytest.raises(ReplicaInUseError, match=f"process {os.getpid()} on"):
        other.start()
    with pytest.raises(RuntimeError, match="runs already"):
        a.replica.start()
    a.replica.stop()
    other.start()
    other.close()


_KILLED = """
import os, signal, sys
from stompkit.replica import Replica
Replica(sys.argv[1], branch_id="AA", trunk_id="AA").start()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_was_killed_keeps_nobody_from_the_database(nodes: Nodes) -> None:
    a = nodes("AA", lease_s=3600.0)
    killed = subprocess.run([sys.executable, "-c", _KILLED, a.url], check=False)
    assert killed.returncode == -signal.SIGKILL
    a.start()
    assert a.replica.is_running


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_replica_that_fails_says_why_and_can_be_started_again(
    a: Node, b: Node, *, is_stopped: bool
) -> None:
    with a.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE stompkit_replica_state RENAME TO away")
    until(lambda: not a.replica.is_running)
    with a.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO stompkit_replica_state")
    assert any("has stopped" in each for each in a.replica.status().warnings)
    with pytest.raises(ReplicaStoppedError):
        a.replica.wait_until({"x": 1}, LONG_S)
    if is_stopped:
        with pytest.raises(OperationalError):
            a.replica.stop()
        a.replica.stop()
    a.start()
    a.add("1")
    b.has(a)


def test_a_replica_that_another_has_taken_over_ends(nodes: Nodes) -> None:
    """It may have slept for so long that its lease expired."""
    a = nodes("AA", lease_s=0.3).start()
    other = {"token": "x", "host": "elsewhere", "pid": 7, "machine": "", "begun": ""}
    with a.replica.store.transaction() as tx:
        tx.set_meta("lease", {**other, "expires": time.time() + 3600})
    until(lambda: not a.replica.is_running)
    with pytest.raises(LeaseLostError, match="process 7 on elsewhere"):
        a.replica.stop()
    with pytest.raises(ReplicaInUseError, match="process 7 on elsewhere"):
        a.start()


def test_a_process_with_the_number_of_another_keeps_nobody_from_the_database(nodes: Nodes) -> None:
    a = nodes("AA", lease_s=3600.0).start()
    with a.replica.store.reading() as reader:
        lease = reader.meta("lease")
    a.replica.stop()
    with a.replica.store.transaction() as tx:
        # The process 1 always exists, and started at another time than the holder of the lease.
        tx.set_meta("lease", {**lease, "pid": 1})
    a.start()


def test_a_lease_that_has_expired_is_free(nodes: Nodes) -> None:
    a = nodes("AA")
    other = {"token": "x", "host": "elsewhere", "pid": 7, "machine": "", "begun": ""}
    with a.replica.store.transaction() as tx:
        tx.set_meta("lease", {**other, "expires": time.time() - 1})
    a.start()


def test_a_database_that_was_copied_becomes_another_node(a: Node, b: Node, nodes: Nodes) -> None:
    a.add("1")
    b.has(a)
    copy = nodes("AA")
    copy.replica.close()
    a.replica.stop()
    with closing(sqlite3.connect(a.path)) as source, closing(sqlite3.connect(copy.path)) as target:
        source.backup(target)
    copy.engine.dispose()
    copy.restart()
    a.start()
    a.add("of a")
    copy.add("of the copy")
    until(lambda: len({node.replica.origin for node in (a, b, copy)}) == 3)
    until(lambda: a.titles == b.titles == copy.titles and len(a.titles) == 3)
    everywhere(a, b, copy)
    a.change("1", title="changed")
    everywhere(a, b, copy)
    assert copy.titles["1"] == b.titles["1"] == "changed"


def test_nothing_is_left_of_a_replica_that_was_closed(nodes: Nodes) -> None:
    before = set(threading.enumerate())
    a = nodes("AA").start()
    a.add("1")
    a.replica.close()
    a.replica.close()
    assert set(threading.enumerate()) <= before
    a.add("2")
    assert a.replica.vector == {a.replica.origin: 1}


def test_a_refused_login_is_told_and_tried_again(nodes: Nodes, dead: Dead) -> None:
    with launch(LaunchConfig(login="me", passcode="wrong", port=dead.port)):
        url = f"stomp://me:s3cr3t@{dead.host}:{dead.port}"
        a = nodes("AA", replication_hosts=url).start()
        warnings = until(lambda: a.replica.status().warnings)
        assert a.replica.is_running
        assert "s3cr3t" not in f"{warnings} {a.replica!r} {a.replica.settings!r}"
    with launch(LaunchConfig(login="me", passcode="s3cr3t", port=dead.port)):
        until(lambda: a.replica.status().channels[0][1])
        assert a.replica.status().warnings == []
        a.replica.stop()


# Topologies and directions.


def test_a_relay_carries_everything_between_channels(nodes: Nodes) -> None:
    up = {"replication_hosts": nodes.url(), "replication_channel": nodes.broker.topic("up")}
    a, c = nodes("AA"), nodes("C", **up)
    relay = nodes("R", relays=[up])
    for node in (a, relay, c):
        node.start()
    a.add("1", "of a")
    c.add("2", "of c")
    everywhere(a, c, relay)
    a.delete("2")
    everywhere(a, c, relay)
    assert c.titles == {"1": "of a"}


@pytest.mark.stomp_requires("receipt")
def test_one_of_two_brokers_that_confirms_nothing_stops_what_is_sent(
    nodes: Nodes, b: Node, stomp_proxy: Proxy
) -> None:
    """Otherwise memory grows with all that this broker has not confirmed."""
    up = {"replication_hosts": nodes.url(stomp_proxy), "replication_channel": "/topic/up"}
    a = nodes("AA", relays=[up]).start()
    until(lambda: all(is_up for _, is_up in a.replica.status().channels))
    with stomp_proxy.withhold_receipts():
        for number in range(20):
            a.add(f"a{number}", body="x" * 2**20)
        (warning,) = until(lambda: a.replica.status().warnings)
        assert "/topic/up: the broker has not confirmed 16 MiB" in warning
    b.has(a)
    until(lambda: not a.replica.status().warnings)


def test_a_replica_that_only_receives_writes_nothing(a: Node, nodes: Nodes) -> None:
    reader = nodes("R", direction="receive").start()
    a.add("1")
    reader.has(a)
    with pytest.raises(ReadOnlyReplicaError):
        reader.add("2")
    with pytest.raises(ReadOnlyReplicaError):
        reader.replica.documents.put("c", "1", {})
    with pytest.raises(ReadOnlyReplicaError):
        reader.replica.import_existing()
    assert reader.titles == {"1": "t"}


def test_a_replica_that_only_sends_takes_nothing(a: Node, nodes: Nodes) -> None:
    sender = nodes("S", direction="send").start()
    a.add("1")
    sender.add("2")
    a.has(sender)
    a.add("3")
    sender.add("4")
    a.has(sender)
    assert sender.titles == {"2": "t", "4": "t"}


def test_tables_and_rows_can_be_left_out(a: Node, nodes: Nodes) -> None:
    filters = {"notes": lambda row: row["stars"] > 0}
    b = nodes("BB", exclude=["labels"], row_filters=filters).start()
    with a.sessions.begin() as session:
        session.add_all([Note(id="1", stars=1), Note(id="2", stars=0)])
        session.flush()
        session.add(Label(note_id="1", word="red"))
    b.has(a)
    with b.sessions() as session:
        assert [note.id for note in session.scalars(select(Note))] == ["1"]
        assert session.scalars(select(Label)).all() == []
    assert b.replica.check() == []
    a.change("2", stars=1)
    b.has(a)
    assert sorted(b.titles) == ["1", "2"]


def test_what_is_not_signed_by_a_trusted_node_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    keys = {name: generate_key(tmp_path / name) for name in ("AA", "BB", "X")}
    trusted = {"AA": keys["AA"], "BB": keys["BB"]}
    a, b = (
        nodes(name, signing_key=tmp_path / name, trusted_keys=trusted).start()
        for name in ("AA", "BB")
    )
    stranger = nodes("X", signing_key=tmp_path / "X").start()
    stranger.add("0", "of a stranger")
    a.add("1")
    b.add("2")
    everywhere(a, b)
    until(lambda: a.replica.status().counts.get("refused"))
    assert a.titles == b.titles == {"1": "t", "2": "t"}
    with pytest.raises(ChannelSettingsError, match="is not the one"):
        nodes("AA", signing_key=tmp_path / "X", trusted_keys=trusted)


def test_a_node_trusts_itself(nodes: Nodes, tmp_path: Path) -> None:
    """It receives all of its own messages."""
    pytest.importorskip("cryptography")
    keys = {name: generate_key(tmp_path / name) for name in ("AA", "BB")}
    a = nodes("AA", signing_key=tmp_path / "AA", trusted_keys={"BB": keys["BB"]}).start()
    b = nodes("BB", signing_key=tmp_path / "BB", trusted_keys={"AA": keys["AA"]}).start()
    a.add("1")
    b.add("2")
    everywhere(a, b)
    a.add("3")
    everywhere(a, b)
    assert a.replica.status().counts.get("refused", 0) == 0


# Changesets that cannot be applied.


def test_a_row_that_the_database_refuses_is_told_and_tried_again(a: Node, b: Node) -> None:
    with b.engine.begin() as connection:
        connection.exec_driver_sql("CREATE UNIQUE INDEX titles ON notes (title)")
    a.add("1", "same")
    a.add("2", "other")
    b.has(a)
    a.change("2", title="same")
    a.add("3", "same")
    b.has(a)
    problems = b.replica.status().problems
    assert sorted(key["id"] for _, key, _ in problems) == ["2", "3"]
    assert all("unique" in reason.lower() and "same" not in reason for _, _, reason in problems)
    assert b.titles["1"] == "same"
    assert "3" not in b.titles
    # The difference from the table is known.
    assert b.replica.check() == []
    assert b.replica.import_existing() == 0
    with b.engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX titles")
    b.replica.retry()
    assert b.titles == {"1": "same", "2": "same", "3": "same"}
    assert b.replica.status().problems == []


def test_a_rule_that_fails_stops_no_node(nodes: Nodes) -> None:
    is_mended = threading.Event()

    def largest(versions: Sequence[Candidate]) -> str:
        return max((str(each.value) for each in versions), key=len if is_mended.is_set() else int)

    rules = Rules(tables={"notes": TableRules(columns={"title": custom("largest", largest)})})
    a, b = (nodes(branch, rules=rules).start() for branch in ("AA", "BB"))
    a.add("1", "0")
    b.has(a)
    offline(a, b, lambda: a.change("1", title="twelve"), lambda: b.change("1", title="7"))
    everywhere(a, b)
    b.add("2", "1")
    a.has(b)
    for node in (a, b):
        ((table, key, reason),) = node.replica.status().problems
        assert (table, key) == ("notes", {"id": "1"})
        assert reason == "the rule 'custom largest' of column title has failed: ValueError"
        assert node.titles == {"1": "7", "2": "1"}
        assert node.replica.check() == []
    is_mended.set()
    for node in (a, b):
        node.replica.retry()
        assert node.replica.status().problems == []
        assert node.titles == {"1": "twelve", "2": "1"}


def test_what_a_hook_refuses_is_in_quarantine_until_it_is_retried(nodes: Nodes, a: Node) -> None:
    is_open = threading.Event()
    seen: list[int] = []

    def validate(changeset: Changeset) -> None:
        if changeset.changes[0].key == {"id": "bad"} and not is_open.is_set():
            raise RefuseChangesetError("not today")

    b = nodes(
        "BB", validate=validate, after_apply=lambda changeset: seen.append(changeset.sequence)
    ).start()
    a.add("bad")
    a.add("2")
    ((dot, reason),) = until(lambda: b.replica.status().quarantined)
    assert "not today" in reason
    assert dot == f"{a.replica.origin}:1"
    is_open.set()
    b.replica.retry()
    b.has(a)
    assert sorted(b.titles) == ["2", "bad"]
    # It is reported after the commit.
    until(lambda: len(seen) == 2)
    assert seen == [1, 2]


def test_what_is_in_quarantine_can_be_skipped(nodes: Nodes, a: Node) -> None:
    def validate(changeset: Changeset) -> None:
        if changeset.sequence == 1:
            raise RefuseChangesetError("never")

    b = nodes("BB", validate=validate).start()
    a.add("bad")
    a.add("2")
    until(lambda: b.replica.status().quarantined)
    with pytest.raises(LookupError):
        b.replica.skip(f"{a.replica.origin}:7")
    b.replica.skip(f"{a.replica.origin}:1")
    b.has(a)
    assert sorted(b.titles) == ["2"]
    assert [dot for dot, _ in b.replica.status().skipped] == [f"{a.replica.origin}:1"]


def test_conflicts_are_told_to_the_program(nodes: Nodes, a: Node) -> None:
    told: Queue[tuple[str, object, object]] = Queue()
    b = nodes(
        "BB",
        on_conflict=lambda table, key, conflict: told.put((table, key, conflict.winner.value)),
    ).start()
    a.add("1")
    b.has(a)
    offline(a, b, lambda: a.change("1", title="of a"), lambda: b.change("1", title="of b"))
    everywhere(a, b)
    assert told.get(timeout=LONG_S) == ("notes", {"id": "1"}, "of b")


# Writes without sessions.


def test_documents_are_replicated_too(a: Node, b: Node) -> None:
    a.replica.documents.put("recipes", "soup", {"name": "Soup", "tags": ["hot"]})
    b.has(a)
    b.replica.documents.patch("recipes", "soup", {"salt": True}, author="bob")
    everywhere(a, b)
    expected = {"name": "Soup", "tags": ["hot"], "salt": True}
    assert a.replica.documents.get("recipes", "soup") == expected
    (version, _) = a.replica.row_history("doc.recipes", {"id": "soup"})
    assert version.entry.author == "bob"


def test_rows_can_be_written_without_a_session(a: Node, b: Node) -> None:
    made = a.replica.write([written("1", title="told", body=None, stars=1)], comment="why")
    assert made is not None
    b.replica.wait_until({made.dot[0]: made.dot[1]}, LONG_S)
    assert b.rows == [("1", "told", None, 1)]
    assert a.rows == b.rows
    assert a.replica.write([written("1", title="told")]) is None
    assert b.replica.history()[0].comment == "why"


def test_rows_that_were_there_before_can_be_imported(nodes: Nodes, b: Node) -> None:
    a = nodes("AA").start()
    with Session(a.engine) as session:
        session.add_all([Note(id=f"{number:04}", title="old") for number in range(700)])
        session.flush()
        session.add(Label(note_id="0000", word="red"))
        session.commit()
    assert {each.kind for each in a.replica.check()} == {"unknown"}
    assert a.replica.import_existing() == 701
    # No row refers to a later one.
    assert list(a.replica.history()[0].tables) == ["labels"]
    assert a.replica.check() == []
    assert a.replica.import_existing() == 0
    b.has(a)
    assert len(b.rows) == 700


def test_changes_that_nobody_has_seen_are_found(a: Node) -> None:
    for key in ("1", "2", "3"):
        a.add(key)
    with a.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE notes SET title = 'x' WHERE id = '1'")
        connection.exec_driver_sql("DELETE FROM notes WHERE id = '2'")
        connection.exec_driver_sql("INSERT INTO notes (id, stars) VALUES ('4', 0)")
    assert sorted(a.replica.check(), key=lambda each: str(each.key)) == [
        Difference("notes", {"id": "1"}, "changed", ("title",)),
        Difference("notes", {"id": "2"}, "missing"),
        Difference("notes", {"id": "4"}, "unknown"),
    ]


def test_changes_that_nobody_has_seen_can_be_imported(a: Node, b: Node) -> None:
    with a.sessions.begin() as session:
        session.add_all([Note(id=f"{number:03}", title="old") for number in range(600)])
        session.flush()
        session.add(Label(note_id="000", word="red"))
    b.has(a)
    with a.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM labels")
        connection.exec_driver_sql("DELETE FROM notes WHERE id < '510'")
        connection.exec_driver_sql("UPDATE notes SET title = 'x' WHERE id = '510'")
    assert a.replica.import_existing() == 512
    assert a.replica.check() == []
    assert a.replica.import_existing() == 0
    b.has(a)
    assert b.rows == a.rows
    assert len(b.rows) == 90
    # A later change of such a row does not bring it back.
    b.change("510", title="y")
    everywhere(a, b)
    assert a.rows == b.rows
    assert a.replica.check() == b.replica.check() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (written("1", "note", title="lost"), "note is not replicated here: did you mean notes?"),
        (written("1", "log", text="lost"), "log is not replicated here"),
        (RowChange(table="notes", action="write", key={}, after={"id": "1"}), "an empty key"),
    ],
)
def test_a_write_that_no_row_can_have_is_refused(
    nodes: Nodes, change: RowChange, reason: str
) -> None:
    a = nodes("AA")
    with pytest.raises(WriteRefusedError, match=reason):
        a.replica.write([written("2"), change])
    assert a.rows == []
    assert a.replica.vector == {}


def test_history_is_asked_by_revision_and_by_time(a: Node, b: Node) -> None:
    a.add("1", "first")
    b.has(a)
    b.change("1", title="second")
    everywhere(a, b)
    second, first = a.replica.history()
    assert b.replica.history()[0].id == second.id
    assert a.replica.at(first.name)["notes"]["1",]["title"] == "first"
    assert a.replica.at("head")["notes"]["1",]["title"] == "second"
    assert a.replica.at(first.time, ["notes"])["notes"]["1",]["title"] == "first"
    (change,) = a.replica.diff(first.name, second.name)
    assert change.after == {"title": "second"}
    assert len(a.replica.graph().nodes) == 2


def test_what_all_have_need_not_be_kept(nodes: Nodes) -> None:
    a, b = (nodes(name, save_history=False).start() for name in ("AA", "BB"))
    for number in range(5):
        a.add(str(number))
    b.add("of b")
    everywhere(a, b)
    until(lambda: a.replica.compact().changesets)
    c = nodes("C", save_history=False).start()
    c.replica.wait_until("caught-up", LONG_S)
    everywhere(a, b, c)
    assert c.titles == a.titles


@pytest.mark.parametrize("chosen", [{"include": ["notes"]}, {"exclude": ["labels"]}])
def test_a_node_with_some_tables_takes_them_from_one_with_more(
    nodes: Nodes, chosen: dict[str, list[str]]
) -> None:
    a = nodes("AA", retention="1 changesets", keep_unseen=False).start()
    for number in range(5):
        a.add(str(number))
    with a.sessions.begin() as session:
        session.add(Label(note_id="1", word="red"))
    assert a.replica.compact().changesets
    b = nodes("BB", **chosen).start()
    b.replica.wait_until("caught-up", LONG_S)
    assert b.titles == a.titles
    with b.sessions() as session:
        assert session.scalars(select(Label)).all() == []
    # Rows of the tables that only one of them has are no difference.
    a.add("last")
    b.has(a)
    until(lambda: b.replica.status().peers[0].vector == b.replica.vector)
    assert b.replica.status().diverged == {}
    assert b.replica.check() == []


def test_a_node_that_is_gone_for_good_can_be_forgotten(a: Node, b: Node, nodes: Nodes) -> None:
    a.add("1")
    b.has(a)
    until(lambda: a.replica.status().peers)
    b.replica.close()
    # Its last messages have arrived, too, when a node that started later is known.
    c = nodes("C").start()
    until(lambda: len(a.replica.status().peers) == 2)
    with pytest.raises(LookupError, match="none of"):
        a.replica.forget("CC")
    a.replica.forget("BB")
    assert [peer.origin for peer in a.replica.status().peers] == [c.replica.origin]


def test_a_status_can_be_asked_for_where_nothing_runs(a: Node, b: Node) -> None:
    a.add("1")
    b.has(a)
    until(lambda: a.replica.status().peers)
    running = a.replica.status()
    a.replica.stop()
    resting = a.replica.status()
    assert (resting.origin, resting.vector, resting.heads, resting.digests) == (
        running.origin,
        running.vector,
        running.heads,
        running.digests,
    )
    assert [peer.origin for peer in resting.peers] == [b.replica.origin]
    assert resting.channels == [(a.replica.settings.ports[0].channel, False)]
    a.replica.forget("BB")
    assert a.replica.status().peers == []


def test_a_database_that_is_another_replica_is_refused(nodes: Nodes) -> None:
    a = nodes("AA")
    for other in (
        {"branch_id": "BB"},
        {"trunk_id": "BB"},
        {"rules": Rules(on_delete="delete-wins")},
    ):
        with pytest.raises(IdentityError):
            a.another(**other).start()
    assert a.another(branch_id=None).origin == a.replica.origin


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is branch_id meant"):
        Replica(sqlite_url(tmp_path), branchId="A")
    with pytest.raises(IdentityError, match="create"):
        Replica(make_engine(sqlite_url(tmp_path)), settings={"branch_id": "A"}).status()


# Kinds of brokers.


@pytest.mark.stomp_requires("durable", "ack", "client-individual")
def test_a_durable_subscription_is_the_nodes_own(nodes: Nodes) -> None:
    a, b = (nodes(name, durable=True).start() for name in ("AA", "BB"))
    a.add("1")
    everywhere(a, b)
    b.replica.stop()
    a.add("2")
    b.restart()
    b.has(a)
    assert b.titles == {"1": "t", "2": "t"}


@pytest.mark.stomp_requires("ack", "client-individual")
def test_what_was_stored_is_acknowledged(a: Node, b: Node, nodes: Nodes) -> None:
    a.add("1")
    b.has(a)
    until(lambda: nodes.broker.frames.find("ACK"))


def test_nothing_is_acknowledged_where_that_is_said(nodes: Nodes) -> None:
    a, b = (nodes(name, send_stomp_ack=False, receipts=False).start() for name in ("AA", "BB"))
    for number in range(20):
        a.add(str(number))
        b.add(f"b{number}")
    everywhere(a, b)
    assert len(a.rows) == 40
    nodes.close()
    nodes.made.clear()
    nodes.broker.frames.expect_none("ACK")
