"""The folder of an event store: files that never change, and the list of those that count.

``list.json`` is replaced as a whole, under the lock of the file ``lock``: who reads it knows one
state of the store, all of it. Files that are not listed are unfinished, or were merged into others:
they stay for a while, for those who write or read them. The right to take files from the list is
the lock of ``merging``, so that whoever has it sees nothing vanish.
"""

from __future__ import annotations

import hashlib
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

from stompkit._common.files import FileLock, LockedError, sync_path

__all__ = ["DEAD_LETTERS", "FRESH", "BrokenStore", "Entry", "Folder", "Listing", "Move"]

#: The folder for what is no event: dead letters, which a pipeline sees to itself.
DEAD_LETTERS: Final = "dead-letters"

_FORMAT: Final = 1
#: The base of a file whose changesets get their numbers when it is listed.
FRESH: Final = -1
#: How many changesets a file can number.
_NUMBERS_BITS: Final = 32
#: Octets of a name of a folder; file systems take 255.
_LONGEST_NAME: Final = 150


class BrokenStore(Exception):
    """An event store that lacks files, or one of a newer format; ``str()`` says which it is."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A file that counts."""

    #: Relative to the folder of the store.
    path: str
    namespace: str
    #: None: a file with changesets.
    event: str | None
    rows: int
    #: In memory, about.
    octets: int
    #: The latest time in it.
    last: float
    #: When the first and the last of it are past their life; None: never.
    first_expiry: float | None
    last_expiry: float | None
    #: What is added to the numbers of its changesets.
    base: int = FRESH
    #: How often it was merged.
    tier: int = 0

    def has_expired(self, now: float) -> bool:
        """Whether something in it is past its life."""
        return self.first_expiry is not None and self.first_expiry <= now


class Listing(msgspec.Struct, frozen=True):
    """All files that count, and how far pipelines have come."""

    format: int = _FORMAT
    #: The number of the next file.
    next: int = 1
    files: list[Entry] = []
    #: By pipeline and spool: the ordinal of the last message that is stored, by partition.
    fences: dict[str, dict[int, int]] = {}
    #: The namespaces of which changesets were removed after their life.
    incomplete: list[str] = []

    @property
    def end(self) -> int:
        """What is beyond the numbers of all its changesets, and not of those that are added."""
        return self.next << _NUMBERS_BITS


class Move(NamedTuple):
    """A fence that is moved, provided that nobody has moved it meanwhile."""

    name: str
    before: Mapping[int, int]
    after: Mapping[int, int]


class Folder:
    """The files of a store; it can be used by any number of threads and processes."""

    def __init__(self, path: Path, keep_s: float, *, sync: bool) -> None:
        """Use a folder, which is made when something is added.

        Files that are not listed stay for ``keep_s`` seconds. Without ``sync`` nothing waits for
        the disk.
        """
        self.path: Final = path
        self._list: Final = path / "list.json"
        #: How long files stay that are not listed, in seconds.
        self.keep_s: Final = keep_s
        self.sync: Final = sync
        self._known = (b"", Listing())
        self._lock = threading.Lock()

    def listing(self) -> Listing:
        """What counts now; raises :class:`BrokenStore`."""
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
            raise BrokenStore(f"{self._list} is no list of files: {error}") from None
        if listing.format != _FORMAT:
            raise BrokenStore(
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
        """List files, and others no more, and move a fence: all of it, or nothing.

        ``incomplete`` are the namespaces whose history has lost something by that.

        Gives whether it is done: not where the fence is elsewhere. Raises ``FileNotFoundError`` for
        files that were not listed in time, and :class:`BrokenStore` for some that are not listed.
        """
        with self._locked("lock", waits=True):
            before = self.listing()
            if move is not None and before.fences.get(move.name, {}) != move.before:
                return False
            gone = {entry.path for entry in removed}
            files = [entry for entry in before.files if entry.path not in gone]
            if len(files) + len(gone) != len(before.files):
                raise BrokenStore(f"{self._list} does not have what was merged")
            number = before.next
            for entry in added:
                # It may have been taken for what somebody has left behind.
                os.stat(self.path / entry.path)
                if entry.base == FRESH:
                    entry = msgspec.structs.replace(entry, base=number << _NUMBERS_BITS)
                    number += 1
                files.append(entry)
            moved = {} if move is None else {move.name: dict(move.after)}
            after = Listing(
                next=number,
                files=files,
                fences={**before.fences, **moved},
                incomplete=sorted({*before.incomplete, *incomplete}),
            )
            for name in gone:
                # It is as old as the moment from which on it is not listed.
                os.utime(self.path / name)
            self._publish(msgspec.json.encode(after))
        return True

    @contextmanager
    def merging(self, *, waits: bool) -> Iterator[bool]:
        """The right to take files from the list; gives whether it was to be had."""
        with self._locked("merging", waits=waits) as is_held:
            yield is_held

    def sweep(self, folders: Collection[Path] | None = None) -> None:
        """Remove what is not listed and old enough, from some folders or from all."""
        if folders is None:
            folders = [Path(name) for name, _, files in os.walk(self.path) if files]
        # Nothing may be listed between the look at the list and the removal.
        with self._locked("lock", waits=True):
            listed = {entry.path for entry in self.listing().files}
            oldest = time.time() - self.keep_s
            for folder in folders:
                if folder == self.path or self.path / DEAD_LETTERS in (folder, *folder.parents):
                    continue
                for path in folder.iterdir():
                    name = path.relative_to(self.path).as_posix()
                    # One that is being written may get its name right now.
                    with suppress(FileNotFoundError):
                        if name not in listed and path.stat().st_mtime < oldest and path.is_file():
                            path.unlink()

    def new_path(self, namespace: str, event: str | None) -> Path:
        """Where another file can be written, in a folder that is there."""
        folder = self.path / ("history" if event is None else "events") / _safe(namespace)
        if event is not None:
            folder /= _safe(event)
        self._make(folder)
        return folder / f"{uuid4().hex}.parquet"

    def finish(self, file: BinaryIO, unfinished: Path, path: Path) -> None:
        """Give a file that was written its name, when all of it is on the disk."""
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
        """Make the names in a folder last."""
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
            # Threads exclude each other, too.
            lock = FileLock(self.path / name).acquire(None if waits else 0.0)
        except LockedError:
            yield False
            return
        with lock:
            yield True


def _safe(name: str) -> str:
    """A name for a folder; Spark passes over those that begin with a dot or an underscore."""
    safe = f"n-{quote(name, safe='')}"
    if len(safe) <= _LONGEST_NAME:
        return safe
    return f"{safe[:_LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
