"""Replace files as a whole, lock files while a process lives, and explain errors of paths."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import pwd
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from stompkit._common.clock import monotonic

__all__ = [
    "GRACE_S",
    "FileLock",
    "LockedError",
    "describe",
    "file_state",
    "is_locked",
    "keep_owner",
    "make_directory",
    "reason_of",
    "replacing",
    "shortened",
    "sync_path",
    "user_caches",
    "user_name",
    "write_atomically",
]

#: Interval in seconds between two attempts to take a lock that another process holds.
_RETRY_S: Final = 0.05
#: Time in seconds for which a process that only checks a lock may hold it.
GRACE_S: Final = 0.5
#: Maximum length in bytes of the line that names the holder of a lock.
_MAX_HOLDER_BYTES: Final = 512


def user_caches() -> Path:
    """Return the folder for data that can be obtained again: in ``XDG_CACHE_HOME`` or ~/.cache."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The specification says to ignore a path that is not absolute.
    return (named if named.is_absolute() else Path.home() / ".cache") / "stompkit"


# Errors.


def describe(error: Exception) -> str:
    """Return the path of an error and its reason, such as ``data: Permission denied``.

    For an error without a path it is the reason.
    """
    if not isinstance(error, OSError) or error.filename is None:
        return reason_of(error)
    path = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
    text = reason_of(error)
    return text if text.startswith(f"{path} is ") else f"{path}: {text}"


def reason_of(error: Exception) -> str:
    """Return the reason of an error, without the number that Python writes before it.

    It is the system's text, except for a path that leads through a file: this names the file. For
    other errors it is their text, or the name of their class if they have none.
    """
    system = error.strerror if isinstance(error, OSError) else None
    text = system or str(error) or type(error).__name__
    if not isinstance(error, NotADirectoryError) or not isinstance(error.filename, str):
        return text
    path = Path(error.filename)
    for each in (path, *path.parents):
        if os.path.exists(each) and not os.path.isdir(each):  # never raise
            return f"{each} is a file, not a directory"
    return text


def make_directory(path: Path, *, mode: int = 0o777) -> None:
    """Create a directory and its parents, unless they exist.

    Raises OSError; where *path* is a file this is NotADirectoryError, not FileExistsError.
    """
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None


# Names.


def shortened(quoted: str, name: str, *, longest: int, kept: int) -> str:
    """Return *quoted* as the file name for *name*.

    One of more than *longest* characters is cut to *kept*, and ends in a digest of *name*.
    """
    if len(quoted) <= longest:
        return quoted
    return f"{quoted[:kept]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


# Replacing.


@contextmanager
def replacing(
    path: Path,
    *,
    mode: int | None = 0o600,
    durable: bool = True,
    parents: bool = False,
    partial: Path | None = None,
) -> Iterator[BinaryIO]:
    """Yield a file to write; it replaces *path* when the block ends without an exception.

    Readers see the old content or all of the new one. With *durable* the content and the name are
    on the disk when this returns. *mode* is the permission of the new file; with None the process's
    umask decides. The owner and the group of a file that is replaced stay, as far as this process
    may set them. With *parents* missing folders are made. *partial* is the path that is written to;
    by default it has the process id in its name, so that two processes do not write to the same
    one. A device or a pipe is written to, not replaced. Raises OSError, which names *path* even if
    the disk is full.
    """
    if parents:
        make_directory(path.parent)
    if path.exists() and not path.is_file():
        # It would end a device or a pipe to replace it. For a directory this raises OSError.
        with open(path, "wb") as device:
            yield device
        return
    unfinished = partial or path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(unfinished, "wb", opener=None if mode is None else _private) as file:
            yield file
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            keep_owner(file.fileno(), path)
            if durable:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException as error:
        # Python does not name the file when the disk is full. The hidden one tells users nothing.
        if isinstance(error, OSError) and error.filename in (None, unfinished, str(unfinished)):
            error.filename = str(path)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if durable:
        sync_path(path.parent)


def write_atomically(
    path: Path,
    content: bytes,
    *,
    mode: int | None = 0o600,
    durable: bool = True,
    parents: bool = False,
    partial: Path | None = None,
) -> None:
    """Replace the content of a file, as :func:`replacing` does."""
    with replacing(path, mode=mode, durable=durable, parents=parents, partial=partial) as file:
        file.write(content)


def keep_owner(descriptor: int, path: Path) -> None:
    """Give a file the owner and the group of *path*, as far as this process may.

    Otherwise a service could not read what root replaces. Raises OSError; a missing *path* does
    not matter.
    """
    with suppress(FileNotFoundError):
        wanted, own = path.stat(), os.fstat(descriptor)
        if wanted.st_gid != own.st_gid:
            with suppress(PermissionError):
                os.fchown(descriptor, -1, wanted.st_gid)
        if wanted.st_uid != own.st_uid:
            with suppress(PermissionError):
                os.fchown(descriptor, wanted.st_uid, -1)


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


# Locks.


class LockedError(Exception):
    """Another process holds the lock at ``path``; ``holder`` names it."""

    def __init__(self, path: Path, holder: str) -> None:
        """Describe the lock at *path*."""
        super().__init__(f"{path} is locked by {holder}")
        self.path = path
        self.holder = holder


class FileLock:
    """A lock of the operating system (``flock``) on a file that names its holder.

    The lock ends with the process, however the process ends. Each object excludes all others,
    including those of the same process.
    """

    def __init__(self, path: Path, *, parents: bool = False) -> None:
        """Describe the lock; :meth:`acquire` takes it.

        With *parents* missing folders are made, for their owner only.
        """
        self.path = path
        self._parents = parents
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """True if this object holds the lock."""
        return self._descriptor is not None

    @property
    def is_in_place(self) -> bool:
        """True if this object holds the lock, and its file was not removed or replaced since."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def acquire(self, timeout_s: float | None = GRACE_S) -> Self:
        """Take the lock, within *timeout_s* seconds; None waits without a limit.

        By default it waits for a process that only asks, with :func:`is_locked`. Raises
        LockedError if another process holds it, and OSError.
        """
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while (descriptor := self._lock(waits=deadline is None)) is None:
            if deadline is not None and monotonic() >= deadline:
                raise LockedError(self.path, self.holder())
            time.sleep(_RETRY_S)
        line = f"{os.getpid()} {socket.gethostname()}\n".encode()
        # The lock holds without the name of its holder, which a full disk has no room for.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, line[:_MAX_HOLDER_BYTES], 0)
        self._descriptor = descriptor
        return self

    def release(self) -> None:
        """Release the lock; without effect if it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        # Closing is not enough where the process was forked and its child still runs.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def holder(self) -> str:
        """Return the process that holds the lock, as far as the file says."""
        try:
            words = self.path.read_text(encoding="utf-8", errors="replace").split()
        except OSError:
            words = []
        if len(words) != 2 or not words[0].isdigit():
            return "another process"
        return f"process {words[0]} on {words[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _lock(self, *, waits: bool) -> int | None:
        """Return the descriptor of the locked file; None if another holds it."""
        how = fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB)
        while True:
            if self._parents:
                make_directory(self.path.parent, mode=0o700)
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if is_new:
                    # A command of root must not keep the owner of the folder from locking it.
                    keep_owner(descriptor, self.path.parent)
                fcntl.flock(descriptor, how)
                if self._is_current(descriptor):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            # Another process removed the file meanwhile: others would lock a different one.
            os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False


def user_name() -> str:
    """Return the name of the user of this process, or its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def file_state(path: Path) -> tuple[int, ...] | None:
    """Return what reveals a change of a file or of its owner and mode; ``None`` if missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def is_locked(path: Path) -> bool:
    """Return True if a process holds the lock of that file, without disturbing the holder."""
    try:
        with open(path, "rb") as file:
            # A shared lock lets other processes check the file at the same time.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
