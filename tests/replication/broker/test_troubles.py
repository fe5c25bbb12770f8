"""Changesets that cannot be applied, temporary failures, gaps, and back-pressure."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine, event

from stompkit.client.blocking import Delivery, LinkClosedError
from stompkit.replication.consumer import (
    Consumer,
    PoisonFrameError,
    Problem,
    SequenceGapError,
    WindowTooSmallError,
)
from stompkit.replication.model.events import Changeset, Source, decode
from stompkit.replication.model.frames import Packet, packets
from stompkit.replication.sinks import ApplyError
from stompkit.replication.sinks.sql import SqlSink
from tests.ports import free_ports
from tests.replication.broker.place import (
    LONG_S,
    Dead,
    Place,
    Running,
    changeset,
    until,
    write,
    writes,
)
from tests.replication.broker.sqlite_sink import POISON, SqliteSink, applied, rows

SOON_S = 0.3


def poison(sequence: int, rows: int = 1) -> Changeset:
    """Return a changeset that the store refuses, among other applicable changes."""
    refused = (write(number, "x" * 50, table=POISON) for number in range(rows))
    return changeset(sequence, write(sequence), *refused)


def letters(place: Place, destination: str, count: int) -> list[Delivery]:
    """Return the dead letters; exactly this many."""
    with place.link() as link:
        inbox = link.subscribe(destination, ack=place.acknowledges)
        found = [inbox.get(LONG_S) for _ in range(count)]
        assert inbox.get(0) is None
        return [each for each in found if each is not None]


# Poison messages.


def test_what_can_not_be_applied_goes_to_the_dead_letters_alone(
    place: Place, sink: SqliteSink
) -> None:
    queue, dead = place.queue(), place.queue("dead")
    made = [*writes(1, 4), poison(5), *writes(6, 9)]
    problems: list[Problem] = []
    place.publish(queue, made)
    with place.consuming(queue, sink, dead_letter=dead, on_problem=problems.append) as running:
        until(lambda: 9 in applied(place.store))
        assert applied(place.store) == [1, 2, 3, 4, 6, 7, 8, 9]
        assert sink.last("o") == 9
        until(lambda: running.consumer.status().dead_letters == 1)
    assert [(each.kind, each.origin, each.sequence) for each in problems] == [
        ("dead-letter", "o", 5)
    ]
    assert rows(place.store, POISON) == []
    (letter,) = letters(place, dead, 1)
    (packet,) = packets(made[4])
    assert letter.body == packet.body
    own = packet.headers.items() - {("event-id", packet.headers["event-id"])}
    assert own <= letter.headers.items()
    assert letter.headers["event-id"].startswith(f"{packet.headers['event-id']}.dead.")
    assert letter.headers["dead-letter-reason"] == "the table poison is refused: it's a test"
    assert letter.headers["dead-letter-kind"] == "apply"
    assert letter.headers["original-destination"] == queue
    assert letter.headers["original-message-id"]


def test_of_a_store_that_takes_single_changes_one_bad_row_is_one_dead_letter(
    place: Place, tmp_path: Path
) -> None:
    queue, dead = place.queue(), place.queue("dead")
    url = f"sqlite:///{tmp_path / 'target.sqlite'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE t (id INT PRIMARY KEY, text CHECK (text <> 'bad'))"
        )
    chunk = [write(number, "bad" if number == 7 else "x") for number in range(20)]
    made = [changeset(1, *chunk), changeset(2, write(99))]
    sink = SqlSink(engine)
    place.publish(queue, made)
    with place.consuming(queue, sink, dead_letter=dead) as running:
        until(lambda: sink.last("o") == 2)
        until(lambda: running.consumer.status().dead_letters == 1)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT id FROM t ORDER BY 1").scalars().all()
    engine.dispose()
    assert found == [*(n for n in range(20) if n != 7), 99]
    (letter,) = letters(place, dead, 1)
    assert decode(letter.body).changes == (chunk[7],)
    assert letter.headers["stompkit-changeset"] == made[0].id
    assert "key {'id': 7}" in letter.headers["dead-letter-reason"]
    assert letter.headers["original-destination"] == queue


def test_a_row_of_a_snapshot_that_refers_to_nothing_takes_no_other_change_with_it(
    place: Place, tmp_path: Path
) -> None:
    """The loss of its row is only known after the snapshot, when another change arrives."""
    queue, dead = place.queue(), place.queue("dead")
    engine = create_engine(f"sqlite:///{tmp_path / 'target.sqlite'}")
    event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA foreign_keys = ON"))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE t (id INT PRIMARY KEY, text, FOREIGN KEY (text) REFERENCES t (id))"
        )
    lost = write(7, "99")
    one, other = (msgspec.structs.replace(write(n), after={"text": None}) for n in (1, 2))
    first = msgspec.structs.replace(
        changeset(1, lost, one), source=Source(kind="test", is_snapshot=True)
    )
    sink = SqlSink(engine)
    place.publish(queue, [first, changeset(2, other)])
    with place.consuming(queue, sink, dead_letter=dead):
        until(lambda: sink.last("o") == 2)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT id FROM t ORDER BY 1").scalars().all()
    engine.dispose()
    assert found == [1, 2]
    (letter,) = letters(place, dead, 1)
    assert decode(letter.body).changes == (lost,)


@pytest.mark.stomp_requires("ack")
def test_each_dead_letter_of_a_changeset_has_an_id_of_its_own(place: Place, tmp_path: Path) -> None:
    """Spools and bridges take messages with equal ids for repetitions."""
    queue, dead = place.queue(), place.queue("dead")
    other, later = place.queue("other"), place.queue("later")
    engines = [create_engine(f"sqlite:///{tmp_path / name}") for name in ("first", "second")]
    for engine in engines:
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE t (id INT PRIMARY KEY, text CHECK (text <> 'bad'))"
            )
    # Two of the refused changes are equal.
    chunk = [write(number, "bad" if number > 2 else "x") for number in (1, 3, 2, 4, 4)]
    place.publish(queue, [changeset(1, *chunk)])
    with place.consuming(queue, SqlSink(engines[0]), dead_letter=dead) as running:
        until(lambda: running.consumer.status().dead_letters == 3)
    found = letters(place, dead, 3)
    names = {letter.headers["event-id"] for letter in found}
    assert len(names) == 3
    # Sent back as it is, a dead letter that fails again is a new message.
    with place.link() as link:
        kept = {"event-id": found[0].headers["event-id"]}
        link.send(other, [Packet(kept, found[0].body)]).result(LONG_S)
    with place.consuming(other, SqlSink(engines[1]), dead_letter=later) as running:
        until(lambda: running.consumer.status().dead_letters == 1)
    (again,) = letters(place, later, 1)
    assert again.headers["event-id"] not in names
    assert len(again.headers["event-id"]) == len(found[0].headers["event-id"])
    for engine in engines:
        engine.dispose()


def test_what_went_to_the_dead_letters_goes_there_once(place: Place, sink: SqliteSink) -> None:
    """The store records its number, though it is not applied, and its frame is acknowledged."""
    queue, dead = place.queue(), place.queue("dead")
    with place.link() as link:
        link.send(queue, [Packet({}, b"hello")]).result(LONG_S)
    place.publish(queue, [changeset(1), poison(2)])
    with place.consuming(queue, sink, dead_letter=dead) as running:
        until(lambda: running.consumer.status().dead_letters == 2)
    assert sink.last("o") == 2
    place.publish(queue, [poison(2), changeset(3)])
    with place.consuming(queue, sink, dead_letter=dead) as running:
        until(lambda: applied(place.store) == [1, 3])
    status = running.consumer.status()
    assert (status.dead_letters, status.repeats) == (0, 1)
    letters(place, dead, 2)


def test_a_split_changeset_goes_to_the_dead_letters_with_all_of_its_parts(
    place: Place, sink: SqliteSink
) -> None:
    queue, dead = place.queue(), place.queue("dead")
    place.publish(queue, [poison(1, rows=20), changeset(2)], max_body_bytes=500)
    with place.consuming(queue, sink, dead_letter=dead):
        until(lambda: applied(place.store) == [2])
    parts = list(packets(poison(1, rows=20), max_body_bytes=500))
    found = letters(place, dead, len(parts))
    numbers = [letter.headers["stompkit-part"] for letter in found]
    assert numbers == [str(number + 1) for number in range(len(parts))]


def test_dead_letters_can_be_sent_back_when_the_reason_is_gone(
    place: Place, sink: SqliteSink
) -> None:
    """Their headers are those of the changeset; changes applied meanwhile are kept."""
    queue, dead, other = place.queue(), place.queue("dead"), place.queue("other")
    place.publish(queue, [poison(1)])
    with place.consuming(queue, sink, dead_letter=dead) as running:
        until(lambda: running.consumer.status().dead_letters == 1)
    (letter,) = letters(place, dead, 1)
    again = SqliteSink(place.directory / "another.sqlite")
    changes = {name: value for name, value in letter.headers.items() if name[:8] == "stompkit"}
    with place.link() as link:
        link.send(other, [Packet(changes, letter.body)]).result(LONG_S)
    with place.consuming(other, again, dead_letter=dead) as running:
        until(lambda: running.consumer.status().dead_letters == 1)
    again.close()


@pytest.mark.stomp_requires("ack")
def test_without_a_place_for_dead_letters_the_consumer_stops_and_loses_nothing(
    place: Place, sink: SqliteSink
) -> None:
    queue, dead = place.queue(), place.queue("dead")
    place.publish(queue, [changeset(1), poison(2), changeset(3)])
    with place.link() as link:
        with pytest.raises(ApplyError, match="the table poison"):
            Consumer(link, queue, sink).run()
    assert applied(place.store) == [1]
    with place.consuming(queue, sink, dead_letter=dead):
        until(lambda: applied(place.store) == [1, 3])
    assert len(letters(place, dead, 1)) == 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b"hello"),
        ({"content-type": "text/plain", "stompkit-sequence": "1"}, b"hello"),
        ({"stompkit-origin": "o", "stompkit-changeset": "x", "stompkit-sequence": "one"}, b"{}"),
        ({"stompkit-parts": "2"}, b"{}"),
    ],
)
def test_frames_of_something_else_block_nobody(
    place: Place, sink: SqliteSink, headers: dict[str, str], body: bytes
) -> None:
    queue, dead = place.queue(), place.queue("dead")
    with place.link() as link:
        link.send(queue, [Packet(dict(headers), body)]).result(LONG_S)
    place.publish(queue, writes(1, 3))
    with place.consuming(queue, sink, dead_letter=dead):
        until(lambda: applied(place.store) == [1, 2, 3])
    (letter,) = letters(place, dead, 1)
    assert letter.body == body
    assert letter.headers["dead-letter-kind"] == "frame"
    assert letter.headers["dead-letter-reason"]


def test_a_changeset_with_a_broken_body_has_its_turn_and_leaves_no_gap(
    place: Place, sink: SqliteSink
) -> None:
    queue, dead = place.queue(), place.queue("dead")
    place.publish(queue, writes(1, 2))
    (broken,) = packets(changeset(3))
    with place.link() as link:
        link.send(queue, [Packet(broken.headers, broken.body[:-5])]).result(LONG_S)
    place.publish(queue, writes(4, 5))
    with place.consuming(queue, sink, dead_letter=dead, gap="stop", gap_timeout_s=LONG_S):
        until(lambda: applied(place.store) == [1, 2, 4, 5])
    (letter,) = letters(place, dead, 1)
    assert letter.headers["stompkit-sequence"] == "3"
    assert "this is no changeset" in letter.headers["dead-letter-reason"]


def test_a_changeset_of_a_newer_format_is_not_guessed_at(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    (packet,) = packets(changeset(1))
    newer = Packet(
        {**packet.headers, "stompkit-schema": "2"},
        packet.body.replace(b'"format":1', b'"format":2'),
    )
    with place.link() as link:
        link.send(queue, [newer]).result(LONG_S)
        with pytest.raises(PoisonFrameError, match="format 2 of a changeset, and 1 is known"):
            Consumer(link, queue, sink, ack=place.acknowledges).run()
    assert sink.last("o") is None


# Temporary failures.


def test_a_failure_for_the_moment_loses_nothing(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    problems: list[Problem] = []
    sink.failures = [OSError("the database is away"), ValueError("and away")]
    place.publish(queue, writes(1, 10))
    with place.consuming(queue, sink, backoff_s=0.01, on_problem=problems.append):
        until(lambda: len(applied(place.store)) >= 10)
    assert applied(place.store) == list(range(1, 11))
    assert [each.kind for each in problems] == ["retry", "retry"]
    assert [type(each.error) for each in problems] == [OSError, ValueError]


def test_a_failure_behind_the_commit_doubles_nothing(place: Place, sink: SqliteSink) -> None:
    """The connection to the database is lost during the commit: its result is unknown."""

    class Loses(SqliteSink):
        """Fails after its first commit."""

        def apply(self, changesets: object) -> None:
            super().apply(changesets)  # type: ignore[arg-type]  # what it is given
            if len(self.batches) == 1:
                raise ConnectionError("lost while it committed")

    queue = place.queue()
    place.publish(queue, writes(1, 10))
    loses = Loses(place.directory / "loses.sqlite")
    with place.consuming(queue, loses, backoff_s=0.01):
        until(lambda: len(applied(place.directory / "loses.sqlite")) >= 10)
    assert applied(place.directory / "loses.sqlite") == list(range(1, 11))
    loses.close()


@pytest.mark.stomp_requires("ack")
def test_a_failure_that_lasts_ends_the_consumer_and_leaves_everything_to_the_next(
    place: Place, sink: SqliteSink
) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 5))
    sink.failures = [OSError(f"number {number}") for number in range(4)]
    with place.link() as link:
        with pytest.raises(OSError, match="number 3"):
            Consumer(link, queue, sink, retries=3, backoff_s=0.001).run()
    assert applied(place.store) == []
    with place.consuming(queue, sink):
        until(lambda: applied(place.store) == [1, 2, 3, 4, 5])


def test_stopping_does_not_wait_for_a_store_that_is_away(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 1))
    told = threading.Event()
    sink.failures = [OSError("away")] * 100
    with place.consuming(
        queue, sink, retries=None, backoff_s=LONG_S * 10, on_problem=lambda problem: told.set()
    ):
        assert told.wait(LONG_S)
    assert applied(place.store) == []


def test_a_consumer_can_be_stopped_by_an_event(place: Place, sink: SqliteSink) -> None:
    stop = threading.Event()
    stop.set()
    with place.link() as link:
        Consumer(link, place.queue(), sink, ack=place.acknowledges).run(stop)


def test_a_consumer_waits_for_a_broker_and_can_be_stopped_meanwhile(
    place: Place, sink: SqliteSink
) -> None:
    with free_ports() as (port,):
        link = place.link(Dead("127.0.0.1", port))
        with place.consuming(place.queue(), sink, link=link) as running:
            running.consumer.stop()
            assert running.join() is None
        link.close(0.0)


def test_a_link_that_is_closed_ends_the_consumer(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 1))
    link = place.link()
    running = Running(Consumer(link, queue, sink, ack=place.acknowledges))
    until(lambda: applied(place.store))
    link.close()
    assert isinstance(running.join(), LinkClosedError)


def test_a_store_that_can_not_be_asked_at_the_beginning_is_asked_again(place: Place) -> None:
    """Nothing is applied until the last applied number is known."""

    class Away(SqliteSink):
        """Fails three times."""

        questions = 0

        def last(self, origin: str) -> int | None:
            self.questions += 1
            if self.questions < 4:
                raise OSError("away")
            return super().last(origin)

    queue = place.queue()
    sink = Away(place.store)
    place.publish(queue, writes(1, 5))
    with place.consuming(queue, sink, backoff_s=0.01):
        until(lambda: applied(place.store) == [1, 2, 3, 4, 5])
    sink.close()


# Gaps.


def test_a_gap_is_told_and_waited_for(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    problems: list[Problem] = []
    place.publish(queue, [*writes(1, 2), *writes(5, 6)])
    with place.consuming(
        queue, sink, gap_timeout_s=SOON_S, on_problem=problems.append, batch=1
    ) as running:
        until(lambda: len(problems) > 1)
        assert applied(place.store) == [1, 2]
        until(lambda: running.consumer.status().held_back == 2)
        place.publish(queue, writes(3, 4))
        until(lambda: len(applied(place.store)) == 6)
    assert applied(place.store) == [1, 2, 3, 4, 5, 6]
    assert {(each.kind, each.origin, each.sequence) for each in problems[:2]} == {("gap", "o", 3)}
    assert "changeset 3 to 4 of o is missing" in problems[0].text


def test_a_gap_can_end_the_consumer(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    place.publish(queue, [*writes(1, 2), *writes(4, 4)])
    with place.link() as link:
        consumer = Consumer(
            link, queue, sink, ack=place.acknowledges, gap="stop", gap_timeout_s=SOON_S
        )
        with pytest.raises(SequenceGapError, match="changeset 3 of o is missing") as stopped:
            consumer.run()
    assert (stopped.value.gap.missing, stopped.value.gap.found) == (3, 4)
    assert applied(place.store) == [1, 2]


def test_a_gap_can_be_passed_over(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    problems: list[Problem] = []
    place.publish(queue, [*writes(1, 2), *writes(5, 6)])
    with place.consuming(queue, sink, gap="skip", gap_timeout_s=SOON_S, on_problem=problems.append):
        until(lambda: applied(place.store) == [1, 2, 5, 6])
        place.publish(queue, writes(3, 3))
        until(lambda: len(problems) == 2)
    assert applied(place.store) == [1, 2, 5, 6]
    assert [(each.kind, each.sequence) for each in problems] == [("skipped", 3), ("late", 3)]


def test_an_origin_that_is_joined_in_the_middle_begins_there(
    place: Place, sink: SqliteSink
) -> None:
    queue = place.queue()
    place.publish(queue, writes(41, 45))
    with place.consuming(queue, sink, beginning_wait_s=0.05):
        until(lambda: applied(place.store) == [41, 42, 43, 44, 45])


def test_origins_are_applied_side_by_side(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    others = [msgspec.structs.replace(each, origin="p", id=f"p{each.id}") for each in writes(1, 9)]
    between = [each for pair in zip(writes(1, 9), others, strict=True) for each in pair]
    place.publish(queue, between)
    with place.consuming(queue, sink) as running:
        until(lambda: len(applied(place.store, "p")) == len(applied(place.store)) == 9)
        until(lambda: running.consumer.status().last == {"o": 9, "p": 9})


# Back-pressure.


@pytest.mark.stomp_requires("ack")
def test_a_slow_store_leaves_the_rest_to_the_broker(place: Place, sink: SqliteSink) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 100))
    with place.consuming(queue, sink, prefetch=10, batch_wait_s=LONG_S):
        until(lambda: len(applied(place.store)) >= 100)
    assert applied(place.store) == list(range(1, 101))
    # The sink wants batches of a hundred, but the broker's prefetch is ten.
    assert sink.batches == [10] * 10


@pytest.mark.stomp_requires("ack")
def test_a_changeset_of_more_frames_than_may_be_held_is_told_and_not_waited_for(
    place: Place, sink: SqliteSink
) -> None:
    queue = place.queue()
    place.publish(queue, writes(1, 2, rows=50, size=100), max_body_bytes=1000)
    with place.link() as link:
        with pytest.raises(WindowTooSmallError, match=r"changeset 1 of o, of which 5 of \d+ parts"):
            Consumer(link, queue, sink, prefetch=5, hold_back=5).run()
    assert applied(place.store) == []
    with place.consuming(queue, sink, prefetch=5, hold_back=50):
        until(lambda: applied(place.store) == [1, 2])


@pytest.mark.stomp_requires("ack")
@pytest.mark.parametrize("begins", ["known", "unknown"])
def test_what_another_consumer_gives_back_comes_though_all_that_may_be_sent_ahead_waits_for_it(
    place: Place,
    sink: SqliteSink,
    begins: str,
) -> None:
    """The broker still waits for a killed consumer, and sends later messages to its successor."""
    queue = place.queue()
    place.publish(queue, writes(1, 30))
    with place.link() as dead:
        inbox = dead.subscribe(queue, prefetch=10)
        for _ in range(10):
            assert inbox.get(LONG_S) is not None
        if begins == "known":
            sink.skip(changeset(0))
        settings: dict[str, Any] = {"prefetch": 10, "beginning_wait_s": LONG_S}
        with place.consuming(queue, sink, **settings) as running:
            until(lambda: running.consumer.status().held_back == 10)
            dead.close()
            until(lambda: len(applied(place.store)) >= 30)
    assert applied(place.store) == list(range(1, 31))


@pytest.mark.parametrize("bound", ["hold_back", "max_bytes"])
def test_what_comes_early_is_bounded(place: Place, sink: SqliteSink, bound: str) -> None:
    queue = place.queue()
    place.publish(queue, writes(2, 60, size=100))
    bounds = {"hold_back": 20, "max_bytes": 3000}
    settings = {bound: bounds[bound], "ack": place.acknowledges}
    # The store knows its position, so that this is a gap and not the start of an origin.
    sink.skip(changeset(0))
    with place.link() as link:
        with pytest.raises(SequenceGapError, match="no more can be held"):
            Consumer(link, queue, sink, **settings).run()  # type: ignore[arg-type]  # of its bounds
    assert applied(place.store) == []


def test_bounds_and_policies_that_make_no_sense_are_refused(place: Place, sink: SqliteSink) -> None:
    with place.link() as link:
        with pytest.raises(ValueError, match="at least 1"):
            Consumer(link, "/queue/a", sink, prefetch=0)
        with pytest.raises(ValueError, match="gap is wait, stop or skip, not 'jump'"):
            Consumer(link, "/queue/a", sink, gap="jump")  # type: ignore[arg-type]  # the test
