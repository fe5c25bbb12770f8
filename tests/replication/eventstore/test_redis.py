"""The Redis event store: round trips, expiry, and servers that do not answer."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError, TimeoutError

from stompkit.replication.eventstore import RedisEventStore, RedisPrepareCommit
from stompkit.replication.model.events import Changeset, Source, make_changeset
from stompkit.testing.launching.polling import wait_until
from tests.servers import RedisServer

TTL_S = 1000


@pytest.fixture
def client(redis: RedisServer) -> Iterator[Any]:
    with Redis.from_url(redis.url, decode_responses=True) as made:
        yield made


def by_day(ts: float) -> str:
    return f"es:{datetime.fromtimestamp(ts, UTC):%Y%m%d}"


def made() -> Changeset:
    return make_changeset("o", 1, [], Source(kind="k"))


#: Timeout in seconds with which a store on a busy machine does not have to ask again.
_PATIENCE_S = 60.0


def commands(client: Any, act: Callable[[], object]) -> list[str]:
    """Record the sent commands, except those within scripts."""
    names = []
    with client.client() as other, client.monitor() as monitor:
        act()
        other.echo("the end")
        for told in monitor.listen():
            if told["client_type"] == "lua":
                continue
            if told["command"].startswith("ECHO"):
                break
            names.append(told["command"].split()[0])
    return names


def test_to_add_takes_one_round_trip(redis: RedisServer, client: Any) -> None:
    store = RedisEventStore(redis.url, history=True, socket_timeout=_PATIENCE_S)
    store.add("t_write", 0)
    store.append(made())
    assert commands(client, lambda: store.add("t_write", 1)) == ["EVALSHA"]
    assert commands(client, lambda: store.append(made())) == ["EVALSHA"]
    many = [("t_write", number) for number in range(1000)]
    assert commands(client, lambda: store.add_many(many)) == ["EVALSHA"]
    store.close()


def test_more_keys_than_a_command_takes_are_in_several(redis: RedisServer, client: Any) -> None:
    store = RedisEventStore(redis.url, socket_timeout=_PATIENCE_S)
    store.add("t_write", -1)
    many = [("t_write", number) for number in range(12_000)]
    assert commands(client, lambda: store.add_many(many)) == ["EVALSHA"] * 2
    assert len(store.replay("t_write")) == 12_001
    store.close()


def test_to_prepare_and_to_commit_take_one_round_trip(redis: RedisServer, client: Any) -> None:
    prepare_commit = RedisPrepareCommit(redis.url)
    prepare_commit.prepare("a", {"t_write": [1]})
    prepare_commit.commit("a")
    event = {"t_write": [1, 2]}
    assert commands(client, lambda: prepare_commit.prepare("b", event)) == ["EVALSHA"]
    assert commands(client, lambda: prepare_commit.commit("b")) == ["EVALSHA"]
    prepare_commit.close()


def test_the_day_of_the_namespace_is_that_of_the_server(
    redis: RedisServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e6)
    asked: list[float] = []

    def namespace(ts: float) -> str:
        asked.append(ts)
        return by_day(ts)

    store = RedisEventStore(redis.url, namespace)
    store.add("t_write", 1)
    (ts,) = asked
    assert abs(ts - client.time()[0]) < 1000
    assert store.query("t_write", 1) == ts
    assert client.exists(f"{by_day(ts)}:t_write")
    store.close()


def test_scripts_that_the_server_has_forgotten_are_sent_again(
    redis: RedisServer, client: Any
) -> None:
    store = RedisEventStore(redis.url, strict=True)
    store.add("t_write", 1)
    client.script_flush()
    assert store.add("t_write", 2)
    assert store.replay("t_write") == [1, 2]
    store.close()


@pytest.mark.parametrize("namespace", [None, by_day])
def test_all_keys_of_a_store_expire(redis: RedisServer, client: Any, namespace: Any) -> None:
    store = RedisEventStore(redis.url, namespace, ttl=TTL_S, history=True)
    store.add("t_write", 1, ts=5)
    store.add("t_write", 2, ts=5, ttl=10 * TTL_S)
    store.append(made())
    keys = set(client.keys("*")) - {"stompkit:namespaces"}
    now_s = client.time()[0]
    ends = {key: client.pexpiretime(key) / 1000 - now_s for key in keys}
    assert len(ends) == 5
    # A whole key lives as long as its longest-living member.
    for key, end in ends.items():
        expected = TTL_S if "history" in key else 10 * TTL_S
        assert expected - 60 < end < expected + 60
    store.close()


def test_what_is_for_ever_does_not_expire(redis: RedisServer, client: Any) -> None:
    store = RedisEventStore(redis.url, ttl=None)
    store.add("t_write", 1, ttl=100)
    store.add("t_write", 2)
    assert {client.ttl(key) for key in client.keys("*")} == {-1}
    store.close()


def test_redis_itself_forgets_a_store_that_nobody_uses(redis: RedisServer, client: Any) -> None:
    store = RedisEventStore(redis.url, ttl=0.1, history=True)
    store.add("t_write", 1)
    store.append(made())
    assert wait_until(lambda: client.keys("*") == [], 20)
    store.close()


def test_namespaces_of_the_past_are_forgotten(redis: RedisServer, client: Any) -> None:
    store = RedisEventStore(redis.url, by_day, ttl=0.1)
    store.add("t_write", 1, ts=5)
    assert client.hgetall("stompkit:namespaces")
    assert wait_until(lambda: not store.replay("t_write") and not client.keys("*"), 20)
    store.close()


def test_notes_of_sessions_expire(redis: RedisServer, client: Any) -> None:
    prepare_commit = RedisPrepareCommit(redis.url, ttl=TTL_S)
    prepare_commit.prepare("a", {"t_write": [1]})
    keys = client.keys("*")
    assert len(keys) == 2
    assert all(TTL_S - 60 < client.ttl(key) <= TTL_S for key in keys)
    prepare_commit.commit("a")
    assert client.keys("*") == []
    prepare_commit.close()


# The stored keys.


def test_what_is_stored_is_json(redis: RedisServer, client: Any) -> None:
    store, prepare_commit = RedisEventStore(redis.url), RedisPrepareCommit(redis.url)
    store.add("t_write", (1, b"\xff"))
    (member,) = client.zrange("stompkit:es:t_write", 0, -1)
    assert json.loads(member) == [1, {"$bytes": "/w=="}]
    prepare_commit.prepare("a", {"t_write": [(1, "x")]})
    note = json.loads(client.hget("stompkit:pc:session_prepare:a", "body"))
    assert note["event"] == {"t_write": ['[1,"x"]']}


def test_what_others_have_stored_runs_no_code(redis: RedisServer, client: Any) -> None:
    prepare_commit = RedisPrepareCommit(redis.url)
    prepare_commit.prepare("a", {"t_write": [1]})
    with Redis.from_url(redis.url) as binary:
        binary.hset("stompkit:pc:session_prepare:a", "body", pickle.dumps({"t_write": {1}}))
    with pytest.raises(ValueError, match="JSON"):
        prepare_commit.session_info("a")
    prepare_commit.prepare("b", {"t_write": [1]})
    prepare_commit.commit("b", published=False)
    assert [each.id for each in prepare_commit.stuck(0)] == ["b"]


# Servers that do not answer.


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen(100)
        yield f"unix://{tmp_path}/silent"


@pytest.fixture
def absent(tmp_path: Path) -> str:
    """The URL of a server that does not run."""
    return f"unix://{tmp_path}/absent"


@pytest.mark.parametrize(
    ("server", "error"), [("silent", TimeoutError), ("absent", ConnectionError)]
)
def test_a_strict_one_raises_where_the_server_does_not_answer(
    server: str, error: type[Exception], request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server)
    store = RedisEventStore(url, socket_timeout=0.1, strict=True, history=True)
    prepare_commit = RedisPrepareCommit(url, strict=True, socket_timeout=0.1)
    acts: list[Callable[[], object]] = [
        lambda: store.add("t_write", 1),
        lambda: store.append(made()),
        lambda: prepare_commit.prepare("a", {"t_write": [1]}),
        lambda: prepare_commit.commit("a"),
        lambda: prepare_commit.rollback("a"),
    ]
    for act in acts:
        with pytest.raises(error):
            act()


@pytest.mark.parametrize("server", ["silent", "absent"])
def test_others_log_it_and_say_so(
    server: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    url = request.getfixturevalue(server)
    store = RedisEventStore(url, socket_timeout=0.1, history=True)
    prepare_commit = RedisPrepareCommit(url, socket_timeout=0.1)
    with caplog.at_level(logging.ERROR):
        assert store.add("t_write", 1) is False
        assert store.append(made()) is False
        assert prepare_commit.prepare("a", {"t_write": [1]}) is False
        assert prepare_commit.commit("a") is False
        assert prepare_commit.rollback("a") is False
    assert len(caplog.records) == 5


@pytest.mark.parametrize(
    ("server", "error"), [("silent", TimeoutError), ("absent", ConnectionError)]
)
def test_what_reads_always_raises(
    server: str, error: type[Exception], request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server)
    store = RedisEventStore(url, socket_timeout=0.1)
    prepare_commit = RedisPrepareCommit(url, socket_timeout=0.1)
    acts: list[Callable[[], object]] = [
        lambda: store.replay("t_write"),
        lambda: store.query("t_write", 1),
        lambda: store.clear("t_write"),
        lambda: prepare_commit.phase("a"),
        lambda: prepare_commit.session_info("a"),
        lambda: prepare_commit.prepare_info(),
        lambda: prepare_commit.clear(),
        lambda: prepare_commit.stuck(),
    ]
    for act in acts:
        with pytest.raises(error):
            act()


def test_a_note_that_could_not_be_removed_is_removed_with_the_next(
    redis: RedisServer, client: Any
) -> None:
    prepare_commit = RedisPrepareCommit(redis.url, socket_timeout=2.0)
    for id in "abc":
        prepare_commit.prepare(id, {"t_write": [1]})
    client.client_pause(60_000, all=False)
    assert not prepare_commit.commit("a")
    assert not prepare_commit.commit("b", published=False)
    client.client_unpause()
    assert prepare_commit.prepare_info() == {"a", "b", "c"}
    assert prepare_commit.commit("c")
    assert prepare_commit.prepare_info() == {"b"}
    assert [each.is_committed for each in prepare_commit.stuck(0)] == [True]
    prepare_commit.close()
