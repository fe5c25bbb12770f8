"""Snapshots: the existing rows when reading begins, and their position in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

from stompkit._common.graph import parents_first, references_of
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import from_json, to_json
from stompkit.replication.sources.mysql._binlog.moments import Zero
from stompkit.replication.sources.mysql._dsn import Dsn
from stompkit.replication.sources.mysql._errors import MysqlError, OffsetLostError
from stompkit.replication.sources.mysql._positions import Position
from stompkit.replication.sources.mysql._reader import DisconnectedError
from stompkit.replication.sources.mysql._sending import sending
from stompkit.replication.sources.mysql._server import Server, log_end, place, text_of
from stompkit.replication.sources.mysql._tables.catalogue import Catalogue
from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.mysql._tables.statements import Name
from stompkit.replication.sources.mysql._texts import (
    Convert,
    converter,
    is_ordered_by_number,
    ordering,
    selected,
)
from stompkit.replication.sources.publication import Publication

__all__ = ["UNCONFIRMED_CHUNKS", "Snapshot", "SnapshotStoppedError", "copied_of", "copy_progress"]

_log: Final = logging.getLogger(__name__)

#: Conversions of values in statements; results stay the text that the server sends.
_WRITING: Final = {kind: write for kind, write in conversions.items() if not isinstance(kind, int)}
_NO_TABLE: Final = 1146
_DEFINITION_CHANGED: Final = 1412
#: Number of chunks after which all must be confirmed.
UNCONFIRMED_CHUNKS: Final = 16


class SnapshotStoppedError(Exception):
    """A stop was requested."""


@dataclass(frozen=True)
class _Column:
    name: str
    select: str
    order: str
    convert: Convert
    is_number: bool


class Snapshot:
    """Publishes all rows of all selected tables, as of one point in time, in chunks by the key.

    Reading the log from the :attr:`Position` of that time publishes every change exactly once,
    except for tables without transactions. If a snapshot is interrupted, the remaining rows are as
    of a later time, but the log is still read from the first position. Some changes are then
    published for rows that include them already, and in the end the data is consistent.
    """

    def __init__(
        self,
        dsn: Dsn,
        server: Server,
        catalogue: Catalogue,
        publication: Publication,
        *,
        wants: Callable[[str, str], bool],
        keys: Mapping[str, Sequence[str]],
        zero: Zero,
        chunk_rows: int,
        announce: bool,
        stop: Event,
        definitions: Definitions,
        dated: Callable[[Position], Position],
    ) -> None:
        """Configure; the progress is in the state of the publication.

        ``dated`` adds the creation time of the file to a position.
        """
        self._dated = dated
        self._dsn = dsn
        self._server = server
        self._catalogue = catalogue
        self._publication = publication
        self._wants = wants
        self._keys = keys
        self._zero = zero
        self._chunk_rows = chunk_rows
        self._announce = announce
        self._stop = stop
        self._definitions = definitions
        self._chunks_published = 0
        self._progress: dict[str, Any] = publication.state.get("snapshot") or {}

    @property
    def is_due(self) -> bool:
        """True if it was never taken, or is incomplete."""
        return not self._publication.position or bool(self._progress)

    def take(self) -> None:
        """Publish the rows that have not been published yet.

        Raises :class:`SnapshotStoppedError`, :class:`DisconnectedError` and the errors of PyMySQL;
        then call it again.
        """
        with sending:
            self._publication.flush()
        # Rows in the log may be from before a statement that is run during the snapshot.
        self._definitions.load(self._catalogue, self._wants)
        with closing(self._dsn.connect(conv=_WRITING, autocommit=False)) as connection:
            position = self._begin(connection)
            if self._is_copy:
                self._progress["after"] = None
            elif self._progress:
                self._refuse_keyless()
            else:
                rows = {
                    (schema, table): count
                    for schema, table, count in self._catalogue.tables()
                    if self._wants(schema, table)
                }
                order = parents_first(references_of(rows, self._catalogue.references()))
                self._progress = {
                    "position": self._dated(position).encode(),
                    "tables": [list(name) for name in order],
                    "after": None,
                    "rows": 0,
                    "expected": sum(rows.values()),
                }
                self._remember(is_flushed=True)
            while self._progress["tables"]:
                schema, table = self._progress["tables"][0]
                if not self._take_table(connection, schema, table):
                    self._definitions.is_gone((schema, table))
                if self._is_copy:
                    place = [schema, table, position.file, position.pos]
                    self._progress["copied"] = [*self._progress["copied"], place]
                self._progress |= {"tables": self._progress["tables"][1:], "after": None}
                self._remember()
        state = self._state(None) or {}
        if self._is_copy:
            state["copied"] = self._copied(state.get("copied", []))
        if self._definitions.state() != Definitions(None).state():
            state["ddl"] = self._definitions.state()
        with sending:
            self._publication.end_snapshot(self._progress["position"], state)
            # Only later chunks have numbers that are the same after a crash.
            self._publication.flush()
        _log.info("%s: the snapshot is complete", self._dsn.server)

    @property
    def _is_copy(self) -> bool:
        """True if tables are copied again; each is emptied first."""
        return "copied" in self._progress

    def _refuse_keyless(self) -> None:
        """Refuse to continue with tables without a key, whose rows cannot be matched later."""
        keyless = [
            f"{schema}.{table}"
            for schema, table in self._progress["tables"]
            if not (
                self._keys.get(f"{schema}.{table}", self._keys.get(table))
                or self._catalogue.key(schema, table)
            )
        ]
        if keyless:
            raise OffsetLostError(
                f"the snapshot was interrupted, and {', '.join(keyless)} cannot be taken up again: "
                "without a key, rows that come twice are there twice. Empty the targets and start "
                "over with empty offsets, name columns that stand for the key, or leave the table "
                "out"
            )

    def _begin(self, connection: Connection[Any]) -> Position:
        """Begin a transaction with a consistent view; return its position in the log."""
        begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SET SESSION time_zone = '+00:00'")
            executed = None
            if self._server.is_mariadb:
                cursor.execute(begin)
                cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
                found = {text_of(row[0]).lower(): text_of(row[1]) for row in cursor.fetchall()}
                file = found["binlog_snapshot_file"]
                pos = int(found["binlog_snapshot_position"])
            else:
                # MySQL does not report the position of a snapshot.
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                cursor.execute(begin)
                file, pos, executed = log_end(connection)
                cursor.execute("UNLOCK TABLES")
        return place(connection, self._server, file, pos, executed=executed)

    def _copied(self, before: list[list[Any]]) -> list[list[Any]]:
        """Return the positions of the last copies of tables."""
        places = {(schema, table): rest for schema, table, *rest in before}
        places |= {(schema, table): rest for schema, table, *rest in self._progress["copied"]}
        return [[*name, *place] for name, place in places.items()]

    # A single table.

    def _take_table(self, connection: Connection[Any], schema: str, table: str) -> bool:
        """Publish the rows of a table; return False if it does not exist."""
        kinds = self._catalogue.kinds(schema, table)
        columns = {name: self._column(name, kind) for name, kind in kinds.items()}
        order = [columns[name] for name in self._catalogue.key(schema, table)]
        given = self._keys.get(f"{schema}.{table}", self._keys.get(table))
        key = list(given) if given is not None else [column.name for column in order]
        if set(key) - set(columns):
            raise MysqlError(f"{schema}.{table} has not all columns that are to be its key")
        if not columns:
            _log.warning("%s.%s is gone, and not in the snapshot", schema, table)
            return False
        # The ordering columns are selected as well, because they may differ from the displayed
        # values.
        selects = [column.select for column in columns.values()] + [each.order for each in order]
        query = f"SELECT {', '.join(selects)} FROM {_quoted(schema)}.{_quoted(table)}"
        chunks = self._chunks if order else self._stream
        try:
            head = []
            if (self._announce or self._is_copy) and self._progress["after"] is None:
                described = {"columns": self._catalogue.columns(schema, table)}
                head = [
                    RowChange(table=table, action="schema", key={}, after=described, schema=schema)
                ]
            if self._is_copy:
                head.append(RowChange(table=table, action="truncate", key={}, schema=schema))
            elif head:
                self._publish(head)
                head = []
            for rows in chunks(connection, query, order):
                changes, head = head, []
                for row in rows:
                    after = {
                        column.name: None if value is None else column.convert(value)
                        for column, value in zip(columns.values(), row, strict=False)
                    }
                    changes.append(
                        RowChange(
                            table=table,
                            action="read",
                            key={name: after[name] for name in key},
                            after=after,
                            schema=schema,
                        )
                    )
                self._publish(changes)
            if head:
                self._publish(head)
        except pymysql.Error as error:
            if error.args[0] == _DEFINITION_CHANGED:
                raise DisconnectedError(f"{schema}.{table} was changed while it was read") from None
            if error.args[0] != _NO_TABLE:
                raise
            _log.warning("%s.%s is gone, and not in the snapshot", schema, table)
            return False
        return True

    def _column(self, name: str, kind: str) -> _Column:
        quoted = _quoted(name)
        return _Column(
            name=name,
            select=selected(quoted, kind),
            order=ordering(quoted, kind),
            convert=converter(kind, zero=self._zero, decode=self._catalogue.decoder),
            is_number=is_ordered_by_number(kind),
        )

    def _chunks(
        self, connection: Connection[Any], query: str, order: Sequence[_Column]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the unpublished rows in the order of the key, in chunks."""
        by = ", ".join(column.order for column in order)
        stored = self._progress["after"]
        after = None if stored is None else [from_json(value) for value in stored]
        while True:
            where, values = _behind(order, after) if after else ("", [])
            with connection.cursor() as cursor:
                cursor.execute(
                    f"{query}{where} ORDER BY {by} LIMIT {self._chunk_rows}", tuple(values)
                )
                rows = list(cursor.fetchall())
            if not rows:
                return
            after = [
                int(value) if column.is_number else value
                for column, value in zip(order, rows[-1][-len(order) :], strict=True)
            ]
            self._progress["after"] = [to_json(value) for value in after]
            yield rows
            if len(rows) < self._chunk_rows:
                return

    def _stream(
        self, connection: Connection[Any], query: str, order: Sequence[_Column]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a table without a key."""
        with connection.cursor(SSCursor) as cursor:
            cursor.execute(query, ())
            while rows := list(cursor.fetchmany(self._chunk_rows)):
                yield rows

    # Publishing.

    def _publish(self, changes: list[RowChange]) -> None:
        if self._stop.is_set():
            raise SnapshotStoppedError
        self._progress["rows"] += sum(change.action == "read" for change in changes)
        with sending:
            self._publication.publish(
                changes,
                position=self._progress["position"],
                is_snapshot=True,
                state=self._state(self._progress),
            )
            self._chunks_published += 1
            if self._chunks_published % UNCONFIRMED_CHUNKS == 0:
                self._publication.flush()

    def _remember(self, *, is_flushed: bool = False) -> None:
        if self._stop.is_set():
            raise SnapshotStoppedError
        with sending:
            self._publication.advance(self._progress["position"], self._state(self._progress))
            if is_flushed:
                self._publication.flush()

    def _state(self, progress: dict[str, Any] | None) -> dict[str, Any]:
        others = {
            name: value for name, value in self._publication.state.items() if name != "snapshot"
        }
        return others if progress is None else {**others, "snapshot": dict(progress)}


def copy_progress(position: Position, tables: Sequence[Name]) -> dict[str, Any]:
    """Return the progress of a copy of tables that begins now; the log resumes at ``position``."""
    return {
        "position": position.encode(),
        "tables": [list(name) for name in tables],
        "after": None,
        "rows": 0,
        "expected": 0,
        "copied": [],
    }


def copied_of(state: Mapping[str, Any]) -> dict[Name, tuple[str, int]]:
    """Return the positions of the copies of tables in a checkpoint's state."""
    return {
        (schema, table): (file, int(pos)) for schema, table, file, pos in state.get("copied", ())
    }


def _quoted(name: str) -> str:
    """Return a quoted name for statements; percent signs are doubled for the driver."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def _behind(order: Sequence[_Column], after: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the condition for rows after a key, in a form that can use an index."""
    choices: list[str] = []
    values: list[Any] = []
    for index, column in enumerate(order):
        same = [f"{each.order} = %s" for each in order[:index]]
        choices.append("(" + " AND ".join([*same, f"{column.order} > %s"]) + ")")
        values += after[: index + 1]
    return f" WHERE {' OR '.join(choices)}", values
