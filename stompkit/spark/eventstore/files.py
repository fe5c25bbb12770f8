"""The folder of an event store: immutable files, and the list of valid files.

``list.json`` is replaced atomically under the lock of the file ``lock``, so a reader sees one
consistent state of the store. Files that are not listed are unfinished, or were merged into others.
They stay for a while for concurrent writers and readers. A process must hold the lock of
``merging`` to remove files from the list; while it holds that lock, no listed file disappears.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import msgspec

from stompkit._common.files import FileLock, LockedError, shortened, sync_path

__all__ = ["DEAD_LETTERS", "FRESH", "BrokenStoreError", "Entry", "Folder", "Listing", "Move"]

#: Folder of dead letters, which a pipeline manages itself.
DEAD_LETTERS: Final = "dead-letters"

_FORMAT: Final = 1
#: Base of a file whose changesets are numbered when it is listed.
FRESH: Final = -1
#: Number of bits that number the changesets of a file.
_NUMBERS_BITS: Final = 32
#: Maximum length of a folder name in bytes; file systems allow 255.
_LONGEST_NAME: Final = 150


class BrokenStoreError(Exception):
    """An event store with missing files, or of a newer format; ``str()`` says which."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A listed file."""

    #: Path relative to the folder of the store.
    path: str
    namespace: str
    #: Name of the event; None for a file with changesets.
    event: str | None
    rows: int
    #: Approximate size in memory in bytes.
    octets: int
    #: Latest time in the file.
    last: float
    #: Expiry times of its first and its last data; None for data that never expires.
    first_expiry: float | None
    last_expiry: float | None
    #: Offset of the numbers of its changesets.
    base: int = FRESH
    #: Number of times that the data was merged.
    tier: int = 0

    def has_expired(self, now: float) -> bool:
        """Return True if any data in the file has expired."""
        return self.first_expiry is not None and self.first_expiry <= now


class Covered(msgspec.Struct, frozen=True):
    """The changes of a pipeline that the history contains without gaps."""

    #: False if the first ones are missing, or some were stored without a history.
    is_whole: bool
    #: Tables as selected, or None for all: those that every batch had.
    tables: list[str] | None = None

    def and_then(self, later: Covered) -> Covered:
        """Return the same with a later batch."""
        if self.tables is None or later.tables is None:
            tables = self.tables if later.tables is None else later.tables
        else:
            tables = [name for name in self.tables if name in later.tables]
        return Covered(self.is_whole and later.is_whole, tables)


class Listing(msgspec.Struct, frozen=True):
    """All valid files, and the positions of pipelines."""

    format: int = _FORMAT
    #: Number of the next file.
    next: int = 1
    files: list[Entry] = []
    #: Ordinal of the last stored message by partition, for each pipeline and spool.
    fences: dict[str, dict[int, int]] = {}
    #: Namespaces from which expired changesets were removed.
    incomplete: list[str] = []
    #: Content of the history for each pipeline and spool; unknown for those stored before 1.0.
    covered: dict[str, Covered] = {}

    @property
    def end(self) -> int:
        """Upper bound of the numbers of all listed changesets, excluding changesets added later."""
        return self.next << _NUMBERS_BITS

    def covered_of(self, fence: str) -> Covered:
        """Return what the history has of a pipeline, of all spools: *fence* names one of them."""
        namespace, pipeline, _ = msgspec.json.decode(fence)
        found = Covered(is_whole=True)
        for name, each in self.covered.items():
            if msgspec.json.decode(name)[:2] == [namespace, pipeline]:
                found = found.and_then(each)
        return found


class Move(NamedTuple):
    """A fence update that fails if the fence was moved concurrently."""

    name: str
    before: Mapping[int, int]
    after: Mapping[int, int]
    #: What the history gets.
    covered: Covered

    def covers(self, known: Covered | None) -> Covered | None:
        """Return what the history has then, or None if that is unknown."""
        if known is not None:
            return known.and_then(self.covered)
        # It may be complete if an earlier release has stored what is before.
        return None if self.before and self.covered.is_whole else self.covered


class Folder:
    """The files of a store; any number of threads and processes can use it."""

    def __init__(self, path: Path, keep_s: float, *, sync: bool) -> None:
        """Use a folder, which is created when the first file is added.

        Unlisted files stay for ``keep_s`` seconds. Without ``sync`` no write waits for the disk.
        """
        self.path: Final = path
        self._list: Final = path / "list.json"
        #: Time in seconds for which unlisted files stay.
        self.keep_s: Final = keep_s
        self.sync: Final = sync
        self._known = (b"", Listing())
        self._lock = threading.Lock()

    def listing(self) -> Listing:
        """Return the current list; raises :class:`BrokenStoreError`."""
        try:
            octets = self._list.read_bytes()
        except FileNotFoundError:
            return Listing()
        with self._lock:
            before, known = self._known
        if octets == before:
            return known
        try:
            listing = msgspec.json.decode(octets, type=Listing)
        except msgspec.DecodeError as error:
            raise BrokenStoreError(f"{self._list} is no list of files: {error}") from None
        if listing.format != _FORMAT:
            raise BrokenStoreError(
                f"{self._list} has the format {listing.format}, and {_FORMAT} is known"
            )
        with self._lock:
            self._known = octets, listing
        return listing

    def commit(
        self,
        added: Sequence[Entry],
        removed: Collection[Entry] = (),
        move: Move | None = None,
        *,
        incomplete: Collection[str] = (),
    ) -> bool:
        """List files, unlist others, and move a fence: all of it atomically.

        ``incomplete`` are the namespaces whose history loses data by the commit.

        Returns False without any change if the fence was moved. Raises ``FileNotFoundError`` for
        files that were not listed in time, and :class:`BrokenStoreError` if a file to remove is not
        listed.
        """
        with self._locked("lock", waits=True):
            before = self.listing()
            if move is not None and before.fences.get(move.name, {}) != move.before:
                return False
            gone = {entry.path for entry in removed}
            files = [entry for entry in before.files if entry.path not in gone]
            if len(files) + len(gone) != len(before.files):
                raise BrokenStoreError(f"{self._list} does not have what was merged")
            number = before.next
            for entry in added:
                # A cleanup may have removed the file as abandoned.
                os.stat(self.path / entry.path)
                if entry.base == FRESH:
                    entry = msgspec.structs.replace(entry, base=number << _NUMBERS_BITS)
                    number += 1
                files.append(entry)
            moved = {} if move is None else {move.name: dict(move.after)}
            covered = dict(before.covered)
            if move is not None and (now := move.covers(covered.get(move.name))) is not None:
                covered[move.name] = now
            after = Listing(
                next=number,
                files=files,
                fences={**before.fences, **moved},
                incomplete=sorted({*before.incomplete, *incomplete}),
                covered=covered,
            )
            for name in gone:
                # Its age counts from the moment when it is unlisted.
                os.utime(self.path / name)
            self._publish(msgspec.json.encode(after))
        return True

    @contextmanager
    def merging(self, *, waits: bool) -> Iterator[bool]:
        """Hold the right to remove files from the list; yields True if it was acquired."""
        with self._locked("merging", waits=waits) as is_held:
            yield is_held

    def sweep(self, folders: Collection[Path] | None = None) -> None:
        """Remove old unlisted files from some folders, or from all."""
        if folders is None:
            folders = [Path(name) for name, _, files in os.walk(self.path) if files]
        # No file may be listed between reading the list and the removal.
        with self._locked("lock", waits=True):
            listed = {entry.path for entry in self.listing().files}
            oldest = time.time() - self.keep_s
            for folder in folders:
                if folder == self.path or self.path / DEAD_LETTERS in (folder, *folder.parents):
                    continue
                for path in folder.iterdir():
                    name = path.relative_to(self.path).as_posix()
                    # A concurrent writer may be renaming the file right now.
                    with suppress(FileNotFoundError):
                        if name not in listed and path.stat().st_mtime < oldest and path.is_file():
                            path.unlink()

    def new_path(self, namespace: str, event: str | None) -> Path:
        """Return the path of a new file, in an existing folder."""
        folder = self.path / ("history" if event is None else "events") / _safe(namespace)
        if event is not None:
            folder /= _safe(event)
        self._make(folder)
        return folder / f"{uuid4().hex}.parquet"

    def finish(self, file: BinaryIO, unfinished: Path, path: Path) -> None:
        """Rename a finished file to its name, once it is synced to disk."""
        file.flush()
        if self.sync:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        self._sync(path.parent)

    def _make(self, folder: Path) -> None:
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self._sync(each.parent)

    def _sync(self, folder: Path) -> None:
        """Sync the names in a folder to disk."""
        if self.sync:
            sync_path(folder)

    def _publish(self, octets: bytes) -> None:
        unfinished = self._list.with_suffix(".tmp")
        with open(unfinished, "wb") as file:
            file.write(octets)
            self.finish(file, unfinished, self._list)

    @contextmanager
    def _locked(self, name: str, *, waits: bool) -> Iterator[bool]:
        self._make(self.path)
        try:
            # The lock excludes other threads, too.
            lock = FileLock(self.path / name).acquire(None if waits else 0.0)
        except LockedError:
            yield False
            return
        with lock:
            yield True


def _safe(name: str) -> str:
    """Return a folder name; Spark ignores names that begin with a dot or an underscore."""
    quoted = f"n-{quote(name, safe='')}"
    return shortened(quoted, name, longest=_LONGEST_NAME, kept=_LONGEST_NAME)
