"""The job *analytics*: compared with counts in plain Python, with kills and restarts."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from stompkit._commands.pipeline.command import main
from stompkit.replication.model.events import Action, RowChange, Source, make_changeset
from stompkit.replication.sql import RejectedRowError, SchemaError
from stompkit.spark.jobs import Pipeline, PipelineError, load
from stompkit.spark.jobs.analytics import results_of
from stompkit.spark.jobs.results.base import CHANGES, KEYS, LAG, Mark, Results
from stompkit.spark.jobs.results.counting import Counted, Lag
from stompkit.spark.jobs.results.parquet import ParquetResults
from stompkit.spark.jobs.results.sql import SqlResults
from stompkit.spark.jobs.status import look
from stompkit.spool import Record, SpoolWriter
from stompkit.testing.launching.polling import wait_until
from tests.effort import effort
from tests.replication.sinks.sql_targets import Target, database_url, target
from tests.servers import mariadb, postgresql
from tests.spark.messages import fill, plain, records_of

__all__ = ["database_url", "mariadb", "postgresql", "target"]

LONG_S = 400.0
BEGIN = datetime(2026, 11, 21, 12, tzinfo=UTC)
#: Messages of a batch, and the permitted delay of a change.
BATCH = 150
WATERMARK_S = 600
PROGRAM = (
    "import sys; from stompkit._commands.pipeline.command import main; sys.exit(main(sys.argv[1:]))"
)


class Fact(NamedTuple):
    """A change, as it is counted."""

    message: int
    table: str
    operation: str
    key: str | None
    received_s: float
    committed_s: float | None

    @property
    def at_s(self) -> float:
        """The time of the event, in seconds."""
        return min(self.received_s, self.committed_s or self.received_s)

    @property
    def minute(self) -> int:
        """The first second of its minute."""
        return int(self.at_s // 60 * 60)


def seeded(count: int) -> tuple[list[Record], list[Fact]]:
    """Return messages and their facts.

    Some are old, from a clock that is ahead, invalid, or repeated by another broker.
    """
    chance = random.Random(8)
    records: list[Record] = []
    facts: list[Fact] = []
    unreadable = iter(plain(0, count))
    sequences = itertools.count()
    for number in range(count):
        received = BEGIN + timedelta(seconds=2 * number, milliseconds=chance.randrange(1000))
        received_s = received.timestamp()
        if number > 50 and number % 50 == 31:
            received_us = round(received_s * 1e6)
            again = records[30]._replace(message_id="", event_id="", received_us=received_us)
            records.append(again)
            continue
        if number % 50 == 7:
            records.append(next(unreadable)._replace(received_us=round(received_s * 1e6)))
            facts.append(Fact(number, "", "unreadable", None, received_s, None))
            continue
        age_s = chance.choice([1, 3, 8, 20]) + chance.randrange(1000) / 1000
        if number % 20 == 3:
            age_s += chance.randrange(1800, 3600)
        elif number % 40 == 5:
            age_s = -100.0
        committed = received - timedelta(seconds=age_s)
        changes = []
        for _ in range(chance.choice([1, 1, 2, 5])):
            schema, table = chance.choice([("public", "orders"), ("public", "lines"), ("", "log")])
            action: Action = chance.choice(["write", "update", "update", "delete"])
            key = {"id": int(chance.paretovariate(1))}
            values = {**key, "state": "x"}
            changes.append(
                RowChange(
                    schema=schema,
                    table=table,
                    action=action,
                    key=key,
                    before=values if action == "delete" else None,
                    after=None if action == "delete" else values,
                )
            )
            name = f"{schema}.{table}" if schema else table
            told = json.dumps(key, separators=(",", ":"))
            facts.append(Fact(number, name, action, told, received_s, committed.timestamp()))
        source = Source(kind="postgresql", position=f"0/{number:X}", transaction=f"t-{number}")
        made = make_changeset(
            "shop", next(sequences), changes, source, id=f"c-{number}", timestamp=committed
        )
        [record] = records_of([made])
        records.append(record._replace(received_us=round(received_s * 1e6)))
    return records, facts


class Plain:
    """The same counts without Spark."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        """Count facts in the order of their messages, batch by batch.

        The watermark of the batch before determines late ones.
        """
        self.on_time: list[Fact] = []
        self.late: list[Fact] = []
        newest = watermark = before = -math.inf
        for first in range(0, facts[-1].message + 1, BATCH):
            batch = [each for each in facts if first <= each.message < first + BATCH]
            before, watermark = watermark, newest - WATERMARK_S
            newest = max([newest, *(each.at_s for each in batch)])
            for each in batch:
                (self.late if each.minute + 60 <= before else self.on_time).append(each)

    def changes(self) -> list[tuple[Any, ...]]:
        """Return the rows of the table of changes."""
        on_time = Counter((each.minute, each.table, each.operation) for each in self.on_time)
        late = Counter((each.minute, each.table, each.operation) for each in self.late)
        return [(*place, on_time[place], late[place]) for place in sorted(on_time | late)]

    def check(self, results: Results) -> None:
        """Check that results are the same."""
        assert self.late
        assert results.rows(CHANGES, 0) == self.changes()
        keys: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        for each in self.on_time:
            if each.key is not None:
                keys[each.minute, each.table][each.key] += 1
        found: defaultdict[tuple[int, str], dict[str, int]] = defaultdict(dict)
        for minute, table, place, key, changes in results.rows(KEYS, 0):
            assert place == len(found[minute, table]) + 1
            found[minute, table][key] = changes
        assert found.keys() == keys.keys()
        for window, told in found.items():
            assert list(told.values()) == [n for _, n in keys[window].most_common(3)]
            assert all(keys[window][key] == n for key, n in told.items())
        lags: defaultdict[int, list[float]] = defaultdict(list)
        counts = Counter(each.minute for each in self.on_time)
        for each in self.on_time:
            if each.committed_s is not None:
                lags[each.minute].append(each.received_s - each.committed_s)
        rows = results.rows(LAG, 0)
        assert {row[0]: row[1] for row in rows} == counts
        for minute, _, *times in rows:
            lag = sorted(lags[minute])
            nearest = [lag[math.ceil(share * len(lag)) - 1] for share in (0.5, 0.95, 1)]
            assert times[:3] == pytest.approx(nearest, abs=1e-5)
            assert 0 < times[3] <= times[4] <= times[5]


def described(folder: Path, target: str, more: str = "") -> Path:
    """Return the file of a pipeline."""
    file = folder / "shop.toml"
    file.write_text(
        f"""name = "shop"
state-dir = "{folder}/state"
trigger = "50ms"
[source]
spool = "{folder}/spool"
maxRecordsPerTrigger = {BATCH}
[analytics]
{target}
top-keys = 3
report = "{folder}/report.html"
[spark]
master = "local[2]"
config = {{"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}}
{more}
"""
    )
    return file


def test_counts_are_those_of_plain_python_and_a_batch_that_comes_again_counts_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records, facts = seeded(4 * BATCH)
    fill(tmp_path / "spool", records[: 3 * BATCH])
    file = described(tmp_path, f'path = "{tmp_path}/counts"')
    settings = load(file)
    first = Pipeline(settings, "analytics", once=True, spark=spark)
    # Counting does not depend on the report.
    (tmp_path / "report.html").mkdir()
    first.run()
    (tmp_path / "report.html").rmdir()
    before = [each for each in facts if each.message < 3 * BATCH]
    assert first.progress().changes == len(before)
    Plain(before).check(results_of(settings))
    # As if killed after the results were written and before Spark's commit.
    checkpoint = tmp_path / "state/shop/analytics/checkpoint"
    for noted in ("commits/2", "commits/3", "offsets/3"):
        (checkpoint / noted).unlink()
    fill(tmp_path / "spool", records[3 * BATCH :])
    second = Pipeline(settings, "analytics", once=True, spark=spark)
    second.run()
    assert second.progress().batches == 3
    assert second.progress().changes == len(facts) - len(before)
    counted = Plain(facts)
    counted.check(results_of(settings))
    assert first.progress().late + second.progress().late == len(counted.late)
    state = look(settings, "analytics")
    assert (state.lag, state.places[0].next) == (0, 4 * BATCH)
    # Other programs can read the files.
    table = pq.read_table(tmp_path / "counts/changes")
    assert sum(table.column("changes").to_pylist()) == len(counted.on_time)
    report = (tmp_path / "report.html").read_text()
    check_page(report)
    last = max(each.minute for each in facts)
    told = [each for each in facts if each.minute > last - 7200]
    assert f"<b>{len(told):,}</b> changes" in report
    assert main(["report", str(file), "--output", "-"]) == 0
    strip = re.compile("Made .*? All")
    assert strip.sub("", capsys.readouterr().out) == strip.sub("", report)
    # Without its checkpoint it would count everything again.
    (tmp_path / "state").rename(tmp_path / "lost")
    with pytest.raises(PipelineError, match="another checkpoint"):
        Pipeline(settings, "analytics", once=True, spark=spark).run()


def scraped(address: object) -> dict[tuple[str, str], float]:
    """Return the scraped metrics, by name and phase."""
    with urlopen(f"http://{address}/metrics", timeout=LONG_S) as answer:
        text = answer.read().decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    assert {each.labels["pipeline"] for each in samples} == {"shop"}
    assert {each.labels["job"] for each in samples} == {"analytics"}
    return {(each.name, each.labels.get("phase", "")): each.value for each in samples}


def test_a_stream_counts_into_a_database_and_tells_prometheus(
    spark: SparkSession, tmp_path: Path
) -> None:
    records, facts = seeded(2 * BATCH)
    url = f'url = "sqlite:///{tmp_path}/counts.db"'
    file = described(tmp_path, url, '[metrics]\nlisten = "127.0.0.1:0"')
    pipeline = Pipeline(load(file), "analytics", spark=spark)
    thread = threading.Thread(target=pipeline.run)
    writer = SpoolWriter(tmp_path / "spool", partitions=2, sync=False)
    writer.append(records[:BATCH])
    thread.start()

    def told() -> dict[tuple[str, str], float]:
        address = pipeline.metrics_address
        return scraped(address) if address is not None else {}

    try:
        # More messages arrive all the time, also during batches.
        assert wait_until(lambda: pipeline.progress().batches, LONG_S)
        for first in range(BATCH, 2 * BATCH, 3):
            writer.append(records[first : first + 3])
        assert wait_until(lambda: pipeline.progress().lag == 0, LONG_S)
        name = "stompkit_pipeline"
        assert wait_until(lambda: told().get((f"{name}_rows_total", ""), 0) > 0, LONG_S)
        found = told()
    finally:
        pipeline.stop()
        thread.join(LONG_S)
        writer.close()
    assert found[f"{name}_changes_total", ""] == len(facts)
    assert found[f"{name}_batches_total", ""] >= 1
    assert found[f"{name}_batch_seconds_count", "all"] == found[f"{name}_batches_total", ""]
    assert found[f"{name}_batch_seconds_sum", "work"] > 0
    assert found[f"{name}_lag_messages", ""] == 0
    assert found[f"{name}_last_batch_timestamp_seconds", ""] > BEGIN.timestamp()
    nothing = ("dead_letters", "retries", "restarts")
    assert [found[f"{name}_{each}_total", ""] for each in nothing] == [0, 0, 0]
    with closing(sqlite3.connect(tmp_path / "counts.db")) as connection:
        [[total]] = connection.execute(
            "SELECT sum(changes) + sum(late) FROM stompkit_analytics_changes"
        )
    assert total == len(facts)


@pytest.mark.skipif(effort(True, False), reason="a JVM of its own: with STOMPKIT_TESTS=campaign")
def test_a_stream_that_is_killed_counts_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    records, facts = seeded(20 * BATCH)
    fill(tmp_path / "spool", records)
    file = described(tmp_path, f'path = "{tmp_path}/counts"')
    settings = load(file)
    for place in (2 * BATCH, 9 * BATCH):

        def is_there(place: int = place) -> bool:
            return look(settings, "analytics").places[0].next > place

        command = [sys.executable, "-c", PROGRAM, "run", "analytics", "--config", str(file)]
        with subprocess.Popen([*command, "--trigger", "0s", "--quiet"]) as process:
            try:
                assert wait_until(is_there, LONG_S)
            finally:
                process.kill()
    Pipeline(settings, "analytics", once=True, spark=spark).run()
    Plain(facts).check(results_of(settings))


# Results without Spark.


def batches(count: int) -> Iterator[tuple[Counted, Mark]]:
    """Yield batches with one minute more each, and a late change in each minute before."""
    first = int(BEGIN.timestamp())
    for batch in range(count):
        minutes = [first + 60 * number for number in range(batch + 1)]
        told = Counted(total=batch + 1, ordinals={0: batch})
        for minute in minutes[-2:]:
            n = batch + 1 - (minute - first) // 60
            told.changes[minute, "orders"] = {"write": n}
            told.keys[minute, "orders"] = [(f"k{place}", 9 - place) for place in range(3 - n % 2)]
            told.lag[minute] = Lag(n, 1.0, 2.0, 3.0, None, None, None)
        for minute in minutes[:-2]:
            told.late[minute, "orders", "write"] += 1
        yield told, Mark("q", "s", told.ordinals)


Make = Callable[[Path], Results]


def in_files(folder: Path) -> Results:
    return ParquetResults(folder / "counts")


def in_sqlite(folder: Path) -> Results:
    return SqlResults(f"sqlite:///{folder}/counts.db", "shop")


def write(results: Results, count: int) -> None:
    """Write the batches that are missing, up to this number, and print each."""
    last = results.mark()
    done = -1 if last is None else last.ordinals[0]
    for counted, mark in batches(count):
        if mark.ordinals[0] > done:
            results.apply(counted, mark)
            print(mark.ordinals[0], flush=True)


#: A program that writes batches until it is killed.
WRITER = """
import sys
from pathlib import Path
from tests.spark.jobs import test_analytics as t
t.write(getattr(t, sys.argv[1])(Path(sys.argv[2])), int(sys.argv[3]))
"""


def check(results: Results, count: int) -> None:
    """Check that results have this many batches, each once."""
    first = int(BEGIN.timestamp())
    expected = [
        (first + 60 * n, "orders", "write", min(count - n, 2), max(count - n - 2, 0))
        for n in range(count)
    ]
    assert results.rows(CHANGES, 0) == expected
    assert [row[:2] for row in results.rows(LAG, 0)] == [row[:1] + row[3:4] for row in expected]
    # Entries that a window no longer has are removed.
    places = Counter(row[0] for row in results.rows(KEYS, 0))
    assert list(places.values()) == [3] * (count - 1) + [2]
    assert results.latest() == expected[-1][0]
    assert results.mark() == Mark("q", "s", {0: count - 1})
    with pytest.raises(PipelineError, match="another spool"):
        results.apply(Counted(), Mark("q", "other"))


@pytest.mark.parametrize("make", effort([in_files], [in_files, in_sqlite]))
def test_results_have_each_batch_once_whenever_they_are_killed(
    tmp_path: Path, make: Callable[[Path], Results]
) -> None:
    count = effort(40, 200)
    chance = random.Random(8)
    command = [sys.executable, "-c", WRITER, make.__name__, str(tmp_path), str(count)]
    root = str(Path(__file__).parents[3])
    for _ in range(effort(1, 20)):
        environment = {**os.environ, "PYTHONPATH": root}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as one:
            assert one.stdout is not None
            for _ in range(chance.randrange(1, count // 3)):
                one.stdout.readline()
            # It is within the next batch.
            one.kill()
    results = make(tmp_path)
    try:
        write(results, count)
        check(results, count)
    finally:
        results.close()


def test_results_in_files_have_each_batch_once_wherever_they_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure may be at any rename of a file: the order of names matters, not the time."""
    count, steps = 4, 0
    replace = Path.replace

    def fail(path: Path, target: Path) -> Path:
        nonlocal steps
        if steps == 0:
            raise OSError("killed")
        steps -= 1
        return replace(path, target)

    for steps_before in itertools.count():
        folder = tmp_path / str(steps_before)
        steps = steps_before
        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(Path, "replace", fail)
            write(in_files(folder), count)
            break
        write(in_files(folder), count)
        # An interrupted batch is repeated, and changes nothing.
        in_files(folder).apply(Counted(), Mark("q", "s"))
        check(in_files(folder), count)
    assert steps_before > 10


def test_results_in_a_database_are_the_same_after_each_start(target: Target) -> None:
    for count in (5, 30):
        with closing(SqlResults(target.url, "shop")) as results:
            write(results, count)
            check(results, count)
    with closing(SqlResults(target.url, "other")) as results:
        assert results.mark() is None
        assert results.rows(CHANGES, 0) == []
        write(results, 1)


def test_tables_of_results_that_can_not_be_created_are_told(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "counts.db")) as connection:
        connection.execute("CREATE TABLE other (a)")
        connection.execute("CREATE INDEX stompkit_analytics_lag ON other (a)")
    with closing(in_sqlite(tmp_path)) as results:
        with pytest.raises(RejectedRowError, match="already an index named stompkit_analytics_lag"):
            write(results, 1)


def test_missing_column_of_results_is_named_with_the_statement_that_adds_it(
    target: Target,
) -> None:
    with closing(SqlResults(target.url, "shop")) as results:
        write(results, 2)
    target.execute("ALTER TABLE stompkit_analytics_lag DROP COLUMN read_max_s")
    with closing(SqlResults(target.url, "shop")) as results:
        with pytest.raises(
            SchemaError, match=r"stompkit_analytics_lag of .* lacks read_max_s"
        ) as it:
            results.mark()
        assert "\n" not in str(it.value)
        statement = re.search("ALTER TABLE [^,]*", str(it.value))
        assert statement is not None
        target.execute(statement[0])
        write(results, 3)


# Reports.


class Page(HTMLParser):
    """The elements of a page."""

    def __init__(self, text: str) -> None:
        """Parse it."""
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a start tag."""
        self.seen[tag] += 1
        self.links += [f"{name}={value}" for name, value in attrs if name in ("src", "href")]
        self.links += [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an empty element."""
        self.seen[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        """Record an end tag, which must match the last start tag."""
        assert self.open.pop() == tag


def check_page(text: str) -> None:
    """Check that a page is complete, loads nothing, and describes each of its charts."""
    page = Page(text)
    assert not page.open
    assert page.links == []
    assert page.seen["script"] == 0
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    charts = page.seen["svg"]
    assert charts == 3
    assert text.count('role="img" aria-label="') == text.count("<desc>") == charts
    assert page.seen["details"] == charts


def test_a_report_shows_names_as_text(tmp_path: Path) -> None:
    file = described(tmp_path, f'path = "{tmp_path}/counts"')
    minute = int(BEGIN.timestamp())
    told = Counted(
        changes={(minute, "<script>alert(1)</script>"): {"write": 3}},
        keys={(minute, "<script>alert(1)</script>"): [('{"id":"<b>&"}', 3)]},
    )
    results_of(load(file)).apply(told, Mark("q", "s"))
    assert main(["report", str(file)]) == 0
    text = (tmp_path / "report.html").read_text()
    check_page(text)
    assert "&lt;script&gt;alert(1)" in text
    assert "&lt;b&gt;&amp;" in text


def test_a_report_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = described(tmp_path, f'url = "sqlite:///{tmp_path}/counts.db"')
    assert main(["report", str(file), "--output", "-"]) == 0
    assert "No changes are counted yet" in capsys.readouterr().out
    assert not (tmp_path / "counts.db").exists()


# Errors.


@pytest.mark.parametrize(
    ("target", "more", "complaint"),
    [
        ("", "", "this needs a path"),
        ('path = "a"\nurl = "sqlite:///b"', "", "not both"),
        ('url = "oracle://x/y"', "", "analytics.url"),
        ('path = "a"\nwatermark = "soon"', "", "such as 500ms"),
        ('path = "a"\ntop-keys = 0', "", "top-keys"),
        ('path = "a"', '[metrics]\nlisten = "nowhere"', "127.0.0.1:9400"),
        ('path = "a"', '[metrics]\nlisten = {analytics = "nowhere"}', "127.0.0.1:9400"),
        ('path = "a"', '[metrics]\nlisten = {analytic = "9400"}', "did you mean analytics"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    target: str,
    more: str,
    complaint: str,
) -> None:
    file = described(tmp_path, target.replace("top-keys = 0", ""), more)
    if "top-keys" in target:
        file.write_text(file.read_text().replace("top-keys = 3", "top-keys = 0"))
    assert main(["run", "analytics", "--config", str(file)]) == 2
    assert complaint in capsys.readouterr().err


def test_metrics_that_can_not_be_served_say_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "spool", plain(0, 1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        more = f'[metrics]\nlisten = "{port}"'
        settings = load(described(tmp_path, f'path = "{tmp_path}/counts"', more))
        with pytest.raises(PipelineError, match=r"or name another port$"):
            Pipeline(settings, "analytics", once=True, spark=spark).run()
        events = f'[events]\npath = "{tmp_path}/events"'
        both = load(described(tmp_path, f'path = "{tmp_path}/counts"', f"{more}\n{events}"))
        with pytest.raises(
            PipelineError, match="need different addresses, such as listen = "
        ) as no:
            Pipeline(both, "analytics", once=True, spark=spark).run()
        # What it says is valid, and each job has an address.
        (listen,) = re.findall(r"listen = \{.*\}", str(no.value))
        more = f"[metrics]\n{listen}"
        own = load(described(tmp_path, f'path = "{tmp_path}/counts"', f"{more}\n{events}"))
        assert own.metrics is not None
        found = [own.metrics.address(job) for job in ("events", "analytics", "replicate")]
        assert found == [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", None]
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PipelineError, match=r"pip install 'stompkit\[metrics\]'$"):
        Pipeline(both, "analytics", once=True, spark=spark).run()


def test_only_analytics_makes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = f'[events]\npath = "{tmp_path}/events"'
    file = described(tmp_path, f'path = "{tmp_path}/counts"', more)
    assert main(["run", "events", "--config", str(file), "--report", "x.html"]) == 2
    assert "--report is of analytics" in capsys.readouterr().err
