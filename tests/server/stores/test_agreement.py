"""Every store has the same results as the one in memory, for any operations."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompkit.server.interfaces import (
    CreateLane,
    Delivered,
    DropLane,
    LaneState,
    Mark,
    MessageStore,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoredMessage,
    StoreError,
)
from stompkit.server.stores import MemoryStore
from tests.effort import drawn
from tests.server.stores.conftest import KINDS, Place

#: Closes the store and opens it again.
REOPEN: Final = "reopen"
ALL: Final = 1_000_000_000

lanes = st.sampled_from((1, 1, 1, 2, 2, 3))
places = st.integers(1, 12)
sizes = st.integers(0, 300)
times = st.one_of(st.just(0), st.integers(0, 2**53))
texts = st.one_of(st.text(max_size=12), st.just("caf\udce9"))
octets = st.one_of(st.binary(max_size=40), st.just(b"x" * 9_000))
names = st.sampled_from(("a", "b", "A", "caf\udce9"))

operations = st.one_of(
    st.builds(Put, lanes, places, sizes, times, times, texts, octets, octets),
    st.builds(Put, lanes, places, sizes, times, times, texts, octets, octets),
    st.builds(Put, st.just(1), st.integers(1, 200), sizes, times, times, texts, octets, octets),
    st.builds(Remove, lanes, places),
    st.builds(Remove, lanes, places),
    st.builds(Mark, lanes, places, st.integers(0, 9)),
    st.builds(Delivered, lanes, places),
    st.builds(CreateLane, lanes, texts, st.integers(0, 10)),
    st.builds(DropLane, lanes),
    st.builds(SetRecord, names, st.one_of(st.none(), octets)),
)


@st.composite
def batches(draw: st.DrawFn) -> list[Operation]:
    """Draw a batch; some batches contain impossible operations."""
    batch: list[Operation] = draw(st.lists(operations, max_size=12))
    if draw(st.booleans()):
        # Without this, few others would be possible, because messages need lanes.
        made = [CreateLane(number, "/queue/a", number) for number in (1, 2, 3)]
        batch = [*(DropLane(lane.lane) for lane in made), *made, *batch]
    return batch


steps = st.lists(st.one_of(batches(), batches(), batches(), st.just(REOPEN)), max_size=8)
bounds = st.tuples(lanes, st.integers(0, 12), st.integers(0, 6), st.integers(0, 800))


def contents(
    store: MessageStore,
) -> tuple[list[LaneState], dict[str, bytes], dict[int, list[StoredMessage]]]:
    """Return the whole contents of a store."""
    messages = {lane: list(store.read(lane, 0, ALL, ALL)) for lane in (1, 2, 3)}
    return sorted(store.lanes()), dict(store.records()), messages


def applied(store: MessageStore, batch: list[Operation]) -> bool:
    try:
        store.apply(batch)
    except StoreError:
        return False
    return True


def empty(store: MessageStore) -> None:
    store.apply([DropLane(lane.lane) for lane in store.lanes()])
    store.apply([SetRecord(name, None) for name in store.records()])


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "memory"], indirect=True)
def test_stores_agree(place: Place) -> None:
    # The examples are drawn in here, because pytest-twisted cannot call a test with both parameters
    # and arguments from Hypothesis.
    examples = 40 if place.kind in ("lmdb", "sqlite") else 15

    @settings(
        max_examples=drawn(examples), deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(steps=steps, wanted=st.lists(bounds, min_size=3, max_size=3))
    def agree(steps: list[list[Operation] | str], wanted: list[tuple[int, int, int, int]]) -> None:
        store, model = place.store(), MemoryStore()
        store.open()
        model.open()
        try:
            empty(store)
            for step in steps:
                if isinstance(step, str):
                    store.close()
                    store.open()
                else:
                    assert applied(store, step) == applied(model, step)
                assert contents(store) == contents(model)
            for bound in wanted:
                assert list(store.read(*bound)) == list(model.read(*bound))
        finally:
            store.close()

    agree()
