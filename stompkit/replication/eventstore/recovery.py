"""Recovery of sessions that were committed but never published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import Engine, MetaData, Table, and_, select, type_coerce
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeDecorator

from stompkit._common.moved import renamed
from stompkit.replication.eventstore._keys import key_to_text
from stompkit.replication.eventstore.prepare import PrepareCommit, Prepared
from stompkit.replication.eventstore.sink import store_changeset
from stompkit.replication.eventstore.store import EventStore
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import emit
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import Value
from stompkit.replication.sources.session import Converters

__all__ = ["Recovered", "RecoveryError", "recover"]

_log: Final = logging.getLogger(__name__)


class RecoveryError(Exception):
    """The changes of a session cannot be read; ``str()`` gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Result of recovering a stuck session."""

    prepared: Prepared
    #: Published changeset; ``None`` if none of the changes is in the database.
    changeset: Changeset | None = None
    #: Reason if the note is kept for the next time; empty if it was removed.
    problem: str = ""


def recover(
    prepare_commit: PrepareCommit,
    session_factory: Any,
    *,
    store: EventStore | None = None,
    publish: Callable[[Changeset], object] | None = None,
    metadata: MetaData | None = None,
    tables: Tables | None = None,
    older_than_s: float = 60.0,
    lease_s: float = 300.0,
) -> list[Recovered]:
    """Publish the commits of sessions whose process died before it could publish them.

    These also include commits whose outcome the process could not know.

    Each row that such a session has changed is read by its key. An existing row is published as a
    write or an update, with its current values. A missing row that was to be deleted or updated is
    published as a delete. A missing row that was to be written, and an existing row that was to be
    deleted, are not published. In these cases the database has not committed the change, or others
    have changed it since, and have published that. Then the note is removed.

    Delivery is at least once: changes that were published but not marked as published are published
    again. For a session that was rolled back, a row that it was to update is published with its
    current values. The changeset has ``recovery.ID`` for its ``id`` and ``origin``, the same each
    time, and ``ID`` for ``source.transaction``, as the session's own changeset would have.

    Any number of processes can do this at any time.
    :meth:`~stompkit.replication.eventstore.prepare.PrepareCommit.stuck` selects the sessions. A
    note claimed by one process is skipped by others for ``lease_s`` seconds.

    * ``session_factory``: makes sessions of the database, or is its engine; not asynchronous.
    * ``store``: store for the events, used first. If that fails, the note stays.
    * ``publish``: function to call with the changeset then. By default its signals are sent, and
      the futures of their receivers are awaited.
    * ``metadata``: the tables, if there are columns whose types the database does not know.
      They are reflected otherwise.
    * ``tables``: filter and masks of the published rows.

    An error in one session is logged, and the others are still processed. Raises the errors of
    ``prepare_commit``.
    """
    reader = _Reader(session_factory, metadata, tables or Tables())
    done: list[Recovered] = []
    for stuck in prepare_commit.stuck(older_than_s):
        if not prepare_commit.claim(stuck.id, lease_s):
            continue
        # Another process may have recovered it since it was listed.
        if prepare_commit.phase(stuck.id) == "commit":
            continue
        try:
            changeset = _recovered(stuck, reader, store, publish or partial(_emit, lease_s))
        except Exception as error:
            _log.exception("session %s cannot be recovered", stuck.id)
            done.append(Recovered(prepared=stuck, problem=str(error) or repr(error)))
            prepare_commit.release(stuck.id)
            continue
        is_removed = prepare_commit.commit(stuck.id)
        problem = "" if is_removed else "it is published, but its note cannot be removed"
        done.append(Recovered(prepared=stuck, changeset=changeset, problem=problem))
    return done


def _recovered(
    stuck: Prepared,
    reader: _Reader,
    store: EventStore | None,
    publish: Callable[[Changeset], object],
) -> Changeset | None:
    changes = reader.read(stuck)
    if not changes:
        return None
    source = Source(kind="recovery", transaction=stuck.id)
    name = f"recovery.{stuck.id}"
    changeset = make_changeset(name, 1, changes, source, id=name)
    if store is not None and not store_changeset(store, changeset):
        raise RecoveryError("its events cannot be stored")
    publish(changeset)
    return changeset


def _emit(timeout_s: float, changeset: Changeset) -> None:
    for future in emit(changeset):
        future.result(timeout_s)


class _Reader:
    """Reads the current rows that a session has changed."""

    def __init__(self, session_factory: Any, metadata: MetaData | None, tables: Tables) -> None:
        self._make = _session_maker(session_factory)
        self._given = metadata
        self._reflected = MetaData()
        self._tables = tables
        self._converters = Converters()

    def read(self, stuck: Prepared) -> list[RowChange]:
        """Return all changes, as of one time; raises :class:`RecoveryError`."""
        with self._make() as session:
            try:
                found = [
                    change
                    for table, key, actions in self._rows(session, stuck)
                    if (change := self._change(session, table, key, actions)) is not None
                ]
            except SQLAlchemyError as error:
                raise RecoveryError(f"what it has changed cannot be read: {error}") from error
        return [
            self._tables.shape(change)
            for change in found
            if self._tables.wants(change.schema, change.table)
        ]

    def _rows(self, session: Session, stuck: Prepared) -> Iterator[tuple[Table, Any, set[str]]]:
        """Yield the rows, each with all its intended changes."""
        rows: dict[tuple[str, str], tuple[Table, Any, set[str]]] = {}
        for name, keys in stuck.event.items():
            table_name, _, action = name.rpartition("_")
            for key in keys:
                if key is None:
                    raise RecoveryError(f"rows of {table_name} have no key to find them by")
                place = (table_name, key_to_text(key))
                if place not in rows:
                    rows[place] = (self._table(session, table_name), key, set())
                rows[place][2].add(action)
        yield from rows.values()

    def _table(self, session: Session, name: str) -> Table:
        if self._given is not None:
            if name not in self._given.tables:
                raise RecoveryError(f"the metadata has no table {name}")
            return self._given.tables[name]
        if name not in self._reflected.tables:
            schema, _, table = name.rpartition(".")
            Table(table, self._reflected, schema=schema or None, autoload_with=session.connection())
        return self._reflected.tables[name]

    def _change(
        self, session: Session, table: Table, key: Any, actions: set[str]
    ) -> RowChange | None:
        """Return the change to publish for a row, if any."""
        primary = list(table.primary_key)
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != len(primary):
            raise RecoveryError(f"the key of {table.fullname} is not {key!r}")
        # Compare each value in Python: values that the database considers equal may differ.
        same = (
            type_coerce(column, _plain(column.type)) == value
            for column, value in zip(primary, values, strict=True)
        )
        dialect = session.get_bind(clause=table).dialect
        converters = [self._converters.find(column.type, dialect) for column in table.columns]
        columns = [
            converter.expression(column)
            for converter, column in zip(converters, table.columns, strict=True)
        ]
        found = session.execute(select(*columns).where(and_(*same))).one_or_none()
        # Names may be instances of a subclass of str with quoting information.
        name, schema = str(table.name), str(table.schema or "")
        if found is None:
            if actions <= {"write"}:
                return None
            names = [str(column.name) for column in primary]
            old = dict(zip(names, values, strict=True))
            return RowChange(table=name, schema=schema, action="delete", key=old)
        if actions <= {"delete"}:
            return None
        row: dict[str, Value] = {
            str(column.name): converter.read(value)
            for column, converter, value in zip(table.columns, converters, found, strict=True)
        }
        return RowChange(
            table=name,
            schema=schema,
            action="write" if "write" in actions else "update",
            key={str(column.name): row[column.name] for column in primary},
            after=row,
        )


def _plain(kind: Any) -> Any:
    """Return the type of values as in changesets, which decorators have processed already."""
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind


def _session_maker(given: Any) -> Callable[[], Session]:
    if isinstance(given, Engine):
        return lambda: Session(given)
    # A scoped_session would return the session that this thread is using.
    maker: Callable[[], Session] = getattr(given, "session_factory", given)
    return maker


renamed(
    __name__,
    RecoveryProblem="RecoveryError",
)
