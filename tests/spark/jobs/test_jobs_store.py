"""The jobs compact and rebuild: event stores, and replicas rebuilt from them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from stompkit._commands.pipeline.command import main
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.spark.eventstore import SparkEventStore
from stompkit.spark.jobs import PipelineError, PipelineSettings, load
from stompkit.spark.jobs.compact import compact
from stompkit.spark.jobs.rebuild import rebuild
from stompkit.spark.jobs.runs.job_lock import alone
from stompkit.spark.targets.sql import SqlTarget
from stompkit.spool import SpoolReader
from stompkit.spool.retention import retain
from tests.effort import effort
from tests.servers import SqlServer, mariadb, postgresql
from tests.spark.eventstore.test_eventstore import batch, child, kill, numbered, rows_of, said
from tests.spark.messages import fill, records_of

__all__ = ["mariadb", "postgresql"]

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
CREATE = (
    "CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, state VARCHAR(20), total INT)",
    "CREATE TABLE people (id INT NOT NULL PRIMARY KEY, name VARCHAR(20))",
)
#: Repeats the job compact until it is killed.
COMPACTING = """
import sys
from stompkit.spark.jobs import load
from stompkit.spark.jobs.compact import compact

while True:
    print(compact(load(sys.argv[1])).merged, flush=True)
"""

#: Rows by table and key.
Rows = dict[tuple[str, int], dict[str, Any]]


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def happened(seed: int, count: int) -> Iterator[tuple[Changeset, Rows]]:
    """Return changesets, one a second, and the contents after each."""
    chance = random.Random(seed)
    rows: Rows = {}
    for number in range(count):
        changes = [each for _ in range(chance.randint(1, 4)) for each in _change(chance, rows)]
        yield changeset(number, changes), {key: dict(row) for key, row in rows.items()}


def _change(chance: random.Random, rows: Rows) -> Iterator[RowChange]:
    table, column = chance.choice([("orders", "state"), ("people", "name")])
    there = [key for name, key in rows if name == table]
    free = next(key for key in iter(lambda: chance.randint(0, 60), -1) if key not in there)
    old = chance.choice(there) if there else None
    value = {column: chance.choice(["a", "größer", "", None])}
    draw = chance.random()
    if draw < 0.01:
        for key in there:
            del rows[table, key]
        yield RowChange(table=table, action="truncate", key={})
    elif old is None or draw < 0.4:
        rows[table, free] = {"id": free, **value}
        yield RowChange(table=table, action="write", key={"id": free}, after={"id": free, **value})
    elif draw < 0.6:
        rows[table, old].update(value)
        yield RowChange(table=table, action="update", key={"id": old}, after=value)
    elif draw < 0.75:
        rows[table, free] = {**rows.pop((table, old)), "id": free}
        yield RowChange(
            table=table,
            action="update",
            key={"id": free},
            old_key={"id": old},
            after={**rows[table, free]},
        )
    else:
        del rows[table, old]
        yield RowChange(table=table, action="delete", key={"id": old}, before={"id": old})


def changeset(number: int, changes: list[RowChange]) -> Changeset:
    # Some origins have clocks that are behind.
    origin = f"shop{number % 3}"
    source = Source(kind="k", position=f"{number}", transaction=f"t{number}")
    return make_changeset(
        origin, number // 3, changes, source, id=f"c{number}", timestamp=at(number)
    )


def described(
    folder: Path,
    *,
    history: bool = True,
    more: str = "",
    top: str = "",
    source: str = "",
) -> Path:
    """Return the file of a pipeline."""
    file = folder / "shop.toml"
    file.write_text(
        f"""name = "shop"
state-dir = "{folder}/state"
{top}
[source]
spool = "{folder}/spool"
{source}
[target]
url = "sqlite:///{folder}/copy.sqlite"
[events]
path = "{folder}/events"
history = {json.dumps(history)}
ttl = "forever"
{more}
"""
    )
    return file


def stored(folder: Path, sets: list[Changeset], *, first: int = 0) -> SparkEventStore:
    """Return the pipeline's event store after storing more changesets, as the job events does."""
    store = SparkEventStore(folder / "events", ttl=None, history=True, strict=True, sync=False)
    spool = SpoolReader(folder / "spool").id if (folder / "spool").exists() else ""
    for begin in range(0, len(sets), 40):
        rows = rows_of(sets[begin : begin + 40], first=first + begin)
        store.write_batches([batch(rows)], spool=spool, pipeline="shop")
    return store


def written(table: str, key: int, **columns: Any) -> RowChange:
    """Return the change that writes a row."""
    return RowChange(table=table, action="write", key={"id": key}, after={"id": key, **columns})


def fence_of(folder: Path) -> list[tuple[int]]:
    """Return the position for the job replicate in the single partition of the spool."""
    spool = SpoolReader(folder / "spool").id
    with closing(sqlite3.connect(folder / "copy.sqlite")) as connection:
        fence = "SELECT ordinal FROM stompkit_pipeline_fence WHERE partition_no = 0 AND spool = ?"
        return connection.execute(fence, [spool]).fetchall()


def emptied(url: str) -> str:
    """Return the URL of a database with empty tables."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in CREATE:
            connection.execute(text(statement))
    engine.dispose()
    return url


def content(url: str) -> Rows:
    """Return the contents of a database, without NULL values."""
    engine = create_engine(url)
    found: Rows = {}
    with engine.connect() as connection:
        for table in ("orders", "people"):
            for row in connection.execute(text(f"SELECT * FROM {table}")).mappings():
                found[table, row["id"]] = {k: v for k, v in row.items() if v is not None}
    engine.dispose()
    return found


def without_null(rows: Mapping[tuple[str, int], dict[str, Any]]) -> Rows:
    return {key: {k: v for k, v in row.items() if v is not None} for key, row in rows.items()}


def settings_of(folder: Path, **options: Any) -> PipelineSettings:
    return load(described(folder, **options))


# Rebuild.


@pytest.mark.parametrize("source", ["events", "spool"])
@pytest.mark.parametrize("seed", range(effort(2, 50)))
def test_a_rebuilt_replica_is_what_had_been_applied_at_that_time(
    tmp_path: Path, source: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.spark.jobs.rebuild._MOST_CHANGES", 70)
    monkeypatch.setattr("stompkit.spark.jobs.history._BATCH", 25)
    monkeypatch.setattr("stompkit.spark.eventstore.replay._MOST", 30)
    past = list(happened(seed, 200))
    sets = [each for each, _ in past]
    fill(tmp_path / "spool", list(records_of(sets)))
    settings = settings_of(tmp_path, history=source == "events")
    if source == "events":
        store = stored(tmp_path, sets)
        store.compact()
        # The same again, from a spool that was created again.
        store.write_batches([batch(rows_of(sets[:50]))], spool="another", pipeline="shop")
    for second in (0, random.Random(seed).randrange(20, 180), None):
        url = emptied(f"sqlite:///{tmp_path}/{second}.sqlite")
        done = rebuild(settings, at=None if second is None else at(second), url=url)
        expected = without_null(past[-1 if second is None else second][1])
        assert content(url) == expected
        tables = [table for table, _ in expected]
        assert {name: tables.count(name) for name in done.rows} == done.rows
        # The target of the pipeline is another one.
        assert not done.goes_on


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_a_server_s_tables_are_replaced(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    database: SqlServer = request.getfixturevalue(server)
    url = emptied(database.url(database.new_database()))
    past = list(happened(7, 120))
    stored(tmp_path, [each for each, _ in past])
    settings = settings_of(tmp_path)
    for second in (119, 60):
        rebuild(settings, at=at(second), url=url, replace=True)
        assert content(url) == without_null(past[second][1])


def test_a_rebuild_ends_at_an_ordinal_of_the_spool(tmp_path: Path) -> None:
    past = list(happened(3, 50))
    fill(tmp_path / "spool", list(records_of(each for each, _ in past)))
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    done = rebuild(settings_of(tmp_path), until_ordinal=30)
    assert content(url) == without_null(past[30][1])
    assert done.goes_on
    assert fence_of(tmp_path) == [(30,)]


def test_a_rebuild_from_a_spool_reads_changesets_in_the_order_of_their_origin(
    tmp_path: Path,
) -> None:
    """One of two brokers was away: its messages are in the spool behind later ones."""
    source = Source(kind="k")
    sets = [
        make_changeset(
            "shop", number, [written("orders", 1, total=number)], source, id=f"c{number}"
        )
        for number in range(1, 7)
    ]
    one, two, three, four, five, six = records_of(sets)
    repeated = two._replace(event_id="", message_id="")
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    fill(tmp_path / "spool", [one, four, five], [two, three, repeated])
    for until, total in ((0, 1), (1, 2), (3, 4), (None, 5)):
        rebuild(settings_of(tmp_path, history=False), until_ordinal=until, replace=True)
        assert content(url) == {("orders", 1): {"id": 1, "total": total}}
        assert fence_of(tmp_path) == [(5 if until is None else until,)]
    fill(tmp_path / "spool", [six._replace(headers=_numbered(six.headers, 7))])
    with pytest.raises(PipelineError, match=r"changeset 6 of shop is missing .*set the option"):
        rebuild(settings_of(tmp_path, history=False), replace=True)
    assert fence_of(tmp_path) == [(5,)]
    rebuild(settings_of(tmp_path, history=False, source='gap = "skip"'), replace=True)
    assert content(url) == {("orders", 1): {"id": 1, "total": 6}}


def _numbered(headers: tuple[tuple[str, str], ...], sequence: int) -> tuple[tuple[str, str], ...]:
    return tuple({**dict(headers), "stompkit-sequence": str(sequence)}.items())


def test_a_table_with_rows_is_refused_and_left_alone(tmp_path: Path) -> None:
    past = list(happened(3, 50))
    stored(tmp_path, [each for each, _ in past])
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as connection, connection:
        connection.execute("INSERT INTO people VALUES (99, 'own')")
    with pytest.raises(PipelineError, match=r"the table people of .* --replace"):
        rebuild(settings_of(tmp_path))
    assert content(url) == {("people", 99): {"id": 99, "name": "own"}}
    rebuild(settings_of(tmp_path), replace=True)
    assert content(url) == without_null(past[-1][1])


def test_what_a_target_refuses_changes_nothing(tmp_path: Path) -> None:
    past = list(happened(3, 50))
    bad = RowChange(
        table="orders", action="write", key={"id": 500}, after={"id": 500, "total": "none"}
    )
    stored(tmp_path, [*(each for each, _ in past), changeset(50, [bad])])
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    rebuild(settings_of(tmp_path), at=at(20))
    with pytest.raises(PipelineError, match=r"orders.*500.*whole number"):
        rebuild(settings_of(tmp_path), replace=True)
    assert content(url) == without_null(past[20][1])


@pytest.mark.parametrize("source", ["events", "spool"])
def test_a_table_whose_first_change_is_later_is_empty(tmp_path: Path, source: str) -> None:
    sets = [changeset(0, [written("orders", 1)]), changeset(10, [written("people", 1)])]
    fill(tmp_path / "spool", list(records_of(sets)))
    stored(tmp_path, sets)
    settings = settings_of(tmp_path, history=source == "events")
    url = emptied(f"sqlite:///{tmp_path}/then.sqlite")
    with closing(sqlite3.connect(tmp_path / "then.sqlite")) as connection, connection:
        connection.execute("INSERT INTO people VALUES (99, 'own')")
    with pytest.raises(PipelineError, match=r"the table people of .* has rows"):
        rebuild(settings, at=at(5), url=url)
    done = rebuild(settings, at=at(5), url=url, replace=True)
    assert content(url) == {("orders", 1): {"id": 1}}
    assert (done.changes, done.rows) == (1, {"orders": 1, "people": 0})


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_tables_are_emptied_before_those_that_they_refer_to(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    database: SqlServer = request.getfixturevalue(server)
    url = emptied(database.url(database.new_database()))
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE people ADD COLUMN owns INT"))
        connection.execute(text("ALTER TABLE people ADD FOREIGN KEY (owns) REFERENCES orders (id)"))
    engine.dispose()
    stored(
        tmp_path,
        [changeset(0, [written("orders", 1)]), changeset(1, [written("people", 2, owns=1)])],
    )
    settings = settings_of(tmp_path)
    for _ in range(2):
        assert rebuild(settings, url=url, replace=True).rows == {"orders": 1, "people": 1}


def test_what_lacks_a_part_takes_no_other_changes_with_it(tmp_path: Path) -> None:
    large = changeset(0, [written("orders", 100 + number) for number in range(20)])
    parts = list(records_of([large], max_body_bytes=1000))
    assert len(parts) > 1
    rest = records_of(changeset(number, [written("orders", number)]) for number in range(1, 7))
    fill(tmp_path / "spool", [*parts[1:], *rest])
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    more = '[apply]\non-problem = "dead-letter"'
    with pytest.raises(PipelineError, match=r"changeset 0 of shop0, of which \d of \d parts are"):
        rebuild(settings_of(tmp_path, history=False, more=more))
    done = rebuild(settings_of(tmp_path, history=False, more=more, source='gap = "skip"'))
    assert content(url) == {("orders", number): {"id": number} for number in range(1, 7)}
    assert (done.rows, done.dead_letters) == ({"orders": 6}, 0)


def test_values_that_a_target_can_not_hold_are_dead_letters(tmp_path: Path) -> None:
    def update(**columns: Any) -> RowChange:
        return RowChange(table="orders", action="update", key={"id": 2}, after=columns)

    changes = [
        written("orders", 1, total="none"),
        written("orders", 2, total=1),
        update(total="none"),
        update(state="paid"),
        written("orders", 3, total=3),
    ]
    stored(tmp_path, [changeset(number, [each]) for number, each in enumerate(changes)])
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    done = rebuild(settings_of(tmp_path, more='[apply]\non-problem = "dead-letter"'))
    assert content(url) == {
        ("orders", 2): {"id": 2, "total": 1, "state": "paid"},
        ("orders", 3): {"id": 3, "total": 3},
    }
    assert done.dead_letters == 2
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as connection:
        letters = "SELECT ordinal FROM stompkit_pipeline_dead_letters ORDER BY ordinal"
        assert connection.execute(letters).fetchall() == [(1,), (3,)]


def test_what_is_stored_meanwhile_is_beyond_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = list(happened(3, 60))
    sets = [each for each, _ in past]
    fill(tmp_path / "spool", list(records_of(sets)))
    stored(tmp_path, sets[:20])
    prepare = SqlTarget.prepare

    def prepare_late(target: SqlTarget) -> None:
        prepare(target)
        stored(tmp_path, sets[20:], first=20).compact()

    monkeypatch.setattr(SqlTarget, "prepare", prepare_late)
    url = emptied(f"sqlite:///{tmp_path}/copy.sqlite")
    assert rebuild(settings_of(tmp_path)).goes_on
    assert content(url) == without_null(past[19][1])
    assert fence_of(tmp_path) == [(19,)]


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_the_job_replicate_asks_the_fence_after_a_rebuild(tmp_path: Path, place: str) -> None:
    past = list(happened(3, 50))
    fill(tmp_path / "spool", list(records_of(each for each, _ in past)))
    stored(tmp_path, [each for each, _ in past])
    settings = settings_of(tmp_path, top=f'checkpoint = "{tmp_path / place}"' if place else "")
    checkpoint = Path(settings.checkpoint_of("replicate"))
    (checkpoint / "offsets").mkdir(parents=True)
    url = emptied(f"sqlite:///{tmp_path}/other.sqlite")
    assert not rebuild(settings, url=url).goes_on
    assert checkpoint.exists()
    emptied(settings.target_url())
    assert rebuild(settings, url=settings.target_url()).goes_on
    assert not checkpoint.exists()
    (checkpoint / "offsets").mkdir(parents=True)
    assert not rebuild(settings, at=at(20), replace=True).goes_on
    assert {each.name for each in checkpoint.parent.iterdir()} <= {"lock", "tables.json"}
    assert fence_of(tmp_path) == []


def test_the_target_of_a_job_that_runs_is_left_alone(tmp_path: Path) -> None:
    stored(tmp_path, [each for each, _ in happened(3, 50)])
    settings = settings_of(tmp_path)
    url = emptied(settings.target_url())
    with alone(settings, "replicate", "no"):
        with pytest.raises(PipelineError, match=r"replicate .* is running already; end it"):
            rebuild(settings)
        assert rebuild(settings, url=emptied(f"sqlite:///{tmp_path}/other.sqlite")).rows
    assert content(url) == {}
    assert rebuild(settings).rows


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"top": 'checkpoint = "s3://state/shop"'}, "remove s3://state/shop/replicate"),
        ({"source": 'startingOffsets = "latest"'}, "startingOffsets"),
        ({"source": 'startingTimestamp = "2026-11-20T10:00:00Z"'}, "startingTimestamp"),
    ],
)
def test_a_target_is_left_alone_whose_job_would_go_on_elsewhere(
    tmp_path: Path, more: dict[str, str], told: str
) -> None:
    stored(tmp_path, [each for each, _ in happened(3, 50)])
    settings = settings_of(tmp_path, **more)
    url = emptied(settings.target_url())
    with pytest.raises(PipelineError, match=told):
        rebuild(settings)
    assert content(url) == {}
    assert rebuild(settings, url=emptied(f"sqlite:///{tmp_path}/other.sqlite")).rows


def test_changes_that_neither_the_past_nor_the_spool_has_are_missed(tmp_path: Path) -> None:
    past = list(happened(3, 60))
    sets = [each for each, _ in past]
    fill(tmp_path / "spool", *(list(records_of([each])) for each in sets), segment_bytes=1 << 10)
    retain(tmp_path / "spool", max_bytes=1)
    stored(tmp_path, sets[:10])
    settings = settings_of(tmp_path)
    url = emptied(settings.target_url())
    with pytest.raises(PipelineError, match=r"messages 10 to \d+ of partition 0 are missing"):
        rebuild(settings)
    stored(tmp_path, sets[10:], first=10)
    with pytest.raises(PipelineError, match=r"messages 0 to .* are missing between"):
        rebuild(settings, at=at(20))
    assert content(url) == {}
    assert rebuild(settings, at=at(20), url=emptied(f"sqlite:///{tmp_path}/other.sqlite")).rows
    assert rebuild(settings).goes_on
    assert content(url) == without_null(past[-1][1])


def test_a_past_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    sets = [each for each, _ in happened(3, 60)]
    settings = settings_of(tmp_path)
    with pytest.raises(PipelineError, match="there is no event store"):
        rebuild(settings)
    store = stored(tmp_path, sets)
    store.forget_history(at(30).timestamp())
    with pytest.raises(PipelineError, match="has lost the oldest"):
        rebuild(settings)
    groups = [list(records_of([each])) for each in sets]
    fill(tmp_path / "spool", *groups, segment_bytes=1 << 10)
    retain(tmp_path / "spool", max_bytes=1)
    with pytest.raises(PipelineError, match="history = true"):
        rebuild(settings_of(tmp_path, history=False))


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(False, True, id="history later"),
        pytest.param(True, False, id="history only before"),
    ],
)
def test_a_history_with_gaps_is_refused(*, first: bool, then: bool, tmp_path: Path) -> None:
    sets = [each for each, _ in happened(3, 60)]
    fill(tmp_path / "spool", list(records_of(sets)))
    spool = SpoolReader(tmp_path / "spool").id
    for history, begin in ((first, 0), (then, 30)):
        store = SparkEventStore(tmp_path / "events", ttl=None, history=history, sync=False)
        rows = rows_of(sets[begin : begin + 30], first=begin)
        store.write_batches([batch(rows)], spool=spool, pipeline="shop")
    with pytest.raises(PipelineError, match="no complete history"):
        rebuild(settings_of(tmp_path))
    assert rebuild(settings_of(tmp_path, history=False), create=True).goes_on


def test_a_history_is_refused_for_tables_that_it_has_not_had_from_the_first_message(
    tmp_path: Path,
) -> None:
    sets = [each for each, _ in happened(3, 60)]
    store = SparkEventStore(tmp_path / "events", ttl=None, history=True, strict=True, sync=False)
    for begin, tables in ((0, ["people"]), (30, ["people", "orders"])):
        rows = rows_of(sets[begin : begin + 30], first=begin)
        store.write_batches([batch(rows)], spool="", pipeline="shop", tables=tables)
    for more in ("", '[apply]\ntables = ["people", "orders"]'):
        with pytest.raises(PipelineError, match="these tables only: people"):
            rebuild(settings_of(tmp_path, more=more))
    done = rebuild(settings_of(tmp_path, more='[apply]\ntables = ["people"]'), create=True)
    assert list(done.rows) == ["people"]


def test_the_command_makes_tables_and_tells_their_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    past = list(happened(3, 50))
    stored(tmp_path, [each for each, _ in past])
    file = described(tmp_path)
    url = f"sqlite:///{tmp_path}/then.sqlite"
    command = ["run", "rebuild", "--config", str(file), "--target", url, "--at", at(40).isoformat()]
    assert main(command) == 1
    assert "--create" in capsys.readouterr().err
    assert main([*command, "--create"]) == 0
    count = sum(table == "people" for table, _ in past[40][1])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["people", f"{count}"] in lines
    assert content(url) == without_null(past[40][1])


# Compact.


def test_compaction_tells_what_it_does_and_removes_what_the_file_says(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    past = list(happened(5, 30))
    sets = [
        make_changeset("shop", number, each.changes, each.source, id=each.id, timestamp=now - age)
        for number, (each, age) in enumerate(
            (each, timedelta(days=40 - number)) for number, (each, _) in enumerate(past)
        )
    ]
    for first in range(0, 30, 5):
        store = stored(tmp_path, sets[first : first + 5], first=first)
    done = compact(settings_of(tmp_path))
    assert done.merged == done.before.files > 10
    assert done.made == done.after.files < 10
    assert done.after.octets < done.before.octets
    assert [each.id for _, each in store.events()] == [each.id for each in sets]
    # By age: older than 20.5 days.
    compact(settings_of(tmp_path, more='keep-history = "492h"'))
    assert [each.id for _, each in store.events()] == [each.id for each in sets[20:]]
    with pytest.raises(PipelineError, match="has lost"):
        rebuild(settings_of(tmp_path))


def test_what_is_past_its_life_is_removed(tmp_path: Path) -> None:
    sets = [each for each, _ in happened(5, 30)]
    stored(tmp_path, sets[:20])
    early = SparkEventStore(tmp_path / "events", ttl=0.001, history=True, strict=True, sync=False)
    early.write_batches([batch(rows_of(sets[20:], first=20))], pipeline="other")
    done = compact(settings_of(tmp_path))
    assert done.expired >= 10
    kept = [each.id for _, each in early.events()]
    assert kept == [each.id for each in sets[:20]]


def test_equal_changesets_are_found_in_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompkit.spark.eventstore.merge._FILE_ROWS", 40)
    sets = [each for each, _ in happened(5, 150)]
    store = stored(tmp_path, sets)
    store.write_batches([batch(rows_of(sets))], pipeline="again")
    compact(settings_of(tmp_path))
    assert [each.id for _, each in store.events()] == [each.id for each in sets]


def test_a_compaction_that_is_killed_loses_nothing_while_others_add(tmp_path: Path) -> None:
    file = described(tmp_path)
    store = SparkEventStore(tmp_path / "events", ttl=None, history=True, strict=True, sync=False)
    chance = random.Random(8)
    numbers: list[int] = []

    def add(count: int) -> None:
        for number in range(len(numbers), len(numbers) + count):
            store.add("orders_update", number, ts=number)
            store.append(numbered("x", number), ts=number)
            numbers.append(number)

    add(5)
    merged = 0
    for _ in range(effort(1, 100)):
        compacting = child(COMPACTING, file)
        for _ in range(chance.randint(3, 6)):
            merged += said(compacting)
            add(chance.randint(2, 10))
        kill(compacting)
        assert [each.id for _, each in store.events()] == [f"x{number}" for number in numbers]
        assert store.replay("orders_update") == numbers
    assert merged > 0
    compact(load(file))
    assert [each.id for _, each in store.events()] == [f"x{number}" for number in numbers]
    assert store.replay("orders_update") == numbers


@pytest.mark.parametrize("job", ["compact", "rebuild", "verify"])
def test_each_job_explains_itself(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", job, "--help"])
    assert ended.value.code == 0
    assert f"stompkit pipeline run {job} --config shop.toml" in capsys.readouterr().out


def test_there_has_to_be_a_store(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="pipeline run events"):
        compact(settings_of(tmp_path))
