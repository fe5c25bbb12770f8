"""Recording of one session's changes, by transaction and savepoint."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from sqlalchemy import Connection, Delete, Engine, Insert, Table, Update, event
from sqlalchemy.orm import Mapper, Session, SessionTransaction
from sqlalchemy.sql.dml import UpdateBase

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.session._images import Image, Images, row_id
from stompkit.replication.sources.session._net import NetChanges, Recorded
from stompkit.replication.sources.session._outcome import Commits
from stompkit.replication.sources.session._rows import Plan, Row, Rows, complete
from stompkit.replication.sources.session.statements import (
    UnseenChangeError,
    bound_values,
    equalities,
    insert_with_keys,
    raw_problem,
    rows_by_keys,
    rows_by_statement,
    table_of,
)
from stompkit.replication.sources.session.values import Converters, name_of

__all__ = ["OPTION", "Bulk", "Policy", "Recording"]

#: Policy for statements outside of the unit of work.
Bulk = Literal["expand", "refuse", "ignore"]

#: Execution option that sets the policy of one statement.
OPTION: Final = "stompkit_bulk"


class Policy:
    """Common settings of all sessions that are watched together."""

    def __init__(
        self, wants: Callable[[str, str], bool], bulk: Bulk, converters: Converters
    ) -> None:
        """Record the tables for which ``wants`` returns True, by schema and name."""
        self.wants: Final = wants
        self.bulk: Final = bulk
        self.rows: Final = Rows(converters)
        self.images: Final = Images(converters)

    def wants_table(self, table: Table) -> bool:
        """Return True if changes of a table are recorded."""
        return self.wants(table.schema or "", table.name)


@dataclass(slots=True)
class _Level:
    """A transaction or a savepoint."""

    transaction: weakref.ref[SessionTransaction]
    net: NetChanges = field(default_factory=NetChanges)


class Recording:
    """Listens to the connections of one session, while a transaction lasts."""

    def __init__(self, session: Session, policy: Policy, expanded: Callable[[Session], None]):
        """Start; ``expanded`` is called after changes were recorded outside of flushes."""
        # The session holds its recording.
        self._session = weakref.ref(session)
        self._policy = policy
        self._expanded = expanded
        self._levels: list[_Level] = []
        self._connections: list[Connection] = []
        self._commits = Commits()
        self._plan: Plan | None = None
        self._is_busy = False
        self._is_flushing = False
        self._rows: list[Row] = []
        self._written: dict[tuple[Any, ...], Image] = {}
        self._deleted: dict[tuple[Any, ...], Image] = {}
        #: Reason why this transaction cannot be committed.
        self.problem: UnseenChangeError | None = None
        #: True if the changes were reported to the listener.
        self.is_prepared = False
        #: True if the outermost transaction was committed.
        self.is_committed = False
        #: True while the commit is in progress; and the outbox rows written for it.
        self.is_committing = False
        self.outbox_rows: dict[Engine, int] = {}

    # Transactions.

    def begin(self, transaction: SessionTransaction) -> None:
        """Handle the start of a transaction or a savepoint."""
        self._levels.append(_Level(weakref.ref(transaction)))

    def release(self) -> None:
        """Merge the changes of a released savepoint into its parent."""
        if len(self._levels) > 1:
            last = self._levels.pop()
            self._levels[-1].net.extend(last.net)

    def end(self, transaction: SessionTransaction) -> bool:
        """Drop unreleased changes; return True if a savepoint has lost changes."""
        is_lost = False
        while any(level.transaction() is transaction for level in self._levels):
            is_lost = bool(self._levels.pop().net) or is_lost
        return is_lost and bool(self._levels)

    @property
    def pending(self) -> list[Recorded]:
        """Changes to publish if the transaction is committed now."""
        if len(self._levels) == 1:
            return list(self._levels[0].net)
        together = NetChanges()
        for level in self._levels:
            together.extend(level.net)
        return list(together)

    def add(self, changes: Iterable[RowChange], engine: Engine | None) -> None:
        """Record changes that the program specifies."""
        for change in changes:
            self._levels[-1].net.add(Recorded(change, None, engine))

    # Connections.

    def attach(self, connection: Connection) -> None:
        """Listen to a connection."""
        if connection not in self._connections:
            self._connections.append(connection)
            event.listen(connection, "before_execute", self._before, retval=True)
            event.listen(connection, "after_execute", self._after)
            event.listen(connection, "before_cursor_execute", self._before_cursor)
            self._commits.attach(connection)

    @property
    def may_be_committed(self) -> bool:
        """True if a database has not answered, or has committed its part of the changes."""
        return self.is_committed or self._commits.are_possible

    @property
    def connections(self) -> list[Connection]:
        """Connections that the session has used in this transaction."""
        return list(self._connections)

    def detach(self) -> None:
        """Stop listening to all connections."""
        for connection in self._connections:
            event.remove(connection, "before_execute", self._before)
            event.remove(connection, "after_execute", self._after)
            event.remove(connection, "before_cursor_execute", self._before_cursor)
            self._commits.detach(connection)
        self._connections.clear()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Run a block whose statements are not recorded."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    # Flushes.

    def begin_flush(self) -> None:
        """Start recording the unit of work."""
        self.cancel_flush()
        self._is_flushing = True

    def cancel_flush(self) -> None:
        """End the flush, and discard its unfinished changes."""
        self._is_flushing = False
        self._rows.clear()
        self._written.clear()
        self._deleted.clear()

    def see(
        self, mapper: Mapper[Any], target: object, connection: Connection, *, is_deleted: bool
    ) -> None:
        """Record a written object, whose attributes still have their old values."""
        if not self._is_flushing:
            return
        images = self._deleted if is_deleted else self._written
        for table, image in self._policy.images.read(mapper, target, connection.dialect).items():
            if self._policy.wants_table(table):
                row = image.unchanged | image.changed if is_deleted else image.after
                names = [name_of(column) for column in table.primary_key]
                if all(name in row for name in names):
                    images[row_id(table, {name: row[name] for name in names})] = image

    def end_flush(self) -> bool:
        """Finish recording the unit of work; return True if there were changes."""
        rows = list(self._rows)
        for row in rows:
            images = self._deleted if row.action == "delete" else self._written
            image = images.get(row_id(row.table, row.key))
            if image is not None:
                complete(row, image)
        self.cancel_flush()
        with self.quietly():
            self._policy.rows.fetch(rows)
        self._keep(rows)
        return bool(rows)

    def _keep(self, rows: Iterable[Row]) -> None:
        net = self._levels[-1].net
        for row in rows:
            net.add(Recorded(row.change, row.table, row.connection.engine))

    # Statements.

    def _before(
        self,
        connection: Connection,
        statement: Any,
        multiparams: Any,
        params: Any,
        options: Mapping[str, Any],
    ) -> tuple[Any, Any, Any]:
        self._plan = None
        if not self._is_busy and isinstance(statement, UpdateBase):
            bulk = options.get(OPTION, self._policy.bulk)
            if self._is_flushing or bulk != "ignore":
                table = table_of(statement)
                if self._policy.wants_table(table):
                    if bulk == "refuse" and not self._is_flushing:
                        raise UnseenChangeError(
                            f"a statement changes {table.fullname} outside of a flush, and"
                            " bulk='refuse'"
                        )
                    plan = Plan(table, list(multiparams) or [params or {}])
                    statement = self._look(connection, statement, plan)
                    self._plan = plan
        return statement, multiparams, params

    def _look(self, connection: Connection, statement: UpdateBase, plan: Plan) -> UpdateBase:
        """Find the rows that a statement changes; return the statement to run."""
        table = plan.table
        if isinstance(statement, Insert):
            return insert_with_keys(statement, table, plan.rows, connection)
        if not isinstance(statement, (Update, Delete)):
            raise UnseenChangeError(f"a statement of an unknown kind changes {table.fullname}")
        primary = list(table.primary_key)
        equal = equalities(statement, table)
        if self._is_flushing and equal is not None and all(key in equal for key in primary):
            plan.by_key = equal
            return statement
        if not primary:
            raise UnseenChangeError(
                f"{table.fullname} has no key that tells which rows are changed"
            )
        with self.quietly():
            if equal is not None and set(equal) == set(primary) and not statement.kwargs:
                bound = (bound_values(equal, row) for row in plan.rows)
                keys = [[values[key] for key in primary] for values in bound]
                select_as = self._policy.rows.select_as(connection.dialect)
                columns = [*primary, *map(select_as, table.columns)]
                plan.found = rows_by_keys(connection, table, columns, keys, lock=True)
            else:
                select_as = self._policy.rows.select_as(connection.dialect)
                plan.found = rows_by_statement(connection, statement, table, plan.rows, select_as)
        return statement

    def _after(
        self,
        connection: Connection,
        statement: Any,
        multiparams: Any,
        params: Any,
        options: Mapping[str, Any],
        result: Any,
    ) -> None:
        plan, self._plan = self._plan, None
        if plan is None or self._is_busy:
            return
        try:
            with self.quietly():
                rows = self._read(connection, plan, result)
        except UnseenChangeError as problem:
            # It has run already, so the transaction must not be committed.
            self.problem = problem
            raise
        if self._is_flushing:
            self._rows += rows
        elif rows:
            self._keep(rows)
            session = self._session()
            if session is not None:
                self._expanded(session)

    def _read(self, connection: Connection, plan: Plan, result: Any) -> list[Row]:
        reader = self._policy.rows
        if result.context.isinsert:
            rows = reader.inserted(connection, plan, result)
            if not self._is_flushing:
                reader.fetch(rows, everything=True)
            return rows
        if plan.by_key is not None:
            return reader.by_key(connection, plan, result)
        return reader.expanded(connection, plan, result)

    def _before_cursor(
        self,
        connection: Connection,
        cursor: Any,
        sql: str,
        parameters: Any,
        context: Any,
        *executemany: bool,
    ) -> None:
        if self._is_busy or context is None:
            return
        if context.execution_options.get(OPTION, self._policy.bulk) == "ignore":
            return
        problem = raw_problem(context, sql, self._policy.wants)
        if problem is not None:
            raise UnseenChangeError(
                f"{problem} may change rows that are watched, and cannot be followed. If it does"
                f" not, or need not be: execution_options({OPTION}='ignore')"
            )
