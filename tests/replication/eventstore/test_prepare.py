"""Records of transactions between prepare and commit."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine

from stompkit.replication.eventstore import PrepareCommit, forget_session, session_id
from stompkit.testing.launching.polling import wait_until
from tests.replication.eventstore.conftest import MakePrepareCommit


class FakeSession:
    """The required part of a session."""

    def __init__(self) -> None:
        """Start empty."""
        self.info: dict[Any, Any] = {}


@pytest.fixture
def prepare_commit(make_prepare_commit: MakePrepareCommit) -> PrepareCommit:
    return make_prepare_commit()


EVENT: dict[str, list[Any]] = {
    "t_write": [1, 2],
    "s.u_delete": [("a b", UUID(int=1)), Decimal("1.50")],
}


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_there_is_a_note_until_the_end(prepare_commit: PrepareCommit, end: str) -> None:
    session = FakeSession()
    assert prepare_commit.prepare(session, EVENT)
    assert prepare_commit.phase(session) == "prepare"
    assert prepare_commit.prepare_info() == {session_id(session)}
    assert prepare_commit.session_info(session) == EVENT
    assert getattr(prepare_commit, end)(session)
    assert prepare_commit.phase(session) == "commit"
    assert prepare_commit.prepare_info() == set()
    assert prepare_commit.session_info(session) == {}


def test_a_later_note_replaces_the_one_before(prepare_commit: PrepareCommit) -> None:
    prepare_commit.prepare("a", EVENT)
    prepare_commit.prepare("a", {"t_write": [1, 1, 3]})
    assert prepare_commit.session_info("a") == {"t_write": [1, 3]}


def test_of_nothing_there_is_no_note(prepare_commit: PrepareCommit) -> None:
    prepare_commit.prepare("a", {"t_write": []})
    assert prepare_commit.prepare_info() == set()
    prepare_commit.prepare("a", EVENT)
    prepare_commit.prepare("a", {})
    assert prepare_commit.prepare_info() == set()


def test_the_next_transaction_of_a_session_is_another(prepare_commit: PrepareCommit) -> None:
    session = FakeSession()
    first = session_id(session)
    prepare_commit.prepare(session, EVENT)
    prepare_commit.commit(session)
    forget_session(session)
    prepare_commit.prepare(session, EVENT)
    assert session_id(session) != first
    assert prepare_commit.prepare_info() == {session_id(session)}


def test_transactions_are_told_apart(prepare_commit: PrepareCommit) -> None:
    prepare_commit.prepare("a", {"t_write": [1]})
    prepare_commit.prepare("b", {"t_write": [2]})
    prepare_commit.commit("a")
    assert prepare_commit.prepare_info() == {"b"}
    assert prepare_commit.session_info("b") == {"t_write": [2]}


def test_notes_can_be_listed_and_cleared_by_time(prepare_commit: PrepareCommit) -> None:
    prepare_commit.prepare("a", EVENT)
    # All servers are on this machine; their clocks may differ a little.
    between = time.time() + 0.01
    assert wait_until(lambda: time.time() > between + 0.01, 20)
    prepare_commit.prepare("b", EVENT)
    assert prepare_commit.prepare_info(between) == {"a"}
    assert prepare_commit.clear(between) == 1
    assert prepare_commit.prepare_info() == {"b"}
    assert prepare_commit.clear() == 1
    assert prepare_commit.prepare_info() == set()


def test_namespaces_keep_applications_apart(make_prepare_commit: MakePrepareCommit) -> None:
    make_prepare_commit("one").prepare("a", EVENT)
    assert make_prepare_commit("other").prepare_info() == set()
    assert make_prepare_commit("one").prepare_info() == {"a"}


def test_notes_are_found_on_whatever_day(make_prepare_commit: MakePrepareCommit) -> None:
    day = 20000

    def by_day(ts: float) -> str:
        return f"es:{datetime.fromtimestamp(ts or day * 86400, UTC):%Y%m%d}"

    make_prepare_commit(by_day).prepare("a", EVENT)
    assert make_prepare_commit(by_day).prepare_info() == {"a"}


def test_notes_are_gone_after_their_ttl(make_prepare_commit: MakePrepareCommit) -> None:
    prepare_commit = make_prepare_commit(ttl=0.2)
    prepare_commit.prepare("a", EVENT)
    assert wait_until(lambda: prepare_commit.prepare_info() == set(), 20)
    assert prepare_commit.phase("a") == "commit"
    assert prepare_commit.stuck(0) == []


def test_a_note_is_claimed_by_one_at_a_time(make_prepare_commit: MakePrepareCommit) -> None:
    first, second = make_prepare_commit(), make_prepare_commit()
    first.prepare("a", EVENT)
    assert first.claim("a", 1000)
    assert not second.claim("a", 1000)
    first.release("a")
    assert second.claim("a", 0.1)
    assert wait_until(lambda: first.claim("a", 1000), 20)


# Stuck transactions.

CHILD = """
import socket, sys
if sys.argv[3]:
    socket.gethostname = lambda: sys.argv[3]
from sqlalchemy import create_engine
from stompkit.replication.eventstore import RedisPrepareCommit, SqlPrepareCommit
kind, url = sys.argv[1:3]
made = RedisPrepareCommit(url) if kind == "redis" else SqlPrepareCommit(url)
assert made.prepare("a", {"t_write": [1]})
print("prepared", flush=True)
sys.stdin.read()
"""


def child(place: str | Engine, host: str = "") -> subprocess.Popen[str]:
    """Run a process that has prepared, and ends when its input does."""
    kind = "redis" if isinstance(place, str) else "sql"
    url = place if isinstance(place, str) else place.url.render_as_string(hide_password=False)
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, kind, url, host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "prepared\n"
    return process


def test_sessions_of_processes_that_run_are_not_stuck(
    place: str | Engine, prepare_commit: PrepareCommit
) -> None:
    prepare_commit.prepare("own", EVENT)
    with child(place) as process:
        assert prepare_commit.stuck(0) == []
        process.kill()
        # A zombie process does not count as running.
        assert wait_until(lambda: [each.id for each in prepare_commit.stuck(0)] == ["a"], 20)
    (found,) = prepare_commit.stuck(0)
    assert found.process.pid == process.pid
    assert found.event == {"t_write": [1]}
    assert not found.is_committed


def test_what_is_too_young_is_not_stuck(place: str | Engine, prepare_commit: PrepareCommit) -> None:
    with child(place) as process:
        process.kill()
    assert prepare_commit.stuck(1000) == []
    assert [each.id for each in prepare_commit.stuck(0)] == ["a"]


def test_of_processes_elsewhere_only_the_age_is_known(
    place: str | Engine, prepare_commit: PrepareCommit
) -> None:
    with child(place, "elsewhere") as process:
        assert prepare_commit.stuck(1000) == []
        assert [each.id for each in prepare_commit.stuck(0)] == ["a"]
        process.kill()


def test_what_was_committed_and_not_published_is_stuck(prepare_commit: PrepareCommit) -> None:
    prepare_commit.prepare("a", EVENT)
    prepare_commit.prepare("b", EVENT)
    assert prepare_commit.commit("a", published=False)
    (found,) = prepare_commit.stuck(0)
    assert found.id == "a"
    assert found.is_committed
    assert prepare_commit.phase("a") == "prepare"


def test_nobody_is_noted_as_committed_who_has_no_note(prepare_commit: PrepareCommit) -> None:
    prepare_commit.commit("a", published=False)
    assert prepare_commit.prepare_info() == set()
    assert prepare_commit.stuck(0) == []
