"""Results of the job *analytics* as folders of Parquet files: one file for each hour.

A batch writes its files under other names. When they are on the disk it writes down up to which
message they go, and which they are; from then on they are part of the results, and get their names,
after a crash by who comes next.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from stompkit._common.files import sync_path, write_atomically
from stompkit.spark.jobs._counting import Counted
from stompkit.spark.jobs._results import CHANGES, TABLES, Mark, Row, Spec, merged, ordered
from stompkit.spark.jobs.settings import PipelineProblem

__all__ = ["ParquetResults"]

_HOUR_S: Final = 3600
_US: Final = 1_000_000
_TYPES: Final = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_FORMAT: Final = 1
_STATE: Final = "state.json"
_SUFFIX: Final = ".parquet"


class ParquetResults:
    """A folder with a folder for each table."""

    def __init__(self, folder: Path) -> None:
        """Make nothing yet."""
        self._folder: Final = folder

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """A disk that is full."""
        return (OSError,)

    def apply(self, counted: Counted, mark: Mark) -> None:
        """Write what a batch says."""
        new = mark.after(self.mark(), str(self._folder))
        # A crash may have been before all files had their names.
        self._move()
        self._sweep()
        token = uuid4().hex
        hours: defaultdict[int, set[int]] = defaultdict(set)
        for minute in counted.minutes():
            hours[minute // _HOUR_S * _HOUR_S].add(minute)
        moves = [
            str(path.relative_to(self._folder))
            for spec in TABLES
            for hour, minutes in sorted(hours.items())
            if (path := self._stage(spec, hour, minutes, counted, token)) is not None
        ]
        told = {
            "v": _FORMAT,
            "query": new.query,
            "spool": new.spool,
            "p": {str(number): ordinal for number, ordinal in new.ordinals.items()},
            "moves": moves,
            # Files that another batch has staged, and was killed, are no part of this one.
            "token": token,
        }
        write_atomically(self._folder / _STATE, json.dumps(told).encode(), mode=None)
        self._move()

    def mark(self) -> Mark | None:
        """Up to where results go."""
        found = self._state()
        if found is None:
            return None
        ordinals = {int(number): ordinal for number, ordinal in found["p"].items()}
        return Mark(found["query"], found["spool"], ordinals)

    def rows(self, spec: Spec, since: int) -> list[Row]:
        """What a table has from a minute on."""
        first = _name(since // _HOUR_S * _HOUR_S)
        paths = [path for path in self._paths(spec) if path.name >= first]
        return [row for path in paths for row in _rows(_table(path)) if row[0] >= since]

    def latest(self) -> int | None:
        """The last minute that has changes."""
        for path in reversed(self._paths(CHANGES)):
            if rows := _rows(_table(path)):
                return int(rows[-1][0])
        return None

    def close(self) -> None:
        """Nothing is open."""

    def _paths(self, spec: Spec) -> list[Path]:
        return sorted((self._folder / spec.name).glob(f"*{_SUFFIX}"))

    def _state(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self._folder / _STATE).read_bytes())
        except FileNotFoundError:
            return None
        if found["v"] != _FORMAT:
            raise PipelineProblem(
                f"{self._folder} has results of format {found['v']}, and {_FORMAT} is known"
            )
        return found

    def _stage(
        self, spec: Spec, hour: int, minutes: set[int], counted: Counted, token: str
    ) -> Path | None:
        """Write the file of an hour under another name; gives its own, if there is something."""
        path = self._folder / spec.name / _name(hour)
        before = _rows(_table(path)) if path.exists() else []
        others = [row for row in before if row[0] not in minutes]
        changed = merged(spec, (row for row in before if row[0] in minutes), counted, minutes)
        if not changed and not before:
            return None
        sink = BytesIO()
        pq.write_table(_made(spec, ordered(spec, [*others, *changed])), sink)
        write_atomically(_staged(path, token), sink.getvalue(), mode=None)
        return path

    def _sweep(self) -> None:
        """Remove what a batch has left that was killed before it was part of the results."""
        for spec in TABLES:
            for path in (self._folder / spec.name).glob(".*"):
                path.unlink(missing_ok=True)

    def _move(self) -> None:
        """Give files their names, which are part of what the state says."""
        state = self._state()
        folders = set()
        if state is None:
            return
        for move in state["moves"]:
            path = self._folder / move
            with suppress(FileNotFoundError):
                _staged(path, state["token"]).replace(path)
                folders.add(path.parent)
        for folder in folders:
            sync_path(folder)


def _staged(path: Path, token: str) -> Path:
    """What a file is called before it is part of the results: nobody reads such names."""
    return path.with_name(f".{path.name}.{token}.staged")


def _name(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%H}{_SUFFIX}"


def _table(path: Path) -> pa.Table:
    return pq.read_table(path, partitioning=None)


def _rows(table: pa.Table) -> list[Row]:
    minutes = table.column("minute").cast(pa.int64()).to_pylist()
    others = (table.column(name).to_pylist() for name in table.column_names[1:])
    return [(row[0] // _US, *row[1:]) for row in zip(minutes, *others, strict=True)]


def _made(spec: Spec, rows: Sequence[Row]) -> pa.Table:
    kinds = [("minute", pa.timestamp("us", "UTC"))]
    kinds += [(name, _TYPES[kind]) for name, kind in spec.columns.items()]
    found = [pa.array([row[0] * _US for row in rows], pa.int64()).cast(kinds[0][1])]
    for place, (_, kind) in enumerate(kinds[1:], 1):
        found.append(pa.array([row[place] for row in rows], kind))
    return pa.Table.from_arrays(found, schema=pa.schema(kinds))
