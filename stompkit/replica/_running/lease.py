"""The lease that lets only one process at a time run the replica of a database."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import select

from stompkit._common.lease import Lease, steady_s
from stompkit.replica.store import Store, Tx

__all__ = ["LeaseLostError", "ReplicaInUseError", "ReplicaLease"]

_NAME: Final = "lease"
#: Tokens of the leases held in this process.
_HELD: Final[set[str]] = set()
#: Indexes in ``/proc/PID/stat``, after the program name, of the state and the start time.
_STATE, _BEGUN = 0, 19


class ReplicaInUseError(Exception):
    """Another process, or another object in this process, runs the replica of this database."""


class LeaseLostError(Exception):
    """Another process has taken over the replica of this database."""


class ReplicaLease(Lease):
    """The exclusive right to run a replica; that of a process known to have died is free."""

    def __init__(self, store: Store, seconds: float) -> None:
        """Start without the lease."""
        super().__init__(store.engine.dialect.name, seconds)
        self._store = store
        self._token: Final = uuid4().hex
        self._owner: dict[str, Any] = {"token": self._token, **_this_process()}

    def acquire(self) -> None:
        """Acquire the lease; raises ReplicaInUseError and as :meth:`Store.transaction` does."""
        begun_s = steady_s()
        with self._store.transaction() as tx:
            found: dict[str, Any] | None = tx.meta(_NAME)
            now_s = self._now(tx)
            if found is not None and not self._is_free(found, now_s):
                until = datetime.fromtimestamp(found["expires"], UTC).astimezone()
                raise ReplicaInUseError(
                    f"the replica of this database is run by the process {found['pid']} on"
                    f" {found['host']}: stop that one. If it is gone, the database is free after"
                    f" {until:%H:%M:%S}"
                )
            self._write(tx, now_s)
        self._extend(begun_s)
        _HELD.add(self._token)

    def renew(self) -> None:
        """Extend the lease; raises LeaseLostError, and as :meth:`Store.transaction` does."""
        begun_s = steady_s()
        with self._store.transaction() as tx:
            found: dict[str, Any] | None = tx.meta(_NAME)
            if found is None or found["token"] != self._token:
                who = "another process"
                if found is not None:
                    who = f"the process {found['pid']} on {found['host']}"
                raise LeaseLostError(
                    f"{who} has taken over the replica of this database, which was not heard of for"
                    " too long"
                )
            self._write(tx, self._now(tx))
        self._extend(begun_s)

    def release(self) -> None:
        """Release the lease if this object holds it; raises as :meth:`Store.transaction` does."""
        _HELD.discard(self._token)
        with self._store.transaction() as tx:
            found: dict[str, Any] | None = tx.meta(_NAME)
            if found is not None and found["token"] == self._token:
                tx.set_meta(_NAME, None)

    def _now(self, tx: Tx) -> float:
        return float(tx.connection.execute(select(self._clock)).scalar_one())

    def _write(self, tx: Tx, now_s: float) -> None:
        tx.set_meta(_NAME, {**self._owner, "expires": now_s + self._seconds})

    def _is_free(self, found: dict[str, Any], now_s: float) -> bool:
        return found["expires"] <= now_s or _is_dead(found)


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "machine": _machine(),
        "begun": _stat(pid, _BEGUN),
    }


def _machine() -> str:
    """Return an identifier of the machine, its boot and the PID namespace; empty if unknown.

    A PID can be checked only within the same PID namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _stat(pid: int, field: int) -> str:
    """Return a field of ``/proc/PID/stat``; empty if it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    # The program name can contain any character.
    return text.rpartition(")")[2].split()[field]


def _is_dead(found: dict[str, Any]) -> bool:
    """Return True if the lease holder is known to have died."""
    if not found["machine"] or found["machine"] != _machine():
        return False
    pid = found["pid"]
    if pid == os.getpid() and found["begun"] == _stat(pid, _BEGUN):
        return found["token"] not in _HELD
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists and belongs to another user
    begun = _stat(pid, _BEGUN)
    # The PID may have been reused. A zombie process still exists.
    return bool(begun) and (begun != found["begun"] or _stat(pid, _STATE) in ("Z", "X"))
