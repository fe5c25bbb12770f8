"""Sets: a member stays as long as one of its additions was not removed."""

from __future__ import annotations

import math

import pytest

from stompkit.replica.rows import Stamp
from stompkit.replica.rules import RuleError, TableRules, members
from stompkit.replication.model.values import Value
from tests.replica.row_made import A, B, C, Row, inserted

TAGGED = TableRules(columns={"tags": members()})


def test_members_that_several_have_put_in_and_taken_out() -> None:
    row = inserted({"tags": ["a", "b", "c"]}, TAGGED)
    row.take((B, 1), "update", {"tags": ["a", "b", "d"]}, {"tags": ["a", "b", "c"]}, knows={A: 1})
    row.take((C, 1), "update", {"tags": ["b", "c", "e"]}, {"tags": ["a", "b", "c"]}, knows={A: 1})
    assert row.visible == {"tags": ["b", "d", "e"]}
    assert row.conflicts == []
    assert row.state.stamps("tags") == [Stamp(1, A, 1), Stamp(1, B, 1), Stamp(1, C, 1)]


def test_member_that_one_puts_in_again_and_another_takes_out_is_there() -> None:
    row = inserted({"tags": ["a"]}, TAGGED)
    row.take((B, 1), "update", {"tags": []}, {"tags": ["a"]}, knows={A: 1})
    row.take((B, 2), "update", {"tags": ["a"]}, {"tags": []}, knows={A: 1, B: 1})
    row.take((C, 1), "update", {"tags": []}, {"tags": ["a"]}, knows={A: 1})
    assert row.visible == {"tags": ["a"]}


def test_list_of_members_is_sorted_and_has_each_once() -> None:
    row = inserted({"tags": ["b", 10, 9, None, 1.5, True, "a", 1, 1.0, "b"]}, TAGGED)
    seen = row.visible
    assert seen is not None
    assert repr(seen["tags"]) == repr([None, True, 1, 1.0, 1.5, 9, 10, "a", "b"])


@pytest.mark.parametrize("value", [None, [], ["a"], frozenset(), frozenset("ab")])
def test_set_comes_back_as_what_was_written(value: Value) -> None:
    assert inserted({"tags": value}, TAGGED).visible == {"tags": value}
    row = inserted({"tags": ["z"]}, TAGGED)
    row.take((A, 2), "update", {"tags": value}, {"tags": ["z"]}, knows={A: 1})
    assert row.visible == {"tags": value}


def test_kind_of_set_is_that_of_who_knew_the_others() -> None:
    row = Row(TAGGED)
    row.take((A, 1), "write", {"tags": ["z"]}, knows={}, hlc=9)
    # With a clock that is behind.
    row.take((B, 1), "update", {"tags": None}, {"tags": ["z"]}, knows={A: 1}, hlc=1)
    assert row.visible == {"tags": None}


def test_kind_of_set_is_that_of_the_last_writer() -> None:
    row = inserted({"tags": frozenset("a")}, TAGGED)
    row.take((C, 1), "update", {"tags": ["a", "c"]}, {"tags": ["a"]}, knows={A: 1}, hlc=3)
    row.take((B, 1), "update", {"tags": frozenset("ab")}, {"tags": ["a"]}, knows={A: 1}, hlc=2)
    assert row.visible == {"tags": ["a", "b", "c"]}


def test_set_that_one_makes_null_keeps_what_another_has_put_in() -> None:
    row = inserted({"tags": frozenset("a")}, TAGGED)
    row.take((B, 1), "update", {"tags": frozenset("ab")}, {"tags": frozenset("a")}, knows={A: 1})
    row.take((C, 1), "update", {"tags": None}, {"tags": frozenset("a")}, knows={A: 1}, hlc=9)
    assert row.visible == {"tags": frozenset("b")}


def test_set_with_what_is_not_text_is_a_list() -> None:
    row = inserted({"tags": frozenset("a")}, TAGGED)
    row.take((B, 1), "update", {"tags": ["a", 1]}, {"tags": ["a"]}, knows={A: 1})
    row.take((C, 1), "update", {"tags": frozenset("ab")}, {"tags": frozenset("a")}, knows={A: 1})
    assert row.visible == {"tags": [1, "a", "b"]}


def test_members_of_a_row_that_is_made_again_are_those_that_it_is_made_with() -> None:
    row = inserted({"tags": ["a"]}, TAGGED)
    row.take((A, 2), "write", {"tags": ["b"]}, knows={A: 1})
    assert row.visible == {"tags": ["b"]}


def test_members_of_several_changes_of_one_changeset() -> None:
    row = inserted({"tags": ["a"]}, TAGGED)
    row.take((A, 2), "update", {"tags": ["a", "b"]}, {"tags": ["a"]}, knows={A: 1})
    row.take((A, 2), "update", {"tags": ["b", "c"]}, {"tags": ["a", "b"]}, knows={A: 1})
    assert row.visible == {"tags": ["b", "c"]}
    row.take((A, 2), "update", {"tags": None}, {"tags": ["b", "c"]}, knows={A: 1})
    assert row.visible == {"tags": None}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("ab", "it takes sets and lists, not str"),
        ({"a": 1}, "it takes sets and lists, not dict"),
        ([["a"]], "cannot be one"),
        ([{"a": 1}], "cannot be one"),
        ([math.nan], "cannot be one"),
        ([b"a"], "cannot be one"),
        ({1}, "cannot be one"),
    ],
)
def test_values_that_have_no_members_are_refused(value: Value, told: str) -> None:
    row = inserted({"tags": ["a"]}, TAGGED)
    with pytest.raises(RuleError, match=f"column tags has members.*{told}"):
        row.take((A, 2), "update", {"tags": value}, {"tags": ["a"]}, knows={A: 1})
    assert row.visible == {"tags": ["a"]}


def test_join_takes_out_what_the_other_replica_has_taken_out() -> None:
    here, there = inserted({"tags": ["a", "b"]}, TAGGED), inserted({"tags": ["a", "b"]}, TAGGED)
    there.take((B, 1), "update", {"tags": ["b"]}, {"tags": ["a", "b"]}, knows={A: 1})
    here.take((C, 1), "update", {"tags": ["a", "b", "c"]}, {"tags": ["a", "b"]}, knows={A: 1})
    here.state.join({A: 1, C: 1}, there.state, {A: 1, B: 1})
    assert here.visible == {"tags": ["b", "c"]}


def test_join_has_the_kind_of_who_knew_the_other() -> None:
    here, there = Row(TAGGED), Row(TAGGED)
    for row in (here, there):
        row.take((A, 1), "write", {"tags": ["a"]}, knows={}, hlc=9)
    # With a clock that is behind.
    there.take((B, 1), "update", {"tags": frozenset("a")}, {"tags": ["a"]}, knows={A: 1}, hlc=1)
    here.state.join({A: 1}, there.state, {A: 1, B: 1})
    assert here.visible == {"tags": frozenset("a")}


def test_state_that_another_was_joined_with_stays_as_it_is() -> None:
    here, there = Row(TAGGED), inserted({"tags": ["a", "b"]}, TAGGED)
    here.state.join({}, there.state, {A: 1})
    here.take((B, 1), "update", {"tags": ["b"]}, {"tags": ["a", "b"]}, knows={A: 1})
    assert here.visible == {"tags": ["b"]}
    assert there.visible == {"tags": ["a", "b"]}
