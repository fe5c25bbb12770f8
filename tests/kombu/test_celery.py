"""Celery over STOMP, with workers in separate processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest
from celery import Celery, chord, group

from stompkit.testing import RunningBroker
from tests.effort import in_matrix
from tests.kombu.configured import configured
from tests.kombu.consuming import LONG_S
from tests.kombu.workers import Workers, until, workers

__all__ = ["workers"]

pytestmark = pytest.mark.parametrize("broker", ["stompkit", in_matrix("rabbitmq")], indirect=True)
pools = pytest.mark.parametrize("pool", [in_matrix("solo"), "prefork"])


@pytest.fixture
def app(workers: Workers) -> Iterator[Celery]:
    """The application, as the client that requests tasks."""
    with configured(workers.settings) as made:
        yield made


def task(app: Celery, name: str, *arguments: Any) -> Any:
    """Return a task of the workers, with its arguments."""
    return app.signature(f"tests.kombu.application.{name}", args=arguments, app=app)


@pools
def test_tasks_are_done_tried_again_and_wait_for_their_time(
    workers: Workers, app: Celery, pool: str
) -> None:
    workers.start(pool)
    assert task(app, "add", 1, 2).delay().get(timeout=LONG_S) == 3
    results = group([task(app, "add", number, number) for number in range(10)]).apply_async()
    assert results.get(timeout=LONG_S) == [2 * number for number in range(10)]
    assert task(app, "stubborn").delay().get(timeout=LONG_S) == 2
    # More tasks than a worker receives at first: they must not delay tasks that are due.
    wanted = time() + 3
    later = [task(app, "now").apply_async(countdown=3) for _ in range(8)]
    assert task(app, "add", 2, 2).delay().get(timeout=LONG_S) == 4
    # The message has a precision of milliseconds.
    assert all(result.get(timeout=LONG_S) >= wanted - 0.01 for result in later)


@pools
def test_chords_with_a_database_for_results(workers: Workers, pool: str, tmp_path: Path) -> None:
    workers.settings["TEST_RESULT_BACKEND"] = f"db+sqlite:///{tmp_path}/results.db"
    workers.start(pool)
    with configured(workers.settings) as app:
        header = [task(app, "add", number, 1) for number in range(4)]
        result = chord(header, app=app)(task(app, "total"))
        assert result.get(timeout=LONG_S) == 10


@pools
def test_workers_answer_and_are_told(workers: Workers, app: Celery, pool: str) -> None:
    workers.start(pool)
    workers.start(pool)

    def names(answers: Any) -> set[str]:
        return set(answers or {})

    both = {"w1@test", "w2@test"}
    until(lambda: names(app.control.inspect(timeout=2).ping()) == both, "both answer")
    only = app.control.inspect(destination=["w2@test"], timeout=2)
    until(lambda: names(only.stats()) == {"w2@test"}, "the second answers")
    late = task(app, "now").apply_async(countdown=600)

    def waiting() -> set[str]:
        answers = app.control.inspect(timeout=2).scheduled() or {}
        return {entry["request"]["id"] for each in answers.values() for entry in each}

    until(lambda: late.id in waiting(), "the task waits for its time")
    app.control.revoke(late.id, reply=True, timeout=2)
    until(
        lambda: all(
            late.id in ids
            for ids in (app.control.inspect(timeout=2).revoked() or {"none": []}).values()
        ),
        "the task is revoked",
    )
    # An ETA in the past without a result shows that the task was not executed.
    soon = task(app, "now").apply_async(countdown=2)
    soon.revoke()
    with pytest.raises(Exception, match="revoked"):
        soon.get(timeout=LONG_S)


@pools
def test_events_tell_what_workers_do(workers: Workers, app: Celery, pool: str) -> None:
    seen: list[dict[str, Any]] = []
    ready, receivers = threading.Event(), []

    def watch() -> None:
        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": seen.append})
            receiver.on_consume_ready = lambda *_, **__: ready.set()
            receivers.append(receiver)
            receiver.capture(limit=None, timeout=None, wakeup=False)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert ready.wait(LONG_S)
        workers.start(pool, "--task-events")
        result = task(app, "add", 1, 1).delay()
        assert result.get(timeout=LONG_S) == 2

        def types() -> set[str]:
            return {event["type"] for event in list(seen)}

        wanted = {"worker-online", "worker-heartbeat"}
        wanted |= {"task-received", "task-started", "task-succeeded"}
        until(lambda: types() >= wanted, "all events")
        ours = [each for each in list(seen) if each["type"] == "task-succeeded"]
        assert [each["uuid"] for each in ours] == [result.id]
        assert {each["hostname"] for each in ours} == {"w1@test"}
    finally:
        for receiver in receivers:
            receiver.should_stop = True
        watcher.join(LONG_S)


@pools
def test_a_task_is_done_though_its_worker_was_killed(
    workers: Workers, app: Celery, pool: str, tmp_path: Path
) -> None:
    doomed = workers.start(pool)
    result = task(app, "gated", str(tmp_path)).delay()
    until(lambda: list(tmp_path.glob("begun-*")), "the task has begun")
    doomed.kill()
    (tmp_path / "go").touch()
    assert not list(tmp_path.glob("done-*"))
    workers.start(pool)
    assert result.get(timeout=LONG_S) == "True"
    assert len(list(tmp_path.glob("begun-*"))) == 2
    assert len(list(tmp_path.glob("done-*"))) == 1


@pools
def test_a_worker_that_is_told_to_stop_finishes_its_task(
    workers: Workers, app: Celery, pool: str, tmp_path: Path
) -> None:
    first = workers.start(pool)
    result = task(app, "gated", str(tmp_path)).delay()
    until(lambda: list(tmp_path.glob("begun-*")), "the task has begun")
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    until(lambda: "Warm shutdown" in first.log, "the worker stops")
    (tmp_path / "go").touch()
    stopping.join(LONG_S)
    assert first.process.returncode == 0, first.log
    assert result.get(timeout=LONG_S) == "False"
    # No message is left for another worker.
    workers.start(pool)
    assert task(app, "add", 1, 1).delay().get(timeout=LONG_S) == 2
    assert len(list(tmp_path.glob("begun-*"))) == 1


@pools
def test_a_worker_outlives_its_broker(
    broker: RunningBroker, workers: Workers, app: Celery, pool: str
) -> None:
    worker = workers.start(pool)
    assert task(app, "add", 1, 1).delay().get(timeout=LONG_S) == 2
    broker.restart(kill=broker.name == "stompkit")
    with configured(workers.settings) as fresh:
        assert task(fresh, "add", 2, 2).delay().get(timeout=LONG_S) == 4
    assert worker.process.poll() is None, worker.log
