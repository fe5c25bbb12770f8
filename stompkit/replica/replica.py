"""A database that is one of several writable replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Self

from sqlalchemy import URL, Engine, MetaData, Table

from stompkit.replica._components import Components
from stompkit.replica._deciding import RowConflicts, decision, row_conflicts
from stompkit.replica._reconciling import Difference, differences, import_rows
from stompkit.replica.applier import Hooks, Outcome
from stompkit.replica.capture import Capture
from stompkit.replica.compaction import Compacted, compact
from stompkit.replica.data.documents import Documents
from stompkit.replica.data.sql import RowFilter
from stompkit.replica.engine import Status
from stompkit.replica.engine.offline import node_of
from stompkit.replica.history import Entry, Graph, History, RowVersion, Shown
from stompkit.replica.identity import branch_of
from stompkit.replica.rows import Conflict
from stompkit.replica.rules import Rules
from stompkit.replica.runner import ReplicaStoppedError
from stompkit.replica.settings import ReplicaSettings
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Store, Tx, row_id
from stompkit.replica.vectors import Dot, parse_dot
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import Value
from stompkit.replication.sources.session.watch import SessionFactory

__all__ = ["Replica"]

#: Poll interval in seconds while waiting for changes by other processes.
_LOOK_S: Final = 0.5


class Replica:
    """One of several databases that all accept writes, go offline, and converge.

    Commits of sessions of ``session_factory`` are recorded as soon as the object exists, in any
    number of processes. One process runs the replica from :meth:`start` to :meth:`stop`, and
    exchanges changesets with other replicas. The object is thread-safe.
    """

    def __init__(
        self,
        engine: Engine | URL | str,
        tables: Iterable[Table] | MetaData | None = None,
        *,
        session_factory: SessionFactory | None = None,
        settings: ReplicaSettings | Mapping[str, Any] | None = None,
        rules: Rules | None = None,
        validate: Callable[[Changeset], object] | None = None,
        after_apply: Callable[[Changeset], object] | None = None,
        on_conflict: Callable[[str, Mapping[str, Value], Conflict], object] | None = None,
        row_filters: Mapping[str, RowFilter] | None = None,
        prefix: str = "stompkit_replica_",
        **more: Any,
    ) -> None:
        """Set up a replica of ``tables``, by default all tables that have a primary key.

        The replica also has :attr:`documents`. Settings are those of
        :class:`~stompkit.replica.settings.ReplicaSettings`, as keywords that override ``settings``.
        All replicas need the same ``rules``. The hooks are those of
        :class:`~stompkit.replica.applier.Hooks`. ``row_filters`` maps tables to functions; a row
        for which one returns False does not belong in this database. Names of the replica's own
        tables begin with ``prefix``.

        Raises TypeError for an unknown setting, which names the nearest known one, and ValueError:
        :class:`~stompkit.replica.settings.ChannelSettingsError`,
        :class:`~stompkit.replica.signing.SigningKeyError`, and for tables without support.
        """
        given = {} if settings is None else settings
        if isinstance(given, ReplicaSettings):
            given = {name: getattr(given, name) for name in ReplicaSettings.names()}
        self._components = components = Components(
            engine,
            tables,
            ReplicaSettings.of(given, **more),
            rules=Rules() if rules is None else rules,
            hooks=Hooks(validate, after_apply, on_conflict),
            filters=dict(row_filters or {}),
            prefix=prefix,
        )
        #: History of the replica, with more queries than the methods here.
        self.revisions: Final = History(
            components.store, components.applier.rules, components.applier.data
        )
        #: Replicated documents beside the tables.
        self.documents: Final = Documents(components.documents, components.engine, self._write)
        self._capture: Capture | None = None
        if session_factory is not None:
            self._capture = Capture(
                session_factory,
                components.store,
                components.applier,
                components.sql.names,
                engine=components.engine,
                is_read_only=self.settings.is_read_only,
                bulk=self.settings.bulk,
                on_commit=components.wake,
            )

    def __repr__(self) -> str:
        """Return a description with the database URL and no secrets."""
        return (
            f"<Replica in {self._components.engine.url!r}{': running' if self.is_running else ''}>"
        )

    @property
    def settings(self) -> ReplicaSettings:
        """Settings of the replica."""
        return self._components.settings

    @property
    def store(self) -> Store:
        """The replica's own tables."""
        return self._components.store

    # Life cycle.

    def create(self) -> None:
        """Create the missing tables of the replica, and its identity.

        Raises :class:`~stompkit.replica.nodes.IdentityError` if the database belongs to another
        replica or has other rules.
        """
        self._components.create()

    def start(self) -> None:
        """Start to exchange changesets with other replicas, in background threads.

        The broker may be unreachable. Raises :class:`~stompkit.replica.ReplicaInUseError` if
        another process runs the replica, RuntimeError if this object does, and as :meth:`create`
        does.
        """
        self._components.start(self.compact)
        # The tables may have gained columns while nothing ran.
        self._components.in_store(self._components.applier.fill)

    def stop(self) -> None:
        """Send what is committed, and disconnect; session commits are still recorded.

        Raises the exception that ended the engine's thread, if it has failed. Harmless if stopped.
        """
        self._components.stop()

    def close(self) -> None:
        """Stop, and stop watching sessions; raises as :meth:`stop` does."""
        try:
            self.stop()
        finally:
            if self._capture is not None:
                self._capture.close()
            if self._components.owns_engine:
                self._components.engine.dispose()

    def __enter__(self) -> Self:
        """Start the replica."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the replica."""
        self.close()

    @property
    def is_running(self) -> bool:
        """True if this object exchanges changesets with other replicas."""
        return self._components.is_running

    @property
    def origin(self) -> str:
        """Origin under which this replica numbers its changesets; raises IdentityError."""
        return node_of(self.store).origin

    @property
    def vector(self) -> dict[str, int]:
        """Version vector of the replica: number of the last changeset of each origin."""
        with self.store.reading() as reader:
            return reader.vector()

    # Writing.

    def write(
        self, changes: Sequence[RowChange], *, author: str = "", comment: str = ""
    ) -> SignedChangeset | None:
        """Change rows of tables and record the changes in one transaction.

        Returns the changeset; ``None`` if no value differs. Raises
        :class:`~stompkit.replica.applier.WriteRefusedError` if the database refuses the change, for
        a table that is not replicated, and for an empty key. Raises
        :class:`~stompkit.replica.capture.ReadOnlyReplicaError`.
        """
        self._components.refuse_unknown(changes)
        write = self._components.applier.write
        return self._components.writing(
            lambda tx: write(tx, changes, author=author, comment=comment)
        )

    def _write(self, changes: Sequence[RowChange], author: str, comment: str) -> object:
        return self.write(changes, author=author, comment=comment)

    def import_existing(self, *, comment: str = "rows that were there before") -> int:
        """Record what :meth:`check` finds: new, changed and deleted rows; returns how many.

        They become changesets of this node. Rows that the database has refused stay. NULL in a
        table overwrites no recorded value: the column may be newer here than at other nodes. First,
        new columns of the tables are filled with their recorded values. Raises as :meth:`write`
        does.
        """
        self._components.refuse_if_read_only()
        self._components.in_store(self._components.applier.fill)
        tables = self._components.sorted_tables
        count = import_rows(
            self.store,
            self._components.applier,
            tables,
            self._components.filters,
            comment=comment,
        )
        self._components.wake()
        return count

    # Queries.

    def status(self) -> Status:
        """Return the current status.

        Connection states are known only if this object runs the replica. Raises
        :class:`~stompkit.replica.store.ReplicaStoreError`, and TimeoutError if the engine's thread
        was busy for a minute.
        """
        return self._components.status()

    def wait_until(
        self, target: Mapping[str, int] | Literal["caught-up"], timeout_s: float = 30.0
    ) -> None:
        """Wait until the replica has reached a vector, or has all that others are known to have.

        ``"caught-up"`` also requires a message from another node since the start. Raises
        TimeoutError, which says what is missing, and ReplicaStoppedError.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            steps = self._components.steps
            lacks = self._lacks(target)
            if not lacks:
                return
            if self._components.error is not None:
                raise ReplicaStoppedError("the replica has stopped") from self._components.error
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"not in {timeout_s:g} s: {lacks}")
            self._components.wait_for_step(steps, min(left_s, _LOOK_S))

    def _lacks(self, target: Mapping[str, int] | str) -> str:
        """Describe what is missing for a target; empty if nothing is."""
        if not isinstance(target, str):
            vector = self.vector
            missing = {name: last for name, last in target.items() if vector.get(name, 0) < last}
            return f"missing is {missing}" if missing else ""
        if target != "caught-up":
            raise ValueError(f"what is waited for is a vector or 'caught-up', not {target!r}")
        status = self.status()
        if status.bootstrap:
            return "a snapshot of another node is being taken"
        if not any(peer.heard_at >= self._components.started_at for peer in status.peers):
            return "no other node was heard of"
        behind = {peer.origin: peer.ahead for peer in status.peers if peer.ahead}
        return f"others have changesets that this one lacks: {behind}" if behind else ""

    def history(
        self,
        table: str | None = None,
        key: Mapping[str, Value] | None = None,
        origin: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Entry]:
        """Return changesets, newest first: see :meth:`~.history.History.log`."""
        return self.revisions.log(table, key, origin, limit, before)

    def row_history(
        self, table: str, key: Mapping[str, Value], limit: int | None = None
    ) -> list[RowVersion]:
        """Return the versions of a row: see :meth:`~.history.History.row`."""
        return self.revisions.row(table, key, limit)

    def at(self, revision: str | datetime, tables: Iterable[str] | None = None) -> Shown:
        """Return all rows as of a revision or a time: see :meth:`~.history.History.at`."""
        if isinstance(revision, datetime):
            return self.revisions.at_time(revision, tables)
        return self.revisions.at(revision, tables)

    def diff(self, a: str, b: str, tables: Iterable[str] | None = None) -> list[RowChange]:
        """Return the changes between two revisions: see :meth:`~.history.History.diff`."""
        return self.revisions.diff(a, b, tables)

    def graph(self, limit: int = 50) -> Graph:
        """Return the last changesets with their parents."""
        return self.revisions.graph(limit)

    def check(self) -> list[Difference]:
        """Return table rows that differ from the recorded state, and so were not replicated."""
        return list(differences(self.store, self._components.applier, self._components.filters))

    # Conflicts.

    def conflicts(self, table: str | None = None, limit: int | None = None) -> list[RowConflicts]:
        """Return rows with concurrent changes, with winners and losers."""
        rules = self._components.applier.rules
        with self.store.reading() as reader:
            return [
                row_conflicts(record, rules.of(record.table))
                for record in reader.with_conflicts(table, limit=limit)
            ]

    def resolve(
        self,
        table: str,
        key: Mapping[str, Value],
        values: Mapping[str, Value] | None = None,
        *,
        pick: str | None = None,
        column: str | None = None,
        author: str = "",
        comment: str = "",
    ) -> SignedChangeset | None:
        """Resolve the conflicts of a row: by ``values`` of columns, or by picking a version.

        ``pick`` is ``winner``, ``loser 1`` for the newest of the others, ``loser 2`` and so on, for
        all conflicts or for one ``column``. Raises LookupError if nothing is in conflict, and as
        :meth:`write` does.
        """
        applier = self._components.applier

        def decide(tx: Tx) -> SignedChangeset | None:
            id = row_id(table, key)
            record = tx.rows([id]).get(id)
            if record is None:
                raise LookupError(f"there is no {table} {dict(key)}")
            rules = applier.rules.of(table)
            changes = decision(record, rules, values=values, pick=pick, column=column)
            return applier.write(tx, changes, author=author, comment=comment)

        return self._components.writing(decide)

    # Maintenance.

    def skip(self, dot: Dot | str) -> Outcome:
        """Count a quarantined changeset, such as ``"A~1f2e3d4c:17"``, as applied.

        It has no effect here. Raises LookupError if it is not in quarantine, and ValueError.
        """
        named = parse_dot(dot) if isinstance(dot, str) else dot
        components = self._components
        return components.reported(
            components.in_store(lambda tx: components.applier.skip(tx, named))
        )

    def retry(self) -> Outcome:
        """Retry the changesets in quarantine and the rows that the database refused."""
        return self._components.reported(self._components.in_store(self._components.applier.retry))

    def forget(self, node: str) -> None:
        """Stop waiting for a node, given by its origin or its branch.

        Raises LookupError if the name is unknown or ambiguous.
        """
        known = [peer.origin for peer in self.status().peers]
        named = [each for each in known if node in (each, branch_of(each))]
        if len(named) != 1:
            names = ", ".join(named or known) or "no others"
            raise LookupError(f"{node!r} is {'more than one' if named else 'none'} of: {names}")
        self._components.ask(lambda side: side.forget(named[0]))

    def bootstrap(self) -> None:
        """Take a snapshot of all rows from another node, now or at the next start.

        Changes that only this node has are kept.
        """
        self._components.ask(lambda side: side.bootstrap())

    def compact(self) -> Compacted:
        """Remove data that the settings do not require to keep."""
        stable = self._components.ask(lambda side: side.stable())
        return compact(
            self.store,
            self._components.applier.rules,
            self.settings.kept,
            stable,
            time.time(),
            save_history=self.settings.save_history,
        )
