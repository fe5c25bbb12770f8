"""Versions of rows, for changes in another order than that of the spool."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from sqlalchemy import Connection

from stompkit.replication.model.values import InvalidValueError, from_json, to_json
from stompkit.replication.sinks import ApplyError
from stompkit.spark.states import Admit, Document, Place, Problem, TableRules
from stompkit.spark.targets.base import Job
from stompkit.spark.targets.database.pipeline_tables import PipelineTables
from stompkit.spark.targets.planning.collapse import Collapse

if TYPE_CHECKING:
    from stompkit.spark.targets.database.tally import Tally

__all__ = ["Ages"]

#: Maximum length in characters of a key that is stored unchanged.
_LONGEST: Final = 200
_DOCUMENTS: Final = ("after", "before", "key")


class Ages:
    """Sorts changes, and rejects those older than the known version of their row."""

    def __init__(self, job: Job) -> None:
        """Start without changes."""
        self._job = job
        self._of: dict[Place, Any] = {}
        #: Known versions by table and key.
        self._known: dict[str, dict[str, Any]] = {}
        self._new: dict[str, dict[str, tuple[str, int, bool]]] = defaultdict(dict)
        self.conflicts = 0

    def sort(self, batches: Sequence[pa.RecordBatch], tally: Tally) -> list[pa.RecordBatch]:
        """Return the changes with a version, from the oldest to the newest."""
        if not batches:
            return []
        table = pa.Table.from_batches(batches).combine_chunks()
        rows = []
        for number, row in enumerate(table.to_pylist()):
            place = (row["_partition"], row["_ordinal"], row["change"])
            try:
                age = self._age(row)
            except (msgspec.DecodeError, InvalidValueError) as problem:
                tally.refuse([_problem(row, place, f"it cannot be read: {problem}")])
                continue
            if age is None and row["operation"] not in ("unreadable", "schema", "truncate"):
                reason = f"{self._job.sequence_by!r} is not told"
                tally.refuse([_problem(row, place, reason)])
                continue
            self._of[place] = age
            rows.append((age is None, age, place, number))
        try:
            rows.sort()
        except TypeError:
            raise ApplyError(
                f"changes have no order by {self._job.sequence_by!r}: its types differ"
            ) from None
        indices = pa.array([number for _, _, _, number in rows], pa.int64())
        sorted_batches: list[pa.RecordBatch] = table.take(indices).to_batches()
        return sorted_batches

    def _age(self, row: dict[str, Any]) -> Any:
        """Return the version of a change; ``None`` if it has none."""
        name = self._job.sequence_by
        if name in row:
            return row[name]
        for document in _DOCUMENTS:
            told = msgspec.json.decode(row[document]) if row[document] else None
            if isinstance(told, dict) and told.get(name) is not None:
                return from_json(told[name])
        return None

    def look_up(
        self,
        connection: Connection,
        books: PipelineTables,
        batches: Sequence[pa.RecordBatch],
        rules: Callable[[str, str], TableRules],
    ) -> Admit:
        """Look up the versions of all rows in the changes; return the filter for changes."""
        asked: dict[str, dict[str, None]] = defaultdict(dict)

        def ask(source: tuple[str, str], key: Document, place: Place, *, is_gone: bool) -> bool:
            asked[_name(source)][_text(key)] = None
            return True

        collapse = Collapse(self._job.choice, rules, alone=True, admit=ask)
        for batch in batches:
            collapse.add(batch)
        for name, keys in asked.items():
            found = books.versions(connection, self._job.pipeline, name, list(keys))
            self._known[name] = {
                key: from_json(msgspec.json.decode(version)) for key, version in found.items()
            }
        return self._admit

    def _admit(
        self, source: tuple[str, str], key: Document, place: Place, *, is_gone: bool
    ) -> bool:
        name, text, age = _name(source), _text(key), self._of[place]
        known = self._known.get(name, {}).get(text)
        try:
            is_late = known is not None and age < known
        except TypeError:
            raise ApplyError(
                f"the row {text} of the table {name!r} has a {self._job.sequence_by!r} of"
                " another type than its change"
            ) from None
        if is_late:
            self.conflicts += 1
            return False
        version = msgspec.json.encode(to_json(age)).decode()
        self._new[name][text] = (version, place[1], is_gone)
        return True

    def store(self, connection: Connection, books: PipelineTables) -> None:
        """Store the new versions of rows, and expire old tombstones."""
        for name, rows in self._new.items():
            books.remember(connection, self._job.pipeline, name, rows, self._known.get(name, {}))
        books.expire(connection, self._job.pipeline, self._job.tombstones_s)


def _problem(row: dict[str, Any], place: Place, reason: str) -> Problem:
    name = ".".join(filter(None, (row["schema"], row["table"])))
    return Problem(place, row["operation"], name, row["key"] or "", reason)


def _name(source: tuple[str, str]) -> str:
    return ".".join(filter(None, source))


def _text(key: Document) -> str:
    """Return the stored form of a key."""
    text = msgspec.json.encode([key[name] for name in sorted(key)]).decode()
    if len(text) <= _LONGEST:
        return text
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
