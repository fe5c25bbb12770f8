"""scrypt beside the broker: worker processes with low priority, and their failures."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_twisted import ensureDeferred  # type: ignore[import-untyped]
from twisted.logger import LogEvent, capturedLogs, formatEvent

from stompkit.server.login import scrypt as _scrypt
from stompkit.server.login.scrypt import Scrypt, compute_beside
from stompkit.server.login.scrypt_worker import Priority

#: Takes about 50 ms.
WORK = Scrypt(b"sesame", b"salt and pepper", 14, 8, 1, 32)
LONG_S = 60.0
#: Timeout in seconds for an idle-class process, which hardly runs on a busy machine.
VERY_LONG_S = 600.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

Test = Callable[..., Coroutine[Any, Any, None]]
#: For tests that wait for the reactor.
in_reactor: Callable[[Test], Test] = ensureDeferred


@pytest.fixture
def logged() -> Iterator[Sequence[LogEvent]]:
    """The events that are logged meanwhile."""
    with capturedLogs() as events:
        yield events


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use new worker processes for each test, with long timeouts for busy machines."""
    _scrypt.end_all()
    answer_s(monkeypatch, VERY_LONG_S, *Priority)
    yield
    _scrypt.end_all()


def answer_s(patch: pytest.MonkeyPatch, seconds: float, *priorities: Priority) -> None:
    """Set the time within which processes of these priorities have to answer."""
    for each in priorities:
        patch.setitem(_scrypt._ANSWER_S, each, seconds)


def workers() -> set[int]:
    """Return the ids of the worker processes of this process."""
    found = set()
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text(encoding="ascii").split()):
            if b"scrypt_worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
    return found


@linux
@in_reactor
async def test_keys_are_computed_in_processes_that_come_after_all_others() -> None:
    own = os.sched_getscheduler(0)
    assert await compute_beside(WORK) == WORK()
    assert await compute_beside(WORK._replace(passcode=b"", key_bytes=64)) != WORK()
    assert {os.sched_getscheduler(pid) for pid in workers()} == {os.SCHED_IDLE}
    assert os.sched_getscheduler(0) == own


@linux
@in_reactor
async def test_one_that_gets_no_time_is_replaced_by_one_that_is_only_nice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await compute_beside(WORK)
    idle = workers()
    for pid in idle:
        # A stopped process gets no processor time.
        os.kill(pid, signal.SIGSTOP)
    answer_s(monkeypatch, 0.01, Priority.IDLE)
    monkeypatch.setattr(_scrypt, "_RAISED_S", LONG_S)
    answers = [compute_beside(WORK) for _ in range(8)]
    assert [await each for each in answers] == [WORK()] * 8
    others = workers() - idle
    assert others
    least = min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in others} == {least}


@linux
@in_reactor
async def test_on_a_machine_that_others_fill_it_gets_its_share_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer_s(monkeypatch, 0.0, Priority.IDLE, Priority.NICE)
    monkeypatch.setattr(_scrypt, "_RAISED_S", LONG_S)
    for _ in range(2):
        assert await compute_beside(WORK) == WORK()
        own = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
        found = [(os.sched_getscheduler(i), os.getpriority(os.PRIO_PROCESS, i)) for i in workers()]
        # Those that were starved are gone.
        assert found == [own]


@linux
@in_reactor
async def test_one_that_stands_still_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_s(monkeypatch, 0.0, Priority.IDLE, Priority.NICE)
    assert await compute_beside(WORK) == WORK()
    stopped = workers()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    answer_s(monkeypatch, 0.01, Priority.NORMAL)
    with pytest.raises(TimeoutError, match="within"):
        await compute_beside(WORK)
    answer_s(monkeypatch, LONG_S, Priority.NORMAL)
    assert await compute_beside(WORK) == WORK()
    assert not stopped & workers()


@linux
@in_reactor
async def test_nothing_of_a_passcode_can_be_seen_of_the_process() -> None:
    await compute_beside(WORK)
    assert workers()
    for pid in workers():
        for part in ("cmdline", "environ"):
            assert WORK.passcode not in Path(f"/proc/{pid}/{part}").read_bytes()


@linux
@in_reactor
async def test_a_process_that_was_killed_is_replaced() -> None:
    await compute_beside(WORK)
    killed = workers()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    # The death of each may be noticed before its next request, or only then.
    for _ in range(len(killed) + 1):
        try:
            assert await compute_beside(WORK) == WORK()
        except OSError:
            continue
        break
    else:
        pytest.fail("the next one does not compute, either")
    assert workers() - killed


@in_reactor
async def test_work_that_kills_it_fails_and_the_next_does_not() -> None:
    with pytest.raises(OSError, match="has ended"):
        await compute_beside(WORK._replace(p=0))
    assert await compute_beside(WORK) == WORK()


@in_reactor
async def test_where_no_process_can_be_started_it_is_computed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, logged: Sequence[LogEvent]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "")
        assert await compute_beside(WORK) == WORK()
    # Others may be of connections that earlier tests have left.
    assert any("no process can be started" in (formatEvent(each) or "") for each in logged)


@linux
@in_reactor
async def test_they_end_with_the_broker() -> None:
    await compute_beside(WORK)
    assert workers()
    _scrypt.end_all()
    assert not workers()
    assert await compute_beside(WORK) == WORK()
