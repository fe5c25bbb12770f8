"""Commits of PostgreSQL that wait for its replicas."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import psycopg

from stompkit.testing.launching.polling import wait_until

__all__ = ["WAITING", "Operator", "require_replica"]

Operator = psycopg.Connection[Any]
"""A connection whose own changes wait for nothing."""

#: Backends that wait until a replica has their commit.
WAITING: Final = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
#: Name of a replica that does not exist.
_NOBODY: Final = "nobody"
_LONG_S: Final = 60.0


def require_replica(operator: Operator, names: str = _NOBODY) -> None:
    """Make all commits wait for the replicas with these names; with none, they wait for nothing.

    The server's checkpointer reads this setting for all backends, later than they do: only a
    commit shows that it is in effect.
    """
    if names:
        _set(operator, _NOBODY)
        assert wait_until(lambda: _does_commit_wait(operator), _LONG_S)
    _set(operator, names)


def _set(operator: Operator, names: str) -> None:
    operator.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    operator.execute("SELECT pg_reload_conf()")
    shown = "SHOW synchronous_standby_names"
    assert wait_until(lambda: operator.execute(shown).fetchone() == (names,), _LONG_S)


def _does_commit_wait(operator: Operator) -> bool:
    """Commit in another session; cancel its wait if there is one."""
    cancel = f"SELECT pg_cancel_backend(pid) FROM ({WAITING}) AS waiting WHERE pid = %s"

    was_waiting = False

    def is_over(commit: Future[Any], pid: int) -> bool:
        nonlocal was_waiting
        was_waiting |= bool(operator.execute(cancel, [pid]).fetchall())
        return commit.done()

    with (
        psycopg.connect(operator.info.dsn, autocommit=True) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        # A transaction that writes nothing to the log has nothing that a replica could lack.
        commit = pool.submit(session.execute, "SELECT pg_logical_emit_message(true, '', '')")
        assert wait_until(lambda: is_over(commit, session.info.backend_pid), _LONG_S)
    return was_waiting
