"""The order of changesets, without a broker: each is applied once and in its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.replication.consumer._sequencer import Gap, Ready, Sequencer
from stompkit.replication.model.events import (
    Changeset,
    EventError,
    RowChange,
    Source,
    make_changeset,
)
from stompkit.replication.model.frames import Packet, packets
from tests.effort import drawn

SOURCE = Source(kind="test")


def changeset(sequence: int, origin: str = "o", rows: int = 1) -> Changeset:
    changes = (
        RowChange(table="t", action="write", key={"id": number}, after={"text": "x" * 20})
        for number in range(rows)
    )
    return make_changeset(origin, sequence, changes, SOURCE, id=f"{origin}:{sequence}")


class Frame:
    """A received frame, and its state."""

    def __init__(self, packet: Packet) -> None:
        """Start unacknowledged."""
        self.packet = packet
        self.headers: Mapping[str, str] = packet.headers
        self.body = packet.body
        self.is_stale = False


def frames(changeset: Changeset, *, most: int = 10_000) -> list[Frame]:
    return [Frame(packet) for packet in packets(changeset, max_body_bytes=most)]


def add(
    sequencer: Sequencer[Frame], arrivals: Iterable[Frame], now: float = 0.0, last: int | None = 0
) -> None:
    """Add frames; for new origins ``last`` was applied last."""
    for arrival in arrivals:
        sequencer.add(arrival, now)
        for origin in sequencer.take_new():
            sequencer.start(origin, last, now)


def apply(sequencer: Sequencer[Frame], most: int = 100) -> list[int]:
    """Apply what is possible; return the numbers."""
    ready = sequencer.peek(most)
    sequencer.done(ready)
    return [each.changeset.sequence for each in ready]


# Random order, with repeats, lost acknowledgements, lost connections and restarts.


class World:
    """A broker with weak guarantees, a consumer that crashes, and a reliable store."""

    def __init__(self, published: Mapping[str, list[list[Packet]]], random: Random) -> None:
        """Start with all published messages in the queue."""
        self.published = published
        self.random = random
        #: Messages by the broker's numbers; below, those that wait in the queue.
        self.messages = dict(
            enumerate(packet for sets in published.values() for parts in sets for packet in parts)
        )
        self.numbers = count(len(self.messages))
        self.queue = list(self.messages)
        self.delivered: list[tuple[int, Frame]] = []
        self.applied: dict[str, list[int]] = {}
        self.sequencer = Sequencer[Frame]()

    def deliver(self) -> None:
        """Deliver a random message of the queue."""
        if not self.queue:
            return
        number = self.queue.pop(self.random.randrange(len(self.queue)))
        frame = Frame(self.messages[number])
        self.delivered.append((number, frame))
        self.sequencer.add(frame, 0.0)
        for origin in self.sequencer.take_new():
            done = self.applied.get(origin)
            self.sequencer.start(origin, done[-1] if done else None, 0.0)

    def publish_again(self) -> None:
        """Publish a message again, as after a lost receipt."""
        if self.messages:
            number = next(self.numbers)
            self.messages[number] = self.random.choice(list(self.messages.values()))
            self.queue.append(number)

    def take_back(self) -> None:
        """Redeliver a message over the same connection, as after an acknowledgement timeout."""
        if self.delivered:
            number, _ = self.random.choice(self.delivered)
            if number not in self.queue:
                self.queue.append(number)

    def apply(self) -> None:
        """Commit some; crash before or after the commit, or report it."""
        ready = self.sequencer.peek(self.random.randint(1, 5))
        fate = self.random.choice(["dies before", "dies after", "lives", "lives", "lives"])
        if fate != "dies before":
            self.commit(ready)
        if fate == "lives":
            self.sequencer.done(ready)
        else:
            self.restart()

    def commit(self, ready: Iterable[Ready[Frame]]) -> None:
        """Commit to the store."""
        for each in ready:
            done = self.applied.setdefault(each.changeset.origin, [])
            assert not each.problem
            assert each.changeset.sequence == len(done) + 1, "out of turn, or again"
            assert each.changeset.changes == changeset(0, rows=each.changeset.sequence).changes
            done.append(each.changeset.sequence)

    def acknowledge(self, chance: float) -> None:
        """Acknowledge the frames that are no longer needed; some acknowledgements are lost."""
        for spent in self.sequencer.take_spent():
            names = [number for number, frame in self.delivered if frame is spent]
            if names and self.random.random() < chance:
                # The message is gone, whichever delivery was acknowledged.
                self.messages.pop(names[0], None)
                self.delivered = [each for each in self.delivered if each[0] != names[0]]
                self.queue = [each for each in self.queue if each != names[0]]

    def reconnect(self) -> None:
        """Redeliver everything unacknowledged in random order."""
        for _, frame in self.delivered:
            frame.is_stale = True
        self.delivered.clear()
        self.queue = list(self.messages)

    def restart(self) -> None:
        """Kill and restart the consumer."""
        self.reconnect()
        self.sequencer = Sequencer[Frame]()

    def check_that_nothing_is_lost(self) -> None:
        """Check that the broker still has all changesets that have not been applied."""
        there = {id(packet) for packet in self.messages.values()}
        for origin, sets in self.published.items():
            for parts in sets[len(self.applied.get(origin, [])) :]:
                assert all(id(packet) in there for packet in parts)


@settings(max_examples=drawn(300), deadline=None)
@given(
    sizes=st.dictionaries(st.sampled_from("ab"), st.integers(1, 8), min_size=1),
    most=st.integers(300, 1000),
    steps=st.lists(
        st.sampled_from(
            [*["deliver"] * 6, "apply", "ack", "again", "back", "reconnect", "restart"]
        ),
        max_size=150,
    ),
    random=st.randoms(use_true_random=False),
)
def test_each_changeset_is_applied_once_and_in_order_whatever_happens(
    sizes: dict[str, int], most: int, steps: list[str], random: Random
) -> None:
    published = {
        origin: [
            list(packets(changeset(number, origin, rows=number), max_body_bytes=most))
            for number in range(1, size + 1)
        ]
        for origin, size in sizes.items()
    }
    world = World(published, random)
    for step in steps:
        match step:
            case "deliver":
                world.deliver()
            case "apply":
                world.apply()
            case "ack":
                world.acknowledge(0.5)
            case "again":
                world.publish_again()
            case "back":
                world.take_back()
            case "reconnect":
                world.reconnect()
            case _:
                world.restart()
        world.check_that_nothing_is_lost()
    # No more faults from here on.
    world.acknowledge(1.0)
    world.reconnect()
    while world.queue:
        world.deliver()
        ready = world.sequencer.peek(100)
        world.commit(ready)
        world.sequencer.done(ready)
        world.acknowledge(1.0)
    assert world.applied == {origin: list(range(1, size + 1)) for origin, size in sizes.items()}
    assert world.messages == {}
    assert (world.sequencer.frames, world.sequencer.size, world.sequencer.take_late()) == (0, 0, [])


# One by one.


def test_what_comes_early_is_held_back() -> None:
    sequencer = Sequencer[Frame]()
    for number in (3, 2, 4):
        add(sequencer, frames(changeset(number)))
    assert (sequencer.ready, sequencer.frames, sequencer.take_spent()) == (0, 3, [])
    add(sequencer, frames(changeset(1)))
    assert apply(sequencer) == [1, 2, 3, 4]
    assert (sequencer.frames, sequencer.size, len(sequencer.take_spent())) == (0, 0, 4)


def test_no_frame_can_be_acknowledged_before_its_changeset_is_applied() -> None:
    sequencer = Sequencer[Frame]()
    parts = frames(changeset(1, rows=50), most=1000)
    assert len(parts) > 3
    add(sequencer, parts)
    assert sequencer.take_spent() == []
    (ready,) = sequencer.peek(10)
    assert sequencer.take_spent() == []
    assert list(ready.arrivals) == parts
    sequencer.done([ready])
    assert sequencer.take_spent() == parts


def test_repeats_of_what_was_applied_are_acknowledged_at_once() -> None:
    sequencer = Sequencer[Frame]()
    add(sequencer, frames(changeset(5)), last=7)
    (again,) = frames(changeset(7))
    add(sequencer, [again])
    assert sequencer.take_spent()[-1] is again
    assert (sequencer.repeats, sequencer.ready, sequencer.take_late()) == (2, 0, [])
    add(sequencer, frames(changeset(8)))
    assert apply(sequencer) == [8]


def test_a_frame_that_comes_again_takes_the_place_of_one_that_can_not_be_acknowledged() -> None:
    sequencer = Sequencer[Frame]()
    (first,), (again,) = frames(changeset(2)), frames(changeset(2))
    add(sequencer, [first])
    first.is_stale = True
    add(sequencer, [again])
    assert (sequencer.take_spent(), sequencer.frames) == ([], 1)
    add(sequencer, frames(changeset(1)))
    apply(sequencer)
    spent = sequencer.take_spent()
    assert again in spent
    assert first not in spent


def test_of_a_frame_that_comes_twice_neither_is_acknowledged_before_it_is_applied() -> None:
    """A broker with an acknowledgement timeout delivers the same message again."""
    sequencer = Sequencer[Frame]()
    (first,), (again,) = frames(changeset(2)), frames(changeset(2))
    add(sequencer, [first, again])
    assert (sequencer.take_spent(), sequencer.frames, sequencer.repeats) == ([], 2, 1)
    add(sequencer, frames(changeset(1)))
    assert apply(sequencer) == [1, 2]
    assert {first, again} < set(sequencer.take_spent())
    assert (sequencer.frames, sequencer.size) == (0, 0)


def test_a_publisher_may_split_otherwise_after_a_restart() -> None:
    sequencer = Sequencer[Frame]()
    before = frames(changeset(1, rows=50), most=1000)
    after = frames(changeset(1, rows=50), most=2000)
    assert len(before) > len(after) > 1
    add(sequencer, [*before[:2], *after[:1], *before[2:3], *after[1:]])
    (ready,) = sequencer.peek(10)
    assert len(ready.changeset.changes) == 50
    sequencer.done([ready])
    assert Counter(map(id, sequencer.take_spent())) == Counter(map(id, [*before[:3], *after]))


def test_an_unknown_origin_begins_with_number_one_at_once() -> None:
    sequencer = Sequencer[Frame]()
    add(sequencer, frames(changeset(1)), last=None)
    assert apply(sequencer) == [1]


def test_an_unknown_origin_begins_with_the_lowest_number_that_comes_in_time() -> None:
    sequencer = Sequencer[Frame](beginning_wait_s=2.0)
    add(sequencer, frames(changeset(12)), now=10.0, last=None)
    add(sequencer, frames(changeset(11)), now=11.0)
    sequencer.start_overdue(11.9)
    assert sequencer.ready == 0
    sequencer.start_overdue(12.0)
    assert apply(sequencer) == [11, 12]
    # A later change with a lower number is reported, and not applied.
    add(sequencer, frames(changeset(10)), now=13.0)
    assert (sequencer.take_late(), sequencer.ready) == ([("o", 10)], 0)


def test_the_beginning_is_taken_at_once_where_no_more_can_be_held() -> None:
    sequencer = Sequencer[Frame](beginning_wait_s=2.0)
    add(sequencer, frames(changeset(12)), last=None)
    sequencer.start_overdue(0.0, at_once=True)
    assert apply(sequencer) == [12]


def test_who_comes_in_the_middle_of_a_split_changeset_begins_behind_it() -> None:
    sequencer = Sequencer[Frame](beginning_wait_s=2.0)
    rest = frames(changeset(7, rows=50), most=1000)[2:]
    add(sequencer, [*rest, *frames(changeset(8))], last=None)
    sequencer.start_overdue(5.0)
    assert apply(sequencer) == [8]
    assert len(sequencer.take_spent()) == len(rest) + 1


def test_a_gap_is_told_with_its_numbers_and_its_age() -> None:
    sequencer = Sequencer[Frame]()
    add(sequencer, frames(changeset(1)), now=1.0)
    apply(sequencer)
    assert sequencer.gaps(2.0) == []
    add(sequencer, [*frames(changeset(5)), *frames(changeset(4))], now=3.0)
    (gap,) = sequencer.gaps(10.0)
    assert gap == Gap("o", missing=2, found=4, held=2, parts="", waited_s=7.0)
    assert str(gap) == "changeset 2 to 3 of o is missing for 7.0 seconds, and 2 wait"
    sequencer.skip(gap, 10.0)
    assert apply(sequencer) == [4, 5]
    assert sequencer.gaps(11.0) == []
    add(sequencer, frames(changeset(3)), now=12.0)
    assert (sequencer.take_late(), sequencer.repeats) == ([("o", 3)], 1)


def test_parts_that_are_missing_are_a_gap_and_each_one_that_comes_makes_it_young() -> None:
    sequencer = Sequencer[Frame]()
    parts = frames(changeset(1, rows=50), most=1000)
    add(sequencer, parts[:1], now=1.0)
    add(sequencer, parts[1:2], now=5.0)
    (gap,) = sequencer.gaps(6.0)
    assert (gap.missing, gap.found, gap.waited_s) == (1, None, 1.0)
    assert gap.parts == f"2 of {len(parts)}"
    with pytest.raises(ValueError, match="nothing has come behind"):
        sequencer.skip(gap, 6.0)
    add(sequencer, frames(changeset(2)), now=7.0)
    (gap,) = sequencer.gaps(7.0)
    assert gap.found == 2
    sequencer.skip(gap, 7.0)
    assert apply(sequencer) == [2]
    assert sequencer.take_late() == [("o", 1)]
    assert len(sequencer.take_spent()) == 3


def test_origins_do_not_wait_for_each_other() -> None:
    sequencer = Sequencer[Frame]()
    add(sequencer, frames(changeset(2, "slow")))
    add(sequencer, [*frames(changeset(1, "quick")), *frames(changeset(2, "quick"))])
    assert apply(sequencer) == [1, 2]
    assert [gap.origin for gap in sequencer.gaps(0.0)] == ["slow"]


# Frames without a changeset.


def changed(frame: Frame, body: bytes) -> Frame:
    return Frame(Packet(dict(frame.headers), body))


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"content_type": "text/plain"}, "its content-type is 'text/plain'"),
        ({"stompkit_sequence": "x"}, "stompkit-sequence is 'x', which is no number"),
        ({"stompkit_sequence": "-1"}, "which is no number"),
        ({"stompkit_sequence": "٣"}, "which is no number"),
        ({"stompkit_sequence": "9" * 20}, "which is no number"),
        ({"stompkit_part": "2"}, "part 2 of 1"),
        ({"stompkit_part": "0"}, "part 0 of 1"),
    ],
)
def test_frames_of_something_else_are_refused(headers: dict[str, str], told: str) -> None:
    sequencer = Sequencer[Frame]()
    (frame,) = frames(changeset(1))
    wrong = {name.replace("_", "-"): value for name, value in headers.items()}
    with pytest.raises(EventError, match=told):
        sequencer.add(Frame(Packet({**frame.headers, **wrong}, frame.body)), 0.0)
    assert (sequencer.frames, sequencer.take_new()) == (0, [])


def test_a_frame_without_headers_is_known_by_its_body() -> None:
    sequencer = Sequencer[Frame]()
    (frame,) = frames(changeset(1))
    add(sequencer, [Frame(Packet({}, frame.body))])
    assert apply(sequencer) == [1]
    with pytest.raises(EventError, match="this is no changeset"):
        sequencer.add(Frame(Packet({}, b"hello")), 0.0)
    part = frames(changeset(2, rows=50), most=1000)[0]
    nameless = {"stompkit-part": "1", "stompkit-parts": "3"}
    with pytest.raises(EventError, match="does not say of which"):
        sequencer.add(Frame(Packet(nameless, part.body)), 0.0)
    with pytest.raises(EventError, match="stompkit-schema is '2'"):
        sequencer.add(Frame(Packet({"stompkit-schema": "2"}, frame.body)), 0.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        frames(changeset(3))[0].body,
        frames(changeset(2, "another"))[0].body,
        frames(changeset(2))[0].body.replace(b'"format":1', b'"format":2'),
    ],
)
def test_a_body_that_can_not_be_read_has_its_turn_and_blocks_nobody(body: bytes) -> None:
    sequencer = Sequencer[Frame]()
    good, bad, next_one = (frames(changeset(number))[0] for number in (1, 2, 3))
    broken = changed(bad, body)
    add(sequencer, [next_one, broken, good])
    first, second, third = sequencer.peek(10)
    assert (first.problem, third.problem) == ("", "")
    assert second.problem
    assert second.arrivals == (broken,)
    assert (second.changeset.origin, second.changeset.sequence) == ("o", 2)
    assert second.changeset.changes == ()


def test_a_split_changeset_with_a_broken_part_is_one_problem_with_all_of_its_parts() -> None:
    sequencer = Sequencer[Frame]()
    parts = frames(changeset(1, rows=50), most=1000)
    other = frames(changeset(2, rows=50), most=1000)
    for body in (b"{", other[1].body):
        sequencer = Sequencer[Frame]()
        add(sequencer, [parts[0], changed(parts[1], body), *parts[2:]])
        (ready,) = sequencer.peek(10)
        assert ready.problem
        assert len(ready.arrivals) == len(parts)
