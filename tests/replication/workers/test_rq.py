"""``RqReplicator``: keys become jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from redis import Redis
from rq import Queue

from stompkit.replication.sinks.forwarders import zmq_sub
from stompkit.replication.workers import DeadLetter, RqReplicator
from tests.replication.workers.callbacks import PATIENCE_S, Record, wait_for
from tests.servers import RedisServer

#: Processes all jobs of the queue, in this process, and ends.
WORKER = """
import sys
from redis import Redis
from rq import Queue, SimpleWorker

connection = Redis.from_url(sys.argv[1])
SimpleWorker([Queue("refresh", connection=connection)], connection=connection).work(burst=True)
"""


@pytest.fixture
def replicator() -> Iterator[RqReplicator]:
    """A replicator that is not started, and is stopped at the end."""
    made = RqReplicator()
    try:
        yield made
    finally:
        made.stop(0.0)


def test_all_keys_are_seen_when_a_callback_fails_one_time_in_six(
    replicator: RqReplicator,
) -> None:
    random = Random(6)
    calls: list[list[Any]] = []
    seen: list[Any] = []

    @replicator.event("t_write", "t_update", retry_s=0.001)
    def callback(keys: list[Any]) -> list[bool]:
        calls.append(keys)
        results = [random.randrange(6) > 0 for _ in keys]
        seen.extend(key for key, result in zip(keys, results, strict=True) if result)
        return results

    replicator.start()
    for key in range(50):
        replicator.feed(("t_write", "t_update")[key % 2], [key])
    wait_for(lambda: replicator.stats().done == 50)
    assert sorted(seen) == list(range(50))
    assert sum(map(len, calls)) > 50
    # Bug of Meepo: retried keys arrived as a set.
    assert {type(keys) for keys in calls} == {list}


def test_what_has_failed_is_tried_again_by_time_and_not_by_the_next_message(
    replicator: RqReplicator,
) -> None:
    """Bug of Meepo: failed keys waited until another message arrived. Here none arrives."""
    calls: list[list[Any]] = []

    @replicator.event("t_write", retry_s=0.001)
    def callback(keys: list[Any]) -> bool:
        calls.append(list(keys))
        if len(calls) < 4:
            raise ConnectionError("no queue")
        return True

    replicator.start()
    replicator.submit("t_write", ["a"]).result(PATIENCE_S)
    assert calls == [["a"]] * 4


def test_no_key_is_given_up_unless_that_is_asked_for(replicator: RqReplicator) -> None:
    calls: list[list[Any]] = []
    dead: list[DeadLetter] = []

    @replicator.event("t_write", retry_s=0.0001, max_retry_s=0.001)
    def patient(keys: list[Any]) -> bool:
        calls.append(keys)
        return len(calls) > 50

    @replicator.event("u_write", retry_s=0.0001, max_retries=2, dead_letter=dead.append)
    def impatient(keys: list[Any]) -> bool:
        return False

    replicator.start()
    replicator.submit("t_write", ["a"]).result(PATIENCE_S)
    replicator.submit("u_write", ["b"]).result(PATIENCE_S)
    assert len(calls) == 51
    assert [(each.key, each.tries, each.reason) for each in dead] == [
        ("b", 3, "the callback returned False")
    ]


def test_an_unknown_topic_is_ignored_and_counted(replicator: RqReplicator) -> None:
    """Bug of Meepo: keys of a topic without a callback failed for ever."""
    taken: list[Any] = []

    @replicator.event("t_write")
    def callback(keys: list[Any]) -> bool:
        taken.extend(keys)
        return True

    replicator.start()
    replicator.submit("t_update", [1, 2]).result(PATIENCE_S)
    replicator.submit("t_write", [3]).result(PATIENCE_S)
    assert taken == [3]
    stats = replicator.stats()
    assert (stats.unknown, stats.failed, stats.waiting, stats.delayed) == (2, 0, 0, 0)


def test_failed_keys_are_bounded(replicator: RqReplicator) -> None:
    is_up, is_through = threading.Event(), threading.Event()

    @replicator.event("t_write", queue_limit=5, max_batch=1, retry_s=0.001, max_retry_s=0.01)
    def callback(keys: list[Any]) -> bool:
        return is_up.is_set()

    def feed() -> None:
        replicator.feed("t_write", range(100))
        is_through.set()

    replicator.start()
    feeder = threading.Thread(target=feed)
    feeder.start()
    wait_for(lambda: replicator.stats().failed > 20)
    stats = replicator.stats()
    assert stats.waiting + stats.delayed + stats.in_flight <= 6
    assert not is_through.is_set()
    is_up.set()
    feeder.join(PATIENCE_S)
    assert replicator.stop(PATIENCE_S) == []
    assert replicator.stats().done == 100


def test_stopping_gives_up_on_a_call_that_does_not_end(replicator: RqReplicator) -> None:
    is_called, goes_on = threading.Event(), threading.Event()

    @replicator.event("t_write", max_batch=1)
    def callback(keys: list[Any]) -> bool:
        is_called.set()
        return goes_on.wait(PATIENCE_S)

    replicator.start()
    done = replicator.submit("t_write", ["a", "b"])
    assert is_called.wait(PATIENCE_S)
    assert [each.key for each in replicator.stop(0.0)] == ["a", "b"]
    assert done.exception(0) is not None
    goes_on.set()


def enqueues(url: str) -> Callable[[list[Any]], bool]:
    """Put keys into a queue of RQ."""

    def enqueue(keys: list[Any]) -> bool:
        with Redis.from_url(url) as connection:
            queue = Queue("refresh", connection=connection)
            for key in keys:
                queue.enqueue("tests.replication.workers.callbacks.by_name", key)
        return True

    return enqueue


def work(url: str, record: Record) -> None:
    """Run a worker of RQ until the queue is empty."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "STOMPKIT_TEST_RECORD": str(record.path),
    }
    subprocess.run(
        [sys.executable, "-c", WORKER, url], env=environment, check=True, capture_output=True
    )


def test_keys_over_zeromq_become_jobs_that_a_worker_of_rq_does(
    replicator: RqReplicator, redis: RedisServer, record: Record
) -> None:
    replicator.event("users_write", "users_update")(enqueues(redis.url))
    with zmq_sub("tcp://127.0.0.1:*", ["users"]) as publisher:
        replicator.listen = publisher.address
        replicator.start()
        for topic in ("users_write", "users_update"):
            assert publisher.wait_for_subscriber(PATIENCE_S, topic)
        for key in range(20):
            publisher.publish(("users_write", "users_update")[key % 2], [(key, "a b")])
        wait_for(lambda: replicator.stats().done == 20)
    work(redis.url, record)
    assert record.keys() == [[key, "a b"] for key in range(20)]


def test_keys_wait_for_a_redis_that_is_away(
    replicator: RqReplicator, redis: RedisServer, record: Record
) -> None:
    reachable = [f"{redis.url}.is-away"]

    @replicator.event("users_write", retry_s=0.001, max_retry_s=0.01)
    def enqueue(keys: list[Any]) -> bool:
        return enqueues(reachable[0])(keys)

    replicator.start()
    done = replicator.submit("users_write", [1, 2, 3])
    wait_for(lambda: replicator.stats().failed > 5)
    assert not done.done()
    reachable[0] = redis.url
    done.result(PATIENCE_S)
    work(redis.url, record)
    assert sorted(record.keys()) == [1, 2, 3]
