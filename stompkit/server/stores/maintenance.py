"""Maintain a store that no broker uses: check, compact, export, import."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stompkit._common.files import FileLock, LockedError, sync_path
from stompkit.server.interfaces import StoreError
from stompkit.server.stores.check import check
from stompkit.server.stores.environment import DATA_FILE, Environment
from stompkit.server.stores.transfer import Progress, export_store, import_store

__all__ = ["LOCK_FILE", "Progress", "check", "compact", "export_store", "import_store"]

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
        raise StoreError(f"there is no store in {directory}")
    with _locked(directory):
        try:
            environment.open()
            try:
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                try:
                    environment.copy_to(descriptor)
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
