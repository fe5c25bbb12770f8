"""The disk of the campaign loses unsynced data, and fails on request."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.disk import Disk, NoCompiler, Number, built

#: The beginning of each program: it writes to descriptors, as Python's files have buffers.
BEGINNING = """
import os, sys, time
os.chdir(sys.argv[1])
here = os.getcwd()

def opened(name, more=0):
    return os.open(os.path.join(here, name), os.O_RDWR | os.O_CREAT | more, 0o600)

def sync_names():
    folder = os.open(here, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)
"""


class Machine:
    """A directory on a disk that can fail, and programs that use it."""

    def __init__(self, library: Path, directory: Path) -> None:
        """Start with an empty directory."""
        self.data = directory / "data"
        self.data.mkdir()
        beside = directory / "beside"
        beside.mkdir()
        self.disk = Disk(library, self.data, beside, has_shadow=True)

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        with self.disk.preloaded():
            return subprocess.run(
                [sys.executable, "-c", BEGINNING + program, str(self.data)],
                capture_output=True,
                text=True,
                check=False,
            )

    def left(self, program: str) -> dict[str, bytes]:
        """Return the files after a program and a power failure."""
        result = self.run(program)
        assert result.returncode == 0, result.stderr
        self.disk.lose_power()
        return {path.name: path.read_bytes() for path in self.data.iterdir()}


@pytest.fixture
def machine(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    try:
        library = built(tmp_path_factory.getbasetemp())
    except NoCompiler as error:
        pytest.skip(str(error))
    made = Machine(library, tmp_path)
    yield made
    made.disk.close()


def test_what_was_synced_survives_in_every_file(machine: Machine) -> None:
    left = machine.left(
        """
for name in ("one", "two"):
    file = opened(name)
    os.write(file, b"kept")
    os.fdatasync(file)
"""
    )
    assert left == {"one": b"kept", "two": b"kept"}


def test_what_is_written_synchronously_survives(machine: Machine) -> None:
    left = machine.left(
        """
file = opened("log", os.O_DSYNC | os.O_APPEND)
os.write(file, b"first ")
os.write(file, b"second")
os.writev(opened("other", os.O_DSYNC), [b"and ", b"this"])
"""
    )
    assert left == {"log": b"first second", "other": b"and this"}


def test_what_was_not_synced_may_be_gone(machine: Machine) -> None:
    """Each page may have been written back, whole, in part or not at all.

    By chance some are not. The file ends at the last page that was written back.
    """
    left = machine.left(
        """
file = opened("pages")
os.pwrite(file, b"a" * 65_536, 0)
os.fsync(file)
for number in range(16):
    os.pwrite(file, b"b" * 4_096, number * 4_096)
"""
    )
    assert len(left["pages"]) == 65_536
    assert b"a" in left["pages"]
    assert (machine.data / "pages").read_bytes() == left["pages"]


def test_a_new_file_takes_a_sync_to_be_there(machine: Machine) -> None:
    left = machine.left(
        """
os.write(opened("lost"), b"x")
os.fsync(opened("kept"))
"""
    )
    assert set(left) == {"kept"}


def test_a_new_name_takes_a_sync_of_the_directory(machine: Machine) -> None:
    left = machine.left(
        """
for name in ("a", "b"):
    file = opened(name + ".new")
    os.write(file, name.encode())
    os.fsync(file)
os.rename(os.path.join(here, "a.new"), os.path.join(here, "a"))
sync_names()
os.rename(os.path.join(here, "b.new"), os.path.join(here, "b"))
"""
    )
    assert left == {"a": b"a", "b.new": b"b"}


def test_what_was_removed_is_back_if_the_directory_was_not_synced(machine: Machine) -> None:
    left = machine.left(
        """
for name in ("a", "b"):
    file = opened(name)
    os.write(file, b"x")
    os.fsync(file)
os.unlink(os.path.join(here, "a"))
sync_names()
os.unlink(os.path.join(here, "b"))
"""
    )
    assert set(left) == {"b"}


def test_a_file_may_be_replaced_as_often_as_one_likes(machine: Machine) -> None:
    """A file that records a position is replaced often."""
    done = machine.run(
        """
for number in range(600):
    file = opened("file.tmp", os.O_TRUNC)
    os.write(file, b"%d" % number)
    os.fsync(file)
    os.close(file)
    os.replace(os.path.join(here, "file.tmp"), os.path.join(here, "file"))
    sync_names()
"""
    )
    assert done.returncode == 0
    machine.disk.lose_power()
    assert (machine.data / "file").read_bytes() == b"599"


def test_a_sync_that_has_failed_is_not_made_up_for_by_the_next(machine: Machine) -> None:
    left = machine.left(
        f"""
control = os.open(os.environ["STOMPKIT_DISK_CONTROL"], os.O_RDWR)

def fail(problem):
    os.pwrite(control, problem.to_bytes(4, sys.byteorder), {4 * Number.SYNC_ERROR})

file = opened("pages")
os.pwrite(file, b"a" * 65_536, 0)
os.fsync(file)
for number in range(16):
    os.pwrite(file, b"b" * 4_096, number * 4_096)
fail({errno.EIO})
try:
    os.fsync(file)
except OSError:
    fail(0)
os.fsync(file)
"""
    )
    assert machine.disk[Number.STRUCK] == 1
    assert b"a" in left["pages"]


@pytest.mark.parametrize(
    ("number", "value", "message"),
    [
        (Number.WRITE_ERROR, errno.EIO, "Input/output error"),
        (Number.GROW_ERROR, errno.ENOSPC, "No space left on device"),
        (Number.SHORT_WRITES, 1, "2 of 4"),
    ],
)
def test_writes_fail_when_they_are_told_to(
    machine: Machine, number: Number, value: int, message: str
) -> None:
    machine.disk[number] = value
    program = """
n = os.pwrite(opened("file"), b"four", 0)
sys.exit(f"{n} of 4" if n != 4 else 0)
"""
    assert message in machine.run(program).stderr
    machine.disk.heal()
    assert machine.run(program).returncode == 0


def test_a_full_disk_lets_what_is_there_be_written_over(machine: Machine) -> None:
    assert machine.run('os.write(opened("file"), b"old")').returncode == 0
    machine.disk[Number.GROW_ERROR] = errno.ENOSPC
    assert machine.run('os.pwrite(opened("file"), b"new", 0)').returncode == 0
    assert (machine.data / "file").read_bytes() == b"new"


def test_a_process_dies_in_the_middle_of_a_write(machine: Machine) -> None:
    machine.disk[Number.DIE_AFTER] = 2
    result = machine.run(
        """
file = opened("file")
os.pwrite(file, b"one ", 0)
os.pwrite(file, b"two ", 4)
os.pwrite(file, b"three ", 8)
"""
    )
    assert result.returncode == -signal.SIGKILL
    assert (machine.data / "file").read_bytes() == b"one tw"


def test_the_clock_jumps(machine: Machine) -> None:
    machine.disk[Number.CLOCK] = 1_000_000
    result = machine.run("print(time.time(), time.monotonic())")
    shown, steady = map(float, result.stdout.split())
    assert shown - time.time() > 900_000
    assert abs(time.monotonic() - steady) < 900_000


def test_other_files_are_left_alone(machine: Machine, tmp_path: Path) -> None:
    machine.disk[Number.WRITE_ERROR] = errno.EIO
    other = tmp_path / "other"
    assert machine.run(f'os.write(os.open({str(other)!r}, 65, 384), b"x")').returncode == 0
    assert other.read_bytes() == b"x"
