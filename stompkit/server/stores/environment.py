"""An LMDB environment: its files, its layout version, and its errors."""

from __future__ import annotations

import errno
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import lmdb

from stompkit._common.files import describe, keep_owner, reason_of, sync_path
from stompkit.server.interfaces import StoreError, StoreFullError
from stompkit.server.stores.record import NUMBER
from stompkit.server.stores.reserve import Reserve
from stompkit.server.stores.versions import upgrade

__all__ = ["DATA_FILE", "DIRECTORY", "Databases", "Environment", "Transaction", "no_store"]

Transaction: TypeAlias = "lmdb.Transaction[memoryview]"

#: Name of the store's directory, below the broker's data directory.
DIRECTORY: Final = "messages.lmdb"
#: The file with all data.
DATA_FILE: Final = "data.mdb"
#: LMDB's lock file, and its length in bytes with the default number of readers.
_LOCK_FILE: Final = "lock.mdb"
_LOCK_OCTETS: Final = 8192

#: Version of the layout. Increase it when the layout changes, and add a migration from the previous
#: layout. Since version 2 the log can contain changes that the database lacks: older code must not
#: open such a store.
_VERSION: Final = 2
_MIGRATIONS: Final[dict[int, Callable[[Transaction], None]]] = {1: lambda _: None}
_VERSION_KEY: Final = b"version"
_UUID_KEY: Final = b"uuid"

#: Error numbers for a full disk, an exceeded quota or an exceeded file size limit.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Number of bytes written to probe if a file can grow.
_PROBE_OCTETS: Final = 64 * 1024


class Databases(NamedTuple):
    """The named databases.

    ``lanes`` holds lanes by number. ``messages`` and ``marks`` hold messages and their delivery
    counts by lane and place. ``records`` holds records by the hashes of their names.
    """

    meta: lmdb._Database
    lanes: lmdb._Database
    messages: lmdb._Database
    marks: lmdb._Database
    records: lmdb._Database


class _Loaded(NamedTuple):
    """The open LMDB handles of an environment."""

    env: lmdb.Environment
    databases: Databases


class Environment:
    """The environment of a store, in one directory.

    Every method raises :class:`StoreError`, and then leaves the stored data and the open handles as
    they were.
    """

    def __init__(
        self,
        directory: Path,
        *,
        synchronous: bool = True,
        max_octets: int = 0,
        read_only: bool = False,
    ) -> None:
        """Describe an environment in ``directory``, a broker's data directory.

        The file grows to at most ``max_octets``, or to its current size if that is larger. A
        ``read_only`` environment is neither created nor migrated.
        """
        self.path = directory / DIRECTORY
        self._synchronous = synchronous
        self._max_octets = max_octets
        self._read_only = read_only
        self._is_open = False
        self._is_extended = False
        #: True if the disk may contain what LMDB has rolled back in the system's memory only.
        self._is_in_doubt = False
        self._reserve = Reserve(self.path / DATA_FILE, max_octets)
        #: The LMDB handles; None if it must be reopened before the next use.
        self._loaded: _Loaded | None = None

    def open(self) -> None:
        """Open the environment, and create what is missing."""
        if self._is_open:
            raise StoreError("the store is open already")
        with self.errors():
            if not self._read_only:
                _make_directory(self.path)
            elif not (self.path / DATA_FILE).is_file():
                raise no_store(self.path.parent)
        self._loaded = self._load()
        self._is_open = True

    def close(self) -> None:
        """Flush everything written to the disk, and close; does nothing if not open."""
        if self._is_open:
            try:
                if not self._read_only and not self._synchronous:
                    self.sync()
                if self._loaded is not None and not self._is_in_doubt:
                    with self.errors():
                        self._reserve.release(self._loaded.env)
            finally:
                self._is_open = False
                self._unload()

    @contextmanager
    def transaction(
        self, *, write: bool = False, keep: bool = True
    ) -> Iterator[tuple[Transaction, Databases]]:
        """Open a transaction: committed at the end, rolled back on an error or unless ``keep``."""
        try:
            with self.errors():
                if write and self._is_in_doubt:
                    self._settle_doubt()
                env, databases = self._use()
                with env.begin(write=write, buffers=True) as txn:
                    yield txn, databases
                    if not keep:
                        txn.abort()
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, lmdb.Error) and not isinstance(cause, lmdb.MapFullError):
                # After some errors LMDB fails every call until it is reopened.
                self._unload()
                self._is_in_doubt = self._is_in_doubt or (write and self._synchronous)
            raise

    @contextmanager
    def extended(self) -> Iterator[None]:
        """Raise the size limit to twice the limit, or twice the file size, within the block.

        LMDB never changes a page in place, so that a removal also needs space at first.
        """
        self._is_extended = True
        self._unload()
        try:
            yield
        finally:
            self._is_extended = False
            self._unload()

    def uuid(self) -> bytes:
        """Return the unique identifier of this store."""
        with self.transaction() as (txn, databases):
            return bytes(txn.get(_UUID_KEY, b"", db=databases.meta))

    def room(self) -> int:
        """Return the number of bytes by which the file can grow within its limit."""
        with self.errors():
            env = self._use().env
            pages: int = env.info()["last_pgno"] + 1
            octets: int = self._max_octets - pages * env.stat()["psize"]
        return octets

    def has_reserve(self) -> bool:
        """Return True if the disk has space for operations that free space; see ``Reserve``."""
        with self.errors():
            return self._reserve.is_kept(*self._use())

    def sync(self) -> None:
        """Flush everything written to the disk."""
        with self.errors():
            self._use().env.sync(True)

    def copy_to(self, descriptor: int) -> None:
        """Write a compact copy of the data to a file, without free pages."""
        with self.errors():
            self._use().env.copyfd(descriptor, compact=True)

    def _use(self) -> _Loaded:
        """Return the LMDB handles, reopened if necessary."""
        if not self._is_open:
            raise StoreError("the store is not open")
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _unload(self) -> None:
        """Close LMDB's handles."""
        if self._loaded is not None:
            self._loaded.env.close()
            self._loaded = None

    def _load(self) -> _Loaded:
        """Open the file with LMDB."""
        page_octets = os.sysconf("SC_PAGE_SIZE")
        max_octets = self._max_octets
        with self.errors():
            if self._is_extended:
                max_octets = 2 * max(max_octets, (self.path / DATA_FILE).stat().st_size)
            _create_lock_file(self.path / _LOCK_FILE)
            env = lmdb.open(
                str(self.path),
                # Only addresses are reserved; the file is as long as the data written.
                map_size=-(-max_octets // page_octets) * page_octets,
                readonly=self._read_only,
                sync=self._synchronous,
                mode=0o600,
                create=not self._read_only,
                # Reads are sequential, and rarely repeated.
                readahead=False,
                max_dbs=len(Databases._fields),
            )
            try:
                self._fill_up(env)
                # Killed readers would keep pages from being reused.
                env.reader_check()
                return _Loaded(env, self._open_databases(env))
            except BaseException:
                env.close()
                raise

    def _settle_doubt(self) -> None:
        """Flush the file after a failed commit, to settle which commit the disk holds.

        The page that names the last commit may have reached the disk although the disk reported an
        error. LMDB restores the old page in memory only, and reuses the pages of that commit. A
        power loss before the next sync would then lose the old page. Until the flush succeeds,
        writes are refused and reads still work.
        """
        descriptor = os.open(self.path / DATA_FILE, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._is_in_doubt = False

    def _fill_up(self, env: lmdb.Environment) -> None:
        """Extend the file to the length that its header states.

        Free pages at its end may never have been written. Missing pages that are in use were cut
        off. Reading one of those would kill the process, while LMDB detects an empty one.
        """
        octets = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        if (self.path / DATA_FILE).stat().st_size < octets:
            os.truncate(self.path / DATA_FILE, octets)

    def _open_databases(self, env: lmdb.Environment) -> Databases:
        """Open or create the databases, and check the version of the layout."""
        with env.begin() as txn:
            is_new = txn.stat()["entries"] == 0
            is_ours = is_new or txn.get(Databases._fields[0].encode()) is not None
        if not is_ours or (is_new and self._read_only):
            raise StoreError(f"{self.path} is a database of something else than stompkit")
        if is_new:
            return _create(env)
        databases = Databases(
            *(env.open_db(name.encode(), create=False) for name in Databases._fields)
        )
        with env.begin(write=not self._read_only, buffers=True) as change:
            version: int = NUMBER.unpack(change.get(_VERSION_KEY, b"", db=databases.meta))[0]
            if version != _VERSION:
                if self._read_only and version < _VERSION:
                    raise StoreError(
                        f"the store {self.path} is of version {version}; a broker that starts with"
                        f" it brings it to version {_VERSION}"
                    )
                upgrade(f"the store {self.path}", version, _VERSION, _MIGRATIONS, change)
                change.put(_VERSION_KEY, NUMBER.pack(_VERSION), db=databases.meta)
        return databases

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate errors into :class:`StoreError` with a message."""
        try:
            yield
        except lmdb.MapFullError as error:
            raise StoreFullError(
                f"the store {self.path} has reached its limit of {self._max_octets} octets"
            ) from error
        except (lmdb.Error, OSError) as error:
            if self._lacks_room(error):
                raise StoreFullError(
                    f"there is no room for the store {self.path}: {reason_of(error)}"
                ) from error
            raise StoreError(f"the store {self.path} cannot be used: {describe(error)}") from error
        except (struct.error, ValueError) as error:
            raise StoreError(
                f"the store {self.path} has something that cannot be ({error}): check it"
            ) from error

    def lacks_reserve(self) -> StoreFullError:
        """Return the error for a message that would take space kept for removals."""
        return StoreFullError(
            f"there is no room for the store {self.path}: the rest of the disk is kept for"
            " acknowledgements"
        )

    def _lacks_room(self, error: lmdb.Error | OSError) -> bool:
        """Return True if an operation failed because the disk is full."""
        # Some versions of the package do not include the error number.
        if any(os.strerror(number) in str(error) for number in _NO_ROOM):
            return True
        return os.strerror(errno.EIO) in str(error) and not self._can_grow()

    def _can_grow(self) -> bool:
        """Return True if the file can grow: LMDB reports a short write as an I/O error."""
        try:
            descriptor = os.open(self.path / DATA_FILE, os.O_WRONLY)
            try:
                octets = os.fstat(descriptor).st_size
                try:
                    return os.pwrite(descriptor, bytes(_PROBE_OCTETS), octets) == _PROBE_OCTETS
                finally:
                    os.ftruncate(descriptor, octets)
            finally:
                os.close(descriptor)
        except OSError as error:
            return error.errno not in _NO_ROOM


def _create(env: lmdb.Environment) -> Databases:
    """Create the databases of a new store, all or none."""
    with env.begin(write=True) as txn:
        databases = Databases(*(env.open_db(name.encode(), txn) for name in Databases._fields))
        txn.put(_UUID_KEY, uuid.uuid4().bytes, db=databases.meta)
        txn.put(_VERSION_KEY, NUMBER.pack(_VERSION), db=databases.meta)
    return databases


def _create_lock_file(path: Path) -> None:
    """Create LMDB's lock file with room on the disk; raises OSError if there is none.

    LMDB would create it as a hole and map it into memory. On a full disk the first access to that
    kills the process. The file gets the owner of the store: a command of root must not keep the
    broker from it. Other errors are left to LMDB, which reports them.
    """
    if path.exists():
        return
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(bytes(_LOCK_OCTETS))
            keep_owner(file.fileno(), path.parent)
        # Another process may have created the file meanwhile, and use it.
        os.link(new, path)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
    finally:
        with suppress(OSError):
            new.unlink()


def no_store(directory: Path) -> StoreError:
    """Return the error for a data directory without a store."""
    return StoreError(
        f"there is no store in {directory}. Name the directory of --data, or path in [store]."
    )


def _make_directory(path: Path) -> None:
    """Create a directory for its owner only, durable across a power loss."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync_path(each.parent)
