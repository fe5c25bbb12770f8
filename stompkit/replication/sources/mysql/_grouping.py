"""Grouping of log events into transactions."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pymysqlreplication.constants import BINLOG
from pymysqlreplication.event import (
    BeginLoadQueryEvent,
    BinLogEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
)

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.mysql._ahead import LaterStatements, combined
from stompkit.replication.sources.mysql._binlog import events
from stompkit.replication.sources.mysql._binlog.events import LogEvent
from stompkit.replication.sources.mysql._binlog.payloads import HOW_TO_READ, PAYLOAD
from stompkit.replication.sources.mysql._binlog.rows import Decoding
from stompkit.replication.sources.mysql._errors import StreamError
from stompkit.replication.sources.mysql._log_place import LogPlace
from stompkit.replication.sources.mysql._positions import Position, is_behind
from stompkit.replication.sources.mysql._tables.catalogue import Catalogue
from stompkit.replication.sources.mysql._tables.definitions import Definitions
from stompkit.replication.sources.mysql._tables.known import KnownTables
from stompkit.replication.sources.mysql._tables.statements import (
    Effect,
    Name,
    Statement,
    parse_statement,
)
from stompkit.replication.sources.mysql._xa import Prepared, xid_in, xid_of

__all__ = ["Grouping", "OnProblem", "Transaction"]

_log: Final = logging.getLogger(__name__)

#: Policy for an event that cannot be expressed as changes: stop before it, or log an error and skip
#: it.
OnProblem = Literal["stop", "skip"]

#: Unsupported events: MariaDB's compressed rows, MySQL's compressed transactions, incidents.
_UNREADABLE: Final = {
    0xA5: "a compressed statement (log_bin_compress): set log_bin_compress=OFF",
    **dict.fromkeys(
        range(0xA6, 0xAC), "compressed rows (log_bin_compress): set log_bin_compress=OFF"
    ),
    PAYLOAD: f"a compressed transaction: {HOW_TO_READ}, or set binlog_transaction_compression=OFF",
    BINLOG.INCIDENT_EVENT: "an incident on the server, after which changes can be missing",
}
_DECODING: Final = (ValueError, LookupError, OverflowError, TypeError, struct.error)


@dataclass(slots=True)
class Transaction:
    """Changes of a transaction, and the position after it."""

    changes: list[RowChange]
    position: Position
    gtid: str
    time: datetime | None
    #: Tables whose rows have to be published again after it.
    copies: list[Name] = field(default_factory=list)


class Grouping:
    """Builds transactions from events; a transaction is returned only when it is complete."""

    def __init__(
        self,
        position: Position,
        *,
        wants: Callable[[str, str], bool],
        catalogue: Catalogue,
        decoding: Decoding,
        prepared: Prepared,
        is_mariadb: bool,
        announce: bool,
        on_problem: OnProblem,
        definitions: Definitions,
        later: LaterStatements,
        copied: Mapping[Name, tuple[str, int]],
        can_copy: bool,
    ) -> None:
        """Start at a position.

        ``copied`` has the files and positions of the latest copies of tables: their changes up to
        there are already published. ``can_copy``: True if tables are copied again after a statement
        has changed their rows.
        """
        self._can_copy = can_copy
        self._definitions = definitions
        self._later = later
        self._copied = copied
        self._copies: list[Name] = []
        self._place = LogPlace(position, is_mariadb=is_mariadb)
        self._wants = wants
        self._prepared = prepared
        self._on_problem = on_problem
        self.skipped = 0
        self._catalogue = catalogue
        self._known = KnownTables(
            catalogue,
            self._specials,
            decoding,
            wants=wants,
            is_mariadb=is_mariadb,
            announce=announce,
        )
        #: Functions by types of events in the log, and of the library's events.
        self._handlers: dict[int | type, Callable[[Any], Transaction | None]] = {
            events.MARIADB_GTID: self._on_mariadb_gtid,
            events.MYSQL_GTID: self._on_mysql_gtid,
            events.BEGIN: self._on_begin,
            events.TABLE_MAP: self._known.describe,
            **dict.fromkeys(events.ROWS, self._on_rows),
            events.COMMIT: self._close,
            RotateEvent: self._on_rotate,
            FormatDescriptionEvent: self._on_format,
            QueryEvent: self._on_query,
            XAPrepareEvent: self._on_xa_prepare,
            BeginLoadQueryEvent: self._on_load,
            ExecuteLoadQueryEvent: self._on_load,
            NotImplementedEvent: self._on_unknown,
        }
        #: Position after the current event.
        self._log_pos = position.pos
        self._begin("")

    @property
    def is_open(self) -> bool:
        """True if a transaction has begun and is not complete."""
        return self._is_open

    def at(self, pos: int) -> Position:
        """Return a position in the current file."""
        return self._place.at(pos)

    def feed(self, event: LogEvent | BinLogEvent) -> Transaction | None:
        """Process an event; return the transaction that it completes, if any.

        Raises :class:`StreamError` for events that cannot be expressed as row changes, unless
        they are skipped, and :class:`OffsetLostError` if the log is a different one.
        """
        if isinstance(event, LogEvent):
            self._log_pos = event.log_pos
            return self._handlers[event.kind](event)
        self._log_pos = event.packet.log_pos
        handler = self._handlers.get(type(event))
        return None if handler is None else handler(event)

    # Files.

    def _on_rotate(self, event: RotateEvent) -> None:
        self._place.rotate(event.next_binlog)
        self._known.forget_numbers()

    def _on_format(self, event: FormatDescriptionEvent) -> None:
        self._known.forget_numbers()
        self._place.check_file(event.timestamp)

    # Boundaries of transactions.

    def _begin(self, gtid: str, *, is_standalone: bool | None = None) -> None:
        self._gtid = gtid
        #: True if it is one statement without an end event; ``None`` if a BEGIN decides that.
        self._is_standalone = is_standalone
        self._changes: list[RowChange] = []
        self._copies = []
        self._savepoints: dict[str, int] = {}
        self._is_open = bool(gtid)
        self._has_begin = False

    def _on_mariadb_gtid(self, event: LogEvent) -> None:
        self._begin(events.mariadb_gtid(event), is_standalone=events.is_standalone(event))

    def _on_mysql_gtid(self, event: LogEvent) -> None:
        self._begin(events.mysql_gtid(event))

    def _on_begin(self, event: object = None) -> None:
        self._is_open = self._has_begin = True

    def _close(self, event: Any) -> Transaction:
        gtid = self._gtid
        position = self._place.end_transaction(gtid, self._log_pos)
        time = datetime.fromtimestamp(event.timestamp, UTC) if event.timestamp else None
        changes = self._changes
        if self._copied:
            changes = [each for each in changes if not self._is_known(each.schema, each.table)]
        transaction = Transaction(changes, position, gtid, time, self._copies)
        self._begin("")
        return transaction

    def _is_known(self, schema: str, table: str) -> bool:
        """Return True if a copy of the table includes the log up to the current position."""
        place = self._copied.get((schema, table))
        return place is not None and not is_behind(self._place.end, place)

    def _on_xa_prepare(self, event: XAPrepareEvent) -> Transaction:
        if not event.one_phase:
            self._prepared.prepare(xid_in(event), self._changes, self._place.position)
            self._changes = []
        return self._close(event)

    def _on_xa(self, event: QueryEvent, verb: str) -> None:
        """Process a statement of a two-phase transaction."""
        if verb == "START":
            self._has_begin = True
        elif verb == "ROLLBACK":
            self._prepared.roll_back(xid_of(event.query))
        elif verb == "COMMIT":
            # Before the end of this event.
            place = self.at(self._log_pos - 1)
            changes = self._prepared.commit(xid_of(event.query), place)
            if changes is None:
                self._problem(
                    "a transaction is committed by XA that was prepared before reading began, and "
                    "the part of the log with its rows was purged. A new snapshot includes them: "
                    "start again with empty offsets",
                )
            else:
                self._changes = changes

    # Statements.

    def _on_query(self, event: QueryEvent) -> Transaction | None:
        schema = event.schema.decode("utf-8", "replace")
        statement = self._spell(parse_statement(event.query, schema))
        match statement.kind:
            case "begin":
                self._on_begin()
                return None
            case "commit":
                return self._close(event)
            case "rollback":
                if self._changes:
                    self._changes = []
                    self._problem(
                        "a transaction was rolled back that has changed tables without "
                        "transactions, whose changes remain",
                    )
                return self._close(event)
            case "xa":
                self._on_xa(event, statement.name)
            case "savepoint":
                self._savepoints[statement.name] = len(self._changes)
                return None
            case "rollback to":
                del self._changes[self._savepoints.get(statement.name, 0) :]
                return None
            case "rows" if statement.tables and not any(
                self._wants(*table) for table in statement.tables
            ):
                # Statements of other programs, such as tools that check replicas.
                pass
            case "rows":
                self._problem(
                    "rows were changed by a statement that was logged as such, in a session with "
                    "another binlog_format than ROW",
                )
            case "schema":
                self._on_definition(event, statement)
            case "truncate":
                self._changes.extend(
                    RowChange(table=table, action="truncate", key={}, schema=schema)
                    for schema, table in statement.tables
                    if self._wants(schema, table)
                    and not self._definitions.is_unpublished((schema, table))
                )
            case "drop database":
                self._definitions.drop_database(statement.name)
                self._changes.extend(self._known.dropped(statement.name, event.query))
        is_alone = not self._has_begin if self._is_standalone is None else self._is_standalone
        return self._close(event) if is_alone else None

    def _spell(self, statement: Statement) -> Statement:
        """Return the statement with the server's spelling of names."""
        catalogue = self._catalogue
        if not catalogue.folds_names:
            return statement
        return statement.spelled(catalogue.spelled, catalogue.lowered)

    def _on_definition(self, event: QueryEvent, statement: Statement) -> None:
        """Process a DDL statement: publish it, and its effects on rows."""
        place = self._place.file, self._log_pos
        effects = statement.effects or [Effect(table, "same") for table in statement.tables]
        if self._catalogue.lacks_types:
            self._definitions.specials.follow(effects, self._current_specials)
        for effect in effects:
            self._known.forget(effect.table)
            schema, table = effect.table
            copied = self._copied.get(effect.table)
            if not self._wants(schema, table) or (copied and not is_behind(place, copied)):
                continue
            effect = self._definitions.recall(effect)
            outcome = self._definitions.follow(effect, can_copy=self._can_copy)
            columns = self._catalogue.columns(schema, table)
            later = self._later.after(place, effect.table, self._spell)
            if outcome == "copy" and self._can_copy:
                # The copy is of the table after the later statements, which are then skipped.
                effect = combined(effect, later or ())
            elif later != []:
                columns = []
            if columns:
                self._definitions.publish(effect.table, with_columns=True)
            elif outcome == "nothing" and effect.kind == "made" and not effect.is_if_missing:
                self._definitions.publish(effect.table, with_columns=False)
            self._changes.append(
                self._known.changed(
                    effect.table,
                    event.query,
                    columns,
                    effect,
                    is_untold=outcome == "copy" and not self._can_copy,
                    is_new=outcome == "empty" or effect.is_renaming,
                )
            )
            match outcome:
                case "empty" if not self._definitions.is_unpublished(effect.table):
                    empty = RowChange(table=table, action="truncate", key={}, schema=schema)
                    self._changes.append(empty)
                case "copy":
                    self._copies.append(effect.table)

    def _specials(self, table: Name) -> Mapping[str, str]:
        """Return the types of a table's columns that the log lacks."""
        known = self._definitions.specials.of(table)
        if known is not None:
            return known
        # The user may see the table only since a short time.
        found = self._catalogue.specials(*table)
        if found and self._later.after((self._place.file, self._log_pos), table, self._spell) == []:
            self._definitions.specials.store(table, found)
        return found

    def _current_specials(self, table: Name) -> Mapping[str, str] | None:
        """Return such types by the catalogue; ``None`` after later statements."""
        found = self._catalogue.specials(*table)
        later = self._later.after((self._place.file, self._log_pos), table, self._spell)
        return found if later == [] else None

    # Rows.

    def _on_rows(self, event: LogEvent) -> None:
        begin = len(self._changes)
        number = events.table_number(event)
        try:
            rows, announcement = self._known.rows(number)
            if rows is None or rows.is_sequence:
                return
            if announcement is not None:
                self._changes.append(announcement)
                self._definitions.publish((rows.schema, rows.table), with_columns=True)
            begin = len(self._changes)
            self._changes.extend(rows.changes(event))
        except _DECODING as error:
            del self._changes[begin:]
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, KeyError):
                text = f"the key's column {error} is not in the log: see binlog_row_image"
            self._problem(f"rows of {self._known.name(number)} cannot be read ({text})", error)

    # Unsupported events.

    def _on_load(self, event: Any) -> None:
        self._problem("rows were loaded by a statement that was logged as such")

    def _on_unknown(self, event: NotImplementedEvent) -> None:
        text = _UNREADABLE.get(event.event_type)
        if text is not None:
            self._problem(f"there is {text}")

    def _problem(self, text: str, error: Exception | None = None) -> None:
        problem = StreamError(
            f"{text}. Reading stops in front of this transaction, {self._gtid}",
            f"{self._place.file}:{self._log_pos}",
        )
        if self._on_problem == "stop":
            raise problem from error
        self.skipped += 1
        _log.error("skipped: at %s: %s", problem.position, text)
