"""Tables of the log, by their latest descriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.mysql._binlog import events
from stompkit.replication.sources.mysql._binlog.events import LogEvent
from stompkit.replication.sources.mysql._binlog.rows import Decoding, TableRows
from stompkit.replication.sources.mysql._binlog.tablemap import parse_table_map
from stompkit.replication.sources.mysql._tables.catalogue import Catalogue, Described, described
from stompkit.replication.sources.mysql._tables.statements import Effect, Name

__all__ = ["KnownTables"]


class KnownTables:
    """Row readers of tables by their numbers, and the columns that consumers know."""

    def __init__(
        self,
        catalogue: Catalogue,
        specials: Callable[[Name], Mapping[str, str]],
        decoding: Decoding,
        *,
        wants: Callable[[str, str], bool],
        is_mariadb: bool,
        announce: bool,
    ) -> None:
        """Start empty; with ``announce``, publish the columns of tables at their first event.

        ``specials`` returns the types of a table's columns that the log lacks.
        """
        self._catalogue = catalogue
        self._specials = specials
        self._wants = wants
        self._decoding = decoding
        self._is_mariadb = is_mariadb
        self._announce = announce
        #: Descriptions of wanted tables; ``None`` for other tables.
        self._maps: dict[int, bytes | None] = {}
        self._rows: dict[int, TableRows] = {}
        #: Row readers by descriptions without table numbers, because a new file repeats them.
        self._rows_by_map: dict[bytes, TableRows] = {}
        #: Columns that were published; empty if the catalogue did not know them.
        self._published: dict[tuple[str, str], list[Described]] = {}
        #: Tables that have replaced others, and whose columns were not published yet.
        self._new: set[tuple[str, str]] = set()

    # Descriptions.

    def describe(self, event: LogEvent) -> None:
        """Store the description of the table that has its number from now on."""
        body = event.data[events.BODY_AT : event.end]
        number = events.table_number(event)
        if self._maps.get(number) == body:
            return
        self._maps[number] = body if self._wants(*events.table_in(body)) else None
        self._rows.pop(number, None)

    def forget_numbers(self) -> None:
        """Forget table numbers, which are valid in one file only."""
        self._maps.clear()
        self._rows.clear()

    def name(self, number: int) -> str:
        """Return the name of a wanted table, for messages."""
        return ".".join(events.table_in(self._maps.get(number) or bytes(12)))

    def rows(self, number: int) -> tuple[TableRows | None, RowChange | None]:
        """Return the row reader of a table, and a change of its columns to publish first.

        There is none for an unwanted table. Raises ``ValueError`` for an unsupported description.
        """
        rows = self._rows.get(number)
        if rows is not None:
            return rows, None
        body = self._maps.get(number)
        if body is None:
            return None, None
        # The number is in the first six bytes.
        rows = self._rows_by_map.get(body[6:])
        if rows is None:
            mapped = parse_table_map(body, is_mariadb=self._is_mariadb)
            specials = self._specials((mapped.schema, mapped.table))
            nulls = partial(self._catalogue.nulls, mapped.schema, mapped.table)
            rows = TableRows(mapped, specials, self._decoding, nulls)
            self._rows_by_map[body[6:]] = rows
        self._rows[number] = rows
        return rows, self._columns_of(rows)

    def _columns_of(self, rows: TableRows) -> RowChange | None:
        """Return a change with the columns, if consumers know other columns."""
        columns = described(rows.mapped, rows.specials)
        published = self._published.get(
            (rows.schema, rows.table), [] if self._announce else columns
        )
        if list(map(_essence, published)) == list(map(_essence, columns)):
            self._published[rows.schema, rows.table] = published
            return None
        self._published[rows.schema, rows.table] = columns
        after: dict[str, Any] = {"columns": columns}
        if (rows.schema, rows.table) in self._new:
            self._new.remove((rows.schema, rows.table))
            after["retyped"] = [column["name"] for column in columns]
        return _schema_change(rows.schema, rows.table, after)

    # Statements.

    def forget(self, table: Name) -> None:
        """Forget the readers of a table, whose columns may have other types from now on."""
        self._rows.clear()
        self._rows_by_map = {
            body: rows
            for body, rows in self._rows_by_map.items()
            if (rows.schema, rows.table) != table
        }

    def changed(
        self,
        name: tuple[str, str],
        statement: str,
        columns: list[Described],
        effect: Effect,
        *,
        is_untold: bool = False,
        is_new: bool = False,
    ) -> RowChange:
        """Return the change to publish for a DDL statement about this table.

        ``columns``: its columns after the statement; empty if they are unknown. They are published
        with the next row then. ``is_untold``: the statement has changed rows that are not published
        again. ``is_new``: the table has replaced one whose columns may have had other types.
        """
        schema, table = name
        self._published[schema, table] = columns
        after: dict[str, Any] = {"statement": statement}
        if columns:
            after["columns"] = columns
        if effect.renamed:
            after["renamed"] = dict(effect.renamed)
        self._new.discard(name)
        if is_new and columns:
            after["retyped"] = [column["name"] for column in columns]
        elif is_new:
            self._new.add(name)
        elif effect.retyped:
            after["retyped"] = list(effect.retyped)
        if is_untold:
            is_of_names = effect.only_names and not effect.added
            after["untold"] = "names" if is_of_names else "values"
        return _schema_change(schema, table, after)

    def dropped(self, database: str, statement: str) -> list[RowChange]:
        """Return the changes for a dropped database; the log does not list its tables."""
        names = [name for name in self._published if name[0] == database]
        for name in names:
            self.forget(name)
            del self._published[name]
        return [_schema_change(*name, {"statement": statement}) for name in names]


def _schema_change(schema: str, table: str, after: dict[str, Any]) -> RowChange:
    return RowChange(table=table, action="schema", key={}, after=after, schema=schema)


def _essence(column: Described) -> tuple[object, ...]:
    """Return the properties that distinguish versions of a column; the log has no lengths."""
    return column["name"], column["type"], column["key"], column["nullable"]
