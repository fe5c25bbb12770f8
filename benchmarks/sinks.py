"""How many rows each sink of replication applies, for each second of CPU time.

Changesets write rows of ten columns, update all of them, and delete all of them. They are applied
in batches, as a job does it. A figure is the median of the CPU time of this process. That includes
SQLite, which runs in it; the other databases run in processes of their own.

To try::

    python -m benchmarks.sinks --rows 2000 --rounds 1 --sink sqlite
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any, Final

from sqlalchemy import create_engine

from benchmarks._compiled import measure_compiled
from benchmarks._parts import PARTS, rows
from benchmarks._report import Figure, make_parser, positive, progress, report, unusable
from stompkit.replication.model.events import Action, Changeset, RowChange, Source, make_changeset
from stompkit.replication.sinks import Sink
from stompkit.replication.sinks.cache import RedisSink
from stompkit.replication.sinks.sql import SqlSink
from tests.servers import MariaDb, MySql, PostgreSql, RedisServer, ServerMissing, SqlServer

_ACTIONS: Final[tuple[Action, ...]] = ("write", "update", "delete")
#: Changesets applied together: the default of a job.
_BATCH: Final = 100
_SOURCE: Final = Source(kind="benchmark")


def main() -> int:
    """Measure; return the exit status."""
    parser = make_parser("sinks", __doc__ or "")
    parser.add_argument("--sink", choices=_SINKS, action="append", help="(default: all)")
    parser.add_argument("--rows", type=positive, default=20_000, help="(default: 20000)")
    parser.add_argument(
        "--transaction-rows", type=positive, default=10, metavar="N", help="(default: 10)"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="(default: 5)")
    options = parser.parse_args()
    measure_compiled("benchmarks.sinks")
    changes = {action: list(_changes(action, options.rows)) for action in _ACTIONS}
    figures: list[Figure] = []
    for name in options.sink or _SINKS:
        with ExitStack() as stack:
            try:
                sink = _SINKS[name](stack)
            except ServerMissing as missing:
                if options.sink:
                    raise unusable(str(missing)) from None
                print(f"skipped: {missing}", file=sys.stderr)
                continue
            figures += _measure(name, sink, changes, options.transaction_rows, options.rounds)
    return report(parser, options.json, figures, [])


def _changes(action: Action, count: int) -> Iterator[RowChange]:
    for number, row in enumerate(rows(count)):
        after: dict[str, Any] | None = row
        if action == "update":
            after = row | {"amount": number, "note": "y" * (number % 40)}
        elif action == "delete":
            after = None
        key = {"id": row["id"]}
        yield RowChange(table="parts", schema="shop", action=action, key=key, after=after)


def _measure(
    name: str,
    sink: Sink,
    changes: dict[Action, list[RowChange]],
    transaction_rows: int,
    rounds: int,
) -> Iterator[Figure]:
    """Apply all changes in each round, after one round that does not count."""
    cpu_s: dict[str, list[float]] = {action: [] for action in changes}
    elapsed_s: dict[str, list[float]] = {action: [] for action in changes}
    sequence = 0
    for number in range(rounds + 1):
        progress(f"{name}: round {number + 1} of {rounds + 1}")
        for action, made in changes.items():
            changesets = _changesets(made, transaction_rows, sequence)
            sequence += len(changesets)
            cpu, clock = time.process_time(), time.perf_counter()
            for first in range(0, len(changesets), _BATCH):
                sink.apply(changesets[first : first + _BATCH])
            cpu_s[action].append(time.process_time() - cpu)
            elapsed_s[action].append(time.perf_counter() - clock)
    for action, made in changes.items():
        for key, about, seconds in (
            ("per_core_s", "rows per second and core", cpu_s[action]),
            ("per_s", "rows per second", elapsed_s[action]),
        ):
            rate = len(made) / median(seconds[1:])
            yield Figure(f"{name}_{action}_{key}", f"{name}, {action}: {about}", rate)


def _changesets(changes: list[RowChange], transaction_rows: int, sequence: int) -> list[Changeset]:
    pieces = range(0, len(changes), transaction_rows)
    return [
        make_changeset("origin", number, changes[first : first + transaction_rows], _SOURCE)
        for number, first in enumerate(pieces, sequence + 1)
    ]


# Sinks.


def _sqlite(stack: ExitStack) -> Sink:
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="stompkit-benchmark-"))
    return _sql(stack, f"sqlite:///{Path(directory) / 'target.db'}")


def _server(kind: type[SqlServer]) -> Callable[[ExitStack], Sink]:
    def make(stack: ExitStack) -> Sink:
        server = stack.enter_context(kind())
        return _sql(stack, server.url(server.new_database()))

    return make


def _sql(stack: ExitStack, url: str) -> Sink:
    engine = create_engine(url)
    stack.callback(engine.dispose)
    PARTS.create(engine)
    return stack.enter_context(closing(SqlSink(engine)))


def _redis(stack: ExitStack) -> Sink:
    server = stack.enter_context(RedisServer())
    return stack.enter_context(closing(RedisSink(server.url)))


_SINKS: Final[dict[str, Callable[[ExitStack], Sink]]] = {
    "sqlite": _sqlite,
    "postgresql": _server(PostgreSql),
    "mariadb": _server(MariaDb),
    "mysql": _server(MySql),
    "redis": _redis,
}


if __name__ == "__main__":
    sys.exit(main())
