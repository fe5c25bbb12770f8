"""The right of the broker that has the lock of its data directory."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from twisted.internet.interfaces import IDelayedCall, IReactorFromThreads, IReactorTime

from stompkit._common.files import reason_of, user_name
from stompkit.server.log import process_events
from stompkit.server.process.activation import Activation, Owner, StartError
from stompkit.server.process.lock import DirectoryLock

__all__ = ["LockActivation"]


def _advice(error: OSError, directory: Path) -> str:
    """Return what to do if a directory cannot be used."""
    if isinstance(error, PermissionError) and directory.is_dir():
        user = user_name()
        return (
            f"It has to belong to {user}, the user of the broker, with everything in it: chown -R"
            f" {user} {directory}"
        )
    return "Name another directory with --data or in [store]."


class LockActivation(Activation):
    """Waits for the lock, and keeps it until the end of the process."""

    def __init__(self, directory: Path, timeout_s: float | None, reactor: IReactorTime) -> None:
        """Start without the lock; after ``timeout_s`` seconds, the owner is ended."""
        self._lock = DirectoryLock(directory)
        self._timeout_s = timeout_s
        self._reactor = reactor
        self._timeout: IDelayedCall | None = None
        self._is_stopped = False

    @property
    def is_active(self) -> bool:
        """True if this broker has the lock."""
        return self._lock.is_held

    @property
    def trouble(self) -> str:
        """The reason why this broker does not work."""
        if self._lock.is_held:
            return "it does not listen yet"
        return "it stands by: another broker works on its data"

    @property
    def rival(self) -> str:
        """The process that has the lock, as its file says."""
        return "" if self._lock.is_held else self._lock.holder()

    @property
    def has_files(self) -> bool:
        """True: the lock is a file."""
        return True

    def start(self, owner: Owner) -> None:
        """Take the lock, or wait for it. Raises :class:`StartError`."""
        lock = self._lock
        try:
            is_taken = lock.try_acquire()
        except OSError as error:
            raise StartError(
                f"cannot keep messages in {lock.path.parent}: {reason_of(error)}."
                f" {_advice(error, lock.path.parent)}"
            ) from error
        if is_taken:
            owner.begin()
        else:
            self._wait(owner)

    def _wait(self, owner: Owner) -> None:
        lock = self._lock
        who = lock.holder()
        if self._timeout_s == 0:
            raise StartError(f"{lock.path.parent} is in use: {lock.path} is held by {who}")
        process_events.standing_by(path=str(lock.path), holder=who)
        owner.status(f"standing by: {lock.path} is held by {who}")
        from_thread = cast("IReactorFromThreads", self._reactor).callFromThread
        lock.wait(
            lambda: from_thread(self._took_over, owner),
            lambda error: from_thread(self._failed, owner, error),
        )
        if self._timeout_s is not None:
            self._timeout = self._reactor.callLater(self._timeout_s, self._waited_enough, owner)

    def _took_over(self, owner: Owner) -> None:
        if self._is_stopped:
            return
        self._stop_waiting()
        process_events.taking_over(path=str(self._lock.path))
        try:
            owner.begin()
        except StartError as error:
            owner.end(error)

    def _failed(self, owner: Owner, error: OSError) -> None:
        if not self._is_stopped:
            owner.end(f"cannot lock: {reason_of(error)}")

    def _waited_enough(self, owner: Owner) -> None:
        self._timeout = None
        owner.end(
            f"{self._lock.path} is still held by {self._lock.holder()} after"
            f" {self._timeout_s:g} seconds"
        )

    def _stop_waiting(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def leave(self) -> None:
        """Release the lock."""
        self._lock.release()

    def stop(self) -> None:
        """Release the lock, or stop waiting for it."""
        self._is_stopped = True
        self._stop_waiting()
        self._lock.release()
