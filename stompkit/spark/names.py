"""Names of the tables and columns in batches of changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from stompkit.spark.documents import by_table, document
from stompkit.spark.states import StateError

__all__ = ["Names", "NamesFound", "dump", "load", "merged"]

#: Columns of tables, by schema and name of the table.
Names = Mapping[tuple[str, str], frozenset[str]]

_WITHOUT_ROWS = pa.array(["schema", "truncate", "unreadable"])


class NamesFound:
    """The names in batches that pass through."""

    def __init__(self) -> None:
        """Start without names."""
        self.names: dict[tuple[str, str], frozenset[str]] = {}

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and note their names."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Note the tables, each with the columns of its first row in the batch."""
        for source, rows in by_table(batch):
            if not source[1]:
                continue  # a message without changeset
            own = batch.take(pa.array(rows[:1]))
            if pc.any(pc.is_in(own.column("operation"), _WITHOUT_ROWS)).as_py():
                own = batch.take(pa.array(rows))
                own = own.filter(pc.invert(pc.is_in(own.column("operation"), _WITHOUT_ROWS)))
            known = self.names.get(source, frozenset())
            self.names[source] = known.union(_columns(own)) if own.num_rows else known


def _columns(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield the columns of the first row."""
    for name in ("key", "before", "after"):
        text = batch.column(name)[0].as_py() if name in batch.schema.names else None
        if text is None:
            continue
        try:
            yield from document(text if isinstance(text, bytes) else text.encode()) or ()
        except StateError:
            continue  # the job reports the change


def merged(found: Iterable[Names]) -> dict[tuple[str, str], frozenset[str]]:
    """Return the names of several batches."""
    names: dict[tuple[str, str], frozenset[str]] = {}
    for each in found:
        for table, columns in each.items():
            names[table] = names.get(table, frozenset()) | columns
    return names


def dump(names: Names) -> bytes:
    """Return names as JSON."""
    return msgspec.json.encode([(*table, sorted(names[table])) for table in sorted(names)])


def load(octets: bytes) -> dict[tuple[str, str], frozenset[str]]:
    """Return names from JSON; raises :class:`msgspec.DecodeError`."""
    rows = msgspec.json.decode(octets, type=list[tuple[str, str, list[str]]])
    return {(schema, table): frozenset(columns) for schema, table, columns in rows}
