"""Atomic replacement of files, and file locks."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from stompkit._common.files import (
    FileLock,
    LockedError,
    describe,
    is_locked,
    make_directory,
    reason_of,
    replacing,
    write_atomically,
)

#: Program that holds the lock of a file until it is killed.
HOLDER = """
import sys
from pathlib import Path
from stompkit._common.files import FileLock
FileLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


# Errors.


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda folder: (folder / "none").read_bytes(), "{0}/none: No such file or directory"),
        (lambda folder: folder.read_bytes(), "{0}: Is a directory"),
        (lambda folder: os.listdir(folder / "file"), "{0}/file is a file, not a directory"),
        (
            lambda folder: (folder / "file" / "a" / "b").read_bytes(),
            "{0}/file/a/b: {0}/file is a file, not a directory",
        ),
        (lambda folder: make_directory(folder / "file"), "{0}/file is a file, not a directory"),
        (
            lambda folder: make_directory(folder / "file" / "a"),
            "{0}/file/a: {0}/file is a file, not a directory",
        ),
        (lambda folder: (folder / ("x" * 300)).stat(), "{0}/" + "x" * 300 + ": File name too long"),
        (
            lambda folder: write_atomically(folder / "none" / "file", b""),
            "{0}/none/file: No such file or directory",
        ),
        (lambda folder: write_atomically(folder, b""), "{0}: Is a directory"),
    ],
)
def test_an_error_is_described_with_the_path_that_is_wrong(
    work: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:  # its text is what is tested
        work(tmp_path)
    assert describe(caught.value) == text.format(tmp_path)


def test_an_error_without_a_path_is_described_by_its_reason() -> None:
    assert describe(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"
    assert describe(OSError("timed out")) == reason_of(OSError("timed out")) == "timed out"
    assert describe(TimeoutError()) == reason_of(TimeoutError()) == "TimeoutError"


# Replacing.


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_a_file_that_is_replaced_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.chown(path, 1234, 2345)
    write_atomically(path, b"content", mode=0o640)
    state = path.stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (1234, 2345, 0o640)


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(path.read_bytes)
        write_atomically(path, b"content")
        assert reader.result() == b"content"
    assert path.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_made_and_replaced(tmp_path: Path, durable: bool) -> None:  # noqa: FBT001
    path = tmp_path / "file"
    for content in (b"first", b"", b"second"):
        write_atomically(path, content, durable=durable)
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(("mode", "found"), [(0o600, 0o600), (0o640, 0o640), (None, 0o644)])
def test_the_mode_is_that_which_was_asked_for(tmp_path: Path, mode: int | None, found: int) -> None:
    path = tmp_path / "file"
    before = os.umask(0o022)
    try:
        write_atomically(path, b"x", mode=mode)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == found


def test_missing_folders_are_made_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "some" / "folder" / "file"
    with pytest.raises(FileNotFoundError):
        write_atomically(path, b"x")
    write_atomically(path, b"x", parents=True)
    assert path.read_bytes() == b"x"


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "file", b"x" * 100, partial=full, mode=None)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(tmp_path / "file")
    assert os.listdir(tmp_path) == []


def test_a_reader_sees_the_old_content_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 100_000 for number in range(20)]
    write_atomically(path, contents[0], durable=False)
    ended = Event()

    def read() -> set[bytes]:
        found = set()
        while not ended.is_set():
            found.add(path.read_bytes())
        return found

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        for content in contents:
            write_atomically(path, content, durable=False)
        ended.set()
        assert reader.result() <= set(contents)


# Locks.


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_one_object_holds_the_lock_at_a_time(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    with first.acquire():
        assert is_locked(first.path)
        with pytest.raises(LockedError, match=f"process {os.getpid()} on {socket.gethostname()}"):
            second.acquire(timeout_s=0.0)
        assert (first.is_held, second.is_held) == (True, False)
    assert not is_locked(first.path)
    with second.acquire(timeout_s=0.0):
        assert second.is_held
    second.release()


def test_a_lock_is_refused_while_a_test_has_frozen_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As freezegun does; launches of brokers wait for locks of directories."""
    with FileLock(tmp_path / "lock").acquire():
        monkeypatch.setattr(time, "monotonic", lambda: 1.0)
        with pytest.raises(LockedError):
            FileLock(tmp_path / "lock").acquire(timeout_s=0.1)


def test_a_lock_ends_with_its_process(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(LockedError) as caught:
        lock.acquire(timeout_s=0.0)
    assert caught.value.holder == f"process {holder.pid} on {socket.gethostname()}"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire, None)
        holder.send_signal(signal.SIGKILL)
        assert waiting.result(20.0).is_held
    lock.release()


def test_who_only_asks_is_in_nobody_s_way(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    ended = Event()

    def ask() -> bool:
        found = False
        while not ended.is_set():
            found |= is_locked(path)
        return found

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        for _ in range(200):
            FileLock(path).acquire().release()
        ended.set()
        asking.result()


def test_a_file_that_was_removed_is_locked_anew(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path).acquire():
        path.unlink()
        assert not is_locked(path)
        with FileLock(path).acquire(timeout_s=0.0):
            assert is_locked(path)


def test_a_file_that_cannot_be_opened_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "nothing" / "lock").acquire()
