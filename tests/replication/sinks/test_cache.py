"""Rows in a real Redis."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from redis import Redis
from redis import exceptions as redis_errors

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import emit
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import row_from_json
from stompkit.replication.sinks import ApplyError, Refused, Sink, SinkMisconfiguredError
from stompkit.replication.sinks.cache import RedisCacheReplicator, RedisSink, cache_key
from stompkit.testing.launching.polling import wait_until
from tests.replication.sinks.rows_model import Database, Delivery, databases, deliver, deliveries
from tests.servers import RedisServer

WAIT_S = 20.0
ROW = {"id": 1, "x": "one", "y": None}


def change(action: Any, key: Any = 1, *, table: str = "t", **arguments: Any) -> RowChange:
    made = {"id": key} if action not in ("truncate", "schema") else {}
    return RowChange(table=table, action=action, key=made, **arguments)


def changeset(sequence: int, *changes: RowChange, origin: str = "o") -> Changeset:
    return make_changeset(origin, sequence, changes, Source(kind="test"))


def columns(*names: str) -> RowChange:
    """Return a change of the schema."""
    told = [{"name": name, "type": "text", "key": name == "id", "nullable": True} for name in names]
    return change("schema", after={"columns": told})


@pytest.fixture
def client(redis: RedisServer) -> Iterator[Redis]:
    """A client of the same server."""
    with Redis.from_url(redis.url) as client:
        yield client


@pytest.fixture
def sink(redis: RedisServer) -> Iterator[RedisSink]:
    with closing(RedisSink(redis.url)) as sink:
        yield sink


def stored(client: Redis, key: Any = 1, table: str = "t") -> Any:
    """Return the cached contents of a row."""
    text: Any = client.get(cache_key(table, key))
    return None if text is None else row_from_json(json.loads(text))


def rows_of(client: Redis, pattern: str = "stompkit:cache:*:*") -> dict[str, Any]:
    """Return all rows, by their keys in Redis."""
    found: Any = list(client.scan_iter(pattern))
    texts: Any = client.mget(found) if found else []
    return {
        key.decode(): row_from_json(json.loads(text))
        for key, text in zip(found, texts, strict=True)
    }


# Rows.


def test_it_is_a_sink(sink: RedisSink) -> None:
    checked: Sink = sink
    assert checked.last("o") is None


@pytest.mark.parametrize("action", ["write", "read"])
def test_a_new_row_is_stored_with_its_types(sink: RedisSink, client: Redis, action: str) -> None:
    row = {"id": 1, "price": Decimal("1.50"), "at": datetime(2026, 11, 21), "big": 2**70, "n": None}
    sink.apply([changeset(0, change(action, after=row))])
    assert stored(client) == row
    assert sink.last("o") == 0


def test_an_update_that_tells_some_columns_keeps_the_others(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, change("write", after={**ROW, "big": 2**62 + 1, "list": [[], {}]}))])
    sink.apply([changeset(1, change("update", after={"x": "two"}))])
    assert stored(client) == {"id": 1, "x": "two", "y": None, "big": 2**62 + 1, "list": [[], {}]}


def test_what_an_update_does_not_tell_is_what_it_was_before(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    client.delete(cache_key("t", 1))
    before = {"id": 1, "x": "one", "y": None}
    sink.apply([changeset(1, change("update", before=before, after={"x": "two"}))])
    assert stored(client) == {"id": 1, "x": "two", "y": None}


def test_a_row_that_is_not_told_wholly_is_not_stored_when_nothing_is_there(
    sink: RedisSink, client: Redis
) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("update", 2, after={"id": 2, "x": "two"}))])
    assert stored(client, 2) is None
    sink.apply([changeset(2, change("update", 2, after={"id": 2, "x": "two", "y": 5}))])
    assert stored(client, 2) == {"id": 2, "x": "two", "y": 5}


def test_a_row_that_only_its_key_is_told_of_is_not_stored(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("write", 2), change("update", 3))])
    assert list(rows_of(client)) == [cache_key("t", 1)]


def test_an_update_that_changes_the_key_moves_the_row(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("update", 2, old_key={"id": 1}, after={"id": 2, "y": "z"}))])
    assert rows_of(client) == {cache_key("t", 2): {"id": 2, "x": "one", "y": "z"}}


def test_keys_that_are_swapped_in_one_transaction(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, *(change("write", n, after={"id": n, "x": n}) for n in (1, 2)))])
    moves = [(1, 9), (2, 1), (9, 2)]
    steps = [change("update", to, old_key={"id": old}, after={"id": to}) for old, to in moves]
    sink.apply([changeset(1, *steps)])
    assert rows_of(client) == {
        cache_key("t", 1): {"id": 1, "x": 2},
        cache_key("t", 2): {"id": 2, "x": 1},
    }


def test_a_deleted_row_is_gone_and_one_that_is_not_there_may_be_deleted(
    sink: RedisSink, client: Redis
) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    sink.apply([changeset(1, change("delete"), change("delete", 2))])
    assert rows_of(client) == {}
    assert sink.last("o") == 1


def test_truncating_empties_the_one_table_whatever_its_name_looks_like(
    redis: RedisServer, client: Redis
) -> None:
    names = ["t[ab]*", "ta", "t", "t:x", "t%3Ax", "t?"]
    with closing(RedisSink(redis.url, namespace="c[1]")) as sink:
        for number, name in enumerate(names):
            sink.apply([changeset(number, change("write", table=name, after=ROW))])
        for number, name in enumerate(["t[ab]*", "t", "t?"]):
            sink.apply([changeset(len(names) + number, change("truncate", table=name))])
        left = {name for name in names if client.exists(cache_key(name, 1, namespace="c[1]"))}
        assert left == {"ta", "t:x", "t%3Ax"}


def test_truncating_takes_more_than_one_step_and_spares_what_is_written_after_it(
    sink: RedisSink, client: Redis
) -> None:
    many = [change("write", n, after={"id": n, "x": 0}) for n in range(2500)]
    sink.apply([changeset(0, *many)])
    after = change("write", 7, after={"id": 7, "x": 1})
    sink.apply([changeset(1, *many, change("truncate"), after)])
    assert rows_of(client) == {cache_key("t", 7): {"id": 7, "x": 1}}


def test_a_change_of_the_columns_empties_the_table(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, columns("id", "x", "y"), change("write", after=ROW))])
    sink.apply([changeset(1, columns("id", "x", "y"))])
    assert stored(client) == ROW
    sink.apply([changeset(2, columns("id", "x"))])
    assert stored(client) is None
    sink.apply([changeset(3, change("update", after={"id": 1, "x": "two"}))])
    assert stored(client) == {"id": 1, "x": "two"}


def test_keys_of_different_kinds_are_kept_apart(sink: RedisSink, client: Redis) -> None:
    keys: list[Any] = ["", '""', '"', "hello world", "a:b", 0, Decimal("1.0"), None]
    writes = [
        change("write", key, table=f"t{type(key).__name__}", after={"id": key}) for key in keys
    ]
    composite = RowChange(
        table="t", action="write", key={"a": 2, "b": "3"}, after={"a": 2, "b": "3"}
    )
    sink.apply([changeset(0, *writes, composite)])
    for key in keys:
        assert stored(client, key, f"t{type(key).__name__}") == {"id": key}
    assert client.exists(cache_key("t", 2, "3")) == 1
    assert cache_key("t", 2, "3") == 'stompkit:cache:t:[2, "3"]'
    assert cache_key("shop.t", 42) == "stompkit:cache:shop.t:42"


def test_tables_are_chosen_and_masked(redis: RedisServer, client: Redis) -> None:
    tables = Tables(["t"], masks={"t.x": "null"})
    with closing(RedisSink(redis.url, tables=tables)) as sink:
        sink.apply(
            [changeset(0, change("write", after=ROW), change("write", table="u", after=ROW))]
        )
    assert rows_of(client) == {cache_key("t", 1): {**ROW, "x": None}}


def test_rows_expire(redis: RedisServer, client: Redis) -> None:
    with closing(RedisSink(redis.url, ttl_s=1000)) as sink:
        sink.apply([changeset(0, change("write", after=ROW))])
        ttl: Any = client.pttl(cache_key("t", 1))
        assert 900_000 < ttl <= 1_000_000
        assert client.ttl("stompkit:cache:offsets") == -1


def test_what_somebody_else_has_stored_is_no_row(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    for number, text in enumerate([b"\xff", b"[1]", b"text"]):
        client.set(cache_key("t", 1), text)
        sink.apply([changeset(1 + number, change("update", after={"x": "two"}))])
        assert client.get(cache_key("t", 1)) is None


# Other storage formats.


def test_invalidating_only_deletes(redis: RedisServer, client: Redis) -> None:
    with closing(RedisSink(redis.url, mode="invalidate")) as sink:
        for key in range(1, 6):
            client.set(cache_key("t", key), "the application's")
        sink.apply(
            [
                changeset(0, change("write", after=ROW), change("delete", 2)),
                changeset(1, change("update", 4, old_key={"id": 3}, after={"id": 4})),
            ]
        )
        assert client.keys("stompkit:cache:t:*") == [cache_key("t", 5).encode()]
        sink.apply([changeset(2, change("truncate"))])
        assert client.keys("stompkit:cache:t:*") == []
        assert sink.last("o") == 2


def test_a_serializer_is_given_whole_rows_only(redis: RedisServer, client: Redis) -> None:
    given: list[Any] = []

    def serialize(change: RowChange) -> bytes | None:
        given.append(change.after)
        return None if change.key == {"id": 2} else b"made"

    with closing(RedisSink(redis.url, serialize=serialize)) as sink:
        sink.apply([changeset(0, *(change("write", n, after={**ROW, "id": n}) for n in (1, 2)))])
        assert client.get(cache_key("t", 1)) == b"made"
        assert client.get(cache_key("t", 2)) is None
        sink.apply([changeset(1, change("update", after={"x": "two"}))])
        assert client.get(cache_key("t", 1)) is None
        sink.apply([changeset(2, change("update", before=ROW, after={"x": "two"}))])
        assert client.get(cache_key("t", 1)) == b"made"
    assert given == [ROW, {**ROW, "id": 2}, {**ROW, "x": "two"}]


@pytest.mark.parametrize(
    "arguments", [{"mode": "write"}, {"ttl_s": 0}, {"ttl_s": -1}, {"namespace": ""}]
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RedisSink("redis://localhost", **arguments)


# Repeats, errors and connections.


def test_what_comes_again_has_no_effect(sink: RedisSink, client: Redis) -> None:
    first = changeset(0, change("write", after=ROW))
    sink.apply([first, changeset(1, change("delete"))])
    sink.apply([first])
    assert stored(client) is None
    assert sink.last("o") == 1


def test_origins_have_numbers_of_their_own(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(5, change("write", after=ROW), origin="a"), changeset(0, origin="b")])
    assert (sink.last("a"), sink.last("b"), sink.last("c")) == (5, 0, None)


def test_numbers_beyond_those_of_floating_point(sink: RedisSink) -> None:
    sink.apply([changeset(2**62 + 1)])
    sink.skip(changeset(2**62))
    assert sink.last("o") == 2**62 + 1


def test_a_skipped_changeset_counts_and_does_nothing(sink: RedisSink, client: Redis) -> None:
    sink.skip(changeset(3, change("write", after=ROW)))
    assert sink.last("o") == 3
    assert rows_of(client) == {}


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (RowChange(table="t", action="write", key={}, after={"x": 1}), "table t has no key"),
        (change("write", 2, after={"id": 2, "x": object()}), 'table t, key {"id": 2}: column x'),
        (change("delete", object()), "table t, key .*cannot be carried"),
    ],
)
def test_poison_is_told_and_nothing_of_it_is_applied(
    sink: RedisSink, client: Redis, poison: RowChange, reason: str
) -> None:
    with pytest.raises(ApplyError, match=reason):
        sink.apply([changeset(0, change("write", after=ROW)), changeset(1, poison)])
    assert rows_of(client) == {}
    assert sink.last("o") is None


@pytest.mark.parametrize(
    "poison",
    [
        RowChange(table="t", action="write", key={}, after={"x": 1}),
        change("write", 2, after={"id": 2, "x": object()}),
    ],
)
def test_of_a_changeset_with_poison_the_rest_is_stored(
    sink: RedisSink, client: Redis, poison: RowChange
) -> None:
    refused: list[Refused] = []
    given = changeset(1, change("write", after=ROW), poison)
    sink.apply_rows(given, refused.extend)
    assert [each.change for each in refused] == [poison]
    assert stored(client) == ROW
    assert sink.last("o") == 1
    sink.apply_rows(given, refused.extend)
    assert len(refused) == 1


def test_keys_of_another_program_are_not_waited_for(sink: RedisSink, client: Redis) -> None:
    client.set("stompkit:cache:offsets", "something else")
    with pytest.raises(SinkMisconfiguredError, match="other data"):
        sink.apply([changeset(0, change("write", after=ROW))])


def test_a_lost_connection_is_made_again(sink: RedisSink, client: Redis) -> None:
    sink.apply([changeset(0, change("write", after=ROW))])
    client.client_kill_filter(_type="normal", skipme=True)
    sink.apply([changeset(1, change("update", after={"x": "two"}))])
    assert stored(client) == {**ROW, "x": "two"}


def test_a_redis_that_is_slow_or_away_is_worth_another_try(
    redis: RedisServer, client: Redis
) -> None:
    with closing(RedisSink(redis.url, timeout_s=0.05)) as sink:
        sink.apply([changeset(0, change("write", after=ROW))])
        client.client_pause(60_000, all=False)
        try:
            with pytest.raises(redis_errors.RedisError):
                sink.apply([changeset(1, change("delete"))])
        finally:
            client.client_unpause()
    with closing(RedisSink(redis.url)) as sink:
        sink.apply([changeset(1, change("delete"))])
        assert stored(client) is None


def test_what_is_written_meanwhile_is_not_lost(redis: RedisServer, client: Redis) -> None:
    # Two consumers of the same stream: one that was assumed dead continues.
    batches = [changeset(0, change("write", after={"id": 1, "n": 0}))]
    batches += [changeset(n, change("update", after={"id": 1, "n": n})) for n in range(1, 60)]
    problems: list[BaseException] = []

    def consume() -> None:
        try:
            with closing(RedisSink(redis.url)) as sink:
                for each in batches:
                    sink.apply([each])
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert stored(client) == {"id": 1, "n": 59}


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(database=databases(), plan=deliveries)
def test_the_cache_is_what_the_database_is_whatever_comes_again(
    redis: RedisServer, database: Database, plan: list[Delivery]
) -> None:
    redis.flush()
    sink = RedisSink(redis.url)
    try:
        for batch, restarts in deliver(database.changesets, plan):
            if restarts:
                sink.close()
                sink = RedisSink(redis.url)
            sink.apply(batch)
        assert sink.last("o") == len(database.changesets) - 1
    finally:
        sink.close()
    with Redis.from_url(redis.url) as client:
        assert rows_of(client) == {
            cache_key(f"shop.{name}", key): row
            for name, rows in database.tables.items()
            for key, row in rows.items()
        }


# Within the process of a publisher.


def send(*changes: RowChange) -> None:
    emit(changeset(0, *changes))


@pytest.fixture
def replicator(redis: RedisServer) -> Iterator[RedisCacheReplicator]:
    with RedisCacheReplicator(redis.url) as replicator:
        yield replicator


def test_a_decorated_function_makes_what_is_stored(
    replicator: RedisCacheReplicator, client: Redis
) -> None:
    @replicator.cache("users", "orders")
    def serialize(key: Any) -> str:
        return f"row {key}"

    send(
        change("write", 1, table="users"),
        change("update", 2, table="orders"),
        change("write", 3, table="users2"),
        RowChange(table="users", action="write", key={"a": 2, "b": "hello world"}),
    )
    assert replicator.flush(WAIT_S)
    assert client.get(cache_key("users", 1)) == b"row 1"
    assert client.get(cache_key("orders", 2)) == b"row 2"
    assert client.get(cache_key("users", 2, "hello world")) == b"row (2, 'hello world')"
    assert client.dbsize() == 3
    assert serialize(5) == "row 5"
    send(
        change("delete", 1, table="users"),
        change("update", 4, table="orders", old_key={"id": 2}),
    )
    assert replicator.flush(WAIT_S)
    assert client.get(cache_key("users", 1)) is None
    assert client.get(cache_key("orders", 2)) is None
    assert client.get(cache_key("orders", 4)) == b"row 4"


def test_a_truncated_table_has_no_rows_left(
    replicator: RedisCacheReplicator, client: Redis
) -> None:
    replicator.cache("users")(lambda key: f"row {key}")
    send(*(change("write", n, table="users") for n in range(3)))
    assert replicator.flush(WAIT_S)
    assert client.dbsize() == 3
    send(change("write", 4, table="users"), change("truncate", table="users"))
    assert replicator.flush(WAIT_S)
    assert client.dbsize() == 0


def test_multi_gives_several_keys_at_once(redis: RedisServer, client: Redis) -> None:
    given: list[list[int]] = []
    started, go_on = threading.Event(), threading.Event()
    with RedisCacheReplicator(redis.url) as replicator:

        @replicator.cache("users", multi=True)
        def serialize(keys: list[int]) -> list[bytes]:
            started.set()
            go_on.wait(WAIT_S)
            given.append(keys)
            return [b"%d" % key for key in keys]

        send(change("write", 1, table="users"))
        assert started.wait(WAIT_S)
        # A row that changes again while it waits is updated once.
        send(*(change("write", key, table="users") for key in (1, 2, 3, 2)))
        go_on.set()
        assert replicator.flush(WAIT_S)
    assert given == [[1], [1, 2, 3]]
    assert client.get(cache_key("users", 3)) == b"3"


@pytest.mark.parametrize(
    ("serialize", "options"),
    [
        (lambda key: 1 / 0, {}),
        (lambda key: {"no": "text"}, {}),
        (lambda key: None, {}),
        (lambda keys: [], {"multi": True}),
        (lambda keys: None, {"multi": True}),
    ],
)
def test_a_row_that_can_not_be_made_is_not_left_as_it_was(
    replicator: RedisCacheReplicator,
    client: Redis,
    serialize: Callable[[Any], Any],
    options: dict[str, bool],
) -> None:
    client.set(cache_key("users", 1), "old")
    replicator.cache("users", **options)(serialize)
    replicator.cache("orders")(lambda key: "fine")
    send(change("update", 1, table="users"), change("write", 1, table="orders"))
    assert replicator.flush(WAIT_S)
    assert client.get(cache_key("users", 1)) is None
    assert client.get(cache_key("orders", 1)) == b"fine"


def test_rows_wait_while_redis_is_away(redis: RedisServer, client: Redis) -> None:
    with RedisCacheReplicator(redis.url, timeout_s=0.05, ttl_s=1000) as replicator:
        replicator.cache("users")(lambda key: f"row {key}")
        client.client_pause(60_000, all=False)
        try:
            send(change("write", 1, table="users"))
            assert not replicator.flush(0.2)
        finally:
            client.client_unpause()
        assert replicator.flush(WAIT_S)
    assert client.get(cache_key("users", 1)) == b"row 1"
    assert wait_until(lambda: client.ttl(cache_key("users", 1)), WAIT_S)


def test_the_publisher_waits_when_too_many_rows_do(redis: RedisServer, client: Redis) -> None:
    started, go_on, sent = threading.Event(), threading.Event(), threading.Event()
    with RedisCacheReplicator(redis.url, queue_limit=1) as replicator:

        @replicator.cache("users")
        def serialize(key: int) -> str:
            started.set()
            go_on.wait(WAIT_S)
            return "row"

        def publish() -> None:
            send(*(change("write", key, table="users") for key in (1, 2, 3)))
            sent.set()

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            assert started.wait(WAIT_S)
            assert not sent.is_set()
        finally:
            go_on.set()
            thread.join()
        assert sent.is_set()
        assert replicator.flush(WAIT_S)
    assert client.dbsize() == 3


def test_closing_stores_what_waits_and_hears_no_more(redis: RedisServer, client: Redis) -> None:
    replicator = RedisCacheReplicator(redis.url)
    replicator.cache("users")(lambda key: f"row {key}")
    send(change("write", 1, table="users"))
    assert replicator.close()
    send(change("write", 2, table="users"))
    assert [key for key in client.keys("*")] == [cache_key("users", 1).encode()]
    with pytest.raises(ValueError, match="closed"):
        replicator.cache("users")(lambda key: None)


@pytest.mark.parametrize("arguments", [{"ttl_s": 0}, {"queue_limit": 0}])
def test_wrong_arguments_of_a_replicator_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RedisCacheReplicator("redis://localhost", **arguments)


def test_a_replicator_wants_names_of_tables(replicator: RedisCacheReplicator) -> None:
    with pytest.raises(ValueError, match="tables"):
        replicator.cache()
