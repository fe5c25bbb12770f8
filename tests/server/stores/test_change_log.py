"""The change log of an LMDB store: changes that are not in the database yet are not lost."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb
import pytest

from stompkit.server.interfaces import (
    BriefStore,
    CreateLane,
    Delivered,
    DropLane,
    LaneState,
    Mark,
    MessageStore,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoredMessage,
    StoreError,
    StoreFullError,
)
from stompkit.server.operations import check_store, compact
from stompkit.server.stores import LmdbStore, MemoryStore
from stompkit.server.stores.environment import Environment
from stompkit.server.stores.log import ChangeLog, note_number
from tests.server.stores.preloaded import preload

MIB = 1024 * 1024


def put(place: int, body: bytes = b"body", lane: int = 1) -> Put:
    return Put(lane, place, len(body), 0, 0, f"id-{place}", b"a:b\n", body)


def opened(directory: Path, *, synchronous: bool = True) -> LmdbStore:
    store = LmdbStore(directory, synchronous=synchronous)
    store.open()
    return store


def messages(store: MessageStore, lane: int = 1) -> list[StoredMessage]:
    return list(store.read(lane, 0, 1_000_000, 1_000_000_000))


def places(store: MessageStore) -> list[int]:
    return [message.place for message in messages(store)]


def killed(directory: Path, target: Path) -> Path:
    """Copy the open store of a directory, as a kill would leave it."""
    shutil.copytree(directory / "messages.lmdb", target / "messages.lmdb")
    return target


def log(directory: Path) -> Path:
    return directory / "messages.lmdb" / "changes.log"


def has_all(directory: Path) -> bool:
    """Return True if the database has all messages without the log."""
    copy = killed(directory, directory / "without")
    log(copy).unlink()
    with_log, without = opened(directory), opened(copy)
    try:
        return places(with_log) == places(without)
    finally:
        with_log.close()
        without.close()
        shutil.rmtree(copy)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's data directory."""
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[LmdbStore]:
    """A store with one lane."""
    store = opened(data)
    store.apply([CreateLane(1, "/queue/a", 4)])
    yield store
    store.close()


def damage(path: Path, at: int) -> None:
    """Invert one byte of a file."""
    octets = bytearray(path.read_bytes())
    octets[at] ^= 0xFF
    path.write_bytes(octets)


# Contents of the log.


def test_small_changes_are_in_the_log_first_and_survive(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    database = data / "messages.lmdb" / "data.mdb"
    before = database.read_bytes()
    store.apply([put(1), put(2), put(3)])
    store.apply([Mark(1, 2, 5), Delivered(1, 1)])
    store.apply([Remove(1, 3)])
    assert database.read_bytes() == before
    copy = opened(killed(data, tmp_path / "killed"))
    for each in (copy, store):
        assert [(message.place, message.deliveries) for message in messages(each)] == [
            (1, 1),
            (2, 5),
        ]
        assert each.lanes() == [LaneState(1, "/queue/a", 4, 2, 8, 3, 1)]
    copy.close()


def test_messages_survive_as_they_were(store: LmdbStore, data: Path, tmp_path: Path) -> None:
    given = [
        Put(1, 2**63 - 1, 0, -5, 2**62, "", b"", b""),
        Put(1, 7, 3, 0, 0, "caf\udce9\ud800", b"\x00\xff:\n", bytes(range(256))),
    ]
    store.apply(given)
    copy = opened(killed(data, tmp_path / "killed"))
    assert [each[2:] for each in messages(copy)] == [each[2:] for each in reversed(given)]
    copy.close()


def test_the_log_keeps_its_length_and_the_database_gets_what_is_in_it(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    for place in range(1, 3_000):
        store.apply([put(place, b"x" * 400)])
    assert log(data).stat().st_size == MIB
    copy = killed(data, tmp_path / "killed")
    assert not has_all(copy)
    assert places(store) == list(range(1, 3_000))
    again = opened(copy)
    assert places(again) == list(range(1, 3_000))
    again.close()
    assert has_all(copy)


def test_closing_leaves_nothing_in_the_log(store: LmdbStore, data: Path) -> None:
    store.apply([put(1)])
    store.close()
    assert has_all(data)
    store.open()
    assert places(store) == [1]


def test_large_batches_and_small_ones_keep_their_order(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    chance = random.Random(1)
    expected = MemoryStore()
    expected.open()
    expected.apply([CreateLane(1, "/queue/a", 4)])
    highest = 0
    for number in range(400):
        operations: list[Operation] = []
        for _ in range(chance.choice((1, 2, 5, 200))):
            if chance.random() < 0.5:
                highest += 1
                operations.append(put(highest, chance.randbytes(chance.choice((0, 9, 900)))))
            else:
                operations.append(Remove(1, chance.randint(1, highest + 1)))
        if chance.random() < 0.02:
            operations += [DropLane(1), CreateLane(1, "/queue/a", 4)]
        for each in (store, expected):
            each.apply(operations)
        if number % 40 == 0:
            copy = opened(killed(data, tmp_path / str(number)))
            assert (copy.lanes(), messages(copy)) == (expected.lanes(), messages(expected))
            copy.close()
    assert (store.lanes(), messages(store)) == (expected.lanes(), messages(expected))


@pytest.mark.parametrize(
    "operations",
    [
        [put(1), put(2, lane=9)],
        [Put(1, -1, 0, 0, 0, "", b"", b"")],
        [put(1), Put(1, 2, 0, 2**64, 0, "", b"", b"")],
    ],
)
def test_what_can_not_be_is_refused_as_a_whole(
    store: LmdbStore, operations: Sequence[Operation]
) -> None:
    with pytest.raises(StoreError):
        store.apply(operations)
    assert messages(store) == []
    store.apply([put(5)])
    assert places(store) == [5]


def test_a_lane_that_was_dropped_takes_no_messages(store: LmdbStore) -> None:
    store.apply([put(1)])
    store.apply([DropLane(1)])
    with pytest.raises(StoreError, match="there is no lane 1"):
        store.apply([put(2)])
    assert store.lanes() == []


def test_what_is_brief_is_told(store: LmdbStore) -> None:
    assert isinstance(store, BriefStore)
    assert store.is_brief([put(1)])
    assert store.is_brief([Remove(1, 1), Delivered(1, 1)])
    assert not store.is_brief([])
    assert not store.is_brief([put(place) for place in range(1, 100)])
    assert not store.is_brief([put(1, bytes(MIB))])
    # A checkpoint to the database is due, which takes longer.
    place = 0
    while store.is_brief([put(1)]):
        place += 1
        store.apply([put(place)])
    assert 100 < place < 10_000
    store.apply([put(place + 1)])
    assert store.is_brief([put(1)])


# Life cycle of the log.


def test_a_store_that_does_not_sync_takes_in_what_another_left(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    store.apply([put(1)])
    copy = killed(data, tmp_path / "killed")
    fast = opened(copy, synchronous=False)
    assert not fast.is_brief([put(2)])
    fast.apply([put(2)])
    assert places(fast) == [1, 2]
    fast.close()
    again = opened(copy)
    again.apply([put(3)])
    last = opened(killed(copy, tmp_path / "again"))
    assert places(last) == [1, 2, 3]
    last.close()
    again.close()


def test_compacting_keeps_what_is_in_the_log(store: LmdbStore, data: Path, tmp_path: Path) -> None:
    store.apply([put(place) for place in range(1, 1_000)])
    store.apply([put(1_000)])
    copy = killed(data, tmp_path / "killed")
    compact(copy)
    again = opened(copy)
    assert places(again) == list(range(1, 1_001))
    again.close()


def test_a_store_of_the_version_before_the_log_is_taken_over(tmp_path: Path) -> None:
    opened(tmp_path).close()
    log(tmp_path).unlink()
    env = lmdb.open(str(tmp_path / "messages.lmdb"), max_dbs=8)
    with env.begin(write=True) as txn:
        meta = env.open_db(b"meta", txn=txn)
        txn.put(b"version", (1).to_bytes(8, "big"), db=meta)
        txn.delete(b"logged", db=meta)
    env.close()
    store = opened(tmp_path)
    store.apply([CreateLane(1, "/queue/a", 4)])
    store.apply([put(1)])
    assert places(store) == [1]
    store.close()
    assert check_store(tmp_path, lambda done, total: None) == []


# Damage.


def records(data: Path) -> list[int]:
    """Return the offsets of the records in a log."""
    octets = log(data).read_bytes()
    found = [octets.find(b"\xabskl")]
    while found[-1] >= 0:
        found.append(octets.find(b"\xabskl", found[-1] + 1))
    return found[:-1]


def test_a_record_that_was_being_written_is_as_if_it_had_not_been(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    for place in (1, 2, 3):
        store.apply([put(place)])
    last = records(data)[-1]
    for number, at in enumerate((last, last + 5, last + 30, last + 60)):
        copy = killed(data, tmp_path / str(number))
        damage(log(copy), at)
        again = opened(copy)
        assert places(again) == [1, 2]
        again.apply([put(4)])
        again.close()
        assert check_store(copy, lambda done, total: None) == []


def test_what_follows_a_damaged_record_is_not_lost_in_silence(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    for place in (1, 2, 3):
        store.apply([put(place)])
    copy = killed(data, tmp_path / "killed")
    damage(log(copy), records(copy)[1] + 30)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"changes\.log is damaged"):
            opened(copy)
    (problem,) = check_store(copy, lambda done, total: None)
    assert "changes.log is damaged" in problem
    # The operator can choose to use the rest.
    log(copy).unlink()
    again = opened(copy)
    assert places(again) == []
    again.close()


def test_what_the_database_has_of_a_log_is_passed_over(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    for place in (1, 2, 3):
        store.apply([put(place)])
    store.apply([Remove(1, 1)])
    copy = killed(data, tmp_path / "killed")
    # This is the state after a commit that reached the disk, but was reported as failed.
    environment = Environment(copy, max_octets=MIB)
    environment.open()
    with environment.transaction(write=True) as (txn, databases):
        note_number(txn, databases, ChangeLog(environment).read()[0] - 1)
    environment.close()
    again = opened(copy)
    assert places(again) == []
    again.apply([put(5)])
    for name in ("once", "twice"):
        copy = killed(copy, tmp_path / name)
        store = opened(copy)
        assert places(store) == [5]
        store.close()


def test_the_log_of_another_store_counts_as_nothing(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    store.apply([put(1)])
    other = opened(tmp_path / "other")
    other.apply([CreateLane(1, "/queue/a", 4)])
    other.close()
    shutil.copy(log(data), log(tmp_path / "other"))
    other.open()
    assert messages(other) == []
    other.close()


def test_an_older_database_beside_a_newer_log_is_refused(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    backup = killed(data, tmp_path / "backup")
    for place in range(1, 1_500):
        store.apply([put(place)])
    shutil.copy(log(data), log(backup))
    with pytest.raises(StoreError, match="newer than the database"):
        opened(backup)


def test_a_log_that_is_too_short_is_made_as_long_as_it_has_to_be(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    store.apply([put(1)])
    copy = killed(data, tmp_path / "killed")
    os.truncate(log(copy), 1_000)
    again = opened(copy)
    assert places(again) == [1]
    assert log(copy).stat().st_size == MIB
    again.close()


def test_a_change_that_is_no_longer_possible_is_not_in_the_way_of_others(
    store: LmdbStore, data: Path, tmp_path: Path
) -> None:
    store.apply([put(place) for place in range(1, 600)])
    copy = killed(data, tmp_path / "killed")
    env = lmdb.open(str(copy / "messages.lmdb"), max_dbs=8)
    with env.begin(write=True) as txn:
        key = (1).to_bytes(8, "big") + (5).to_bytes(8, "big")
        txn.put(key, b"??", db=env.open_db(b"messages", txn=txn))
    env.close()
    again = opened(copy)
    again.apply([put(600), Remove(1, 5), Remove(1, 6)])
    assert [message.place for message in again.read(1, 5, 1_000, MIB)] == list(range(7, 601))
    again.apply([put(601)])
    assert [message.place for message in again.read(1, 599, 1_000, MIB)] == [600, 601]
    again.close()


# Full disks.

#: Limits the size of files to a little more than the log, for a time.
FILE_LIMIT = """
import resource, signal, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Mark, Put, Remove, SetRecord, StoreFullError

def put(place):
    return Put(1, place, 1000, 0, 0, "id", b"", b"x" * 1000)

def limit(octets):
    resource.setrlimit(resource.RLIMIT_FSIZE, (octets, resource.RLIM_INFINITY))

def places(store):
    return [each.place for each in store.read(1, 0, 100_000, 1_000_000_000)]

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
directory = Path(sys.argv[1])
store = LmdbStore(directory)
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
place = 1
data = directory / "messages.lmdb" / "data.mdb"
while data.stat().st_size < 1_100_000:
    store.apply([put(number) for number in range(place, place + 200)])
    place += 200
limit(data.stat().st_size)
first = place
try:
    while True:
        store.apply([put(place)])
        place += 1
except StoreFullError as error:
    print("full", place > first + 10)
there = places(store)
print(there == list(range(1, place)))
print([lane.messages for lane in store.lanes()] == [place - 1])
# What makes room has some in the log, while the database cannot grow.
store.apply([Remove(1, 1), Remove(1, place - 1)])
store.apply([Mark(1, 2, 3)])
there = list(range(2, place - 1))
print(places(store) == there)
try:
    store.apply([put(place)])
except StoreFullError as error:
    print("full")
store.close()
store.open()
print(places(store) == there)
limit(resource.RLIM_INFINITY)
store.apply([put(place)])
print(places(store) == [*there, place])
store.close()
"""


def test_a_full_disk_takes_nothing_back_that_is_in_the_log(data: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(data)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "full True",
        "True",
        "True",
        "True",
        "full",
        "True",
        "True",
    ]
    store = opened(data)
    assert len(places(store)) == store.lanes()[0].messages
    store.close()


def test_a_full_store_refuses_single_messages_too(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, max_octets=24 * MIB)
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4)])
    assert store.is_brief([put(1)])
    place = 0
    with pytest.raises(StoreFullError, match=f"limit of {24 * MIB} octets"):
        while place < 10_000:
            store.apply([put(place + 1, b"x" * 20_000)])
            place += 1
    assert 500 < place < 1_300
    assert not store.is_brief([put(place + 1)])
    data = tmp_path / "messages.lmdb" / "data.mdb"
    assert data.stat().st_size <= 24 * MIB
    assert places(store) == list(range(1, place + 1))
    store.apply([Remove(1, each) for each in range(1, place + 1)])
    store.apply([put(place + 1)])
    store.apply([SetRecord("a", b"1")])
    assert places(store) == [place + 1]
    store.close()


# Failures of writes.

#: A library to preload. While the file exists, writes to the log fail. With "lost" in it, they
#: reach the disk but seem to fail. With "all" in it, those to the database fail, too.
FAILING_WRITES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_log(int fd)
{
    char link[64] = "/proc/self/fd/", name[4096];
    char digits[12];
    int at = 11, n = fd;
    digits[at] = 0;
    do digits[--at] = '0' + n % 10; while (n /= 10);
    strcat(link, digits + at);
    ssize_t size = readlink(link, name, sizeof name - 1);
    if (size < 11)
        return 0;
    name[size] = 0;
    return strcmp(name + size - 11, "changes.log") == 0;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    ssize_t (*call)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    int fail = open(getenv("STOMPKIT_FAIL"), O_RDONLY);
    if (fail >= 0) {
        char first = 0;
        ssize_t got = read(fail, &first, 1);
        close(fail);
        if (is_log(fd)) {
            if (got == 1 && (first == 'l' || first == 'a'))
                call(fd, data, size, offset);
            errno = EIO;
            return -1;
        }
        if (got == 1 && first == 'a') {
            errno = EIO;
            return -1;
        }
    }
    return call(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite64(fd, data, size, offset);
}
"""

#: Applies batches while the log cannot be written, and dies after one that has failed.
APPLY_IN_SPITE = """
import os, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Put, Remove, StoreError

fail = Path(os.environ["STOMPKIT_FAIL"])
store = LmdbStore(Path(sys.argv[1]))
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
for place in range(1, 10):
    if place in (3, 4, 5, 9):
        fail.write_text(sys.argv[2])
    else:
        fail.unlink(missing_ok=True)
    store.apply([Put(1, place, 10, 0, 0, "id", b"", b"body")])
store.apply([Remove(1, 2)])
print(*(message.place for message in store.read(1, 0, 10, 1000)))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("how", ["failed", "lost"])
def test_what_the_log_does_not_take_goes_to_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    preload(FAILING_WRITES, tmp_path, monkeypatch)
    result = subprocess.run(
        [sys.executable, "-c", APPLY_IN_SPITE, str(tmp_path / "data"), how],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["1 3 4 5 6 7 8 9"]
    monkeypatch.delenv("LD_PRELOAD")
    store = opened(tmp_path / "data")
    assert places(store) == [1, 3, 4, 5, 6, 7, 8, 9]
    store.close()


#: Applies a batch that fails everywhere, and dies.
REFUSED = """
import os, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Put, StoreError

fail = Path(os.environ["STOMPKIT_FAIL"])
store = LmdbStore(Path(sys.argv[1]))
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])
store.apply([Put(1, 1, 10, 0, 0, "id", b"", b"body")])
fail.write_text("all")
try:
    store.apply([Put(1, 2, 10, 0, 0, "id", b"", b"body")])
except StoreError:
    print("refused", flush=True)
os._exit(0)
"""


def test_what_was_refused_is_not_done_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preload(FAILING_WRITES, tmp_path, monkeypatch)
    result = subprocess.run(
        [sys.executable, "-c", REFUSED, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["refused"]
    monkeypatch.delenv("LD_PRELOAD")
    store = opened(tmp_path / "data")
    assert places(store) == [1]
    store.close()
