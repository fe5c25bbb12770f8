"""Results of the job *analytics* as folders of Parquet files: one file for each hour.

A batch writes its files under temporary names. Once they are on disk it stores their list and the
position up to which they go. From then on they are part of the results and are renamed; after a
crash the next run renames them.
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
from stompkit.spark.jobs.results.base import CHANGES, TABLES, Mark, Row, Spec, merged, ordered
from stompkit.spark.jobs.results.counting import Counted
from stompkit.spark.jobs.settings import PipelineError

__all__ = ["ParquetResults"]

_HOUR_S: Final = 3600
_US: Final = 1_000_000
_TYPES: Final = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_FORMAT: Final = 1
_STATE: Final = "state.json"
_SUFFIX: Final = ".parquet"


class ParquetResults:
    """A folder with one subfolder for each table."""

    def __init__(self, folder: Path) -> None:
        """Describe the folder without creating it."""
        self._folder: Final = folder

    @property
    def passing(self) -> tuple[type[Exception], ...]:
        """Errors for which a retry may succeed: a full disk."""
        return (OSError,)

    def apply(self, counted: Counted, mark: Mark) -> None:
        """Write the result of a batch."""
        new = mark.after(self.mark(), str(self._folder))
        # The last run may have crashed before all files were renamed.
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
            # Files staged by a killed batch do not belong to this one.
            "token": token,
        }
        write_atomically(self._folder / _STATE, json.dumps(told).encode(), mode=None, parents=True)
        self._move()

    def mark(self) -> Mark | None:
        """Return the mark of the results."""
        found = self._state()
        if found is None:
            return None
        ordinals = {int(number): ordinal for number, ordinal in found["p"].items()}
        return Mark(found["query"], found["spool"], ordinals)

    def rows(self, spec: Spec, since: int) -> list[Row]:
        """Return the rows of a table from a minute on."""
        first = _name(since // _HOUR_S * _HOUR_S)
        paths = [path for path in self._paths(spec) if path.name >= first]
        return [row for path in paths for row in _rows(_table(path)) if row[0] >= since]

    def latest(self) -> int | None:
        """Return the last minute with changes."""
        for path in reversed(self._paths(CHANGES)):
            if rows := _rows(_table(path)):
                return int(rows[-1][0])
        return None

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def _paths(self, spec: Spec) -> list[Path]:
        return sorted((self._folder / spec.name).glob(f"*{_SUFFIX}"))

    def _state(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self._folder / _STATE).read_bytes())
        except FileNotFoundError:
            return None
        if found["v"] != _FORMAT:
            raise PipelineError(
                f"{self._folder} has results of format {found['v']}, and {_FORMAT} is known"
            )
        return found

    def _stage(
        self, spec: Spec, hour: int, minutes: set[int], counted: Counted, token: str
    ) -> Path | None:
        """Write the file of an hour under a temporary name; return its final path, if any."""
        path = self._folder / spec.name / _name(hour)
        before = _rows(_table(path)) if path.exists() else []
        others = [row for row in before if row[0] not in minutes]
        changed = merged(spec, (row for row in before if row[0] in minutes), counted, minutes)
        if not changed and not before:
            return None
        sink = BytesIO()
        pq.write_table(_made(spec, ordered(spec, [*others, *changed])), sink)
        write_atomically(_staged(path, token), sink.getvalue(), mode=None, parents=True)
        return path

    def _sweep(self) -> None:
        """Remove files of a batch that was killed before they became part of the results."""
        for spec in TABLES:
            for path in (self._folder / spec.name).glob(".*"):
                path.unlink(missing_ok=True)

    def _move(self) -> None:
        """Rename the files listed in the state to their final names."""
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
    """Return the temporary name of a file, which readers ignore."""
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
