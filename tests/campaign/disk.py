"""A disk and a clock that fail on request: the control of ``disk.c``, and its compilation."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Final

__all__ = ["Disk", "NoCompiler", "Number", "built"]

_SOURCE: Final = Path(__file__).with_name("disk.c")
_INT_BYTES: Final = 4
#: Suffix of the names of files that are not synced yet.
_NOT_YET: Final = ".not-yet"


class NoCompiler(Exception):
    """There is no C compiler."""


class Number(IntEnum):
    """The numbers that control the disk; see ``disk.c``."""

    WRITE_ERROR = 0
    GROW_ERROR = 1
    SYNC_ERROR = 2
    SHORT_WRITES = 3
    EVERY = 4
    SYNC_DELAY = 5
    CLOCK = 6
    DIE_AFTER = 7
    WRITES = 8
    STRUCK = 9


def built(directory: Path) -> Path:
    """Compile the library if needed; raise :class:`NoCompiler` if that is impossible."""
    # An absolute path, as preloading processes may have another working directory.
    library = directory.absolute() / "campaign-disk.so"
    if library.exists() and library.stat().st_mtime > _SOURCE.stat().st_mtime:
        return library
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("faults of disks need a C compiler: apt-get install gcc libc6-dev")
    directory.mkdir(parents=True, exist_ok=True)
    # A temporary name first, as several processes may compile at once.
    made = library.with_name(f"campaign-disk-{os.getpid()}.so")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(made), str(_SOURCE)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    made.replace(library)
    return library


class Disk:
    """The disk below a directory, for the processes that are started within :meth:`preloaded`."""

    def __init__(self, library: Path, store: Path, beside: Path, *, has_shadow: bool) -> None:
        """Act on the files below ``store``; ``beside`` is the folder for its control files.

        With ``has_shadow`` it can simulate a power failure.
        """
        self._library = library
        self._store = store
        self._shadow = beside / "shadow" if has_shadow else None
        if self._shadow is not None:
            self._shadow.mkdir(parents=True)
        self._control = beside / "control"
        self._control.write_bytes(bytes(_INT_BYTES * len(Number)))
        with self._control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._numbers = memoryview(self._memory).cast("i")

    def __getitem__(self, number: Number) -> int:
        """Return a number."""
        return self._numbers[number]

    def __setitem__(self, number: Number, value: int) -> None:
        """Set a number, effective immediately."""
        self._numbers[number] = value

    @property
    def can_lose_power(self) -> bool:
        """True if :meth:`lose_power` can be called."""
        return self._shadow is not None

    def heal(self) -> None:
        """Remove all faults; the clock keeps its offset."""
        for number in Number:
            if number not in (Number.CLOCK, Number.WRITES, Number.STRUCK):
                self[number] = 0

    def close(self) -> None:
        """Release the file of numbers."""
        self._numbers.release()
        self._memory.close()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a process that uses this disk."""
        mine = {
            "LD_PRELOAD": str(self._library),
            "STOMPKIT_DISK": str(self._store),
            "STOMPKIT_DISK_CONTROL": str(self._control),
        }
        if self._shadow is not None:
            mine["STOMPKIT_DISK_SHADOW"] = str(self._shadow)
        return mine

    @contextmanager
    def preloaded(self) -> Iterator[None]:
        """Set the environment so that processes started in the block use this disk."""
        mine = self.environment
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def lose_power(self) -> None:
        """Reset the files to their synced contents; no process may use them."""
        assert self._shadow is not None, "a disk that was made without a shadow"
        assert self[Number.WRITES], "the store was not written through the library"
        there = [path for path in self._shadow.iterdir() if path.suffix != _NOT_YET]
        for path in sorted(self._store.rglob("*"), reverse=True):
            if path.is_file() and path.name != "lock":
                path.unlink()
        for path in there:
            place = self._store / path.name.replace("%", "/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        self.forget()

    def settle(self) -> None:
        """Mark all current files as synced, including those that are not opened again for writing.

        Needed before each start of a program that has files which it writes only once.
        """
        self.forget()
        assert self._shadow is not None, "a disk that was made without a shadow"
        for path in self._store.rglob("*"):
            if path.is_file() and path.name != "lock":
                name = str(path.relative_to(self._store)).replace("/", "%")
                shutil.copyfile(path, self._shadow / name)

    def forget(self) -> None:
        """Start again with the current files, as the next process does."""
        if self._shadow is not None:
            for path in self._shadow.iterdir():
                with suppress(FileNotFoundError):
                    path.unlink()
