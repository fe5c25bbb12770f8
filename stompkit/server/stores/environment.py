"""An LMDB environment: its files, the version of what is in it, and what can go wrong with it."""

from __future__ import annotations

import errno
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import lmdb

from stompkit._common.files import sync_path
from stompkit.server.interfaces import StoreError, StoreFull
from stompkit.server.stores.record import NUMBER
from stompkit.server.stores.versions import upgrade

__all__ = ["DATA_FILE", "DIRECTORY", "Databases", "Environment", "Transaction"]

Transaction: TypeAlias = "lmdb.Transaction[memoryview]"

#: Where a store is, below the broker's directory of data.
DIRECTORY: Final = "messages.lmdb"
#: The file in there that has everything; the other one is LMDB's, for locks.
DATA_FILE: Final = "data.mdb"

#: The version of the layout. Who changes the layout counts it up, and adds to the migrations
#: what turns the last layout into the new one. Since 2 there can be changes in the log that are
#: not in the database: what does not know of it must not open the store.
_VERSION: Final = 2
_MIGRATIONS: Final[dict[int, Callable[[Transaction], None]]] = {1: lambda _: None}
_VERSION_KEY: Final = b"version"
_UUID_KEY: Final = b"uuid"

#: How the end of a disk, of a quota, or of what the system lets a file grow to is told.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What has to fit at the end of a file that can grow.
_PROBE_OCTETS: Final = 64 * 1024


class Databases(NamedTuple):
    """The named databases.

    ``lanes`` has lanes by their numbers, ``messages`` and ``marks`` have messages and how often
    they were delivered by lane and place, ``records`` has records by the hashes of their names.
    """

    meta: lmdb._Database
    lanes: lmdb._Database
    messages: lmdb._Database
    marks: lmdb._Database
    records: lmdb._Database


class _Loaded(NamedTuple):
    """What LMDB has of an environment."""

    env: lmdb.Environment
    databases: Databases


class Environment:
    """The environment of a store, in one directory.

    Every method raises :class:`StoreError`, and leaves what is stored and what is open as it
    was.
    """

    def __init__(
        self,
        directory: Path,
        *,
        synchronous: bool = True,
        max_octets: int = 0,
        read_only: bool = False,
    ) -> None:
        """Describe an environment in ``directory``, a broker's directory of data.

        The file grows to no more than ``max_octets``, or than it has where that is more. A
        ``read_only`` one is not made, nor brought to our version.
        """
        self.path = directory / DIRECTORY
        self._synchronous = synchronous
        self._max_octets = max_octets
        self._read_only = read_only
        self._is_open = False
        self._is_extended = False
        #: Whether the disk may have what LMDB has taken back in the system's memory only.
        self._is_in_doubt = False
        #: What LMDB has; nothing, until it is used next, where it has to be opened again.
        self._loaded: _Loaded | None = None

    def open(self) -> None:
        """Open the environment, and make what is missing of it."""
        if self._is_open:
            raise StoreError("the store is open already")
        with self.errors():
            if not self._read_only:
                _make_directory(self.path)
            elif not (self.path / DATA_FILE).is_file():
                raise StoreError(f"there is no store in {self.path.parent}")
        self._loaded = self._load()
        self._is_open = True

    def close(self) -> None:
        """Have what was written reach the disk, and close; harmless if it is not open."""
        if self._is_open:
            try:
                if not self._read_only and not self._synchronous:
                    self.sync()
            finally:
                self._is_open = False
                self._unload()

    @contextmanager
    def transaction(
        self, *, write: bool = False, keep: bool = True
    ) -> Iterator[tuple[Transaction, Databases]]:
        """A transaction: committed at the end, or else undone, as always where not to ``keep``."""
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
                # After some errors LMDB does nothing more until it is opened again.
                self._unload()
                self._is_in_doubt = self._is_in_doubt or (write and self._synchronous)
            raise

    @contextmanager
    def extended(self) -> Iterator[None]:
        """Let the file grow to twice its limit, or its length, meanwhile.

        LMDB changes no page in place, so that removing, too, needs room at first.
        """
        self._is_extended = True
        self._unload()
        try:
            yield
        finally:
            self._is_extended = False
            self._unload()

    def uuid(self) -> bytes:
        """What tells this store from all others."""
        with self.transaction() as (txn, databases):
            return bytes(txn.get(_UUID_KEY, b"", db=databases.meta))

    def room(self) -> int:
        """Octets that the file can grow by within its limit."""
        with self.errors():
            env = self._use().env
            pages: int = env.info()["last_pgno"] + 1
            octets: int = self._max_octets - pages * env.stat()["psize"]
        return octets

    def sync(self) -> None:
        """Have everything that was written reach the disk."""
        with self.errors():
            self._use().env.sync(True)

    def copy_to(self, descriptor: int) -> None:
        """Write what is stored to a file, without the pages that are free."""
        with self.errors():
            self._use().env.copyfd(descriptor, compact=True)

    def _use(self) -> _Loaded:
        """What LMDB has, opened again where need be."""
        if not self._is_open:
            raise StoreError("the store is not open")
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _unload(self) -> None:
        """Let go of what LMDB has."""
        if self._loaded is not None:
            self._loaded.env.close()
            self._loaded = None

    def _load(self) -> _Loaded:
        """Have LMDB open the file."""
        page_octets = os.sysconf("SC_PAGE_SIZE")
        max_octets = self._max_octets
        with self.errors():
            if self._is_extended:
                max_octets = 2 * max(max_octets, (self.path / DATA_FILE).stat().st_size)
            env = lmdb.open(
                str(self.path),
                # Only addresses are reserved; the file is as long as what has been written.
                map_size=-(-max_octets // page_octets) * page_octets,
                readonly=self._read_only,
                sync=self._synchronous,
                mode=0o600,
                create=not self._read_only,
                # What is read is read in order, and hardly ever twice.
                readahead=False,
                max_dbs=len(Databases._fields),
            )
            try:
                self._fill_up(env)
                # Readers that were killed would keep pages from being used again.
                env.reader_check()
                return _Loaded(env, self._open_databases(env))
            except BaseException:
                env.close()
                raise

    def _settle_doubt(self) -> None:
        """Have the disk know what has become of a commit that failed.

        The page that says which commit is the last one may have reached the disk, although the
        disk said otherwise. LMDB puts the old one back, but not onto the disk, and uses the pages
        of that commit again: without power before the next sync, the old page would be missing.
        Until then nothing is changed any more, but what is there can be read.
        """
        descriptor = os.open(self.path / DATA_FILE, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._is_in_doubt = False

    def _fill_up(self, env: lmdb.Environment) -> None:
        """Have the file be as long as it says it is.

        Pages at its end that are free may never have been written. Others that are not there
        were cut off: to read one would kill the process, while LMDB tells an empty one.
        """
        octets = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        if (self.path / DATA_FILE).stat().st_size < octets:
            os.truncate(self.path / DATA_FILE, octets)

    def _open_databases(self, env: lmdb.Environment) -> Databases:
        """Open or make the databases, and see to the version of what is in them."""
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
        """Turn what can go wrong into a :class:`StoreError` that says so."""
        try:
            yield
        except lmdb.MapFullError as error:
            raise StoreFull(
                f"the store {self.path} has reached its limit of {self._max_octets} octets"
            ) from error
        except (lmdb.Error, OSError) as error:
            if self._lacks_room(error):
                raise StoreFull(f"there is no room for the store {self.path}: {error}") from error
            raise StoreError(f"the store {self.path} can't be used: {error}") from error
        except (struct.error, ValueError) as error:
            raise StoreError(
                f"the store {self.path} has something that can't be ({error}): check it"
            ) from error

    def _lacks_room(self, error: lmdb.Error | OSError) -> bool:
        """Whether something failed for want of room on the disk."""
        # Not every version of the package tells the number of an error.
        if any(os.strerror(number) in str(error) for number in _NO_ROOM):
            return True
        return os.strerror(errno.EIO) in str(error) and not self._can_grow()

    def _can_grow(self) -> bool:
        """Whether the file could be longer: LMDB takes a write that was cut short for a bad one."""
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
    """Make the databases of a new store, all of them or none."""
    with env.begin(write=True) as txn:
        databases = Databases(*(env.open_db(name.encode(), txn) for name in Databases._fields))
        txn.put(_UUID_KEY, uuid.uuid4().bytes, db=databases.meta)
        txn.put(_VERSION_KEY, NUMBER.pack(_VERSION), db=databases.meta)
    return databases


def _make_directory(path: Path) -> None:
    """Make a directory that is there after a loss of power, too, for its owner only."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
        sync_path(each.parent)
