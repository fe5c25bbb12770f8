"""Rows of the log as changes, by readers that are created once for each table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pymysqlreplication.constants import FIELD_TYPE

from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import NoDate, Value
from stompkit.replication.sources.mysql._binlog.charsets import Decode
from stompkit.replication.sources.mysql._binlog.events import (
    DELETES,
    UPDATES,
    WRITES,
    LogEvent,
    rows_in,
)
from stompkit.replication.sources.mysql._binlog.moments import Zero
from stompkit.replication.sources.mysql._binlog.numbers import number_at
from stompkit.replication.sources.mysql._binlog.patches import patched
from stompkit.replication.sources.mysql._binlog.tablemap import TableMap, is_hidden
from stompkit.replication.sources.mysql._binlog.values import Read, read_octets, reader

__all__ = ["Decoding", "RowReader", "TableRows"]

_Row = dict[str, Value]
#: Function that reads a row at an index; returns the row and the index after it.
RowReader = Callable[[bytes, int], tuple[_Row, int]]
#: Flag before the new values of a row, if they contain partial documents.
_HAS_PARTS: Final = 1


@dataclass(frozen=True)
class Decoding:
    """Context for decoding values: settings that the log does not contain."""

    #: Decoders by collation number.
    decode: Callable[[int], Decode]
    zero: Zero = NoDate
    #: Columns that stand for the key, by table: ``shop.orders`` or ``orders``.
    keys: Mapping[str, Sequence[str]] | None = None


class TableRows:
    """Reads the rows of one table, for one version of its description."""

    def __init__(
        self,
        mapped: TableMap,
        specials: Mapping[str, str],
        decoding: Decoding,
        nulls: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Prepare for the columns; ``specials`` is the catalogue's information on their types.

        ``nulls`` returns the columns that are NULL in a new row if a statement does not name them.
        Raises ``ValueError``, naming the column.
        """
        self._nulls = nulls
        self.mapped: Final = mapped
        self.specials: Final = specials
        self.schema: Final = mapped.schema
        self.table: Final = mapped.table
        if not mapped.has_names:
            raise ValueError(
                f"{mapped.schema}.{mapped.table} has no names of columns in the log: it was "
                "written before binlog_row_metadata was FULL, and cannot be read"
            )
        self._readers: list[tuple[str, Read]] = []
        for column in mapped.columns:
            try:
                read = reader(
                    column,
                    specials.get(column.name, ""),
                    decoding.decode,
                    zero=decoding.zero,
                )
            except ValueError as problem:
                raise ValueError(
                    f"column {column.name} of {mapped.schema}.{mapped.table}: {problem}"
                ) from None
            self._readers.append((column.name, read))
        #: Indexes of JSON columns, which may be logged as partial updates.
        self._documents = [
            index for index, each in enumerate(mapped.columns) if each.type == FIELD_TYPE.JSON
        ]
        self._hidden = frozenset(
            column.name for column in mapped.columns if is_hidden(column, specials)
        )
        self.key: Final = self._key_columns(decoding.keys or {})
        self.is_sequence: Final = mapped.is_sequence
        self._images: dict[tuple[bytes, int], RowReader] = {}
        #: Columns that inserted rows do not have, by the bit sets of those that they have.
        self._missing: dict[bytes, _Row] = {}

    def _key_columns(self, keys: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        columns = self.mapped.columns
        given = keys.get(f"{self.schema}.{self.table}", keys.get(self.table))
        if given is None:
            return tuple(columns[index].name for index in self.mapped.key)
        missing = set(given) - {column.name for column in columns}
        if missing:
            raise ValueError(
                f"{self.schema}.{self.table} has no column {', '.join(sorted(missing))}, "
                "which is to be in its key"
            )
        return tuple(given)

    # Changes of one event.

    def changes(self, event: LogEvent) -> Iterator[RowChange]:
        """Yield the changes of an event; raises ``ValueError`` and others for invalid bytes."""
        count, present, after, at = rows_in(event)
        if count != len(self.mapped.columns):
            raise ValueError("a row has not as many columns as its table")
        data, end = event.data, event.end
        match event.kind:
            case kind if kind in WRITES:
                return self._writes(data, at, end, present)
            case kind if kind in DELETES:
                return self._deletes(data, at, end, present)
            case kind if kind in UPDATES:
                return self._updates(data, at, end, present, after)
        return self._partial_updates(data, at, end, present, after)

    def _writes(self, data: bytes, at: int, end: int, present: bytes) -> Iterator[RowChange]:
        """Yield inserted rows; raises ``ValueError`` for invalid bytes."""
        read = self._image(present)
        missing = self._missing_in(present)
        schema, table, key = self.schema, self.table, self.key
        while at < end:
            row, at = read(data, at)
            if missing:
                row |= missing
            yield RowChange(
                table=table,
                action="write",
                key={name: row[name] for name in key},
                after=row,
                schema=schema,
            )
        self._ends(at, end)

    def _missing_in(self, present: bytes) -> _Row:
        """Return the columns that are NULL since inserted rows do not contain them.

        Raises ``ValueError`` for other columns: the log has no values that the server has set.
        """
        missing = self._missing.get(present)
        if missing is None:
            bits = int.from_bytes(present, "little")
            names = [each.name for at, each in enumerate(self.mapped.columns) if not bits >> at & 1]
            names = [name for name in names if name not in self._hidden]
            nulls = self._nulls() if names else ()
            unknown = [name for name in names if name not in nulls]
            if unknown:
                raise ValueError(
                    f"new rows have no {', '.join(unknown)}, which the server has set, as by a"
                    " DEFAULT: SET GLOBAL binlog_row_image = FULL, and then take a new snapshot"
                    " with empty offsets"
                )
            missing = self._missing[present] = dict.fromkeys(names)
        return missing

    def _deletes(self, data: bytes, at: int, end: int, present: bytes) -> Iterator[RowChange]:
        """Yield deleted rows; raises ``ValueError`` for invalid bytes."""
        read = self._image(present)
        schema, table, key = self.schema, self.table, self.key
        while at < end:
            row, at = read(data, at)
            yield RowChange(
                table=table,
                action="delete",
                key={name: row[name] for name in key},
                before=row,
                schema=schema,
            )
        self._ends(at, end)

    def _updates(
        self, data: bytes, at: int, end: int, present: bytes, present_after: bytes
    ) -> Iterator[RowChange]:
        """Yield updated rows; raises ``ValueError`` for invalid bytes."""
        read_before, read_after = self._image(present), self._image(present_after)

        def pairs() -> Iterator[tuple[_Row, _Row]]:
            place = at
            while place < end:
                before, place = read_before(data, place)
                after, place = read_after(data, place)
                yield before, after
            self._ends(place, end)

        return self._updated(pairs())

    def _partial_updates(
        self, data: bytes, at: int, end: int, present: bytes, present_after: bytes
    ) -> Iterator[RowChange]:
        """Yield updated rows whose documents may be logged as partial updates.

        Raises ``ValueError`` for invalid bytes, and if the log lacks a document.
        """
        read_before = self._image(present)

        def pairs() -> Iterator[tuple[_Row, _Row]]:
            place = at
            while place < end:
                before, place = read_before(data, place)
                options, place = number_at(data, place)
                bits = 0
                if options & _HAS_PARTS:
                    start, place = place, place + (len(self._documents) + 7) // 8
                    bits = int.from_bytes(data[start:place], "little")
                after, place = self._image(present_after, bits)(data, place)
                for index, column in enumerate(self._documents):
                    name = self.mapped.columns[column].name
                    if bits >> index & 1 and after.get(name) is not None:
                        after[name] = self._patched(name, before, after[name])
                yield before, after
            self._ends(place, end)

        return self._updated(pairs())

    def _patched(self, name: str, before: _Row, changes: Value) -> Value:
        """Return a document after its partial update."""
        if name not in before:
            raise ValueError(
                f"of the documents in {name} only parts are in the log: "
                "SET GLOBAL binlog_row_image = FULL"
            )
        assert isinstance(changes, bytes)
        return patched(before[name], changes)

    def _updated(self, pairs: Iterator[tuple[_Row, _Row]]) -> Iterator[RowChange]:
        schema, table, names = self.schema, self.table, self.key
        for before, after in pairs:
            old = {name: before[name] for name in names}
            # A minimal image of the new row contains only the changed columns.
            key = {name: after[name] if name in after else old[name] for name in names}
            yield RowChange(
                table=table,
                action="update",
                key=key,
                before=before,
                after=after,
                old_key=old if old != key else None,
                schema=schema,
            )

    def _ends(self, at: int, end: int) -> None:
        if at != end:
            raise ValueError(f"the rows of {self.schema}.{self.table} do not end where they should")

    def _image(self, present: bytes, parts: int = 0) -> RowReader:
        """Return the reader of rows that contain the columns in a bit set.

        For documents whose bits are set in *parts*, it reads the bytes of their partial updates.
        """
        read = self._images.get((present, parts))
        if read is None:
            bits = int.from_bytes(present, "little")
            all_readers = self._readers.copy()
            for index, column in enumerate(self._documents):
                if parts >> index & 1:
                    all_readers[column] = (all_readers[column][0], read_octets)
            readers = [each for index, each in enumerate(all_readers) if bits >> index & 1]
            read = _row_reader(readers)
            if not self._hidden.isdisjoint(name for name, _ in readers):
                read = _without(self._hidden, read)
            self._images[present, parts] = read
        return read


def _without(hidden: frozenset[str], read: RowReader) -> RowReader:
    """Return a row reader that drops the hidden columns."""

    def read_row(data: bytes, at: int) -> tuple[_Row, int]:
        row, at = read(data, at)
        return {name: value for name, value in row.items() if name not in hidden}, at

    return read_row


def _row_reader(columns: Sequence[tuple[str, Read]]) -> RowReader:
    width = (len(columns) + 7) // 8
    numbered = [(1 << index, name, read) for index, (name, read) in enumerate(columns)]

    def read_row(data: bytes, at: int) -> tuple[_Row, int]:
        start = at + width
        nulls = int.from_bytes(data[at:start], "little")
        at = start
        row: _Row = {}
        if not nulls:
            for name, read in columns:
                row[name], at = read(data, at)
            return row, at
        for bit, name, read in numbered:
            if nulls & bit:
                row[name] = None
            else:
                row[name], at = read(data, at)
        return row, at

    return read_row
