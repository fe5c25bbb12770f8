"""Rows converge in any order of changesets, and agree with the definitions."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.replica.rows import RowState
from stompkit.replica.rules import OnDelete
from stompkit.replica.vectors import covers, least, merged
from stompkit.replication.model.events import Source, decode, encode, make_changeset
from stompkit.replication.model.values import Value
from tests.effort import drawn
from tests.replica.row_definitions import Defined
from tests.replica.row_histories import (
    Written,
    applied,
    histories,
    orders,
    part,
    rules_for,
    vectors,
)

#: Rules matter only for reading, except the choice of counters and sets.
RULES = {name: rules_for(name) for name in get_args(OnDelete)}
SOME = RULES["update-wins"]

columns = pytest.mark.parametrize("columns", [["last"], ["total", "price"], ["list", "set"]])
few = settings(max_examples=drawn(60))


@columns
@few
@given(st.data())
def test_order_of_arrival_does_not_matter(columns: list[str], data: st.DataObject) -> None:
    history = data.draw(histories(SOME, columns))
    order = data.draw(orders(history))
    assert applied(order, SOME).encode() == applied(history, SOME).encode()


def plain(row: dict[str, Value] | None) -> dict[str, Value] | None:
    """Return lists of members as sets with their types, ignoring the order."""
    if row is None:
        return None
    return {
        name: {(type(each).__name__, each) for each in value} if isinstance(value, list) else value
        for name, value in row.items()
    }


@pytest.mark.parametrize("on_delete", RULES)
@given(st.data())
def test_row_is_what_the_definitions_say(on_delete: OnDelete, data: st.DataObject) -> None:
    rules = RULES[on_delete]
    history = data.draw(histories(rules))
    state = applied(history, rules)
    defined = Defined(history, rules)
    assert plain(state.visible(rules)) == defined.row
    assert [each.column for each in state.conflicts(rules)] == defined.conflicts


@columns
@few
@given(st.data())
def test_join_is_the_same_as_applying_what_is_missing(
    columns: list[str], data: st.DataObject
) -> None:
    history = data.draw(histories(SOME, columns))
    own, others = data.draw(vectors(history)), data.draw(vectors(history))
    state, other = part(history, own, SOME), part(history, others, SOME)
    octets = other.encode()
    state.join(own, other, others)
    assert state.encode() == part(history, merged(own, others), SOME).encode()
    assert other.encode() == octets


@columns
@few
@given(st.data())
def test_row_goes_on_after_a_join_as_after_changesets(
    columns: list[str], data: st.DataObject
) -> None:
    history = data.draw(histories(SOME, columns))
    own, others = data.draw(vectors(history)), data.draw(vectors(history))
    state = part(history, own, SOME)
    other = part(history, others, SOME)
    state.join(own, other, others)
    octets = other.encode()
    both = merged(own, others)
    rest = [each for each in data.draw(orders(history)) if not covers(both, each.dot)]
    assert applied(rest, SOME, state).encode() == applied(history, SOME).encode()
    assert other.encode() == octets


@columns
@few
@given(st.data())
def test_join_is_commutative_and_idempotent(columns: list[str], data: st.DataObject) -> None:
    history = data.draw(histories(SOME, columns))
    own, others = data.draw(vectors(history)), data.draw(vectors(history))
    one, other = part(history, own, SOME), part(history, others, SOME)
    one.join(own, part(history, others, SOME), others)
    other.join(others, part(history, own, SOME), own)
    assert one.encode() == other.encode()
    both = merged(own, others)
    one.join(both, other, both)
    assert one.encode() == other.encode()


@settings(max_examples=drawn(200))
@given(st.data())
def test_row_that_may_be_forgotten_is_not_missed(data: st.DataObject) -> None:
    history = data.draw(histories(SOME, is_honest=True))
    order = data.draw(orders(history))
    for number in range(1, len(order)):
        done, rest = order[:number], order[number:]
        state = applied(done, SOME)
        vector = merged(*(each.clock for each in done))
        if state.is_collectable(least(vector, *(each.clock for each in rest))):
            assert applied(rest, SOME).visible(SOME) == applied(order, SOME).visible(SOME)


@columns
@few
@given(st.data())
def test_renamed_changesets_are_as_if_they_had_always_been_called_so(
    columns: list[str], data: st.DataObject
) -> None:
    history = data.draw(histories(SOME, columns))
    origin = history[-1].stamp.origin
    above = data.draw(st.integers(0, history[-1].stamp.sequence))
    moved = [w for w in history if w.stamp.origin == origin and w.stamp.sequence > above]
    state = applied(history, SOME)
    changes = [(change, w.stamp, w.clock) for w in moved for change in w.changes]
    state.renamed(origin, above, "N~00000001", changes, SOME)
    again = [renamed(each, origin, above, "N~00000001") for each in history]
    assert state.encode() == applied(again, SOME).encode()


def renamed(written: Written, origin: str, above: int, new: str) -> Written:
    stamp, clock = written.stamp, dict(written.clock)
    if clock.get(origin, 0) > above:
        clock[new] = clock[origin] - above
        clock[origin] = above
    if stamp.origin == origin and stamp.sequence > above:
        stamp = stamp._replace(origin=new, sequence=stamp.sequence - above)
    return Written(stamp, clock, written.changes)


@given(st.data())
def test_writer_has_the_state_of_those_who_have_read_its_changesets(data: st.DataObject) -> None:
    history = data.draw(histories(SOME))
    sent = [
        make_changeset(each.stamp.origin, each.stamp.sequence, each.changes, Source(kind=""))
        for each in history
    ]
    received = [decode(encode(each)) for each in sent]
    again = [
        Written(each.stamp, each.clock, changeset.changes)
        for each, changeset in zip(history, received, strict=True)
    ]
    assert applied(again, SOME).encode() == applied(history, SOME).encode()


def test_row_of_which_nothing_is_known_is_the_state_to_begin_with() -> None:
    state = RowState()
    state.join({}, RowState(), {"A~00000001": 3})
    assert state.encode() == RowState().encode()
    assert RowState().visible(SOME) is None
