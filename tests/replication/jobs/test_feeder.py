"""From signals to a sink: batches, retries, poison messages, back-pressure and ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from stompkit.replication.jobs.feeder import Feeder, FeederClosedError
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.signals import SignalSink, SignalsStoppedError
from stompkit.replication.sources.publication import Publication
from stompkit.testing.launching.polling import wait_until

LONG_S = 30.0


def changeset(sequence: int, *, rows: int = 1) -> Changeset:
    changes = [
        RowChange(table="t", action="write", key={"id": n}, after={"id": n}) for n in range(rows)
    ]
    return make_changeset("o", sequence, changes, Source(kind="test"))


class Recorder:
    """A sink that records numbers, blocks while its gate is shut, and fails on request."""

    def __init__(self) -> None:
        """Start empty."""
        self.applied: list[int] = []
        self.batches: list[int] = []
        self.skipped: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.failures: list[Exception] = []
        self.poison: set[int] = set()

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset."""
        return max(self.applied, default=None)

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Record changesets, all or none of them."""
        self.has_begun.set()
        assert self.gate.wait(LONG_S)
        if self.failures:
            raise self.failures.pop(0)
        numbers = [each.sequence for each in changesets]
        if self.poison & set(numbers):
            raise ApplyError(f"one of {numbers} cannot be applied")
        self.applied += numbers
        self.batches.append(len(numbers))

    def skip(self, changeset: Changeset) -> None:
        """Count it."""
        self.skipped.append(changeset.sequence)

    def close(self) -> None:
        """Do nothing, as there is nothing to close."""


@pytest.fixture
def sink() -> Iterator[Recorder]:
    sink = Recorder()
    yield sink
    sink.gate.set()


def in_thread(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a blocking function in a thread; return a future of its result."""
    future: Future[Any] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def test_what_waits_is_applied_together_in_its_order(sink: Recorder) -> None:
    sink.gate.clear()
    with Feeder(sink, batch=10) as feeder:
        first = feeder.take(changeset(1))
        assert sink.has_begun.wait(LONG_S)
        others = [feeder.take(changeset(number)) for number in range(2, 16)]
        assert not first.done()
        sink.gate.set()
        for future in (first, *others):
            future.result(LONG_S)
        assert feeder.applied == 15
    assert sink.applied == list(range(1, 16))
    assert sink.batches == [1, 10, 4]


def test_a_publication_is_confirmed_when_its_changesets_are_applied(sink: Recorder) -> None:
    sink.gate.clear()
    with Feeder(sink):
        publication = Publication(kind="test")
        publication.publish(changeset(1).changes, position="a")
        assert publication.confirmed_position == ""
        sink.gate.set()
        publication.flush(LONG_S)
        assert publication.confirmed_position == "a"
    assert not CHANGESET.receivers, "it hears no more when it is closed"


def test_a_failure_of_the_sink_is_told_and_tried_again(sink: Recorder) -> None:
    sink.failures = [OSError("away"), OSError("still away")]
    told: list[str] = []
    applied: list[int] = []
    with Feeder(
        sink,
        backoff_s=0.01,
        on_failure=lambda error: told.append(str(error)),
        on_applied=lambda changesets: applied.extend(each.sequence for each in changesets),
    ) as feeder:
        feeder.take(changeset(1)).result(LONG_S)
    assert told == ["away", "still away"]
    assert applied == sink.applied == [1]


def test_after_the_last_try_the_feeder_ends_with_the_failure(sink: Recorder) -> None:
    sink.failures = [OSError("away"), OSError("gone for good")]
    ends: Future[BaseException] = Future()
    with Feeder(sink, retries=1, backoff_s=0.01, on_end=ends.set_result) as feeder:
        future = feeder.take(changeset(1))
        with pytest.raises(OSError, match="for good"):
            future.result(LONG_S)
        assert str(ends.result(LONG_S)) == "gone for good"
        with pytest.raises(FeederClosedError, match="for good"):
            feeder.take(changeset(2))


def test_poison_ends_the_feeder_behind_what_can_be_applied(sink: Recorder) -> None:
    sink.poison = {3}
    sink.gate.clear()
    ends: Future[BaseException] = Future()
    with Feeder(sink, on_end=ends.set_result) as feeder:
        futures = [feeder.take(changeset(number)) for number in range(1, 6)]
        sink.gate.set()
        assert isinstance(ends.result(LONG_S), ApplyError)
        with pytest.raises(ApplyError):
            futures[2].result(LONG_S)
    assert sink.applied == [1, 2]


def test_poison_is_given_away_and_left_out(sink: Recorder) -> None:
    sink.poison = {3}
    sink.gate.clear()
    given: list[int] = []
    with Feeder(sink, on_poison=lambda each, problem: given.append(each.sequence)) as feeder:
        futures = [feeder.take(changeset(number)) for number in range(1, 6)]
        sink.gate.set()
        for future in futures:
            future.result(LONG_S)
    assert sink.applied == [1, 2, 4, 5]
    assert given == sink.skipped == [3]


@pytest.mark.parametrize(
    ("bounds", "rows"), [({"waiting": 3}, 1), ({"waiting_changes": 35}, 10)], ids=["many", "large"]
)
def test_publishers_wait_while_too_much_waits(
    sink: Recorder, bounds: dict[str, Any], rows: int
) -> None:
    sink.gate.clear()
    with Feeder(sink, batch=1, **bounds) as feeder:
        for number in (1, 2, 3):
            feeder.take(changeset(number, rows=rows))
        fourth = in_thread(feeder.take, changeset(4, rows=rows))
        with pytest.raises(TimeoutError):
            fourth.result(0.2)
        sink.gate.set()
        fourth.result(LONG_S).result(LONG_S)
    assert sink.applied == [1, 2, 3, 4]


def test_what_is_too_large_for_the_bounds_is_taken_alone(sink: Recorder) -> None:
    with Feeder(sink, waiting_changes=5) as feeder:
        feeder.take(changeset(1, rows=100)).result(LONG_S)
    assert sink.applied == [1]


def test_who_waits_is_told_to_stop_and_what_was_taken_goes_on(sink: Recorder) -> None:
    sink.gate.clear()
    with Feeder(sink, waiting=1) as feeder:
        first = feeder.take(changeset(1))
        second = in_thread(feeder.take, changeset(2))
        feeder.stop()
        with pytest.raises(FeederClosedError):
            second.result(LONG_S)
        sink.gate.set()
        first.result(LONG_S)
        feeder.take(changeset(2)).result(LONG_S)


def test_closing_waits_for_what_was_taken(sink: Recorder) -> None:
    sink.gate.clear()
    feeder = Feeder(sink)
    future = feeder.take(changeset(1))
    closed = in_thread(feeder.close, LONG_S)
    sink.gate.set()
    closed.result(LONG_S)
    future.result(0)
    with pytest.raises(FeederClosedError):
        feeder.take(changeset(2))


def test_closing_does_not_wait_for_a_sink_that_never_comes_back(sink: Recorder) -> None:
    sink.gate.clear()
    feeder = Feeder(sink)
    futures = [feeder.take(changeset(number)) for number in (1, 2)]
    in_thread(feeder.close, 0.0).result(LONG_S)
    for future in futures:
        with pytest.raises(FeederClosedError):
            future.result(0)


def test_closing_ends_the_tries(sink: Recorder) -> None:
    sink.failures = [OSError("away")] * 1000
    feeder = Feeder(sink, backoff_s=LONG_S)
    future = feeder.take(changeset(1))
    assert sink.has_begun.wait(LONG_S)
    feeder.close(0.0)
    with pytest.raises(FeederClosedError):
        future.result(0)


def test_what_was_taken_can_not_be_cancelled(sink: Recorder) -> None:
    sink.gate.clear()
    with Feeder(sink) as feeder:
        future = feeder.take(changeset(1))
        assert not future.cancel()
        sink.gate.set()
        future.result(LONG_S)
        feeder.take(changeset(2)).result(LONG_S)


@pytest.mark.parametrize(
    "bounds", [{"batch": 0}, {"waiting": 0}, {"waiting_changes": 0}], ids=lambda each: min(each)
)
def test_bounds_are_at_least_one(sink: Recorder, bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Feeder(sink, **bounds)


# The sink that sends signals.


class Taker:
    """A receiver whose futures are completed by the test."""

    def __init__(self) -> None:
        """Start empty."""
        self.taken: list[int] = []
        self.futures: list[Future[None]] = []
        self.refused: set[int] = set()

    def __call__(self, changeset: Changeset) -> Future[None]:
        """Collect a changeset."""
        if changeset.sequence in self.refused:
            raise OSError("refused")
        self.taken.append(changeset.sequence)
        self.futures.append(Future())
        return self.futures[-1]

    def wait_for(self, count: int) -> None:
        """Wait until it has collected this many."""
        assert wait_until(lambda: len(self.futures) >= count, LONG_S)


@pytest.fixture
def taker() -> Iterator[Taker]:
    taker = Taker()
    with CHANGESET.connected_to(taker):
        yield taker


def test_signals_count_as_applied_when_receivers_have_taken_them(taker: Taker) -> None:
    sink = SignalSink()
    applied = in_thread(sink.apply, [changeset(1), changeset(2)])
    taker.wait_for(2)
    with pytest.raises(TimeoutError):
        applied.result(0.2)
    assert taker.taken == [1, 2]
    for future in taker.futures:
        future.set_result(None)
    applied.result(LONG_S)
    assert sink.last("o") == 2
    sink.apply([changeset(2)])
    assert taker.taken == [1, 2], "a repeat is not sent again"


def test_signals_before_a_failure_are_not_sent_again(taker: Taker) -> None:
    sink = SignalSink()
    taker.refused = {2}
    applied = in_thread(sink.apply, [changeset(1), changeset(2)])
    taker.wait_for(1)
    with pytest.raises(TimeoutError):
        applied.result(0.2)
    taker.futures[0].set_result(None)
    with pytest.raises(OSError, match="refused"):
        applied.result(LONG_S)
    assert sink.last("o") == 1


def test_a_receiver_that_fails_later_fails_the_sink(taker: Taker) -> None:
    sink = SignalSink()
    applied = in_thread(sink.apply, [changeset(1)])
    taker.wait_for(1)
    with pytest.raises(TimeoutError):
        applied.result(0.1)
    taker.futures[0].set_exception(OSError("lost"))
    with pytest.raises(OSError, match="lost"):
        applied.result(LONG_S)
    assert sink.last("o") is None


def test_a_sink_of_signals_that_is_stopped_waits_for_nobody(taker: Taker) -> None:
    sink = SignalSink()
    applied = in_thread(sink.apply, [changeset(1)])
    sink.stop()
    with pytest.raises(SignalsStoppedError):
        applied.result(LONG_S)
    assert sink.last("o") is None
