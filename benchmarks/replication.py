"""How fast changes go from databases to a broker, each confirmed by a receipt.

The outbox of an SQLite database is filled with changesets of one change each, and copies of it are
relayed. Then a table of MariaDB gets rows of ten columns in one transaction, and the binary log is
read: by the library mysql-replication alone, which decodes the rows and does nothing with them, and
by ``mysql_pub`` with ``stomp_sub``, until a broker has confirmed all. The two take turns.

To try::

    python -m benchmarks.replication --changes 5000 --rows 5000 --rounds 1
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from blinker import Signal
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.event import listen
from sqlalchemy.orm import sessionmaker

from benchmarks._compiled import measure_compiled
from benchmarks._report import Bound, Figure, make_parser, positive, progress, report
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.sinks.forwarders.stomp import stomp_sub
from stompkit.replication.sources.mysql import MysqlPublisher
from stompkit.replication.sources.outbox import Outbox
from stompkit.replication.sources.publication import Publication
from stompkit.replication.sources.relay import OutboxRelay
from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.servers import MariaDb, ServerMissing

#: Target of the documentation.
OUTBOX_PER_S: Final = 25_000
OVERHEAD: Final = 0.30

_TABLE: Final = """CREATE TABLE parts (id INT PRIMARY KEY, name VARCHAR(50), price DECIMAL(10,2),
    made DATETIME(6), day DATE, amount INT UNSIGNED, weight DOUBLE, data VARBINARY(50), note TEXT,
    flag TINYINT)"""
_ROWS: Final = """INSERT INTO parts SELECT seq, CONCAT('name ', seq), seq / 7, NOW(6), CURDATE(),
    seq * 3, seq / 3, 'some octets', REPEAT('x', 40), seq % 2 FROM seq_1_to_{count}"""


def outbox(running: RunningBroker, directory: Path, count: int) -> tuple[float, float]:
    """Relay a copy of the filled outbox; return seconds, elapsed and of CPU time."""
    copy = directory / "copy.db"
    shutil.copy(directory / "outbox.db", copy)
    engine = create_engine(f"sqlite:///{copy}")
    with stomp_sub(f"{running.url}/queue/outbox", changesets=Signal()) as sub:
        relay = OutboxRelay(engine, sub)
        sub.link.wait_connected()
        progress(f"relaying {count} changesets")
        began, cpu = time.perf_counter(), time.process_time()
        done = 0
        while done < count:
            done += relay.run_once()
        taken_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        relay.close()
    engine.dispose()
    return taken_s, cpu_s


def fill(url: str, count: int) -> None:
    """Write changesets of one change each into an outbox, with a transaction for each."""
    engine = create_engine(url)
    # Filling is not measured, so it needs no synchronous writes.
    listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    sessions = sessionmaker(engine)
    box = Outbox(sessions, ())
    box.create(engine)
    chance = Random(1)
    for number in range(1, count + 1):
        if number % 500 == 0:
            progress(f"filling the outbox: {number} of {count}")
        row = {
            "id": number,
            "name": f"name {chance.random()}",
            "amount": chance.randrange(10**6),
            "note": "x" * chance.randrange(5, 80),
        }
        change = RowChange(table="parts", action="write", key={"id": number}, after=row)
        with sessions.begin() as session:
            box.add(session, [change])
    progress()
    box.close()
    engine.dispose()


def library(server: MariaDb, count: int) -> float:
    """Read the binary log with the library alone; return seconds of processor time."""
    began = time.process_time()
    stream = BinLogStreamReader(
        connection_settings={"unix_socket": str(server.socket), "user": "root", "password": ""},
        server_id=4242,
        only_events=[WriteRowsEvent],
        blocking=False,
        log_file="binlog.000001",
        log_pos=4,
        resume_stream=True,
    )
    seen = sum(len(event.rows) for event in stream)
    stream.close()
    assert seen == count, seen
    return time.process_time() - began


def publisher(server: MariaDb, running: RunningBroker, url: str, count: int) -> float:
    """Publish the binary log until the broker confirms all; return seconds of processor time."""
    began = time.process_time()
    publication = Publication(kind="mysql", tables=Tables(["*.parts"]))
    target = f"{running.url}/topic/parts"
    with stomp_sub(target):
        MysqlPublisher(url, publication=publication, start="file").run()
        publication.flush()
    assert publication.changes >= count, publication.changes
    return time.process_time() - began


def taking_turns(rounds: int, *sides: Callable[[], float]) -> list[float]:
    """Measure both sides alternately; return their medians."""
    times: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        for side, found in zip(sides, times, strict=True):
            progress(f"reading the binary log: round {number + 1} of {rounds}")
            found.append(side())
    progress("")
    return [median(each) for each in times]


def prepare(server: MariaDb, count: int) -> str:
    """Create the table and its rows; return the URL of its database."""
    url = server.url(server.new_database())
    engine = create_engine(make_url(url))
    with engine.begin() as connection:
        connection.execute(text(_TABLE))
        connection.execute(text(_ROWS.format(count=count)))
    engine.dispose()
    return url


def main() -> int:
    """Measure; return the exit status."""
    words, _, _ = (__doc__ or "").partition("\n\nTo try")
    parser = make_parser("replication", words)
    parser.add_argument("--changes", type=positive, default=20_000, help="(default: 20000)")
    parser.add_argument("--rows", type=positive, default=100_000, help="(default: 100000)")
    parser.add_argument("--rounds", type=positive, default=5, help="(default: 5)")
    parser.add_argument("--outbox", action="store_true", help="measure the outbox only")
    options = parser.parse_args()
    measure_compiled("benchmarks.replication")
    with tempfile.TemporaryDirectory(prefix="stompkit-benchmark-") as name:
        directory = Path(name)
        arguments = ("--data", str(directory / "data"))
        figures, bounds = [], []
        with launch(LaunchConfig(arguments=arguments)) as running:
            for measure in (_outbox, *([] if options.outbox else [_binary_log])):
                try:
                    found, bound = measure(running, directory, options)
                except ServerMissing as missing:
                    print(missing, file=sys.stderr)
                    return 1
                figures += found
                bounds.append(bound)
    return report(parser, options.json, figures, bounds)


def _outbox(
    running: RunningBroker, directory: Path, options: argparse.Namespace
) -> tuple[list[Figure], Bound]:
    count = options.changes
    fill(f"sqlite:///{directory}/outbox.db", count)
    runs = [outbox(running, directory, count) for _ in range(options.rounds)]
    taken_s, cpu_s = (median(each) / count for each in zip(*runs, strict=True))
    each = Figure("outbox_us", "microseconds for a change of the outbox", taken_s * 1e6)
    figures = [
        Figure("outbox_per_s", "changes of an outbox confirmed per second", 1 / taken_s),
        each,
        Figure("outbox_cpu_us", "us of processor time a change of the outbox", cpu_s * 1e6, ",.1f"),
    ]
    return figures, Bound(each, 1e6 / OUTBOX_PER_S)


def _binary_log(
    running: RunningBroker, directory: Path, options: argparse.Namespace
) -> tuple[list[Figure], Bound]:
    server = MariaDb()
    rows = options.rows
    try:
        server.start()
        url = prepare(server, rows)
        alone_s, ours_s = taking_turns(
            options.rounds,
            lambda: library(server, rows),
            lambda: publisher(server, running, url, rows),
        )
    finally:
        server.remove()
    overhead = Figure("overhead", "more than the library alone", ours_s / alone_s - 1, ".2f")
    figures = [
        Figure("library_us", "us of processor time a row, library alone", alone_s / rows * 1e6),
        Figure(
            "mysql_us", "us of processor time a row, confirmed by a broker", ours_s / rows * 1e6
        ),
        overhead,
    ]
    return figures, Bound(overhead, OVERHEAD)


if __name__ == "__main__":
    raise SystemExit(main())
