"""The lock of a data directory."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stompkit.server.process.lock import DirectoryLock

DEADLINE_S = 20.0

#: Takes the lock of a directory, prints that, and holds it until the process ends.
HOLDER = """
import sys
from pathlib import Path
from stompkit.server.process.lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
assert lock.try_acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that does not exist yet."""
    return tmp_path / "some" / "data"


@pytest.fixture
def holder(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


class Waiting:
    """The result of waiting for the lock."""

    def __init__(self, lock: DirectoryLock) -> None:
        """Start waiting."""
        self._said: queue.SimpleQueue[object] = queue.SimpleQueue()
        lock.wait(lambda: self._said.put("acquired"), self._said.put)

    def result(self) -> object:
        """Wait for the result and return it."""
        return self._said.get(timeout=DEADLINE_S)

    @property
    def is_silent(self) -> bool:
        """True if there is no result yet."""
        return self._said.empty()


def test_only_one_has_the_lock(directory: Path) -> None:
    first, second = DirectoryLock(directory), DirectoryLock(directory)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert (first.is_held, second.is_held) == (True, False)
    first.release()
    assert second.try_acquire()
    assert (first.is_held, second.is_held) == (False, True)
    second.release()


def test_the_directory_and_the_lock_are_for_their_user_alone(directory: Path) -> None:
    lock = DirectoryLock(directory)
    assert lock.try_acquire()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert lock.path.stat().st_mode & 0o777 == 0o600
    lock.release()


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    lock = DirectoryLock(tmp_path)
    assert lock.try_acquire()
    assert tmp_path.stat().st_mode & 0o777 == 0o750
    lock.release()


def test_the_file_says_who_has_the_lock(directory: Path) -> None:
    lock = DirectoryLock(directory)
    assert lock.holder() == "another process"
    assert lock.try_acquire()
    assert DirectoryLock(directory).holder() == f"process {os.getpid()} on {socket.gethostname()}"
    lock.release()
    assert lock.holder() == "another process"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"12", b"a b", b"1 2 3", b"\xff\xfe"])
def test_a_file_that_says_nothing_is_no_problem(directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / "lock").write_bytes(content)
    lock = DirectoryLock(directory)
    assert lock.holder() == "another process"
    assert lock.try_acquire()
    assert lock.holder().startswith(f"process {os.getpid()} on ")
    lock.release()


def test_release_is_harmless_without_the_lock(directory: Path) -> None:
    lock = DirectoryLock(directory)
    lock.release()
    assert lock.try_acquire()
    lock.release()
    lock.release()
    assert not lock.is_held


def test_who_waits_gets_the_lock_when_it_is_released(directory: Path) -> None:
    first, second = DirectoryLock(directory), DirectoryLock(directory)
    assert first.try_acquire()
    waiting = Waiting(second)
    first.release()
    assert waiting.result() == "acquired"
    assert second.is_held
    assert not first.try_acquire()
    second.release()


def test_who_waits_gets_the_lock_when_its_process_is_killed(
    directory: Path, holder: subprocess.Popen[str]
) -> None:
    lock = DirectoryLock(directory)
    assert not lock.try_acquire()
    assert lock.holder() == f"process {holder.pid} on {socket.gethostname()}"
    waiting = Waiting(lock)
    holder.kill()
    assert waiting.result() == "acquired"
    assert lock.holder().startswith(f"process {os.getpid()} on ")
    lock.release()


def test_those_who_wait_get_the_lock_one_after_the_other(directory: Path) -> None:
    first = DirectoryLock(directory)
    assert first.try_acquire()
    locks = [DirectoryLock(directory) for _ in range(5)]
    acquired: queue.SimpleQueue[DirectoryLock] = queue.SimpleQueue()
    errors: list[OSError] = []
    for lock in locks:
        lock.wait(partial(acquired.put, lock), errors.append)
    first.release()
    seen = []
    for _ in locks:
        holder = acquired.get(timeout=DEADLINE_S)
        assert [lock for lock in locks if lock.is_held] == [holder]
        seen.append(holder)
        holder.release()
    assert set(seen) == set(locks)
    assert errors == []


def test_who_no_longer_waits_does_not_get_the_lock(directory: Path) -> None:
    first, second, third = (DirectoryLock(directory) for _ in range(3))
    assert first.try_acquire()
    given_up = Waiting(second)
    second.release()
    first.release()
    # Its thread may get the lock for a moment, and releases it.
    waiting = Waiting(third)
    assert waiting.result() == "acquired"
    assert given_up.is_silent
    assert not second.is_held
    third.release()


def test_a_lock_whose_file_was_replaced_meanwhile_is_taken_again(directory: Path) -> None:
    first, second, third = (DirectoryLock(directory) for _ in range(3))
    assert first.try_acquire()
    waiting = Waiting(second)
    first.path.unlink()
    first.release()
    assert waiting.result() == "acquired"
    assert not third.try_acquire()
    second.release()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lock = DirectoryLock(tmp_path / "file" / "data")
    with pytest.raises(NotADirectoryError):
        lock.try_acquire()
    assert isinstance(Waiting(lock).result(), NotADirectoryError)
