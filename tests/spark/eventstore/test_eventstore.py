"""An event store in a folder: several processes, crashes, repeated batches."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stompkit.replication.model.events import Changeset, RowChange, Source, decode, make_changeset
from stompkit.replication.model.values import row_to_json
from stompkit.spark.eventstore import BrokenStoreError, SparkEventStore
from stompkit.spark.stream.columns import CHANGES
from stompkit.testing.launching.polling import wait_until

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)

#: Adds keys and changesets with its name until it is killed, and prints those that are stored.
ADDING = """
import sys
from stompkit.spark.eventstore import SparkEventStore
from tests.spark.eventstore.test_eventstore import numbered

store = SparkEventStore(sys.argv[1], strict=True, history=True, sync=False)
name, number = sys.argv[2], int(sys.argv[3])
while True:
    store.add_many([("a_write", f"{name}{number}"), ("b_write", f"{name}{number}")], ts=number)
    store.append(numbered(name, number), ts=number)
    print(number, flush=True)
    number += 1
"""
#: Merges files until it is killed.
COMPACTING = """
import sys
from stompkit.spark.eventstore import SparkEventStore

store = SparkEventStore(sys.argv[1], strict=True, sync=False)
while True:
    print(store.compact().merged, flush=True)
"""
#: Runs one action in a child process that is killed at the call of a function of ``os`` with a
#: number. It repeats that for the given numbers, and prints if it was killed.
DYING = """
import os, signal, sys
from stompkit.spark.eventstore import SparkEventStore

path, name, what = sys.argv[1:]
for line in sys.stdin:
    child = os.fork()
    if not child:
        calls, real = int(line), getattr(os, name)

        def dying(*arguments, **options):
            global calls
            calls -= 1
            if calls < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(os, name, dying)
        store = SparkEventStore(path, strict=True, history=True)
        if what == "add":
            store.add_many([("a_write", "new"), ("b_write", "new")], ts=1000)
        else:
            store.compact()
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def numbered(name: str, number: int, *, changes: int = 1) -> Changeset:
    """Return a changeset with updates of the rows ``name`` and then ``name+1``..."""
    rows = [f"{name}{number}", *(f"{name}{number}+{each}" for each in range(1, changes))]
    return make_changeset(
        "shop",
        number,
        [
            RowChange(
                schema="public",
                table="orders",
                action="update",
                key={"id": row},
                before={"state": "new"},
                after={"state": "größer"},
            )
            for row in rows
        ],
        Source(kind="k", position=f"{number}", transaction=f"t{number}"),
        id=f"{name}{number}",
        timestamp=datetime.fromtimestamp(BEGIN.timestamp() + number, UTC),
    )


def child(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> list[int]:
    """Kill a process; return the numbers that it has printed and that are still unread."""
    process.send_signal(signal.SIGKILL)
    with process:
        assert process.stdout is not None
        return [int(line) for line in process.stdout if line.endswith("\n")]


def said(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def rows_of(sets: Sequence[Changeset], *, first: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a batch, of messages from the ordinal ``first`` on."""
    return [
        {
            **dict.fromkeys(CHANGES.arrow.names),
            "_partition": 0,
            "_ordinal": ordinal,
            "_received": BEGIN,
            "changeset_id": each.id,
            "origin": each.origin,
            "sequence": each.sequence,
            "change": number,
            "changes": len(each.changes),
            "operation": change.action,
            "schema": change.schema,
            "table": change.table,
            "key": text(change.key),
            "before": text(change.before),
            "after": text(change.after),
            "old_key": text(change.old_key),
            "source_kind": each.source.kind,
            "source_position": each.source.position,
            "transaction": each.source.transaction,
            "is_snapshot": each.source.is_snapshot,
            "committed": each.timestamp,
        }
        for ordinal, each in enumerate(sets, first)
        for number, change in enumerate(each.changes)
    ]


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), CHANGES.arrow)


def text(row: dict[str, Any] | None) -> str | None:
    return None if row is None else msgspec.json.encode(row_to_json(row)).decode()


def made(path: Path, **options: Any) -> SparkEventStore:
    options = {"strict": True, "history": True, "sync": False, **options}
    return SparkEventStore(path / "store", **options)


def files(path: Path) -> list[Path]:
    return [each for each in (path / "store").rglob("*") if each.suffix in (".parquet", ".tmp")]


# Concurrency.


@pytest.mark.matrix
def test_readers_see_all_that_is_added_while_others_add_and_merge(tmp_path: Path) -> None:
    store = made(tmp_path)
    adding = {name: child(ADDING, tmp_path / "store", name, 0) for name in "xyz"}
    merging = child(COMPACTING, tmp_path / "store")
    reached = dict.fromkeys(adding, -1)
    try:
        while min(reached.values()) < 20:
            for name, process in adding.items():
                reached[name] = said(process)
            known = {f"{name}{n}" for name, last in reached.items() for n in range(last + 1)}
            assert known <= set(store.replay("a_write"))
            assert known <= set(store.replay("b_write"))
            assert store.query("a_write", f"x{reached['x']}") == reached["x"]
            found = [(ts, each.id) for ts, each in store.events()]
            assert known <= {id for _, id in found}
            assert len({id for _, id in found}) == len(found)
            assert [ts for ts, _ in found] == sorted(ts for ts, _ in found)
        assert sum(kill(merging)) > 0
    finally:
        merging.kill()
        merging.wait()
        for process in adding.values():
            kill(process)
    before = sorted(store.replay("a_write", with_ts=True))
    store.compact()
    assert sorted(store.replay("a_write", with_ts=True)) == before


@pytest.mark.matrix
def test_what_is_said_to_be_stored_outlives_any_kill(tmp_path: Path) -> None:
    chance = random.Random(8)
    start = 0
    for _ in range(3):
        adding = child(ADDING, tmp_path / "store", "x", start)
        merging = child(COMPACTING, tmp_path / "store")
        for _ in range(chance.randint(1, 30)):
            start = said(adding) + 1
        kill(merging)
        start = max([start, *(number + 1 for number in kill(adding))])
    store = made(tmp_path)
    keys = [f"x{number}" for number in range(start)]
    for event in ("a_write", "b_write"):
        assert store.replay(event)[:start] == keys
        # The last one may be stored though its confirmation was lost.
        assert store.replay(event)[start:] in ([], [f"x{start}"])
    assert [each.id for _, each in store.events()][:start] == keys


def deaths(path: Path, name: str, what: str) -> Iterator[bool]:
    """Kill an action at each call of a function until it succeeds; yield True for success."""
    with child(DYING, path / "store", name, what) as process:
        assert process.stdin is not None
        for calls in count():
            process.stdin.write(f"{calls}\n")
            process.stdin.flush()
            status = said(process)
            assert status in (0, signal.SIGKILL)
            yield status == 0
            if status == 0:
                process.stdin.close()
                return


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_process_that_dies_in_an_addition_adds_all_or_nothing(tmp_path: Path, name: str) -> None:
    store = made(tmp_path)
    store.add_many([("a_write", "old"), ("b_write", "old")], ts=1)
    died = 0
    for is_done in deaths(tmp_path, name, "add"):
        found = [store.replay(event) for event in ("a_write", "b_write")]
        before, after = [["old"]] * 2, [["old", "new"]] * 2
        assert found in ([after] if is_done else [before, after])
        died += not is_done
    assert died >= 3


@pytest.mark.matrix
def test_a_process_that_dies_in_a_compaction_changes_nothing(tmp_path: Path) -> None:
    store = made(tmp_path)
    for number in range(3):
        store.add_many([("a_write", number), ("b_write", 7)], ts=number)
        store.append(numbered("x", number), ts=number)

    def content() -> list[Any]:
        keys = [store.replay(event, with_ts=True) for event in ("a_write", "b_write")]
        return [*keys, list(store.events())]

    before = content()
    outcomes = [content() == before for _ in deaths(tmp_path, "replace", "compact")]
    assert all(outcomes)
    # Completed steps before a kill are not repeated: there are three kinds of files.
    assert len(outcomes) > 3


def test_what_is_left_behind_is_removed_when_it_is_old(tmp_path: Path) -> None:
    store = made(tmp_path, history=False)
    next(deaths(tmp_path, "replace", "add"))
    left = files(tmp_path)
    assert len(left) == 1
    store.compact()
    assert files(tmp_path) == left
    for each in left:
        os.utime(each, (time.time() - 700,) * 2)
    store.compact()
    assert files(tmp_path) == []


# Merging.


def test_files_that_were_merged_stay_for_their_readers_for_a_while(tmp_path: Path) -> None:
    store = made(tmp_path, history=False)
    for number in range(5):
        store.add("a_write", number)
    before = set(files(tmp_path))
    assert store.compact() == (5, 1)
    assert len(set(files(tmp_path)) - before) == 1
    assert before < set(files(tmp_path))
    made(tmp_path, keep_s=0).compact()
    assert set(files(tmp_path)).isdisjoint(before)
    assert store.replay("a_write") == [0, 1, 2, 3, 4]


def test_a_reader_in_the_middle_of_a_history_sees_each_changeset_once(tmp_path: Path) -> None:
    store, other = made(tmp_path), made(tmp_path, keep_s=0)
    for number in range(20):
        store.write_batches(
            [batch(rows_of([numbered("x", 50 * number + n) for n in range(50)]))],
            pipeline=f"{number}",
        )
    reading = store.events()
    found = [next(reading)[1].sequence for _ in range(250)]
    other.compact()
    other.compact()
    found += [each.sequence for _, each in reading]
    assert found == list(range(1000))


def test_small_files_are_merged_by_who_adds_them(tmp_path: Path) -> None:
    store = made(tmp_path, keep_s=0)
    for number in range(200):
        store.add("a_write", number, ts=number)
        store.append(numbered("x", number), ts=number)
    assert len(files(tmp_path)) < 100
    assert store.replay("a_write") == list(range(200))
    assert [each.sequence for _, each in store.events()] == list(range(200))


def test_files_are_merged_into_several_that_overlap_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.spark.eventstore.merge._FILE_ROWS", 500)
    store = made(tmp_path, keep_s=0)
    draw = random.Random(8)
    times = {}
    for ts in range(40):
        keys = draw.sample(range(3000), 200)
        times.update(dict.fromkeys(keys, ts))
        store.add_many([("a_write", key) for key in keys], ts=ts)
        store.write_batches(
            [batch(rows_of([numbered("x", 60 * ts + n) for n in range(60)], first=60 * ts))]
        )
    merged = store.compact()
    assert merged.made > 8
    assert dict(store.replay("a_write", with_ts=True)) == times
    assert all(store.query("a_write", key) == times[key] for key in list(times)[:100])
    assert [each.sequence for _, each in store.events()] == list(range(2400))
    # A small group of files does not cause a rewrite of the large one.
    store.add("a_write", "little", ts=0)
    assert store.compact() == (1, 1)
    assert store.clear("a_write") == len(times) + 1
    assert store.replay("a_write") == []


def test_a_time_with_a_short_life_gives_way_to_one_with_a_longer(tmp_path: Path) -> None:
    store = made(tmp_path)
    store.add("a_write", 1, ts=5, ttl=1000)
    store.add("a_write", 1, ts=6, ttl=0.5)
    store.append(numbered("x", 1), ts=7)
    made(tmp_path, ttl=5).append(numbered("x", 2), ts=8)
    store.compact()
    assert wait_until(lambda: store.query("a_write", 1) == 5, 20)
    assert wait_until(lambda: len(list(store.events())) == 1, 20)
    # The key is not complete, and one changeset is.
    assert store.prune() == 1
    assert store.query("a_write", 1) == 5


def test_a_changeset_that_comes_again_is_replayed_once_though_it_lives_longer_then(
    tmp_path: Path,
) -> None:
    store = made(tmp_path, ttl=1000)
    store.append(numbered("x", 1), ts=1)
    store.append(numbered("x", 2), ts=2)
    made(tmp_path, ttl=2000).append(numbered("x", 1), ts=1)
    for _ in range(2):
        assert [decode(body).sequence for body in store.changesets()] == [1, 2]
        store.compact()


def test_small_files_are_merged_whatever_is_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.spark.eventstore.merge._SMALL_OCTETS", 20_000)
    store = made(tmp_path, history=False)
    store.add("a_write", "x" * 30_000, ts=0)
    for key in range(200):
        store.add("a_write", key, ts=0)
    assert store.stored().files < 100
    assert len(store.replay("a_write")) == 201


def test_a_store_whose_folder_is_damaged_says_what_is_wrong(tmp_path: Path) -> None:
    store = made(tmp_path, history=False)
    store.add("a_write", 1)
    (gone,) = files(tmp_path)
    gone.unlink()
    with pytest.raises(BrokenStoreError, match=gone.name):
        SparkEventStore(tmp_path / "store").replay("a_write")
    (tmp_path / "store/list.json").write_text("{")
    with pytest.raises(BrokenStoreError, match=r"list\.json"):
        store.replay("a_write")
    with pytest.raises(BrokenStoreError):
        store.add("a_write", 2)
    assert not made(tmp_path, strict=False).add("a_write", 2)
    (tmp_path / "file").touch()
    assert not SparkEventStore(tmp_path / "file/store").add("a_write", 2)


# Batches.


def test_batches_that_come_again_in_other_sizes_are_stored_once(tmp_path: Path) -> None:
    store = made(tmp_path)
    given = [numbered("x", number, changes=1 + number % 3) for number in range(60)]
    parts = [rows_of([each], first=ordinal) for ordinal, each in enumerate(given)]

    def stored(first: int, end: int) -> int:
        return store.write_batches([batch(list(chain(*parts[first:end])))], spool="s")

    assert stored(0, 10) == sum(map(len, parts[:10]))
    assert stored(0, 10) == 0
    assert stored(5, 25) == sum(map(len, parts[10:25]))
    assert stored(0, 20) == 0
    assert stored(20, 60) == sum(map(len, parts[25:]))
    assert [each for _, each in store.events()] == given
    assert [ts for ts, _ in store.events()] == [each.timestamp.timestamp() for each in given]
    keys = [change.key["id"] for each in given for change in each.changes]
    assert sorted(store.replay("orders_update")) == sorted(keys)
    assert store.query("orders_update", "x7") == BEGIN.timestamp() + 7
    # Another spool has separate ordinals.
    assert store.write_batches([batch(parts[0])], spool="t") == 1
    assert len(list(store.events())) == 60


def test_two_who_store_the_same_spool_store_it_once(tmp_path: Path) -> None:
    stores = [made(tmp_path) for _ in range(4)]
    given = [numbered("x", number) for number in range(30)]

    def run(store: SparkEventStore) -> int:
        done = 0
        for first in range(0, 30, 3):
            done += store.write_batches([batch(rows_of(given[first : first + 3], first=first))])
        return done

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, stores)) == 30
    assert [each for _, each in stores[0].events()] == given


def test_changes_give_the_events_that_signals_give(tmp_path: Path) -> None:
    store = made(tmp_path)
    changes = [
        RowChange(table="t", schema="s", action="write", key={"a": 1}, after={"a": 1}),
        RowChange(table="t", schema="s", action="read", key={"a": 2}, after={"a": 2}),
        RowChange(table="t", schema="s", action="update", key={"a": 3}, old_key={"a": 4}),
        RowChange(table="u", action="delete", key={"b": datetime(2026, 1, 1), "a": b"\xff"}),
        RowChange(table="u", action="truncate", key={}),
        RowChange(table="u", action="update", key={}),
    ]
    whole = make_changeset("o", 1, changes, Source(kind="k", is_snapshot=True), timestamp=BEGIN)
    bad = {**dict.fromkeys(CHANGES.arrow.names), "_partition": 0, "_ordinal": 1, "change": 0}
    bad |= {"operation": "unreadable", "problem": "this is no changeset"}
    assert store.write_batches([batch([*rows_of([whole]), bad])]) == 7
    assert store.replay("t_write") == [1, 2, 3]
    assert store.replay("t_delete") == [4]
    assert store.replay("u_delete") == [(datetime(2026, 1, 1), b"\xff")]
    assert store.replay("u_update") == []
    assert store.replay("s.t_write") == []
    assert [each for _, each in store.events()] == [whole]
    # An unreadable changeset is not repeated either.
    assert store.write_batches([batch([bad])]) == 0


def test_only_the_tables_of_interest_are_stored(tmp_path: Path) -> None:
    store = made(tmp_path, namespace=lambda ts: f"n{int(ts) % 2}")
    changes = [
        RowChange(table="t", schema="s", action="write", key={"a": 1}),
        RowChange(table="u", schema="s", action="write", key={"a": 2}),
        RowChange(table="v", schema="s", action="write", key={"a": 3}),
    ]
    sets = [
        make_changeset(
            "o",
            number,
            changes[number:],
            Source(kind="k"),
            timestamp=datetime.fromtimestamp(number, UTC),
        )
        for number in range(3)
    ]
    store.write_batches([batch(rows_of(sets))], tables=["s.t", "u"])
    assert store.replay("s.t_write") == [1]
    assert store.replay("t_write") == []
    assert store.replay("u_write", with_ts=True) == [(2, 1.0)]
    assert store.query("u_write", 2, ts=0) == 0
    assert store.replay("v_write") == []
    assert [[row.table for row in each.changes] for _, each in store.events()] == [
        ["t", "u"],
        ["u"],
    ]


def test_spark_stores_batches_and_gives_frames_of_the_same(
    tmp_path: Path, spark: SparkSession
) -> None:
    store = made(tmp_path, namespace="n [x] %/ä{*}")
    given = [numbered("x", number, changes=3) for number in range(200)]
    table = pa.Table.from_batches([batch(rows_of(given))])
    first = spark.createDataFrame(table.slice(0, 300))
    whole = spark.createDataFrame(table)
    assert store.write_changes(first.repartitionByRange(2, "_ordinal"), 0) == 300
    # Tasks with some changes of a changeset each; and ids that start again.
    assert store.write_changes(whole.repartition(3, "change"), 0) == 300
    assert store.write_changes(whole, 1) == 0
    assert store.write_changes(whole.limit(0), 2) == 0
    assert [each for _, each in store.events()] == given
    store.append(given[0], ts=1)
    store.add("orders_update", "x0", ts=1)
    store.add("other", ("a", 1), ts=2)
    made(tmp_path, ttl=0.1).add("orders_update", "elsewhere")
    assert wait_until(lambda: store.query("orders_update", "elsewhere") is None, 20)

    def check() -> None:
        rows = store.frame(spark).collect()
        for event in ("orders_update", "other"):
            found = [(decoded(row.key), row.ts) for row in rows if row.event == event]
            assert sorted(found) == sorted(store.replay(event, with_ts=True))
        assert len(rows) == 601
        assert [row.event for row in store.frame(spark, "other").collect()] == ["other"]
        bodies = store.history_frame(spark).orderBy("ts", "number").collect()
        assert [decode(row.body.encode()) for row in bodies] == given

    check()
    store.compact()
    check()
    assert made(tmp_path, namespace="none").frame(spark).collect() == []
    assert made(tmp_path, namespace="none").history_frame(spark).collect() == []


def test_tasks_that_do_not_see_the_folder_store_the_same_through_the_driver(
    tmp_path: Path, spark: SparkSession
) -> None:
    given = [numbered("x", number, changes=3) for number in range(50)]
    frame = spark.createDataFrame(pa.Table.from_batches([batch(rows_of(given))]))
    frame = frame.repartitionByRange(3, "_ordinal").sortWithinPartitions("_ordinal", "change")
    stores = [made(tmp_path / name) for name in ("shared", "local")]
    for store, through_driver in zip(stores, (False, True), strict=True):
        for _ in range(2):
            rows = store.write_changes(frame, 0, spool="s", through_driver=through_driver)
        assert rows == 0
    shared, local = (
        (
            [each for _, each in store.events()],
            sorted(store.replay("orders_update", with_ts=True)),
            store.fence(spool="s"),
        )
        for store in stores
    )
    assert shared == local
    assert shared[0] == given


def decoded(key: str) -> Any:
    value = msgspec.json.decode(key)
    return tuple(value) if isinstance(value, list) else value
