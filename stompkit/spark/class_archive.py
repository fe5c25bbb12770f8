"""The archive of Spark's classes: a JVM that maps it starts in about half of the time.

Class data sharing of the JVM (JEP 310 and JEP 350) skips the parsing and the verification of the
15,000 classes that a start of Spark loads. The archive is for one Java and one set of jars.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Final

from pyspark import SparkContext

from stompkit._common.files import FileLock, LockedError, sync_path

__all__ = ["archive_options", "writes_archive"]

#: The JVM's own archive, on which that of Spark is based; reduced Javas do not have it.
_BASE: Final = Path("lib", "server", "classes.jsa")
#: Verify the checksum of the archive, and do not print each class that cannot be archived.
_OPTIONS: Final = "-XX:+VerifySharedSpaces -Xlog:cds=off -Xlog:cds+dynamic=off"
#: Number of archives to keep: so many Javas, or sets of jars, can be used in turn.
_MOST: Final = 3
#: Time in seconds for which the writing of the archive is waited for.
_END_S: Final = 60.0

#: True once the JVM of this process was told to write an archive.
_is_writing = False


def archive_options(home: Path, java_home: Path, *, writes: bool) -> str:
    """Return the options with which a JVM for Spark uses the archive in ``home``.

    If there is none yet, and ``writes`` is true, the JVM writes it at its end, and the end of this
    process waits for that. Only one process at a time does so.
    """
    if SparkContext._gateway is not None or not (java_home / _BASE).is_file():
        return ""
    key = _key(home / "jars", java_home)
    for archive in home.glob(f"classes-{key}-*.jsa"):
        if _is_whole(archive):
            with suppress(OSError):
                # Those that are used last stay.
                os.utime(archive)
            return f'-XX:SharedArchiveFile="{archive}" {_OPTIONS}'
    if not writes:
        return ""
    lock = FileLock(home / "classes.lock")
    try:
        lock.acquire(timeout_s=0.0)
    except (LockedError, OSError):
        return ""
    global _is_writing
    _is_writing = True
    new = home / f"classes-{key}.new"
    # Also those of other Javas and jars, which a killed process has left.
    for left in home.glob("classes-*.new"):
        left.unlink(missing_ok=True)
    atexit.register(_keep, new, lock, os.getpid())
    return f'-XX:ArchiveClassesAtExit="{new}" {_OPTIONS}'


def writes_archive() -> bool:
    """Return True if the end of this process waits for an archive."""
    return _is_writing and SparkContext._gateway is not None


def _key(jars: Path, java_home: Path) -> str:
    """Return a name for what an archive is valid for: the JVM silently ignores any other."""
    digest = hashlib.sha256(str(java_home.resolve()).encode())
    with suppress(FileNotFoundError):
        digest.update((java_home / "release").read_bytes())
    with os.scandir(jars) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            state = entry.stat()
            digest.update(f"{entry.name} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    """Return True if the file has the size in its name: the JVM does not survive a shorter one."""
    with suppress(FileNotFoundError):
        return archive.stem.endswith(f"-{archive.stat().st_size}")
    return False


def _unused(home: Path) -> set[Path]:
    """Return the archives that exceed the number to keep, least recently used."""
    times = [(each.stat().st_mtime_ns, each) for each in home.glob("classes-*.jsa")]
    return {each for _, each in sorted(times, reverse=True)[_MOST:]}


def _keep(new: Path, lock: FileLock, process_id: int) -> None:
    """End the JVM, and put its archive in place of the earlier one."""
    process = getattr(SparkContext._gateway, "proc", None)
    if os.getpid() != process_id or not isinstance(process, Popen):
        return
    try:
        if process.stdin is not None:
            process.stdin.close()
        # An archive of a JVM that was killed meanwhile may be incomplete.
        if process.wait(_END_S) == 0 and new.is_file():
            sync_path(new)
            earlier = set(new.parent.glob(f"{new.stem}-*.jsa"))
            archive = new.replace(new.with_name(f"{new.stem}-{new.stat().st_size}.jsa"))
            for left in (earlier - {archive}) | _unused(new.parent):
                left.unlink(missing_ok=True)
    except (OSError, TimeoutExpired, KeyboardInterrupt):
        # The next start is as slow as this one, and tries again.
        return
    finally:
        lock.release()
