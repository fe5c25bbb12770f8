"""Runners, which make the calls of a store."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue

import pytest
from twisted.logger import LogEvent, capturedLogs

from stompkit.server.interfaces import StoreError, StoreRunner
from stompkit.server.stores import InlineRunner, ThreadRunner

LONG_S = 20.0


class Broker:
    """The broker's thread: makes the calls that other threads request, in order."""

    def __init__(self) -> None:
        """Start without calls."""
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def call_from_thread(self, call: Callable[[], None]) -> None:
        """Schedule a call."""
        self._calls.put(call)

    def turn(self, number: int = 1) -> None:
        """Wait for calls and make them."""
        for _ in range(number):
            self._calls.get(timeout=LONG_S)()

    @property
    def is_idle(self) -> bool:
        """True if no calls are scheduled."""
        return self._calls.empty()


Kind = Callable[[Broker], StoreRunner]


def inline(broker: Broker) -> StoreRunner:
    return InlineRunner()


def threaded(broker: Broker) -> StoreRunner:
    return ThreadRunner(broker.call_from_thread)


both = pytest.mark.parametrize("kind", [inline, threaded])


@pytest.fixture
def broker() -> Broker:
    """The broker's thread, which is the thread of the test."""
    return Broker()


@pytest.fixture
def logged() -> Iterator[Sequence[LogEvent]]:
    """The events that are logged meanwhile."""
    with capturedLogs() as events:
        yield events


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def outcome(kind: Kind, broker: Broker, work: Callable[[], object]) -> list[tuple[str, object]]:
    """Return the results that a runner reports for one call."""
    told: list[tuple[str, object]] = []
    runner = kind(broker)
    runner.run(
        work, lambda result: told.append(("done", result)), lambda e: told.append(("failed", e))
    )
    if kind is threaded:
        assert told == []
        broker.turn()
    runner.stop()
    assert broker.is_idle
    return told


@both
def test_a_call_that_works_is_told_with_what_it_gave(kind: Kind, broker: Broker) -> None:
    assert outcome(kind, broker, lambda: [1, 2]) == [("done", [1, 2])]


@both
def test_a_call_that_fails_is_told_with_its_error(
    kind: Kind, broker: Broker, logged: Sequence[LogEvent]
) -> None:
    error = StoreError("no room")
    assert outcome(kind, broker, failing(error)) == [("failed", error)]
    assert not logged


@both
def test_an_error_that_nobody_has_foreseen_is_logged_and_told_as_one_of_the_store(
    kind: Kind, broker: Broker, logged: Sequence[LogEvent]
) -> None:
    error = ZeroDivisionError("secret")
    ((verdict, told),) = outcome(kind, broker, failing(error))
    assert verdict == "failed"
    assert isinstance(told, StoreError)
    assert "ZeroDivisionError" in str(told)
    assert "secret" not in str(told)
    assert [event["log_failure"].value for event in logged] == [error]


@both
def test_calls_are_made_and_told_in_order(kind: Kind, broker: Broker) -> None:
    made: list[int] = []
    told: list[object] = []
    runner = kind(broker)

    def work(number: int) -> Callable[[], int]:
        def call() -> int:
            made.append(number)
            if number % 3 == 0:
                raise StoreError(str(number))
            return number

        return call

    for number in range(30):
        runner.run(work(number), told.append, lambda error: told.append(int(str(error))))
    runner.stop()
    if kind is threaded:
        broker.turn(30)
    assert made == told == list(range(30))


@both
def test_a_runner_that_has_stopped_takes_no_more(kind: Kind, broker: Broker) -> None:
    runner = kind(broker)
    runner.run(lambda: None, lambda _: None, lambda _: None)
    runner.stop()
    runner.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        runner.run(lambda: None, lambda _: None, lambda _: None)


@both
def test_a_runner_that_was_never_used_can_be_stopped(kind: Kind, broker: Broker) -> None:
    runner = kind(broker)
    runner.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        runner.run(lambda: None, lambda _: None, lambda _: None)


@both
def test_more_can_be_asked_for_by_who_is_told(kind: Kind, broker: Broker) -> None:
    told: list[object] = []
    runner = kind(broker)

    def again(result: object) -> None:
        told.append(result)
        runner.run(lambda: 2, told.append, told.append)

    runner.run(lambda: 1, again, told.append)
    if kind is threaded:
        broker.turn(2)
    assert told == [1, 2]
    runner.stop()


def test_calls_are_made_in_a_thread_that_ends_with_the_runner(broker: Broker) -> None:
    threads: list[object] = []
    runner = ThreadRunner(broker.call_from_thread)
    for _ in range(3):
        runner.run(threading.current_thread, threads.append, threads.append)
    broker.turn(3)
    thread = threads[0]
    assert isinstance(thread, threading.Thread)
    assert threads == [thread] * 3
    assert thread is not threading.current_thread()
    assert (thread.name, thread.daemon) == ("stompkit-store", False)
    runner.stop()
    assert not thread.is_alive()


def test_stopping_waits_for_everything_that_was_asked_for(broker: Broker) -> None:
    release = threading.Event()
    made: list[int] = []
    runner = ThreadRunner(broker.call_from_thread)
    runner.run(lambda: release.wait(LONG_S), lambda _: None, lambda _: None)
    for number in range(5):
        runner.run(partial(made.append, number), lambda _: None, lambda _: None)
    stopping = threading.Thread(target=runner.stop)
    stopping.start()
    assert made == []
    assert stopping.is_alive()
    release.set()
    stopping.join(LONG_S)
    assert made == [0, 1, 2, 3, 4]
    broker.turn(6)
    assert broker.is_idle


#: Requests a call, and ends by an uncaught exception.
DIES = """
from stompkit.server.stores import ThreadRunner

runner = ThreadRunner(lambda call: call())
runner.run(lambda: None, lambda _: print("done", flush=True), lambda _: None)
raise MemoryError
"""


def test_the_thread_does_not_outlive_a_broker_that_has_died() -> None:
    result = subprocess.run(
        [sys.executable, "-c", DIES],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert (result.returncode, result.stdout) == (1, "done\n")
    assert "MemoryError" in result.stderr


#: Has too little memory for the stack of a thread, then enough again.
CRAMPED = """
import resource
from pathlib import Path
from stompkit.server.stores import ThreadRunner

told = lambda what: print(what, flush=True)
runner = ThreadRunner(lambda call: call())
before = resource.getrlimit(resource.RLIMIT_AS)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), before[1]))
runner.run(lambda: None, told, told)
resource.setrlimit(resource.RLIMIT_AS, before)
runner.run(lambda: "made", told, told)
runner.stop()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_call_fails_where_there_can_be_no_thread_for_it() -> None:
    result = subprocess.run(
        [sys.executable, "-c", CRAMPED],
        capture_output=True,
        text=True,
        check=True,
        timeout=LONG_S,
    )
    refused, made = result.stdout.splitlines()
    assert "thread" in refused
    assert made == "made"


# Brief calls.


class Disk:
    """A simulated disk: its calls take a given time."""

    def __init__(self, broker: Broker) -> None:
        """Start with a disk that takes no time."""
        self.now = 1_000.0
        self.takes_s = 0.0
        self.threads: list[object] = []
        self.runner = ThreadRunner(broker.call_from_thread, lambda: self.now)

    def work(self) -> object:
        """Advance the time; return the current thread."""
        self.now += self.takes_s
        return threading.current_thread()

    def is_here(self, broker: Broker) -> bool:
        """Make a brief call; return True if it ran in this thread."""
        threads: list[object] = []
        self.runner.run_brief(self.work, threads.append, threads.append)
        if not threads:
            broker.turn()
        return threads == [threading.current_thread()]


@pytest.fixture
def disk(broker: Broker) -> Iterator[Disk]:
    """A runner with a simulated disk."""
    disk = Disk(broker)
    yield disk
    disk.runner.stop()


def test_a_brief_call_is_made_at_once_in_the_thread_of_who_asks(broker: Broker, disk: Disk) -> None:
    assert all(disk.is_here(broker) for _ in range(5))
    told: list[object] = []
    disk.runner.run_brief(failing(StoreError("no room")), told.append, told.append)
    assert str(told[0]) == "no room"


def test_a_brief_call_does_not_overtake_others(broker: Broker, disk: Disk) -> None:
    told: list[object] = []
    disk.runner.run(lambda: 1, told.append, told.append)
    disk.runner.run_brief(lambda: 2, told.append, told.append)
    broker.turn(2)
    assert told == [1, 2]
    assert disk.is_here(broker)


def test_a_slow_disk_is_left_to_the_other_thread_for_longer_and_longer(
    broker: Broker, disk: Disk
) -> None:
    began = 0.0
    for rest in (None, 8, 16, 32, 64):
        if rest is not None:
            # Calls in the other thread do not count.
            disk.takes_s = 0.0
            disk.now = began + rest * 0.01 - 0.001
            assert not disk.is_here(broker)
            disk.now = began + rest * 0.01 + 0.001
        began = disk.now
        disk.takes_s = 0.01
        assert disk.is_here(broker)
    disk.now += LONG_S
    disk.takes_s = 0.0001
    assert all(disk.is_here(broker) for _ in range(5))
    # The disk was fast in between, so the back-off starts again.
    began = disk.now
    disk.takes_s = 0.01
    assert disk.is_here(broker)
    disk.now = began + 8 * 0.01 + 0.001
    assert disk.is_here(broker)


def test_a_stopped_runner_takes_nothing_brief(broker: Broker, disk: Disk) -> None:
    disk.runner.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        disk.runner.run_brief(lambda: None, lambda _: None, lambda _: None)
