"""A store on a full disk: what frees space works, and afterwards there is space."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.full_disk import on_full_disk

#: Fills a disk, then removes everything; the disk never gets more space. Files of limited size
#: stand for the disk.
FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from stompkit.server.stores import LmdbStore
from stompkit.server.interfaces import CreateLane, Put, Remove, StoreFullError

octets, together, synchronous = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "always"

def put(place):
    return Put(1, place, octets, 0, 0, "id", b"", b"x" * octets)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (7_000_000, 7_000_000))
store = LmdbStore(Path(sys.argv[1]), synchronous=synchronous)
store.open()
store.apply([CreateLane(1, "/queue/a", 4)])

def fill(place):
    try:
        while True:
            store.apply([put(number) for number in range(place, place + together)])
            place += together
    except StoreFullError:
        return place

first = fill(1)
for place in range(1, first, together):
    store.apply([Remove(1, number) for number in range(place, place + together)])
last = fill(first)
(lane,) = store.lanes()
print(first - 1, last - first, lane.messages)
store.close()
"""


@pytest.mark.parametrize(
    ("octets", "together", "sync"),
    [(2_000, 16, "always"), (60_000, 1, "always"), (100, 200, "never")],
)
def test_a_full_disk_that_is_emptied_takes_as_much_again(
    tmp_path: Path, octets: int, together: int, sync: str
) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    command += [str(octets), str(together), sync]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    first, second, kept = map(int, result.stdout.split())
    assert second == kept
    assert second > 0.8 * first


def test_a_broker_that_starts_on_a_full_disk_ends_with_the_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stompkit", "serve", "--data", str(tmp_path / "data")]
    listens = ("--endpoint", "tcp:0:interface=127.0.0.1")
    done = subprocess.run(
        [*on_full_disk(tmp_path), *command, *listens], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "stompkit serve: cannot open the store: there is no room for the store"
        f" {tmp_path}/data/messages.lmdb: No space left on device\n"
    )
