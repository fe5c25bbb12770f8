"""The job verify: it reports every difference, and no false ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool

from stompkit._commands.pipeline.command import main
from stompkit._commands.replication.replicate import main as replicate
from stompkit.replication.model.events import RowChange, Source, make_changeset
from stompkit.replication.sinks.sql import SqlSink
from stompkit.spark.jobs import PipelineError, load
from stompkit.spark.jobs.verify import Verdict, verify
from tests.effort import effort
from tests.servers import SqlServer, mariadb, postgresql

__all__ = ["mariadb", "postgresql"]

CREATE = (
    "CREATE TABLE orders (id INT NOT NULL PRIMARY KEY, state VARCHAR(20), total NUMERIC(12, 4))"
)
#: The types of PostgreSQL, and those of SQLite for them.
WIDE = {
    "id": ("UUID PRIMARY KEY", "VARCHAR(36) PRIMARY KEY"),
    "small": ("BOOLEAN", "INTEGER"),
    "amount": ("NUMERIC(40, 20)", "TEXT"),
    "price": ("NUMERIC(10, 2)", "NUMERIC(10, 2)"),
    "ratio": ("DOUBLE PRECISION", "REAL"),
    "name": ("TEXT", "TEXT"),
    "at": ("TIMESTAMPTZ", "DATETIME"),
    "naive": ("TIMESTAMP", "DATETIME"),
    "day": ("DATE", "DATE"),
    "clock": ("TIME", "TIME"),
    "lasted": ("INTERVAL", "BIGINT"),
    "body": ("BYTEA", "BLOB"),
    "doc": ("JSONB", "JSON"),
    "list": ("INT[]", "TEXT"),
}

Differences = list[tuple[str, Any, list[str]]]


class Shop:
    """Two databases, and the file of a pipeline from one to the other."""

    def __init__(self, folder: Path, source: str = "") -> None:
        """Prepare without connecting; the source is SQLite by default."""
        self.file = folder / "shop.toml"
        source = source or f"sqlite:///{folder}/shop.sqlite"
        self.source: Engine = create_engine(source, poolclass=NullPool)
        self.copy_to(f"sqlite:///{folder}/copy.sqlite")

    def copy_to(self, url: str) -> None:
        """Use this database as the replica."""
        self.url = url
        self.target: Engine = create_engine(url, poolclass=NullPool)
        source = self.source.url.render_as_string(hide_password=False)
        self.describe(f'[verify]\nsource = "{source}"\nsettle = "0s"\n')

    def describe(self, more: str) -> None:
        """Write the file."""
        self.file.write_text(
            f'name = "shop"\n[source]\nspool = "s"\n[target]\nurl = "{self.url}"\n{more}'
        )

    def everywhere(self, statement: str, rows: list[dict[str, Any]] | None = None) -> None:
        """Run a statement on both sides."""
        for engine in (self.source, self.target):
            with engine.begin() as connection:
                connection.execute(text(statement), rows)

    def verdicts(self, **options: Any) -> list[Verdict]:
        """Return the result of the job."""
        return verify(load(self.file), **options)

    def found(self, **options: Any) -> Differences:
        """Return the differences of the only table."""
        (verdict,) = self.verdicts(**options)
        assert verdict.is_equal == (not verdict.differences)
        return sorted((each.kind, each.key["id"], each.columns) for each in verdict.differences)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def change(engine: Engine, statement: str, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def filled(shop: Shop, count: int) -> None:
    shop.everywhere(CREATE)
    rows = [{"id": n, "state": f"s{n}", "total": n / 4} for n in range(count)]
    shop.everywhere("INSERT INTO orders VALUES (:id, :state, :total)", rows)


def seeded(shop: Shop, chance: random.Random, count: int) -> Differences:
    """Make differences in the target; return them."""
    made: Differences = []
    keys = chance.sample(range(count), 30)
    for number, key in enumerate(keys):
        match number % 4:
            case 0:
                change(shop.target, "DELETE FROM orders WHERE id = :id", id=key)
                made.append(("missing", key, []))
            case 1:
                change(shop.source, "DELETE FROM orders WHERE id = :id", id=key)
                made.append(("extra", key, []))
            case 2:
                change(shop.target, "UPDATE orders SET state = 'x' WHERE id = :id", id=key)
                made.append(("different", key, ["state"]))
            case 3:
                statement = "UPDATE orders SET total = total + 0.0001, state = NULL WHERE id = :id"
                change(shop.target, statement, id=key)
                made.append(("different", key, ["state", "total"]))
    return sorted(made)


@pytest.mark.parametrize("seed", range(effort(1, 30)))
@pytest.mark.parametrize("server", ["", "postgresql"])
def test_each_difference_is_found_and_no_other(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    seed: int,
) -> None:
    source = ""
    if server:
        database: SqlServer = request.getfixturevalue(server)
        source = database.url(database.new_database())
    shop = Shop(tmp_path, source)
    filled(shop, 500)
    assert shop.found() == []
    made = seeded(shop, random.Random(seed), 500)
    # Rows are compared in several groups, too.
    monkeypatch.setattr("stompkit.spark.jobs.verify._MOST_ROWS", 5)
    assert shop.found() == made
    # By ranges of keys, in tasks.
    assert shop.found(spark=spark, range_rows=150) == made


def told() -> dict[str, Any]:
    """Return a row of all types."""
    return {
        "id": UUID(int=5),
        "small": True,
        "amount": Decimal("12345678901234567890.12345678901"),
        "price": Decimal("10.50"),
        "ratio": 0.1,
        "name": "größer\n",
        "at": datetime(2026, 11, 20, 12, 0, 0, 250, timezone(timedelta(hours=2))),
        "naive": datetime(2026, 11, 20, 12),
        "day": date(2026, 11, 20),
        "clock": time(12, 30, 0, 5),
        "lasted": timedelta(days=1, microseconds=7),
        "body": b"\0\xff",
        "doc": {"b": [1, 2.5, None], "a": {"x": "ü"}},
        "list": [1, 2, 3],
    }


@pytest.fixture
def wide(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """Return a row of all types in PostgreSQL, and in SQLite as it is replicated to there."""
    database: SqlServer = request.getfixturevalue("postgresql")
    shop = Shop(tmp_path, database.url(database.new_database()))
    for side, engine in enumerate((shop.source, shop.target)):
        columns = ", ".join(f"{name} {types[side]}" for name, types in WIDE.items())
        change(engine, f"CREATE TABLE wide ({columns})")
    rows = [told(), {**dict.fromkeys(WIDE), "id": UUID(int=6)}]
    changes = [
        RowChange(table="wide", action="write", key={"id": row["id"]}, after=row) for row in rows
    ]
    for engine in (shop.source, shop.target):
        sink = SqlSink(engine)
        sink.apply([make_changeset("a", 1, changes, Source(kind="k"))])
    return shop


def test_values_are_equal_by_what_they_mean(wide: Shop) -> None:
    assert wide.found(tables=["wide"]) == []


def test_values_that_mean_something_else_are_different(wide: Shop) -> None:
    others = {
        "small": 0,
        "amount": "12345678901234567890.12345678904",
        "price": 10.51,
        "ratio": 0.10000000000000002,
        "name": "gro\u0308ßer\n",
        "at": "2026-11-20 10:00:00.000251",
        "naive": "2026-11-20 12:00:00.000001",
        "day": "2026-11-21",
        "clock": "12:30:00.000006",
        "lasted": 86_400_000_008,
        "body": b"\0\xfe",
        "doc": '{"b":[1,2.5],"a":{"x":"ü"}}',
        "list": "[1,3,2]",
    }
    assert {"id", *others} == WIDE.keys()
    columns = ", ".join(f"{name} = :{name}" for name in others)
    change(wide.target, f"UPDATE wide SET {columns} WHERE small IS NOT NULL", **others)
    assert wide.found(tables=["wide"]) == [("different", {"$uuid": str(UUID(int=5))}, [*others])]


def test_days_of_intervals_are_not_24_hours(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    database: SqlServer = request.getfixturevalue("postgresql")
    shop = Shop(tmp_path, database.url(database.new_database()))
    change(shop.source, "CREATE TABLE spans (id INT PRIMARY KEY, v INTERVAL)")
    change(shop.target, "CREATE TABLE spans (id INT PRIMARY KEY, v TEXT)")
    spans = ["1 day", "24:00:00", "1 mon -1 day", "-00:00:00.5"]
    for number, span in enumerate(spans):
        change(shop.source, f"INSERT INTO spans VALUES ({number}, '{span}')")
    for number, held in enumerate(["P1D", "PT24H", "P1M-1D", "-500000"]):
        change(shop.target, f"INSERT INTO spans VALUES ({number}, '{held}')")
    assert shop.found(tables=["spans"]) == []
    change(shop.target, "UPDATE spans SET v = 'PT24H' WHERE id = 0")
    assert shop.found(tables=["spans"]) == [("different", 0, ["v"])]


#: Texts of a single-precision number, a time and a double-precision number.
NUMBERS_AND_TIMES = [
    ("1.1", "12:30:00.5", "1.1"),
    ("3.3333333", "00:00:00", "0.1"),
    ("16777216", "23:59:59.999999", "1e300"),
    ("-1e-30", "00:00:00.000001", "-0.30000000000000004"),
]


@pytest.mark.parametrize("target", ["sqlite", "postgresql", "mariadb"])
@pytest.mark.parametrize("source", ["postgresql", "mariadb"])
def test_what_was_replicated_is_equal_whatever_the_target_made_of_it(
    request: pytest.FixtureRequest, tmp_path: Path, source: str, target: str
) -> None:
    database: SqlServer = request.getfixturevalue(source)
    shop = Shop(tmp_path, database.url(database.new_database()))
    if target != "sqlite":
        other: SqlServer = request.getfixturevalue(target)
        shop.copy_to(other.url(other.new_database()))
    single = "FLOAT" if source == "mariadb" else "REAL"
    change(
        shop.source,
        f"CREATE TABLE t (id INT PRIMARY KEY, f {single}, c TIME(6), d DOUBLE PRECISION)",
    )
    for number, row in enumerate(NUMBERS_AND_TIMES):
        values = ", ".join(f"'{value}'" for value in row)
        change(shop.source, f"INSERT INTO t VALUES ({number}, {values})")
    job = ["--from", _plain(shop.source), "--to", _plain(shop.target), "--create"]
    kept = ["--slot", f"s{len(source + target)}", "--state-dir", str(tmp_path / "kept")]
    assert replicate([*job, "--once", "--quiet", "--snapshot", "only", *kept]) == 0
    assert shop.found(tables=["t"]) == []
    changed = "UPDATE t SET f = 1.2, c = '12:30:00.6', d = 1.1000000000000003 WHERE id = 0"
    change(shop.source, changed)
    assert shop.found(tables=["t"]) == [("different", 0, ["f", "c", "d"])]


@pytest.mark.parametrize("source", ["postgresql", "mariadb"])
def test_masked_columns_are_compared_as_they_are_published(
    request: pytest.FixtureRequest, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database: SqlServer = request.getfixturevalue(source)
    shop = Shop(tmp_path, database.url(database.new_database()))
    columns = "id INT PRIMARY KEY, a VARCHAR(20), b VARCHAR(20), c VARCHAR(20), d VARCHAR(20)"
    change(shop.source, f"CREATE TABLE t ({columns}, e VARCHAR(20), n BIGINT, at DATE)")
    for number in range(20):
        texts = f"'a{number}', 'b{number}', 'größer {number}', 'd', 'e'"
        change(shop.source, f"INSERT INTO t VALUES ({number}, {texts}, {number}, '2026-11-30')")
    change(shop.source, "INSERT INTO t (id) VALUES (20)")
    masks = {
        "t.id": "hash:secret",
        "t.a": "null",
        "t.b": "constant:x",
        "t.c": "truncate:3",
        "t.d": "drop",
        "t.n": "hash:secret",
        "t.at": "hash:secret",
    }
    monkeypatch.setenv("MASK", "hash:secret")
    given = {**masks, "t.id": "env:MASK"}
    url = shop.source.url.render_as_string(hide_password=False)
    told = f'[verify]\nsource = "{url}"\nsettle = "0s"\ntables = ["t"]\n'
    shop.describe(f"{told}[verify.masks]\n" + "\n".join(f'"{n}" = "{given[n]}"' for n in given))
    job = ["--from", _plain(shop.source), "--to", _plain(shop.target), "--create"]
    kept = ["--slot", f"m{source}", "--state-dir", str(tmp_path / "kept")]
    options = [f"--mask={name}={mask}" for name, mask in masks.items()]
    assert replicate([*job, *options, "--once", "--quiet", "--snapshot", "only", *kept]) == 0
    assert shop.found() == []
    change(shop.target, "UPDATE t SET b = 'y', c = 'gros' WHERE c = 'grö'")
    change(shop.source, "UPDATE t SET n = 100, a = 'z' WHERE id = 3")
    found = shop.found()
    assert sorted(columns for _, _, columns in found) == [["b", "c"]] * 19 + [["b", "c", "n"]]
    # Keys are shown as they are in the copy.
    with shop.target.connect() as connection:
        keys = set(connection.execute(text("SELECT id FROM t")).scalars())
    assert {key for _, key, _ in found} <= keys
    shop.describe(f'{told}[verify.masks]\n"t.id" = "truncate:3"')
    with pytest.raises(PipelineError, match=r"verify.masks: the column id is in the key of t"):
        shop.verdicts()


#: Types of the copy's key, by kind of database.
KEYS = [
    ("mariadb", "BIGINT UNSIGNED"),
    ("postgresql", "NUMERIC(20)"),
    ("postgresql", "TEXT"),
    ("sqlite", "TEXT"),
]


@pytest.mark.parametrize(("target", "type_"), KEYS)
def test_ranges_of_keys_have_any_size(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, target: str, type_: str
) -> None:
    database: SqlServer = request.getfixturevalue("mariadb")
    shop = Shop(tmp_path, database.url(database.new_database()))
    if target != "sqlite":
        other: SqlServer = request.getfixturevalue(target)
        shop.copy_to(other.url(other.new_database()))
    change(shop.source, "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, v INT)")
    change(shop.target, f"CREATE TABLE t (id {type_}, v INT)")
    keys = [0, 1, 2**31, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
    for key in keys:
        change(shop.source, "INSERT INTO t VALUES (:id, 1)", id=key)
        copy = str(key) if type_ == "TEXT" else key
        change(shop.target, "INSERT INTO t VALUES (:id, :v)", id=copy, v=1 + (key == 2**63))
    differing = [("different", {"$int": str(2**63)}, ["v"])]
    assert shop.found(spark=spark, range_rows=2, tables=["t"]) == differing


#: Values of PostgreSQL without a type in Python, besides usual ones, by column.
FAR = {
    "at TIMESTAMPTZ": ["infinity", "-infinity", "12026-01-01 00:30Z", "0044-03-15 12:00Z BC"],
    "naive TIMESTAMP": ["infinity", "2026-01-01 00:00:00.5", "294276-12-31", "4713-01-01 BC"],
    "day DATE": ["infinity", "-infinity", "12026-01-01", "0044-03-15 BC"],
    "clock TIME": ["24:00", "00:00", "12:30:00.5", "23:59:59.999999"],
    "during TSTZRANGE": ["[2026-01-01 Z,infinity)", "empty", "[,)", "(12026-01-01 Z,)"],
}
ARRAY = {"list TIMESTAMPTZ[]": ["{infinity}", "{{2026-01-01 Z},{12026-01-01 Z}}", "{}", "{NULL}"]}


#: Arrays and documents as PostgreSQL writes them, and others with one member changed, by type.
ARRAYS: dict[str, tuple[str, str | None]] = {
    "text[]": (r'{a,NULL,"b c","{}","null","1","\"\\"}', r'{a,NULL,"b c","{}",null,"1","\"\\"}'),
    "int[]": ("[0:2]={1,2,NULL}", "{1,2,3}"),
    "int[][]": ("{{1,2},{3,4}}", "{{1,2},{4,3}}"),
    "numeric[]": ("{1.50,NaN,1e30}", "{1.51,NaN,1e30}"),
    # Digits that a float does not have.
    "numeric(40,30)[]": (
        "{1.000000000000000000000000000010}",
        "{1.000000000000000000000000000020}",
    ),
    "double precision[]": ("{0.1,1e300}", "{0.10000000000000002,1e300}"),
    "real[]": ("{1.1,3.3333333,Infinity}", "{1.1,3.3333335,Infinity}"),
    "bigint[]": ("{9007199254740993}", "{9007199254740992}"),
    "timestamptz[]": ("{2026-11-30 10:00:00.5+02}", "{2026-11-30 10:00:00.6+02}"),
    "date[]": ("{2026-11-30}", "{2026-11-29}"),
    "time[]": ("{10:00:00.5}", "{10:00:00}"),
    "interval[]": ("{1 day,24:00:00}", "{24:00:00,1 day}"),
    "uuid[]": ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12}"),
    "bool[]": ("{t,f,NULL}", "{t,t,NULL}"),
    "bytea[]": (r'{"\\x6162"}', r'{"\\x6163"}'),
    "jsonb[]": (r'{"{\"a\": 1}","[1, 2]",3}', r'{"{\"a\": 1}","[2, 1]",3}'),
    "json[]": (
        r'{"{\"a\": 1.50000000000000000001}","\"text\"",NULL}',
        r'{"{\"a\": 1.50000000000000000002}","\"text\"",NULL}',
    ),
    "varchar(10)[]": ("{größer}", "{}"),
    "inet[]": ("{10.0.0.1}", "{10.0.0.2}"),
    "int4range[]": ('{"[1,5)"}', '{"[1,6)"}'),
    # No arrays, but with arrays inside.
    "jsonb": (
        '{"a": [1.50, 0.30000000000000000001, 1e30], "b": 12345678901234567890123}',
        '{"a": [1.50, 0.30000000000000000002, 1e30], "b": 12345678901234567890123}',
    ),
    "json": ('[1.50, 1e400, {"a": "1"}]', '[1.50, 1e401, {"a": "1"}]'),
    "jsonb NOT NULL DEFAULT 'null'": ("1.50000000000000000001", "1.50000000000000000002"),
    "jsonb DEFAULT '{}'": ("null", None),
    "json DEFAULT '1.5'": (f"[{'9' * 5000}]", f"[{'9' * 4999}8]"),
}


@pytest.mark.parametrize("target", ["sqlite", "mariadb", "postgresql"])
def test_arrays_are_compared_with_a_copy_of_any_kind(
    request: pytest.FixtureRequest, tmp_path: Path, target: str
) -> None:
    database: SqlServer = request.getfixturevalue("postgresql")
    shop = Shop(tmp_path, database.url(database.new_database()))
    if target != "sqlite":
        other: SqlServer = request.getfixturevalue(target)
        shop.copy_to(other.url(other.new_database()))
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(ARRAYS))
    change(shop.source, f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    for at, (held, _) in enumerate(ARRAYS.values()):
        change(shop.source, f"INSERT INTO t (id, c{at}) VALUES ({at}, :held)", held=held)
    job = ["--from", _plain(shop.source), "--to", _plain(shop.target), "--create"]
    kept = ["--slot", f"a{target}", "--state-dir", str(tmp_path / "kept")]
    assert replicate([*job, "--once", "--quiet", "--snapshot", "only", *kept]) == 0
    assert shop.found(tables=["t"]) == []
    for at, (_, other_one) in enumerate(ARRAYS.values()):
        change(shop.source, f"UPDATE t SET c{at} = :held WHERE id = {at}", held=other_one)
    expected = [("different", at, [f"c{at}"]) for at in range(len(ARRAYS))]
    assert shop.found(tables=["t"]) == expected


@pytest.mark.parametrize("target", ["sqlite", "postgresql"])
def test_times_without_a_type_are_compared(
    request: pytest.FixtureRequest, tmp_path: Path, target: str
) -> None:
    """The settings of the copy's database make no difference."""
    database: SqlServer = request.getfixturevalue("postgresql")
    shop = Shop(tmp_path, database.url(database.new_database()))
    columns = FAR if target == "sqlite" else FAR | ARRAY
    if target == "postgresql":
        name = database.new_database()
        shop.copy_to(database.url(name))
        change(shop.target, f"ALTER DATABASE {name} SET timezone = 'Asia/Kathmandu'")
        change(shop.target, f"ALTER DATABASE {name} SET datestyle = 'German'")
        shop.target.dispose()
    else:
        texts = ", ".join(f"{column.split()[0]} TEXT" for column in columns)
        change(shop.target, f"CREATE TABLE t (id INTEGER PRIMARY KEY, {texts})")
    change(shop.source, f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})")
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        values = ", ".join(f"'{value}'" for value in row)
        with shop.source.begin() as connection:
            connection.exec_driver_sql(f"INSERT INTO t VALUES ({number}, {values})")
    job = ["--from", _plain(shop.source), "--to", _plain(shop.target), "--create"]
    kept = ["--slot", f"far_{target}", "--state-dir", str(tmp_path / "kept")]
    assert replicate([*job, "--once", "--quiet", "--snapshot", "only", *kept]) == 0
    assert shop.found(tables=["t"]) == []
    names = [column.split()[0] for column in columns]
    for name in names:
        change(shop.source, f"UPDATE t SET {name} = (SELECT {name} FROM t WHERE id = 1)")
        change(shop.source, f"UPDATE t SET {name} = NULL WHERE id = 2")
    assert shop.found(tables=["t"]) == [
        ("different", 0, names),
        ("different", 2, names),
        ("different", 3, names),
    ]


def test_a_key_of_times_is_shown_with_its_type(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database: SqlServer = request.getfixturevalue("postgresql")
    shop = Shop(tmp_path, database.url(database.new_database()))
    shop.everywhere("CREATE TABLE t (day DATE PRIMARY KEY)")
    change(shop.source, "INSERT INTO t VALUES ('2026-01-01'), ('infinity')")
    (verdict,) = shop.verdicts()
    keys = [each.key["day"] for each in verdict.differences]
    assert sorted(keys, key=str) == ["infinity", {"$date": "2026-01-01"}]


def _plain(engine: Engine) -> str:
    """Return a URL without its driver."""
    url = engine.url.set(drivername=engine.url.get_backend_name())
    return url.render_as_string(hide_password=False)


def test_what_the_replica_lacks_is_told_and_what_it_has_more_is_not(shop: Shop) -> None:
    filled(shop, 20)
    change(shop.target, "ALTER TABLE orders ADD COLUMN own INT DEFAULT 5")
    change(shop.target, "CREATE TABLE own (id INT)")
    change(shop.source, "CREATE TABLE never (id INT PRIMARY KEY)")
    change(shop.source, "CREATE TABLE stompkit_outbox (id INT)")
    assert [(each.name, each.is_equal) for each in shop.verdicts()] == [
        ("never", True),
        ("orders", True),
    ]
    change(shop.source, "INSERT INTO never VALUES (1)")
    change(shop.source, "ALTER TABLE orders ADD COLUMN note TEXT")
    change(shop.source, "UPDATE orders SET note = 'x' WHERE id = 7")
    never, orders = shop.verdicts()
    assert (never.source_rows, never.target_rows, never.is_equal) == (1, None, False)
    assert [(each.key, each.columns) for each in orders.differences] == [({"id": 7}, ["note"])]


#: Rows of a partitioned table, by its name and those of its partitions; b has a partition, too.
PARTITIONS = {"a": [1, 2], "a_1": [1], "b": [2], "b_1": [2]}
#: Tables of a copy, those that are compared then, and those of them that are missing.
HELD = [
    ("a", "a", ""),
    ("a_1 b_1", "a_1 b_1", ""),
    ("a_1 b", "a_1 b", ""),
    ("a a_1", "a a_1", ""),
    ("a a_1 b b_1", "a a_1 b b_1", ""),
    ("b_1", "a_1 b_1", "a_1"),
    ("a_1", "a_1 b", "b"),
    ("", "a", "a"),
]


@pytest.mark.parametrize(("held", "compared", "missing"), HELD)
def test_a_partitioned_table_is_compared_as_the_copy_has_it(
    request: pytest.FixtureRequest, tmp_path: Path, held: str, compared: str, missing: str
) -> None:
    database: SqlServer = request.getfixturevalue("postgresql")
    shop = Shop(tmp_path, database.url(database.new_database()))
    for statement in (
        "CREATE TABLE a (id INT PRIMARY KEY) PARTITION BY LIST (id)",
        "CREATE TABLE a_1 PARTITION OF a FOR VALUES IN (1)",
        "CREATE TABLE b PARTITION OF a FOR VALUES IN (2) PARTITION BY LIST (id)",
        "CREATE TABLE b_1 PARTITION OF b FOR VALUES IN (2)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO a VALUES (1), (2)",
    ):
        change(shop.source, statement)
    for name in held.split():
        change(shop.target, f"CREATE TABLE {name} (id INT PRIMARY KEY)")
        for id_ in PARTITIONS[name]:
            change(shop.target, f"INSERT INTO {name} VALUES ({id_})")
    verdicts = {each.name.removeprefix("public."): each.is_equal for each in shop.verdicts()}
    assert verdicts.pop("other")
    assert " ".join(verdicts) == compared
    assert " ".join(name for name, is_equal in verdicts.items() if not is_equal) == missing


def test_a_source_without_tables_is_a_mistake(shop: Shop) -> None:
    with pytest.raises(PipelineError, match="no tables to compare: is its URL right"):
        shop.verdicts()


@pytest.mark.parametrize("url", ["delta:///copy", "delta+s3://bucket/copy", "parquet:///copy"])
def test_targets_in_files_are_refused_with_what_to_do(shop: Shop, url: str) -> None:
    with pytest.raises(PipelineError, match=r"^--target: this job needs a database.* --target"):
        shop.verdicts(url=url)


def test_tables_without_a_key_are_compared_row_by_row(shop: Shop) -> None:
    shop.everywhere("CREATE TABLE log (id INT, line TEXT)")
    rows = [{"id": n // 3, "line": "x"} for n in range(9)]
    shop.everywhere("INSERT INTO log VALUES (:id, :line)", rows)
    assert shop.found() == []
    change(shop.source, "INSERT INTO log VALUES (1, 'x')")
    change(shop.target, "INSERT INTO log VALUES (1, NULL)")
    assert shop.found() == [("extra", 1, []), ("missing", 1, [])]


ROWS = st.lists(st.tuples(st.integers(1, 2), st.sampled_from("ab")), max_size=4)


@given(source=ROWS, copy=ROWS)
@settings(parent=settings.get_profile("few"))
def test_a_table_is_equal_only_if_it_has_each_row_as_often(
    source: list[tuple[int, str]], copy: list[tuple[int, str]]
) -> None:
    """A key that is not unique, here of numbers in different forms, hides no row."""
    with TemporaryDirectory() as folder:
        shop = Shop(Path(folder))
        change(shop.target, "CREATE TABLE t (id TEXT, v TEXT)")
        change(shop.source, "CREATE TABLE t (id INTEGER, v TEXT)")
        for id_, v in source:
            change(shop.source, "INSERT INTO t VALUES (:id, :v)", id=id_, v=v)
        for number, (id_, v) in enumerate(copy):
            form = "0" * (number % 2) + str(id_)
            change(shop.target, "INSERT INTO t VALUES (:id, :v)", id=form, v=v)
        url = shop.source.url.render_as_string()
        shop.describe(f'[apply.keys]\nt = ["id"]\n[verify]\nsource = "{url}"\nsettle = "0s"\n')
        (verdict,) = shop.verdicts()
    expected: Counter[str] = Counter()
    for id_ in (1, 2):
        own, its = (Counter(v for each, v in rows if each == id_) for rows in (source, copy))
        lacking, more = (own - its).total(), (its - own).total()
        both = min(lacking, more)
        expected += Counter(different=both, missing=lacking - both, extra=more - both)
    assert Counter(each.kind for each in verdict.differences) == expected
    assert verdict.is_equal == (not expected)


def test_names_and_columns_are_those_of_the_file(shop: Shop) -> None:
    filled(shop, 20)
    change(shop.target, "ALTER TABLE orders RENAME TO copied")
    change(shop.target, "UPDATE copied SET total = 0")
    url = shop.source.url.render_as_string()
    shop.describe(
        'table-map = {orders = "copied"}\n[apply]\ntables = ["orders"]\n'
        f'except-column-list = ["total"]\n[verify]\nsource = "{url}"\nsettle = "0s"\n'
    )
    assert shop.found() == []
    with pytest.raises(PipelineError, match="--source: sqlit"):
        shop.found(source="sqlit:///x")


def looked_at(shop: Shop, monkeypatch: pytest.MonkeyPatch, *works: Callable[[], None]) -> None:
    """Run actions in place of the waits of the job."""
    waiting = iter(works)
    monkeypatch.setattr("stompkit.spark.jobs.verify.sleep", lambda _: next(waiting, lambda: None)())


def test_changes_under_way_are_no_differences(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(shop, 50)

    def update(engine: Engine, state: str, key: int) -> None:
        change(engine, "UPDATE orders SET state = :state WHERE id = :id", state=state, id=key)

    for key in (1, 2, 3):
        update(shop.source, "first", key)
    change(shop.source, "DELETE FROM orders WHERE id = 4")

    def first() -> None:
        # One arrives late, one is late again, and one never arrives.
        update(shop.target, "first", 1)
        update(shop.target, "first", 2)
        update(shop.source, "second", 2)
        update(shop.source, "second", 3)
        change(shop.target, "DELETE FROM orders WHERE id = 4")
        # The job had not read this one before.
        update(shop.source, "second", 5)

    looked_at(shop, monkeypatch, first)
    assert shop.found(settle_s=5) == [("different", 3, ["state"])]


def test_a_replica_that_is_written_to_is_compared_to_the_end(shop: Shop) -> None:
    filled(shop, 300)
    ended = threading.Event()

    def write() -> None:
        # Separate databases need no common lock of SQLite.
        number = 0
        while not ended.is_set() or number < 3:
            number += 1
            for engine in (shop.source, shop.target):
                statement = "UPDATE orders SET state = :state WHERE id = :id"
                change(engine, statement, state=f"n{number}", id=number % 300)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert shop.found(settle_s=0.2) == []
    finally:
        ended.set()
        thread.join()


def test_the_command_lists_what_differs(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    filled(shop, 30)
    command = ["run", "verify", "--config", str(shop.file), "--settle", "0s"]
    assert main(command) == 0
    assert "equal" in capsys.readouterr().out
    change(shop.target, "UPDATE orders SET state = 'x' WHERE id = 7")
    change(shop.target, "DELETE FROM orders WHERE id = 8")
    assert main(command) == 1
    output = capsys.readouterr().out
    assert "2 differences" in output
    assert 'different orders {"id": 7}: state' in output
    assert 'missing orders {"id": 8}' in output
    assert main([*command, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["equal"]
    (table,) = found["tables"]
    assert {each["kind"] for each in table["differences"]} == {"different", "missing"}
    source = shop.file.with_name("source-url")
    source.write_text(f"{shop.source.url.render_as_string(hide_password=False)}\n")
    assert main([*command, "--source", f"file:{source}"]) == 1
    assert "pipeline status" in capsys.readouterr().err
    change(shop.target, "DELETE FROM orders")
    assert main(command) == 1
    output = capsys.readouterr().out
    assert output.count("missing orders") == 20
    assert "... and more of orders: --json lists up to 1,000" in output
    assert main([*command, "--table", "nothing"]) == 1
    assert "the source has no such table" in capsys.readouterr().out


def test_spark_is_only_for_large_tables_and_can_be_absent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = "import sys, stompkit.spark.jobs.verify; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    filled(shop, 100)
    change(shop.target, "UPDATE orders SET state = 'x' WHERE id = 7")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "stompkit.spark.session", raising=False)
    assert shop.found(range_rows=10) == [("different", 7, ["state"])]
    assert "large tables are read by this process alone: this needs pyspark" in caplog.text


def test_one_of_two_tables_that_differs_is_enough(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(shop, 3)
    shop.everywhere("CREATE TABLE notes (id INT PRIMARY KEY)")
    change(shop.target, "DELETE FROM orders WHERE id = 1")
    assert main(["run", "verify", "--config", str(shop.file), "--settle", "0s"]) == 1
    verdicts = [line.split()[0::3] for line in capsys.readouterr().out.splitlines()[1:3]]
    assert verdicts == [["notes", "equal"], ["orders", "1"]]


def test_many_differences_are_cut_off(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompkit.spark.jobs.verify._MOST", 10)
    filled(shop, 50)
    change(shop.target, "DELETE FROM orders")
    (verdict,) = shop.verdicts()
    assert verdict.has_more
    assert len(verdict.differences) == 10
