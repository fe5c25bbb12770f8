"""Publications: numbers without gaps, checkpoints of confirmed changesets, back-pressure."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.offsets import Checkpoint, MemoryOffsets
from stompkit.replication.sources.publication import Publication, PublicationStoppedError

CHANGE = RowChange(table="t", action="write", key={"id": 1}, after={"id": 1, "secret": 2})


class Taker:
    """A receiver that confirms on request."""

    def __init__(self) -> None:
        """Start empty."""
        self.taken: list[Changeset] = []
        self.futures: list[Future[None]] = []

    def __call__(self, changeset: Changeset) -> Future[None]:
        """Collect a changeset."""
        self.taken.append(changeset)
        self.futures.append(Future())
        return self.futures[-1]

    def confirm(self, *indexes: int) -> None:
        """Confirm a collected changeset, counted from 0."""
        for index in indexes:
            self.futures[index].set_result(None)


@pytest.fixture
def taker() -> Iterator[Taker]:
    with Connected() as taker:
        yield taker


class Connected:
    """Connect a receiver in the block."""

    def __enter__(self) -> Taker:
        self._taker = Taker()
        CHANGESET.connect(self._taker)
        return self._taker

    def __exit__(self, *_: object) -> None:
        CHANGESET.disconnect(self._taker)


def publication(offsets: MemoryOffsets | None = None, *, max_unconfirmed: int = 100) -> Publication:
    return Publication(offsets, kind="test", checkpoint_s=0, max_unconfirmed=max_unconfirmed)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_the_checkpoint_follows_groups_of_changesets_that_share_a_future(
    sizes: list[int], data: st.DataObject
) -> None:
    futures: list[Future[None]] = [Future() for _ in sizes]
    shared = iter([future for future, size in zip(futures, sizes, strict=True) for _ in [0] * size])

    def receive(changeset: Changeset) -> Future[None]:
        return next(shared)

    offsets = MemoryOffsets()
    with CHANGESET.connected_to(receive):
        published = publication(offsets)
        for number in range(1, sum(sizes) + 1):
            published.publish([CHANGE], position=str(number))
    order = data.draw(st.permutations(range(len(sizes))))
    for index in order:
        futures[index].set_result(None)
        published.settle()
        confirmed = 0
        for future, size in zip(futures, sizes, strict=True):
            if not future.done():
                break
            confirmed += size
        checkpoint = offsets.load()
        assert checkpoint is not None
        assert checkpoint.sequence == confirmed
        assert published.unconfirmed == sum(sizes) - confirmed
        assert published.confirmed_position == (str(confirmed) if confirmed else "")


def test_changesets_are_numbered_from_one(taker: Taker) -> None:
    published = publication()
    for position in "abc":
        published.publish([CHANGE], position=position, transaction="x")
    assert [each.sequence for each in taker.taken] == [1, 2, 3]
    assert {each.origin for each in taker.taken} == {published.origin}
    assert [each.id for each in taker.taken] == [f"{published.origin}:{n}" for n in (1, 2, 3)]
    assert [each.source.position for each in taker.taken] == ["a", "b", "c"]
    assert published.position == "c"
    assert (published.published, published.changes, published.unconfirmed) == (3, 3, 3)


def test_what_is_published_is_shaped(taker: Taker) -> None:
    Publication(kind="test", tables=Tables(columns_exclude=["t.secret"])).publish(
        [CHANGE], position="a"
    )
    assert taker.taken[0].changes[0].after == {"id": 1}


def test_the_checkpoint_follows_what_is_confirmed_in_order(taker: Taker) -> None:
    offsets = MemoryOffsets()
    published = publication(offsets)
    for position in "abc":
        published.publish([CHANGE], position=position)
    taker.confirm(1)
    published.advance("d")
    assert published.confirmed_position == "", "the first is not confirmed"
    taker.confirm(0)
    published.advance("e")
    assert published.confirmed_position == "b"
    taker.confirm(2)
    published.advance("f")
    assert offsets.load() == Checkpoint(origin=published.origin, sequence=3, position="f")


def test_after_a_crash_the_same_transactions_have_the_same_numbers(taker: Taker) -> None:
    offsets = MemoryOffsets()
    first = publication(offsets)
    for position in "abc":
        first.publish([CHANGE], position=position)
    taker.confirm(0)
    first.advance("c")
    second = publication(offsets)
    assert second.position == "a"
    for position in "bcd":
        second.publish([CHANGE], position=position)
    ids = [each.id.rpartition(":")[2] for each in taker.taken]
    assert ids == ["1", "2", "3", "2", "3", "4"]
    assert len({each.origin for each in taker.taken}) == 1


def test_the_origin_is_kept_from_before_the_first_changeset(taker: Taker) -> None:
    offsets = MemoryOffsets()
    first = publication(offsets)
    first.publish([CHANGE], position="a")
    assert publication(offsets).origin == first.origin
    assert publication(offsets).position == ""
    assert publication().origin != first.origin


def test_the_state_goes_with_the_checkpoint(taker: Taker) -> None:
    offsets = MemoryOffsets()
    published = publication(offsets)
    published.publish([CHANGE], position="a", state={"table": "t"})
    published.publish([CHANGE], position="b")
    assert published.state == {"table": "t"}
    assert publication(offsets).state == {}
    taker.confirm(0, 1)
    published.flush(0)
    assert publication(offsets).state == {"table": "t"}


def test_without_receivers_everything_is_confirmed() -> None:
    offsets = MemoryOffsets()
    publication(offsets).publish([CHANGE], position="a")
    loaded = offsets.load()
    assert loaded is not None
    assert loaded.position == "a"


def test_publishing_waits_while_too_much_is_unconfirmed(taker: Taker) -> None:
    published = publication(max_unconfirmed=2)
    for position in "ab":
        published.publish([CHANGE], position=position)
    thread = threading.Thread(target=published.publish, args=([CHANGE],), kwargs={"position": "c"})
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert len(taker.taken) == 2
    taker.confirm(0)
    thread.join(30)
    assert not thread.is_alive()
    assert len(taker.taken) == 3


def test_a_wait_ends_when_publishing_is_stopped(taker: Taker) -> None:
    published = publication(max_unconfirmed=1)
    published.publish([CHANGE], position="a")
    published.stop()
    with pytest.raises(PublicationStoppedError):
        published.publish([CHANGE], position="b")
    with pytest.raises(PublicationStoppedError):
        published.flush()
    assert len(taker.taken) == 1


def test_flushing_waits_until_the_deadline(taker: Taker) -> None:
    published = publication()
    published.publish([CHANGE], position="a")
    with pytest.raises(TimeoutError, match="1 changesets"):
        published.flush(0.01)
    taker.confirm(0)
    published.flush(0.01)
    assert published.confirmed_position == "a"


def test_a_receiver_that_fails_later_stops_the_publisher(taker: Taker) -> None:
    offsets = MemoryOffsets()
    published = publication(offsets)
    published.publish([CHANGE], position="a")
    published.publish([CHANGE], position="b")
    taker.futures[1].set_exception(OSError("refused"))
    taker.confirm(0)
    with pytest.raises(OSError, match="refused"):
        published.flush(5)
    assert publication(offsets).position == "a"


def test_quiet_times_take_no_memory(taker: Taker) -> None:
    published = publication(max_unconfirmed=3)
    published.publish([CHANGE], position="a")
    for number in range(100):
        published.advance(str(number))
    published.publish([CHANGE], position="b")
    assert len(taker.taken) == 2, "advancing takes no room of what may be unconfirmed"


@given(st.permutations(range(6)))
def test_in_whatever_order_they_confirm_nothing_is_left_out(order: list[int]) -> None:
    """The checkpoint is always at the end of the confirmed prefix, and never behind that."""
    with Connected() as taker:
        offsets = MemoryOffsets()
        published = publication(offsets)
        for number in range(6):
            published.publish([CHANGE], position=str(number + 1))
        confirmed = set[int]()
        for index in order:
            taker.confirm(index)
            confirmed.add(index)
            published.advance(published.position)
            whole = next((n for n in range(6) if n not in confirmed), 6)
            assert published.confirmed_position == (str(whole) if whole else "")


def test_one_receiver_that_fails_ends_the_wait_for_all_others(taker: Taker) -> None:
    with Connected() as other:
        published = publication()
        published.publish([CHANGE], position="a")
        other.futures[0].set_exception(OSError("dead"))
        failure: Future[None] = Future()

        def flush() -> None:
            try:
                published.flush()
            except OSError as error:
                failure.set_exception(error)

        threading.Thread(target=flush, daemon=True).start()
        try:
            with pytest.raises(OSError, match="dead"):
                failure.result(10)
        finally:
            taker.confirm(0)


def test_how_much_is_unconfirmed_can_be_asked_while_another_thread_publishes() -> None:
    waiting: deque[Future[None]] = deque()

    def take(changeset: Changeset) -> Future[None]:
        waiting.append(Future())
        if len(waiting) > 50:
            waiting.popleft().set_result(None)
        return waiting[-1]

    published = publication()
    ended = threading.Event()

    def publish() -> None:
        for number in range(500):
            published.publish([CHANGE], position=str(number))
        ended.set()

    with CHANGESET.connected_to(take):
        threading.Thread(target=publish, daemon=True).start()
        seen = [published.unconfirmed]
        while not ended.is_set():
            seen.append(published.unconfirmed)
    assert max(seen) <= 100
    assert published.unconfirmed == 50
