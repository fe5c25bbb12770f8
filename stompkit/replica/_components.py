"""The components of a replica, and the calls that the replica delegates to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from sqlalchemy import URL, Engine, MetaData, Table, create_engine, inspect
from sqlalchemy.schema import sort_tables

from stompkit._common.spelling import suggestion
from stompkit.replica._channels.channel import ChannelSettingsError
from stompkit.replica._running.busy_retry import within
from stompkit.replica._running.periodic_tasks import PeriodicTasks
from stompkit.replica.applier import Applier, Bounds, Hooks, Outcome, WriteRefusedError
from stompkit.replica.capture import ReadOnlyReplicaError
from stompkit.replica.data.combined import CombinedData
from stompkit.replica.data.documents import DocumentData
from stompkit.replica.data.sql import RowFilter, SqlData
from stompkit.replica.engine import Engine as ReplicaEngine
from stompkit.replica.engine import Status
from stompkit.replica.engine.offline import OfflineReplica
from stompkit.replica.nodes import identify
from stompkit.replica.rules import Rules
from stompkit.replica.runner import ReplicaStoppedError, Runner
from stompkit.replica.settings import ReplicaSettings
from stompkit.replica.signing import Signer, Verifier
from stompkit.replica.store import Store, Tx
from stompkit.replication.model.events import RowChange

__all__ = ["Components"]

_Given = TypeVar("_Given")

#: Timeouts in seconds: for a busy store, and for an answer of the engine's thread.
_BUSY_S: Final = 30.0
_ANSWER_S: Final = 60.0
#: Maximum time in seconds of one wait for a database lock. The lock holder may be a session that
#: waits for the store, and databases detect such a deadlock only after a second.
_LOCK_WAIT_S: Final = 0.2


class Components:
    """The components of a replica; the engine and the periodic tasks can be started and stopped."""

    def __init__(
        self,
        engine: Engine | URL | str,
        tables: Iterable[Table] | MetaData | None,
        settings: ReplicaSettings,
        *,
        rules: Rules,
        hooks: Hooks,
        filters: Mapping[str, RowFilter],
        prefix: str,
    ) -> None:
        """Create the components; raises as :class:`~stompkit.replica.replica.Replica` does."""
        self.settings: Final = settings
        self._signer, self._verifier = _keys(settings)
        self.owns_engine: Final = not isinstance(engine, Engine)
        self.engine: Final = engine if isinstance(engine, Engine) else create_engine(engine)
        self._tables = _listed(tables)
        self.filters: Final = filters
        self.store: Final = Store(self.engine, prefix, lock_wait_s=_LOCK_WAIT_S)
        self.sql: Final = SqlData(self.engine, self._tables, settings.selection, filters)
        self.documents: Final = DocumentData(prefix)
        self.applier: Final = Applier(
            CombinedData(self.sql, self.documents),
            rules,
            wall=time.time,
            wants=_wants(settings),
            hooks=hooks,
            signer=self._signer,
            verifier=self._verifier,
            save_history=settings.save_history,
            bounds=Bounds(settings.hold_max, settings.hold_max_bytes),
            max_ahead_s=settings.max_ahead_s,
        )
        self._runner: Runner | None = None
        self._tasks: PeriodicTasks | None = None
        #: Time of the last start, in seconds since 1970.
        self.started_at = 0.0
        self._has_stepped = threading.Condition()
        self._steps = 0

    @property
    def sorted_tables(self) -> list[str]:
        """Names of the SQL tables in dependency order: referenced tables first."""
        if self._tables is None:
            found = inspect(self.engine).get_sorted_table_and_fkc_names()
            ordered = [name for name, _ in found if name is not None]
        else:
            ordered = [_name(table) for table in sort_tables(self._tables)]
        places = {name: place for place, name in enumerate(ordered)}
        return sorted(self.sql.names, key=lambda name: (places.get(name, len(places)), name))

    # Life cycle.

    def create(self) -> None:
        """Create missing tables and the identity; raises IdentityError."""
        self.store.create()
        self.applier.data.create(self.engine)
        self.in_store(self._identify)

    def _identify(self, tx: Tx) -> object:
        # The process that runs the engine passes the same terms.
        terms = {
            "rules": self.applier.rules.fingerprint,
            "selection of tables": self.settings.for_engine().selection,
        }
        settings = self.settings
        chance = self.applier.chance
        return identify(tx, settings.branch_id, settings.trunk_id, terms=terms, chance=chance)

    @property
    def is_running(self) -> bool:
        """True if an engine runs in this process."""
        return self._runner is not None and self._runner.is_running

    @property
    def error(self) -> BaseException | None:
        """Exception that ended the engine's thread, if it has failed."""
        return None if self._runner is None else self._runner.error

    def start(self, task: Callable[[], object]) -> None:
        """Start an engine, and call ``task`` periodically."""
        if self.is_running:
            raise RuntimeError("the replica runs already")
        if self._tasks is not None:
            # The previous engine has failed, and the failure was reported.
            self._tasks.stop()
        self.create()
        self.started_at = time.time()
        settings = self.settings
        runner = Runner(
            self.store,
            self.applier,
            settings.for_engine(),
            settings.ports,
            signer=self._signer,
            verifier=self._verifier,
            poll_s=settings.poll_s,
            lease_s=settings.lease_s,
            on_turn=self._count_step,
        )
        runner.start()
        self._runner = runner
        self._tasks = PeriodicTasks(task, settings.compact_interval_s)

    def stop(self) -> None:
        """Stop all threads; raises the exception that ended the engine's thread."""
        tasks, self._tasks = self._tasks, None
        runner, self._runner = self._runner, None
        if tasks is not None:
            tasks.stop()
        if runner is not None:
            runner.stop()

    # Calls.

    def in_store(self, function: Callable[[Tx], _Given]) -> _Given:
        """Call a function in one transaction as soon as the store is free."""

        def work() -> _Given:
            with self.store.transaction() as tx:
                return function(tx)

        return within(_BUSY_S, work)

    def writing(self, function: Callable[[Tx], _Given]) -> _Given:
        """Call a function that makes local changes; raises ReadOnlyReplicaError."""
        self.refuse_if_read_only()
        made = self.in_store(function)
        self.wake()
        return made

    def refuse_if_read_only(self) -> None:
        """Raise ReadOnlyReplicaError if this node makes no local changes."""
        if self.settings.is_read_only:
            raise ReadOnlyReplicaError("this replica takes the changes of others only")

    def refuse_unknown(self, changes: Sequence[RowChange]) -> None:
        """Raise WriteRefusedError for a change of an unknown table, or without a key.

        Other nodes would receive it, and no table would have it.
        """
        for change in changes:
            if change.name not in self.applier.data.names:
                hint = suggestion(change.name, sorted(self.sql.names) or ["no tables"])
                raise WriteRefusedError(f"table {change.name} is not replicated here: {hint}")
            if not change.key:
                raise WriteRefusedError(
                    f"a change of {change.name} has an empty key: name its primary key"
                )

    def reported(self, outcome: Outcome) -> Outcome:
        """Notify the hooks and the engine of changes that were applied outside the engine."""
        outcome.notify(self.applier.hooks)
        self.wake()
        return outcome

    def ask(self, function: Callable[[ReplicaEngine | OfflineReplica], _Given]) -> _Given:
        """Call a function with the engine, or with the stored state if no engine runs."""
        runner = self._runner
        if runner is None:
            return function(self._resting())
        return runner.call(function).result(_ANSWER_S)

    def status(self) -> Status:
        """Return the current status."""
        runner = self._runner
        if runner is None:
            return self._resting().status()
        try:
            status, problems = runner.call(
                lambda engine: (engine.status(), runner.problems)
            ).result(_ANSWER_S)
        except ReplicaStoppedError:
            status = self._resting().status()
            problems = [f"the replica has stopped: {runner.error or 'it was told to'}"]
        status.warnings += problems
        return status

    def _resting(self) -> OfflineReplica:
        return OfflineReplica(self.store, self.applier, self.settings.for_engine())

    # Waiting.

    def wake(self) -> None:
        """Notify the engine of a commit."""
        if self._runner is not None:
            self._runner.wake()

    @property
    def steps(self) -> int:
        """Number of times that the engine has done something."""
        return self._steps

    def wait_for_step(self, steps: int, timeout_s: float) -> None:
        """Wait until the number differs from ``steps``."""
        with self._has_stepped:
            self._has_stepped.wait_for(lambda: self._steps != steps, timeout_s)

    def _count_step(self) -> None:
        with self._has_stepped:
            self._steps += 1
            self._has_stepped.notify_all()


def _keys(settings: ReplicaSettings) -> tuple[Signer | None, Verifier]:
    """Return the signer of this node and the verifier; a node also receives its own messages."""
    signer = None if settings.signing_key is None else Signer.load(settings.signing_key)
    trusted: dict[str, str | Sequence[str]] = dict(settings.trusted_keys or {})
    branch = settings.branch_id
    if trusted and signer is not None and branch is not None:
        own = trusted.setdefault(branch, signer.public)
        if signer.public not in ([own] if isinstance(own, str) else own):
            raise ChannelSettingsError(
                f"the signing_key is not the one that trusted_keys has for {branch!r}, this node"
            )
    return signer, Verifier(trusted)


def _wants(settings: ReplicaSettings) -> Callable[[str], bool]:
    """Return a predicate that tells by name if a table is replicated here."""
    selection = settings.selection

    def wants(name: str) -> bool:
        schema, _, table = name.rpartition(".")
        return selection.wants(schema, table)

    return wants


def _listed(tables: Iterable[Table] | MetaData | None) -> list[Table] | None:
    if isinstance(tables, MetaData):
        return list(tables.tables.values())
    return None if tables is None else list(tables)


def _name(table: Table) -> str:
    """Return the name of a table as used in changes."""
    return f"{table.schema}.{table.name}" if table.schema else table.name
