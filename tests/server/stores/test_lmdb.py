"""The LMDB store: its files, its limits, and its durability when something fails."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from stompkit.server.interfaces import (
    CreateLane,
    DropLane,
    Mark,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoreError,
    StoreFullError,
)
from stompkit.server.stores import LmdbStore
from tests.server.stores.preloaded import preload

MIB = 1024 * 1024
BODY = b"x" * 1_000


def put(place: int, body: bytes = BODY) -> Put:
    return Put(1, place, len(body), 0, 0, f"id-{place}", b"", body)


def places(store: LmdbStore) -> list[int]:
    return [message.place for message in store.read(1, 0, 1_000_000, 1_000_000_000)]


def counted(store: LmdbStore) -> tuple[int, int]:
    (lane,) = store.lanes()
    return lane.messages, lane.octets


def opened(directory: Path, max_octets: int = 64 * MIB) -> LmdbStore:
    # These tests do not need the disk, and many small batches would wait for it.
    store = LmdbStore(directory, synchronous=False, max_octets=max_octets)
    store.open()
    return store


def edit(directory: Path, change: Callable[[lmdb.Transaction, lmdb.Environment], object]) -> None:
    """Change a store directly, to damage it."""
    env = lmdb.open(str(directory / "messages.lmdb"), max_dbs=8)
    with env.begin(write=True) as txn:
        change(txn, env)
    env.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    """A store with one lane that has 2 MiB of room."""
    store = opened(tmp_path, 2 * MIB)
    store.apply([CreateLane(1, "/queue/a", 4)])
    yield store
    store.close()


def fill(store: LmdbStore, batch: int) -> int:
    """Put batches of messages until there is no more room; return the first that did not fit."""
    place = 1
    while True:
        try:
            store.apply([put(number) for number in range(place, place + batch)])
        except StoreFullError:
            return place
        place += batch


# Files.


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        opened(tmp_path / "new" / "data").close()
    finally:
        os.umask(old)
    below = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode for path in below}
    assert {name: stat.S_IMODE(mode) for name, mode in modes.items()} == {
        "new": 0o700,
        "new/data": 0o700,
        "new/data/messages.lmdb": 0o700,
        "new/data/messages.lmdb/data.mdb": 0o600,
        "new/data/messages.lmdb/lock.mdb": 0o600,
    }


def test_the_file_is_only_as_long_as_what_has_been_written(tmp_path: Path) -> None:
    opened(tmp_path, 1024 * 1024 * MIB).close()
    assert (tmp_path / "messages.lmdb" / "data.mdb").stat().st_size < MIB


def test_room_of_what_was_removed_is_used_again(store: LmdbStore) -> None:
    # Ten times the capacity passes through the store.
    for place in range(1, 20_000, 100):
        store.apply([put(number) for number in range(place, place + 100)])
        store.apply([Remove(1, number) for number in range(place, place + 100)])
    assert counted(store) == (0, 0)


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        opened(tmp_path / "file")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "messages.lmdb" / "data.mdb").write_bytes(b"something else " * 1_000)
    with pytest.raises(StoreError, match=r"messages\.lmdb cannot be used"):
        opened(tmp_path)


# Versions.


def set_version(directory: Path, version: int) -> None:
    def change(txn: lmdb.Transaction, env: lmdb.Environment) -> None:
        txn.put(b"version", version.to_bytes(8, "big"), db=env.open_db(b"meta", txn=txn))

    edit(directory, change)


def test_a_newer_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    opened(tmp_path).close()
    set_version(tmp_path, 7)
    for _ in range(2):
        with pytest.raises(StoreError, match="version 7, made by a newer stompkit"):
            opened(tmp_path)


def test_an_older_store_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    set_version(tmp_path, 0)
    with pytest.raises(StoreError, match="version 0, which this stompkit cannot bring to"):
        opened(tmp_path)


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "messages.lmdb").mkdir()
    edit(tmp_path, lambda txn, _: txn.put(b"a", b"b"))
    with pytest.raises(StoreError, match="something else"):
        opened(tmp_path)


# Limits.


def test_a_full_store_refuses_a_batch_and_has_nothing_of_it(store: LmdbStore) -> None:
    first = fill(store, 50)
    assert first > 500
    with pytest.raises(StoreFullError, match=f"limit of {2 * MIB} octets"):
        store.apply([SetRecord("a", b"1"), *(put(place) for place in range(first, first + 500))])
    assert places(store) == list(range(1, first))
    assert counted(store) == (first - 1, (first - 1) * len(BODY))
    assert store.records() == {}


@pytest.mark.parametrize("step", [1, 2, 7])
def test_a_full_store_can_be_emptied_by_one_batch(store: LmdbStore, step: int) -> None:
    first = fill(store, 1)
    gone = range(1, first, step)
    store.apply([Remove(1, place) for place in gone])
    assert places(store) == sorted(set(range(1, first)) - set(gone))
    # At once, although LMDB does not reuse pages in the commit after the one that freed them.
    store.apply([put(first)])
    assert places(store)[-1] == first


def test_a_full_store_takes_what_needs_hardly_any_room(store: LmdbStore) -> None:
    first = fill(store, 1)
    store.apply([CreateLane(2, "/queue/b", 4)])
    store.apply([Mark(1, place, 2) for place in range(1, first)])
    store.apply([SetRecord("a", b"1")])
    assert {message.deliveries for message in store.read(1, 0, first, 100 * MIB)} == {2}
    store.apply([DropLane(1)])
    assert [lane.lane for lane in store.lanes()] == [2]


def test_a_store_that_has_outgrown_its_limit_can_be_read_and_emptied(tmp_path: Path) -> None:
    store = opened(tmp_path, 4 * MIB)
    store.apply([CreateLane(1, "/queue/a", 4)])
    first = fill(store, 10)
    store.close()
    store = opened(tmp_path, MIB)
    with pytest.raises(StoreFullError):
        store.apply([put(place) for place in range(first, first + 100)])
    assert places(store) == list(range(1, first))
    store.apply([Remove(1, place) for place in range(1, first)])
    assert places(store) == []
    store.close()


# Failures of writes.

#: Limits the size of files at some time, like a full disk, then raises the limit.
FILE_LIMIT = """
import resource, signal, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Put, Remove, StoreFullError

def put(place):
    return Put(1, place, 1000, 0, 0, "id", b"", b"x" * 1000)

def limit(octets):
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, resource.RLIM_INFINITY))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LmdbStore(Path(sys.argv[1]))
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
limit(1_000_000)
place = 1
try:
    while True:
        store.apply([put(number) for number in range(place, place + 100)])
        place += 100
except StoreFullError as error:
    print(error)
assert place > 300
print(len(store.read(1, 0, 10_000, 100_000_000)) == place - 1)
store.apply([Remove(1, 1)])
limit(resource.RLIM_INFINITY)
store.apply([put(number) for number in range(place, place + 1_000)])
print(store.lanes()[0].messages == place - 2 + 1_000)
"""


def test_a_store_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    result = run(FILE_LIMIT, tmp_path)
    assert result.returncode == 0, result.stderr
    message, *held = result.stdout.splitlines()
    assert "there is no room" in message
    assert held == ["True", "True"]
    store = opened(tmp_path)
    assert len(places(store)) == counted(store)[0]
    store.close()


#: A library to preload: while the file exists, writes to LMDB's first two pages fail.
FAILING_WRITES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    ssize_t (*call)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (offset < 8192 && access(getenv("STOMPKIT_FAIL"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return call(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}
"""

#: Applies batches, some of them while no commit succeeds.
APPLY_IN_SPITE = """
import os, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Put, StoreError

fail = Path(os.environ["STOMPKIT_FAIL"])
store = LmdbStore(Path(sys.argv[1]))
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
for place in range(1, 8):
    fail.touch() if place in (3, 4, 5) else fail.unlink(missing_ok=True)
    try:
        store.apply([Put(1, place, 10, 0, 0, "id", b"", b"body")])
    except StoreError as error:
        print("failed", place)
print(*(message.place for message in store.read(1, 0, 10, 1000)))
"""


def test_a_store_goes_on_after_a_commit_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload(FAILING_WRITES, tmp_path, monkeypatch)
    result = run(APPLY_IN_SPITE, tmp_path / "data")
    assert result.stdout.splitlines() == ["failed 3", "failed 4", "failed 5", "1 2 6 7"]
    monkeypatch.delenv("LD_PRELOAD")
    store = opened(tmp_path / "data")
    assert places(store) == [1, 2, 6, 7]
    store.close()


#: Applies batches endlessly, and prints a line after each.
APPLY_FOR_EVER = """
import itertools, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Put, Remove

store = LmdbStore(Path(sys.argv[1]))
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
for first in itertools.count(1, 50):
    store.apply([Put(1, place, 10, 0, 0, "id", b"", b"body") for place in range(first, first + 50)])
    store.apply([Remove(1, place) for place in range(first, first + 49)])
    print(first + 49, flush=True)
"""


def test_what_was_applied_survives_the_death_of_the_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", APPLY_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout if line.endswith("\n")]
    store = opened(tmp_path)
    left = places(store)
    assert left[: len(told)] == told
    # There may be a further batch that was not printed, or not removed: both are complete.
    assert len(left) - len(told) in (0, 1, 50)
    assert counted(store)[0] == len(left)
    store.close()


#: Reads all contents, and changes them.
USE = """
import sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import DropLane, Put, Remove, StoreError

store = LmdbStore(Path(sys.argv[1]))
for call in (
    store.open,
    store.lanes,
    lambda: store.read(1, 0, 100_000, 1_000_000_000),
    lambda: store.apply([Remove(1, place) for place in range(1, 3_000)]),
    lambda: store.apply([Put(1, place, 1, 0, 0, "", b"", b"x" * 99) for place in range(9, 999)]),
    lambda: store.apply([DropLane(1)]),
):
    try:
        call()
    except StoreError as error:
        print(error)
"""


@pytest.mark.parametrize("part", [0.02, 0.2, 0.5, 0.8])
def test_a_file_that_was_cut_off_does_not_kill_the_process(tmp_path: Path, part: float) -> None:
    store = opened(tmp_path)
    store.apply([CreateLane(1, "/queue/a", 4)])
    for place in range(1, 3_000, 100):
        store.apply([put(number) for number in range(place, place + 100)])
    store.close()
    data = tmp_path / "messages.lmdb" / "data.mdb"
    os.truncate(data, int(data.stat().st_size * part))
    result = run(USE, tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert str(data.parent) in result.stdout


def run(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a script on a store, in a process that may crash."""
    return subprocess.run(
        [sys.executable, "-c", script, str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_value_that_can_not_be_is_told_as_damage(store: LmdbStore, tmp_path: Path) -> None:
    store.apply([put(1)])
    store.close()
    key = (1).to_bytes(8, "big") * 2
    edit(tmp_path, lambda txn, env: txn.put(key, b"??", db=env.open_db(b"messages", txn=txn)))
    store.open()
    calls: list[Callable[[], object]] = [
        lambda: store.read(1, 0, 10, 1_000),
        lambda: store.apply([Remove(1, 1)]),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="something that cannot be"):
            call()
    # The undamaged part can still be used.
    store.apply([put(2)])
    assert [message.place for message in store.read(1, 1, 10, 1_000)] == [2]


def test_a_copy_of_the_files_is_a_store(store: LmdbStore, tmp_path: Path) -> None:
    operations: list[Operation] = [put(place) for place in range(1, 100)]
    store.apply(operations)
    store.close()
    shutil.copytree(tmp_path / "messages.lmdb", tmp_path / "copy" / "messages.lmdb")
    copy = opened(tmp_path / "copy")
    assert places(copy) == list(range(1, 100))
    copy.close()
