"""Disk space of a route's buffer, and the thread that uses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from stompkit.bridge._buffer import Buffer, InThread
from stompkit.spool import Record

__all__: list[str] = []

MIB = 1 << 20


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def records(start: int, count: int) -> list[Record]:
    """Return large messages; the clock was far ahead when they came."""
    return [
        Record(2**52, "/queue/a", f"m{n}", f"e{n}", "", (), b"x" * (MIB // 2))
        for n in range(start, start + count)
    ]


@pytest.mark.parametrize("batches", [[15], [5, 5, 5], [1] * 12])
def test_confirmed_messages_take_little_space_however_often_it_is_opened(
    tmp_path: Path, batches: list[int]
) -> None:
    folder = tmp_path / "buffer"
    buffer = Buffer(folder, 100)
    for count in batches:
        for _ in range(count):
            start = buffer.head
            buffer.append(records(start, 8))
            assert len(buffer.read(start, buffer.head)) == 8
            buffer.confirm(buffer.head)
        buffer.close()
        buffer = Buffer(folder, 100)
    kept = records(buffer.head, 3)
    buffer.append(kept)
    buffer.close()
    assert size(folder) < 35 * MIB
    again = Buffer(folder, 100)
    assert again.read(again.position, again.head) == kept
    again.close()


def test_what_is_not_confirmed_is_kept(tmp_path: Path) -> None:
    buffer = Buffer(tmp_path / "buffer", 100)
    made = records(0, 60)
    for first in range(0, 60, 10):
        buffer.append(made[first : first + 10])
    buffer.confirm(20)
    buffer.close()
    again = Buffer(tmp_path / "buffer", 100)
    assert (again.position, again.head) == (20, 60)
    assert again.read(20, 60) == made[20:]
    again.close()
    assert size(tmp_path / "buffer") < 27 * MIB


def test_work_waits_for_the_end_of_earlier_work() -> None:
    begun: list[tuple[Callable[[], object], Deferred[object]]] = []

    def run(work: Callable[[], object]) -> Deferred[object]:
        begun.append((work, Deferred()))
        return begun[-1][1]

    in_thread = InThread(run)
    results = [Deferred.fromCoroutine(in_thread(lambda n=n: n)) for n in range(3)]  # type: ignore[misc]
    for number, result in enumerate(results):
        assert len(begun) == number + 1
        work, done = begun[number]
        work()
        done.callback(None)
        assert result.result == number
