"""``QueueReplicator`` with worker processes: order, failures, bounds."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from stompkit.replication.workers import (
    DeadLetter,
    QueueReplicator,
    ReplicatorStoppedError,
    Unfinished,
    WorkerUnusableError,
)
from tests.replication.workers.callbacks import (
    PATIENCE_S,
    Fails,
    Gated,
    Kills,
    Notes,
    Reads,
    Record,
    Returns,
    by_name,
    wait_for,
)


@dataclass
class Holding:
    """A callback with an attribute that cannot be pickled."""

    lock: threading.Lock

    def __call__(self, key: object) -> bool:
        """Process a key."""
        return True


class Unloadable:
    """A callback that cannot be loaded in another process."""

    def __call__(self, key: object) -> bool:
        """Process a key."""
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.getenv, ())


# Delivery of keys to callbacks.


def test_ten_keys_of_one_worker_are_done_in_their_order(
    replicator: QueueReplicator, record: Record
) -> None:
    replicator.event("t_write")(Notes(record))
    replicator.start()
    replicator.submit("t_write", range(10)).result(PATIENCE_S)
    assert record.keys() == list(range(10))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_are_started_by_any_method_that_is_safe_with_threads(
    method: Literal["spawn", "forkserver"], record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug of Meepo: a nested function was the target of its processes, which needs fork."""
    monkeypatch.setenv("STOMPKIT_TEST_RECORD", str(record.path))
    replicator = QueueReplicator(start_method=method)
    assert replicator.event("t_write")(by_name) is by_name
    with replicator:
        replicator.submit("t_write", [1]).result(PATIENCE_S)
    ((pid, key),) = record.lines()
    assert key == 1
    assert pid != os.getpid()


def test_fifty_keys_and_three_workers_with_tiny_backlogs(
    replicator: QueueReplicator, record: Record
) -> None:
    replicator.event("t_write", workers=3, queue_limit=3, max_batch=10)(Notes(record))
    replicator.start()
    for key in range(50):
        replicator.feed("t_write", [key])
    assert replicator.stop(PATIENCE_S) == []
    assert sorted(record.keys()) == list(range(50))


def test_a_key_has_always_the_same_worker(replicator: QueueReplicator, record: Record) -> None:
    replicator.event("t_write", "t_update", workers=3)(Notes(record))
    replicator.start()
    for topic in ["t_write", "t_update"] * 2:
        replicator.submit(topic, range(20)).result(PATIENCE_S)
    workers = record.workers()
    assert sorted(workers) == list(range(20))
    assert all(len(pids) == 1 for pids in workers.values())
    assert len(set.union(*workers.values())) == 3


def test_keys_are_what_they_were(replicator: QueueReplicator, record: Record) -> None:
    replicator.event("t_write")(Notes(record))
    replicator.start()
    replicator.submit("t_write", [(2, 3), "hello world", 1, "1", None]).result(PATIENCE_S)
    assert record.keys() == [[2, 3], "hello world", 1, "1", None]


def test_a_callback_of_many_has_lists(replicator: QueueReplicator, record: Record) -> None:
    replicator.event("t_write", multi=True, max_batch=4)(Notes(record))
    replicator.start()
    replicator.submit("t_write", range(10)).result(PATIENCE_S)
    assert [key for each in record.keys() for key in each] == list(range(10))
    assert max(map(len, record.keys())) <= 4


def test_several_callbacks_of_a_topic_are_all_called(
    replicator: QueueReplicator, tmp_path: Path
) -> None:
    records = [Record(tmp_path / name) for name in "ab"]
    for each in records:
        replicator.event("t_write")(Notes(each))
    replicator.start()
    replicator.submit("t_write", [7]).result(PATIENCE_S)
    assert [each.keys() for each in records] == [[7], [7]]


def test_an_idle_worker_has_a_key_without_waiting_for_a_poll(
    replicator: QueueReplicator, record: Record
) -> None:
    """Bug of Meepo: an idle worker polled once a second; these are 200 keys, one after another."""
    replicator.event("t_write")(Notes(record))
    replicator.start()
    deadline = time.monotonic() + PATIENCE_S
    for key in range(200):
        replicator.submit("t_write", [key]).result(deadline - time.monotonic())
    assert record.keys() == list(range(200))


# Unknown topics.


def test_an_unknown_topic_is_counted_and_logged_once_and_stops_nothing(
    replicator: QueueReplicator, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug of Meepo: a message for a table without a callback ended the replicator."""
    replicator.event("user_update")(Notes(record))
    replicator.start()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            replicator.feed("user_update2", [1])
    replicator.submit("user_update", [2]).result(PATIENCE_S)
    assert record.keys() == [2]
    assert replicator.stats().unknown == 3
    assert [each for each in caplog.messages if "user_update2" in each] == [
        "stompkit.replicator: no callback is for topic user_update2"
    ]


# Failures.


def test_nothing_is_lost_when_a_callback_raises(
    replicator: QueueReplicator, record: Record
) -> None:
    """Bug of Meepo: of 1, 2, 3, 4 with an exception for 2, the last three were lost."""
    replicator.event("t_write", retry_s=0.0)(Fails(record, keys=[2], times=1))
    replicator.start()
    replicator.submit("t_write", [1, 2, 3, 4]).result(PATIENCE_S)
    assert sorted(record.keys()) == [1, 2, 2, 3, 4]
    assert replicator.stats().failed == 1


def test_nothing_is_lost_when_a_callback_of_many_raises(
    replicator: QueueReplicator, record: Record
) -> None:
    callback = Fails(record, keys=[2], times=1, multi=True)
    replicator.event("t_write", multi=True, retry_s=0.0)(callback)
    replicator.start()
    replicator.submit("t_write", [1, 2, 3, 4]).result(PATIENCE_S)
    assert {key for each in record.keys() for key in each} == {1, 2, 3, 4}
    stats = replicator.stats()
    assert (stats.done, stats.waiting, stats.delayed, stats.in_flight) == (4, 0, 0, 0)


@pytest.mark.parametrize("multi", [False, True])
def test_a_key_is_tried_once_and_as_often_again_as_allowed_and_then_is_a_dead_letter(
    replicator: QueueReplicator, record: Record, *, multi: bool
) -> None:
    """Bug of Meepo: a key that was given up was only logged."""
    dead: list[DeadLetter] = []
    replicator.event("t_write", multi=multi, max_retries=3, retry_s=0.001, dead_letter=dead.append)(
        Fails(record, keys=[5, 6], times=99, multi=multi)
    )
    replicator.start()
    replicator.submit("t_write", [5, 6, 7]).result(PATIENCE_S)
    tries = [key for each in record.keys() for key in (each if multi else [each])]
    assert tries.count(5) == tries.count(6) == 4
    assert sorted(each.key for each in dead) == [5, 6]
    for each in dead:
        assert (each.topic, each.tries) == ("t_write", 4)
        assert each.reason.startswith(f"LookupError: no {each.key} (")
    assert replicator.stats().dead == 2
    assert replicator.stats().done == 1


def test_no_key_of_a_call_is_given_up_for_what_another_one_does(
    replicator: QueueReplicator, record: Record
) -> None:
    dead: list[DeadLetter] = []
    replicator.event("t_write", multi=True, max_retries=1, retry_s=0.0, dead_letter=dead.append)(
        Fails(record, keys=[13], times=99, multi=True)
    )
    replicator.start()
    replicator.submit("t_write", range(40)).result(PATIENCE_S)
    assert [each.key for each in dead] == [13]
    assert replicator.stats().done == 39


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ([True, True], {key: "the callback returned 2 results for 3 keys" for key in (1, 2, 3)}),
        ([True] * 4, {key: "the callback returned 4 results for 3 keys" for key in (1, 2, 3)}),
        ([], {key: "the callback returned 0 results for 3 keys" for key in (1, 2, 3)}),
        (
            None,
            {key: "the callback returned None, and neither True nor False" for key in (1, 2, 3)},
        ),
        (
            "ok.",
            {key: "the callback returned 'ok.', and neither True nor False" for key in (1, 2, 3)},
        ),
        (False, {key: "the callback returned False" for key in (1, 2, 3)}),
        (
            [True, False, 1],
            {
                2: "the callback returned False",
                3: "the callback returned 1, and neither True nor False",
            },
        ),
        (True, {}),
        ((True, True, True), {}),
    ],
)
def test_results_that_do_not_fit_are_failures(
    replicator: QueueReplicator,
    record: Record,
    gate: Path,
    given: object,
    reasons: dict[int, str],
) -> None:
    """Bug of Meepo: a short list was cut by zip, and None was half a failure."""
    dead: dict[object, str] = {}

    def dead_letter(letter: DeadLetter) -> None:
        dead[letter.key] = letter.reason

    replicator.event("t_write", multi=True, max_retries=0, dead_letter=dead_letter)(
        Returns(record, gate, given)
    )
    replicator.start()
    replicator.feed("t_write", ["first"])
    wait_for(record.keys)
    done = replicator.submit("t_write", [1, 2, 3])
    gate.touch()
    done.result(PATIENCE_S)
    assert record.keys() == [["first"], [1, 2, 3]]
    dead.pop("first", None)
    assert dead == reasons


def test_a_failed_key_waits_for_its_time_and_holds_up_no_other(
    replicator: QueueReplicator, record: Record
) -> None:
    """Bug of Meepo: after a failure the whole worker slept."""
    callback = Fails(record, keys=[1], times=1)
    replicator.event("t_write", retry_s=3600.0, max_retry_s=3600.0)(callback)
    replicator.start()
    first = replicator.submit("t_write", [1])
    replicator.submit("t_write", [2, 3]).result(PATIENCE_S)
    again = replicator.submit("t_write", [1])
    replicator.submit("t_write", [4]).result(PATIENCE_S)
    assert record.keys() == [1, 2, 3, 4]
    assert replicator.stats().delayed == 1
    # When it is stopped each of them has one more attempt.
    assert replicator.stop(PATIENCE_S) == []
    assert record.keys() == [1, 2, 3, 4, 1]
    assert first.result(0) is None
    assert again.result(0) is None


def test_a_dead_letter_callback_that_fails_is_called_again(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    calls: list[DeadLetter] = []

    def dead_letter(dead: DeadLetter) -> None:
        calls.append(dead)
        if len(calls) < 3:
            raise OSError("no room")

    replicator.event(
        "t_write", max_retries=0, retry_s=0.0, max_retry_s=0.0, dead_letter=dead_letter
    )(Returns(record, gate, given=False))
    gate.touch()
    replicator.start()
    replicator.submit("t_write", [1]).result(PATIENCE_S)
    assert [each.key for each in calls] == [1, 1, 1]
    assert replicator.stats().dead == 1


# Limits.


def test_a_full_backlog_holds_up_who_feeds_it_and_merges_what_waits_already(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    """Bug of Meepo: the limit was not enforced, and de-duplication lost the order."""
    replicator.event("t_write", queue_limit=3, max_batch=1)(Gated(record, gate))
    replicator.start()
    replicator.feed("t_write", ["busy"])
    wait_for(record.keys)
    replicator.feed("t_write", ["a", "b", "c"])
    merged = replicator.submit("t_write", ["c", "a"] * 50)
    is_through = threading.Event()

    def feed() -> None:
        replicator.feed("t_write", ["d", "e"])
        is_through.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    stats = replicator.stats()
    assert (stats.waiting, stats.in_flight, stats.merged) == (3, 1, 100)
    assert not is_through.is_set()
    gate.touch()
    feeder.join(PATIENCE_S)
    merged.result(PATIENCE_S)
    assert replicator.stop(PATIENCE_S) == []
    assert record.keys() == ["busy", "a", "b", "c", "d", "e"]


def test_a_change_while_the_worker_has_the_key_is_done_after_it(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    replicator.event("t_write", queue_limit=1, max_batch=1)(Gated(record, gate))
    replicator.start()
    replicator.feed("t_write", ["a"])
    wait_for(record.keys)
    later = replicator.submit("t_write", ["a"])
    again = replicator.submit("t_write", ["a"])
    assert not later.done()
    gate.touch()
    later.result(PATIENCE_S)
    again.result(PATIENCE_S)
    assert record.keys() == ["a", "a"]


def test_what_is_done_last_of_a_key_is_done_after_its_last_change(
    replicator: QueueReplicator, record: Record, tmp_path: Path
) -> None:
    """Keys are merged, callbacks fail, and workers die: no change is lost."""
    rows = tmp_path / "rows"
    rows.mkdir()
    callback = Reads(record, rows, fail_every=7, die_every=120)
    replicator.event("t_update", workers=2, queue_limit=4, max_retries=None, retry_s=0.001)(
        callback
    )
    replicator.start()
    random = Random(4)
    versions: dict[int, str] = {}
    for number in range(600):
        key = random.randrange(12)
        versions[key] = str(number)
        (rows / f"{key}.new").write_text(versions[key])
        (rows / f"{key}.new").rename(rows / str(key))
        replicator.feed("t_update", [key])
    wait_for(lambda: not pending(replicator))
    last = {key: version for key, version in record.keys()}
    assert last == versions
    stats = replicator.stats()
    assert min(stats.merged, stats.failed, stats.restarts) > 0


def pending(replicator: QueueReplicator) -> int:
    stats = replicator.stats()
    return stats.waiting + stats.delayed + stats.in_flight


# Workers that die.


def pids(replicator: QueueReplicator) -> list[int]:
    return [each.pid for each in replicator.stats().workers if each.pid is not None]


def test_a_worker_that_was_killed_is_started_again_and_keys_go_on(
    replicator: QueueReplicator, record: Record
) -> None:
    """Thirty keys for three workers; the death of an idle one is detected without a key for it."""
    replicator.event("t_write", workers=3)(Notes(record))
    replicator.start()
    replicator.submit("t_write", range(30)).result(PATIENCE_S)
    before = pids(replicator)
    os.kill(before[1], signal.SIGKILL)
    wait_for(lambda: replicator.stats().restarts)
    replicator.submit("t_write", range(30, 60)).result(PATIENCE_S)
    after = pids(replicator)
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]
    assert sorted(record.keys()) == list(range(60))


@pytest.mark.parametrize("multi", [False, True])
def test_what_a_killed_worker_had_taken_is_done_again(
    replicator: QueueReplicator, record: Record, gate: Path, *, multi: bool
) -> None:
    replicator.event("t_write", multi=multi, retry_s=0.0)(Gated(record, gate, multi))
    replicator.start()
    done = replicator.submit("t_write", range(20))
    wait_for(record.keys)
    (victim,) = pids(replicator)
    os.kill(victim, signal.SIGKILL)
    gate.touch()
    done.result(PATIENCE_S)
    had: dict[bool, set[Any]] = {True: set(), False: set()}
    for pid, given in record.lines():
        had[pid == victim].update(given if multi else [given])
    assert had[True]
    assert had[False] == set(range(20))
    assert replicator.stats().done == 20


@pytest.mark.parametrize("multi", [False, True])
def test_a_key_that_kills_its_worker_becomes_a_dead_letter_and_the_others_are_done(
    replicator: QueueReplicator, record: Record, *, multi: bool
) -> None:
    dead: list[DeadLetter] = []
    replicator.event("t_write", multi=multi, max_retries=1, retry_s=0.0, dead_letter=dead.append)(
        Kills(record, key=3, times=99)
    )
    replicator.start()
    replicator.submit("t_write", range(6)).result(PATIENCE_S)
    assert [each.key for each in dead] == [3]
    assert "has ended with 9" in dead[0].reason
    assert replicator.stats().done == 5
    # The key is given up before another worker runs.
    wait_for(lambda: replicator.stats().restarts == 2)


# Invalid callbacks.


def test_a_function_in_a_function_is_refused_where_it_is_decorated(
    replicator: QueueReplicator,
) -> None:
    def nested(key: object) -> bool:
        return True

    for callback in (nested, lambda key: True):
        with pytest.raises(ValueError, match="a function at the top level of a module"):
            replicator.event("t_write")(callback)


def test_what_can_not_be_pickled_is_refused_at_the_start(replicator: QueueReplicator) -> None:
    replicator.event("t_write")(Holding(threading.Lock()))
    with pytest.raises(ValueError, match="have to import it by its name"):
        replicator.start()


def test_a_callback_that_the_worker_can_not_load_fails_the_start(
    replicator: QueueReplicator,
) -> None:
    replicator.event("u_write", workers=2)(Returns(Record(Path()), Path(), given=True))
    replicator.event("t_write")(Unloadable())
    with pytest.raises(WorkerUnusableError, match="cannot be imported in a worker: TypeError"):
        replicator.start()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    "settings",
    [{"workers": 0}, {"queue_limit": 0}, {"max_batch": 0}, {"max_retries": -1}, {"retry_s": -1.0}],
)
def test_settings_without_sense_are_refused(
    replicator: QueueReplicator, settings: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))} cannot be"):
        replicator.event("t_write", **settings)
    with pytest.raises(ValueError, match="one topic at least"):
        replicator.event()


def test_keys_are_several(replicator: QueueReplicator, record: Record) -> None:
    replicator.event("t_write")(Notes(record))
    replicator.start()
    with pytest.raises(ValueError, match="keys are several"):
        replicator.feed("t_write", "abc")


def test_a_key_that_no_process_can_be_given_is_a_failure_of_its_own(
    replicator: QueueReplicator, record: Record
) -> None:
    class Odd(str):
        """A callback that pickle cannot find."""

        __slots__ = ()

    dead: list[DeadLetter] = []
    replicator.event("t_write", max_retries=1, retry_s=0.0, dead_letter=dead.append)(Notes(record))
    replicator.start()
    replicator.submit("t_write", ["a", Odd("b"), "c"]).result(PATIENCE_S)
    assert sorted(record.keys()) == ["a", "c"]
    assert [each.key for each in dead] == ["b"]
    assert "cannot be given to a worker" in dead[0].reason


def test_a_worker_needs_neither_zeromq_nor_twisted() -> None:
    """Bug of Meepo: a context of ZeroMQ was created at the import, and used after a fork."""
    program = (
        "import sys, stompkit.replication.workers._worker as w;"
        "assert not {'zmq', 'twisted', 'rq', 'redis', 'sqlalchemy'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


# The end.


def test_stopping_finishes_what_waits(replicator: QueueReplicator, record: Record) -> None:
    replicator.event("t_write", workers=2, multi=True, max_batch=7)(Notes(record))
    replicator.start()
    done = replicator.submit("t_write", range(500))
    assert replicator.stop(PATIENCE_S) == []
    assert sorted(key for each in record.keys() for key in each) == list(range(500))
    assert done.result(0) is None
    assert not multiprocessing.active_children()
    with pytest.raises(ReplicatorStoppedError):
        replicator.feed("t_write", [1])


def test_stopping_hands_back_what_can_not_be_finished(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    replicator.event("t_write", max_batch=2)(Gated(record, gate))
    replicator.start()
    done = replicator.submit("t_write", ["a", "b", "c", "d"])
    wait_for(record.keys)
    back = replicator.stop(0.1)
    assert sorted(each.key for each in back) == ["a", "b", "c", "d"]
    assert all(isinstance(each, Unfinished) and each.topic == "t_write" for each in back)
    with pytest.raises(ReplicatorStoppedError):
        done.result(0)
    assert replicator.stop() == back
    assert not multiprocessing.active_children()


def test_stopping_hands_back_what_fails_once_more(
    replicator: QueueReplicator, record: Record
) -> None:
    replicator.event("t_write", retry_s=3600.0, max_retry_s=3600.0)(
        Fails(record, keys=[1], times=99)
    )
    replicator.start()
    replicator.feed("t_write", [1, 2])
    wait_for(lambda: replicator.stats().done)
    (back,) = replicator.stop(PATIENCE_S)
    assert (back.key, back.tries) == (1, 2)
    assert "LookupError" in back.reason


def test_who_waits_for_room_is_told_that_it_is_stopped(
    replicator: QueueReplicator, record: Record, gate: Path
) -> None:
    replicator.event("t_write", queue_limit=1, max_batch=1)(Gated(record, gate))
    replicator.start()
    replicator.feed("t_write", ["busy"])
    wait_for(record.keys)
    raised = threading.Event()

    def feed() -> None:
        try:
            replicator.feed("t_write", ["a", "b"])
        except ReplicatorStoppedError:
            raised.set()

    feeder = threading.Thread(target=feed)
    feeder.start()
    wait_for(lambda: replicator.stats().waiting)
    back = replicator.stop(0.1)
    feeder.join(PATIENCE_S)
    assert raised.is_set()
    assert sorted(each.key for each in back) == ["a", "busy"]


def test_a_replicator_is_started_once(replicator: QueueReplicator, record: Record) -> None:
    replicator.event("t_write")(Notes(record))
    with pytest.raises(RuntimeError, match="has to be started"):
        replicator.feed("t_write", [1])
    replicator.start()
    with pytest.raises(RuntimeError, match="started once"):
        replicator.start()
    with pytest.raises(RuntimeError, match="before the replicator is started"):
        replicator.event("u_write")(Notes(record))
