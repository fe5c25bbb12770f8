"""A database that is one of several replicas, all of which write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Self

from sqlalchemy import URL, Engine, MetaData, Table

from stompkit.replica._components import Components
from stompkit.replica._deciding import RowConflicts, decision, row_conflicts
from stompkit.replica._offline_replica import node_of
from stompkit.replica._reconciling import Difference, differences, import_rows
from stompkit.replica.applier import Hooks, Outcome
from stompkit.replica.capture import Capture
from stompkit.replica.compaction import Compacted, compact
from stompkit.replica.data.documents import Documents
from stompkit.replica.data.sql import RowFilter
from stompkit.replica.engine import Status
from stompkit.replica.history import Entry, Graph, History, RowVersion, Shown
from stompkit.replica.identity import branch_of
from stompkit.replica.rows import Conflict
from stompkit.replica.rules import Rules
from stompkit.replica.runner import ReplicaStopped
from stompkit.replica.settings import ReplicaSettings
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Store, Tx, row_id
from stompkit.replica.vectors import Dot, parse_dot
from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.publishers.session.watch import SessionFactory
from stompkit.replication.values import Value

__all__ = ["Replica"]

#: How often a wait looks at what other processes have done, in seconds.
_LOOK_S: Final = 0.5


class Replica:
    """One of several databases that all write, go offline, and converge.

    What sessions of ``session_factory`` commit to its tables is recorded from the moment that it is
    made, by any number of processes; what goes to other replicas and comes from them is exchanged
    by the one that runs it, from :meth:`start` to :meth:`stop`. It can be used by several threads.
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
        """Describe a replica: ``tables`` of a database, by default all that have a primary key.

        Beside them it has :attr:`documents`. Settings are those of
        :class:`~stompkit.replica.settings.ReplicaSettings`, as keywords, or together
        with others that then go before them. ``rules`` have to be the same for all replicas. The
        hooks are those of :class:`~stompkit.replica.applier.Hooks`. A row for which the
        function in ``row_filters`` for its table gives false is not to be in this database. Names
        of the replica's own tables begin with ``prefix``.

        Raises TypeError for an unknown setting, which names the nearest known one, and ValueError:
        :class:`~stompkit.replica.settings.SettingsProblem`,
        :class:`~stompkit.replica.signing.KeyProblem` and for tables that can't be
        replicated.
        """
        given = {} if settings is None else settings
        if isinstance(given, ReplicaSettings):
            given = {name: getattr(given, name) for name in ReplicaSettings.names()}
        self._parts = parts = Components(
            engine,
            tables,
            ReplicaSettings.of(given, **more),
            rules=Rules() if rules is None else rules,
            hooks=Hooks(validate, after_apply, on_conflict),
            filters=dict(row_filters or {}),
            prefix=prefix,
        )
        #: What has been: there is more to be asked than by the methods here.
        self.revisions: Final = History(parts.store, parts.applier.rules, parts.applier.data)
        #: Documents that are replicated beside the tables.
        self.documents: Final = Documents(parts.documents, parts.engine, self._write)
        self._capture: Capture | None = None
        if session_factory is not None:
            self._capture = Capture(
                session_factory,
                parts.store,
                parts.applier,
                parts.sql.names,
                engine=parts.engine,
                is_read_only=self.settings.is_read_only,
                bulk=self.settings.bulk,
                on_commit=parts.wake,
            )

    def __repr__(self) -> str:
        """Where it is, and nothing that is secret."""
        return f"<Replica in {self._parts.engine.url!r}{': running' if self.is_running else ''}>"

    @property
    def settings(self) -> ReplicaSettings:
        """What it was told."""
        return self._parts.settings

    @property
    def store(self) -> Store:
        """Its own tables."""
        return self._parts.store

    # Life.

    def create(self) -> None:
        """Make the tables of the replica where they are missing, and give it its identity.

        Raises :class:`~stompkit.replica.nodes.IdentityProblem` for a database that is
        another replica, or one of other rules.
        """
        self._parts.create()

    def start(self) -> None:
        """Exchange changesets with other replicas from now on, in threads.

        No broker has to be there. Raises :class:`~stompkit.replica.ReplicaInUse` where
        another process does so with this database, RuntimeError where this one does, and as
        :meth:`create` does.
        """
        self._parts.start(self.compact)
        # The tables may have got columns while nothing ran.
        self._parts.in_store(self._parts.applier.fill)

    def stop(self) -> None:
        """Send what is committed, and disconnect; what sessions commit is recorded as before.

        Raises what the engine's thread has failed with, if it has. Harmless where nothing runs.
        """
        self._parts.stop()

    def close(self) -> None:
        """Stop, and watch no sessions any more; raises as :meth:`stop` does."""
        try:
            self.stop()
        finally:
            if self._capture is not None:
                self._capture.close()
            if self._parts.owns_engine:
                self._parts.engine.dispose()

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether this object exchanges changesets with other replicas."""
        return self._parts.is_running

    @property
    def origin(self) -> str:
        """The name by which changesets of this replica are numbered; raises IdentityProblem."""
        return node_of(self.store).origin

    @property
    def vector(self) -> dict[str, int]:
        """What it has: the number of the last changeset of each origin."""
        with self.store.reading() as reader:
            return reader.vector()

    # Writing.

    def write(
        self, changes: Sequence[RowChange], *, author: str = "", comment: str = ""
    ) -> SignedChangeset | None:
        """Change rows of tables, and record that, in one transaction.

        Gives the changeset; ``None`` where nothing differs from what was there. Raises
        :class:`~stompkit.replica.applier.WriteRefused` where the database does not take
        it, and :class:`~stompkit.replica.capture.ReadOnlyReplica`.
        """
        write = self._parts.applier.write
        return self._parts.writing(lambda tx: write(tx, changes, author=author, comment=comment))

    def _write(self, changes: Sequence[RowChange], author: str, comment: str) -> object:
        return self.write(changes, author=author, comment=comment)

    def import_existing(self, *, comment: str = "rows that were there before") -> int:
        """Record rows of the tables that are not known, or known otherwise; gives how many.

        They become changesets of this node. NULL in a table goes over no value that other nodes
        have: a column may be newer here than there. Columns that the tables have got get the values
        that were kept for them first. Raises as :meth:`write` does.
        """
        self._parts.refuse_if_read_only()
        self._parts.in_store(self._parts.applier.fill)
        tables = self._parts.sorted_tables
        count = import_rows(self.store, self._parts.applier, tables, comment=comment)
        self._parts.wake()
        return count

    # Asking.

    def status(self) -> Status:
        """How things are.

        Connections are known where this object runs the replica. Raises
        :class:`~stompkit.replica.store.StoreProblem`, and TimeoutError where the
        engine's thread has been busy for a minute.
        """
        return self._parts.status()

    def wait_until(
        self, target: Mapping[str, int] | Literal["caught-up"], timeout_s: float = 30.0
    ) -> None:
        """Wait until the replica has all of a vector, or of what others are known to have.

        To be ``"caught-up"`` it has to have heard of another one since it was started. Raises
        TimeoutError, which says what is missing, and ReplicaStopped.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            turns = self._parts.turns
            lacks = self._lacks(target)
            if not lacks:
                return
            if self._parts.error is not None:
                raise ReplicaStopped("the replica has stopped") from self._parts.error
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"not in {timeout_s:g} s: {lacks}")
            self._parts.wait_for_turn(turns, min(left_s, _LOOK_S))

    def _lacks(self, target: Mapping[str, int] | str) -> str:
        """What a target lacks, in words; empty where nothing does."""
        if not isinstance(target, str):
            vector = self.vector
            missing = {name: last for name, last in target.items() if vector.get(name, 0) < last}
            return f"missing is {missing}" if missing else ""
        if target != "caught-up":
            raise ValueError(f"what is waited for is a vector or 'caught-up', not {target!r}")
        status = self.status()
        if status.bootstrap:
            return "a snapshot of another node is being taken"
        if not any(peer.heard_at >= self._parts.started_at for peer in status.peers):
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
        """Changesets, the newest first: see :meth:`~.history.History.log`."""
        return self.revisions.log(table, key, origin, limit, before)

    def row_history(
        self, table: str, key: Mapping[str, Value], limit: int | None = None
    ) -> list[RowVersion]:
        """The versions of a row: see :meth:`~.history.History.row`."""
        return self.revisions.row(table, key, limit)

    def at(self, revision: str | datetime, tables: Iterable[str] | None = None) -> Shown:
        """All rows as they were at a revision, or a time: see :meth:`~.history.History.at`."""
        if isinstance(revision, datetime):
            return self.revisions.at_time(revision, tables)
        return self.revisions.at(revision, tables)

    def diff(self, a: str, b: str, tables: Iterable[str] | None = None) -> list[RowChange]:
        """What makes one revision of another: see :meth:`~.history.History.diff`."""
        return self.revisions.diff(a, b, tables)

    def graph(self, limit: int = 50) -> Graph:
        """The last changesets, and what each was made on top of."""
        return self.revisions.graph(limit)

    def check(self) -> list[Difference]:
        """Rows of the tables that are not as the replica believes, and so nowhere else as here."""
        return list(differences(self.store, self._parts.applier, self._parts.filters))

    # Conflicts.

    def conflicts(self, table: str | None = None, limit: int | None = None) -> list[RowConflicts]:
        """Rows that were changed by several at the same time, with who has won and lost."""
        rules = self._parts.applier.rules
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
        """Say what a row in conflict is to be: by ``values`` of columns, or by picking versions.

        ``pick`` is ``winner``, ``loser 1`` for the newest of the others, ``loser 2`` and so on, of
        all that is in conflict or of one ``column``. Raises LookupError where nothing is, and as
        :meth:`write` does.
        """
        applier = self._parts.applier

        def decide(tx: Tx) -> SignedChangeset | None:
            id = row_id(table, key)
            record = tx.rows([id]).get(id)
            if record is None:
                raise LookupError(f"there is no {table} {dict(key)}")
            rules = applier.rules.of(table)
            changes = decision(record, rules, values=values, pick=pick, column=column)
            return applier.write(tx, changes, author=author, comment=comment)

        return self._parts.writing(decide)

    # What people do now and then.

    def skip(self, dot: Dot | str) -> Outcome:
        """Count a changeset in quarantine, such as ``"A~1f2e3d4c:17"``, as applied.

        It has no effect here. Raises LookupError where it is not in quarantine, and ValueError.
        """
        named = parse_dot(dot) if isinstance(dot, str) else dot
        parts = self._parts
        return parts.told(parts.in_store(lambda tx: parts.applier.skip(tx, named)))

    def retry(self) -> Outcome:
        """Apply what is in quarantine, and write rows that the database refused, if that can be."""
        return self._parts.told(self._parts.in_store(self._parts.applier.retry))

    def forget(self, node: str) -> None:
        """Do not wait for a node any more, named by its origin or its branch.

        Raises LookupError where none of that name is known, or several.
        """
        known = [peer.origin for peer in self.status().peers]
        named = [each for each in known if node in (each, branch_of(each))]
        if len(named) != 1:
            told = ", ".join(named or known) or "no others"
            raise LookupError(f"{node!r} is {'more than one' if named else 'none'} of: {told}")
        self._parts.ask(lambda side: side.forget(named[0]))

    def bootstrap(self) -> None:
        """Take all rows from another node, now or when the replica is started.

        What only this node has stays.
        """
        self._parts.ask(lambda side: side.bootstrap())

    def compact(self) -> Compacted:
        """Forget what need not be kept, as the settings say."""
        stable = self._parts.ask(lambda side: side.stable())
        return compact(
            self.store,
            self._parts.applier.rules,
            self.settings.kept,
            stable,
            time.time(),
            save_history=self.settings.save_history,
        )
