"""Counters: each increment counts once, and only for its row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from stompkit.replica.rows import Stamp
from stompkit.replica.rules import RuleError, TableRules, counter, members
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value
from tests.replica.row_made import KEY, A, B, C, D, Row, inserted

COUNTED = TableRules(columns={"n": counter()})


def counted(initial: Value) -> Row:
    """Return a counter that B has increased by 5 and C has decreased by 2."""
    row = inserted({"n": initial}, COUNTED)
    row.take((B, 1), "update", {"n": 15}, {"n": 10}, knows={A: 1})
    row.take((C, 1), "update", {"n": 8}, {"n": 10}, knows={A: 1})
    return row


def test_counter_is_what_it_began_with_and_all_that_was_added() -> None:
    row = counted(10)
    assert row.visible == {"n": 13}
    row.take((A, 2), "update", {"n": 14}, {"n": 13}, knows={B: 1, C: 1})
    assert row.visible == {"n": 14}
    assert row.conflicts == []
    assert row.state.stamps("n") == [Stamp(1, A, 1)]


@pytest.mark.parametrize(
    ("initial", "visible"),
    [(None, 3), (Decimal("10.00"), Decimal("13.00")), (2**70, 2**70 + 3), (-3, 0)],
)
def test_counter_stays_the_kind_of_number_that_it_is(initial: Value, visible: Value) -> None:
    seen = counted(initial).visible
    assert seen is not None
    assert repr(seen["n"]) == repr(visible)


def test_counter_that_was_not_changed_is_null_if_it_was_made_so() -> None:
    row = inserted({"n": None}, COUNTED)
    assert row.visible == {"n": None}
    row.take((A, 2), "update", {"n": 0}, {"n": None}, knows={A: 1})
    assert row.visible == {"n": 0}


def test_whole_counter_can_have_parts_added() -> None:
    row = inserted({"n": 1}, COUNTED)
    row.take((B, 1), "update", {"n": Decimal("1.50")}, {"n": 1}, knows={A: 1})
    assert row.visible == {"n": Decimal("1.5")}
    row.take((C, 1), "update", {"n": Decimal("1.5")}, {"n": 1}, knows={A: 1})
    assert row.visible == {"n": 2}


def test_row_that_is_made_again_counts_from_anew() -> None:
    row = counted(10)
    row.take((A, 2), "write", {"n": 100}, knows={A: 1, B: 1})
    # The increment of C was for a row that does not exist any more.
    assert row.visible == {"n": 100}
    row.take((C, 2), "update", {"n": 9}, {"n": 8}, knows={A: 1, C: 1})
    assert row.visible == {"n": 100}


def test_row_that_two_have_made_counts_what_was_added_to_either() -> None:
    row = inserted({"n": 10}, COUNTED)
    row.take((B, 1), "write", {"n": 20}, knows={}, hlc=5)
    row.take((A, 2), "update", {"n": 11}, {"n": 10}, knows={A: 1})
    row.take((B, 2), "update", {"n": 22}, {"n": 20}, knows={B: 1})
    row.take((C, 1), "update", {"n": 27}, {"n": 23}, knows={A: 2, B: 2})
    assert row.visible == {"n": 27}
    (conflict,) = row.conflicts
    assert (conflict.winner.value, conflict.losers[0].value) == (20, 10)
    # One of them is inserted again, and only increments of the other one alone are kept.
    row.take((A, 3), "write", {"n": 50}, knows={A: 2}, hlc=9)
    assert row.visible == {"n": 50 + 2 + 4}


def test_counter_of_a_deleted_row_is_not_added_to_a_new_one() -> None:
    row = counted(10)
    row.take((B, 2), "delete", before={"n": 13}, knows={A: 1, B: 1, C: 1})
    row.take((D, 1), "write", {"n": 100}, knows={})
    assert row.visible == {"n": 100}
    row.take((D, 2), "update", {"n": 101}, {"n": 100}, knows={D: 1})
    assert row.visible == {"n": 101}


def test_counter_of_a_deleted_row_comes_back_with_it() -> None:
    row = counted(10)
    row.take((B, 2), "delete", before={"n": 13}, knows={A: 1, B: 1, C: 1})
    row.take((A, 2), "update", {"n": 14}, {"n": 13}, knows={A: 1, B: 1, C: 1})
    assert row.visible == {"n": 14}


def test_sum_of_what_was_added_to_a_row_that_nobody_has_made() -> None:
    row = Row(COUNTED)
    row.take((B, 1), "update", {"n": 12}, {"n": 10}, knows={})
    row.take((C, 1), "update", {"n": 13}, {"n": 10}, knows={})
    assert row.visible == {"n": 5}


def test_what_two_stores_have_counted_under_one_name_can_be_told_apart() -> None:
    told = [
        RowChange(table="t", action="update", key=KEY, before={"n": 15}, after={"n": 18}),
        RowChange(table="t", action="update", key=KEY, before={"n": 18}, after={"n": 17}),
    ]
    stamps = [Stamp(2, B, 2), Stamp(3, B, 3)]
    clocks = [{A: 1, B: 2}, {A: 1, B: 3}]
    mine, twin = inserted({"n": 10}, COUNTED), inserted({"n": 10}, COUNTED)
    for each in (mine, twin):
        each.take((B, 1), "update", {"n": 15}, {"n": 10}, knows={A: 1})
    for change, stamp, clock in zip(told, stamps, clocks, strict=True):
        mine.state.apply(change, stamp, clock, COUNTED)
    twin.take((B, 2), "update", {"n": 115}, {"n": 15}, knows={A: 1, B: 1})
    mine.state.renamed(B, 1, D, zip(told, stamps, clocks, strict=True), COUNTED)
    assert mine.visible == {"n": 17}
    assert mine.state.stamps("") == [Stamp(3, D, 2)]
    mine.state.join({A: 1, B: 1, D: 2}, twin.state, {A: 1, B: 2})
    assert mine.visible == {"n": 117}


def test_what_is_called_otherwise_does_not_come_back_to_a_row_that_was_made_anew() -> None:
    row, same = inserted({"n": 10}, COUNTED), inserted({"n": 10}, COUNTED)
    told = [
        RowChange(table="t", action="update", key=KEY, before={"n": 10}, after={"n": 15}),
        RowChange(table="t", action="write", key=KEY, after={"n": 20}),
        RowChange(table="t", action="update", key=KEY, before={"n": 20}, after={"n": 25}),
    ]
    changes = [
        (change, Stamp(number, B, number), {A: 1, B: number})
        for number, change in enumerate(told, 1)
    ]
    for number, (change, stamp, clock) in enumerate(changes, 1):
        row.state.apply(change, stamp, clock, COUNTED)
        same.take((D, number), change.action, change.after, change.before, knows={A: 1})
    row.take((C, 1), "write", {"n": 100}, knows={A: 1, B: 3})
    same.take((C, 1), "write", {"n": 100}, knows={A: 1, D: 3})
    row.state.renamed(B, 0, D, changes, COUNTED)
    assert row.visible == {"n": 100}
    assert row.state.encode() == same.state.encode()


def test_sum_is_written_alike_however_it_was_made() -> None:
    row, same = inserted({"n": 10}, COUNTED), inserted({"n": 10}, COUNTED)
    change = RowChange(
        table="t", action="update", key=KEY, before={"n": 15}, after={"n": Decimal("18.50")}
    )
    for each in (row, same):
        each.take((B, 1), "update", {"n": 15}, {"n": 10}, knows={A: 1})
    row.state.apply(change, Stamp(2, B, 2), {A: 1, B: 2}, COUNTED)
    row.state.renamed(B, 1, D, [(change, Stamp(2, B, 2), {A: 1, B: 2})], COUNTED)
    same.state.apply(change, Stamp(2, D, 1), {A: 1, B: 1, D: 1}, COUNTED)
    assert row.state.encode() == same.state.encode()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1.0, "takes whole numbers and Decimal, not float"),
        (True, "takes whole numbers and Decimal, not bool"),
        ("1", "takes whole numbers and Decimal, not str"),
        (Decimal("NaN"), "at most 200 digits"),
        (Decimal("-Infinity"), "at most 200 digits"),
        (Decimal("1E+500"), "at most 200 digits"),
        (Decimal("1E-500"), "at most 200 digits"),
        (10**500, "at most 200 digits"),
    ],
)
def test_values_that_no_counter_takes_are_refused(value: Value, told: str) -> None:
    row = counted(10)
    octets = row.state.encode()
    for after, before in ((value, 13), (13, value)):
        with pytest.raises(RuleError, match=f"column n .*{told}"):
            row.take((A, 2), "update", {"n": after}, {"n": before}, knows={A: 1})
    with pytest.raises(RuleError, match=told):
        row.take((A, 2), "write", {"n": value}, knows={A: 1})
    assert row.state.encode() == octets


@pytest.mark.parametrize("rule", [counter(), members()])
def test_update_that_does_not_say_what_was_there_is_refused(rule: Any) -> None:
    row = inserted({"n": None}, TableRules(columns={"n": rule}))
    with pytest.raises(RuleError, match="column n: nobody says what was there"):
        row.take((A, 2), "update", {"n": None}, {}, knows={A: 1})
