"""Maintain a store: back up, check, compact, export, import."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import BinaryIO, Final

from stompkit._common.files import FileLock, LockedError, keep_owner, reason_of, sync_path
from stompkit.server.interfaces import StoreError
from stompkit.server.stores.check import check
from stompkit.server.stores.environment import DATA_FILE, Environment, no_store
from stompkit.server.stores.log import ChangeLog
from stompkit.server.stores.transfer import Progress, export_store, import_store

__all__ = ["LOCK_FILE", "Progress", "backup", "check", "compact", "export_store", "import_store"]

#: The file in the broker's data directory that a running broker locks with ``flock``.
LOCK_FILE: Final = "lock"


def compact(directory: Path) -> tuple[int, int]:
    """Rewrite the store below a broker's data directory without its free space.

    Returns the file size in bytes before and after. The new file replaces the old one once it is
    complete and on the disk; until then both need space. Raises :class:`StoreError`, and changes
    nothing, if there is no store, a broker uses it, or it cannot be read. Raises
    :class:`StoreFullError` if there is no space.
    """
    environment = Environment(directory, read_only=True)
    old = environment.path / DATA_FILE
    new = environment.path / f"{DATA_FILE}.new"
    if not old.is_file():
        raise no_store(directory)
    with _locked(directory):
        try:
            environment.open()
            try:
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                try:
                    environment.copy_to(descriptor)
                    os.fchmod(descriptor, old.stat().st_mode & 0o777)
                    keep_owner(descriptor, old)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            finally:
                environment.close()
            octets = (old.stat().st_size, new.stat().st_size)
            new.replace(old)
            sync_path(environment.path)
        except OSError as error:
            raise StoreError(f"{old} cannot be compacted: {error}") from error
        finally:
            new.unlink(missing_ok=True)
    return octets


def backup(directory: Path, target: Path) -> int:
    """Copy the store below a broker's data directory, which a broker may be using.

    ``target`` becomes a data directory with everything that was confirmed before the call. It
    appears when it is complete and on the disk. Returns its size in bytes. Raises
    :class:`StoreError`, and leaves no target, if there is no store, the target exists, or there is
    no space.
    """
    if target.exists():
        raise StoreError(f"{target} exists already: remove it, or choose another name")
    environment = Environment(directory, read_only=True)
    environment.open()
    part: Path | None = None
    try:
        part = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        inner = part / environment.path.name
        inner.mkdir(mode=0o700)
        # First the log: the database, which is copied later, has everything that precedes it.
        log = ChangeLog(environment)
        octets = _write(inner / log.path.name, lambda file: file.write(log.content()))
        octets += _write(inner / DATA_FILE, lambda file: environment.copy_to(file.fileno()))
        for each in (inner, part):
            sync_path(each)
        part.rename(target)
        sync_path(target.parent)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {reason_of(error)}") from error
    finally:
        environment.close()
        if part is not None:
            rmtree(part, ignore_errors=True)
    return octets


def _write(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write a file that only its owner can read; returns its size in bytes once it is on disk."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    return path.stat().st_size


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep brokers away; raises :class:`StoreError` if one is running."""
    lock = FileLock(directory / LOCK_FILE)
    try:
        with lock.acquire():
            yield
    except LockedError:
        raise StoreError(f"a broker is using {directory}: stop it first") from None
    except OSError as error:
        raise StoreError(f"{lock.path} cannot be opened: {error}") from error
