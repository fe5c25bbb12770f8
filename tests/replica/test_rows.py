"""Rows with several writers: the visible state, the kept state, and invalid changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from stompkit.replica.rows import Candidate, Conflict, RowState, Stamp
from stompkit.replica.rules import (
    OnDelete,
    Rules,
    TableRules,
    counter,
    custom,
    first_writer,
    origin_priority,
)
from stompkit.replication.model.events import Action, RowChange
from stompkit.replication.model.values import Value
from tests.replica.row_made import KEY, PLAIN, A, B, C, Row, inserted


def test_row_is_seen_without_its_key() -> None:
    assert inserted({"a": 1, "b": None}).visible == {"a": 1, "b": None}


def test_update_of_a_row_that_nobody_has_made_shows_what_it_says() -> None:
    row = Row()
    row.take((A, 1), "update", {"a": 2}, {"a": 1}, knows={})
    assert row.visible == {"a": 2}


def test_changes_of_different_columns_are_no_conflict() -> None:
    row = inserted({"a": 1, "b": 1, "c": 1})
    row.take((B, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1})
    row.take((C, 1), "update", {"b": 3}, {"b": 1}, knows={A: 1})
    assert row.visible == {"a": 2, "b": 3, "c": 1}
    assert row.conflicts == []


def test_last_writer_of_a_column_is_seen_and_others_are_kept() -> None:
    row = inserted({"a": 1})
    row.take((B, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1}, hlc=9)
    row.take((C, 1), "update", {"a": 3}, {"a": 1}, knows={A: 1}, hlc=8)
    row.take((A, 2), "update", {"a": 4}, {"a": 1}, knows={A: 1}, hlc=7)
    assert row.visible == {"a": 2}
    winner = Candidate(Stamp(9, B, 1), 2, 1)
    losers = [Candidate(Stamp(8, C, 1), 3, 1), Candidate(Stamp(7, A, 2), 4, 1)]
    assert row.conflicts == [Conflict("a", winner, losers)]
    assert row.state.stamps("a") == [Stamp(7, A, 2), Stamp(8, C, 1), Stamp(9, B, 1)]


def test_of_writers_at_the_same_time_the_greater_origin_is_the_last() -> None:
    row = inserted({"a": 1})
    row.take((C, 1), "update", {"a": 3}, {"a": 1}, knows={A: 1}, hlc=7)
    row.take((B, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1}, hlc=7)
    assert row.visible == {"a": 3}


def test_conflict_ends_when_somebody_writes_who_knows_all_versions() -> None:
    row = inserted({"a": 1})
    row.take((B, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1}, hlc=9)
    row.take((C, 1), "update", {"a": 3}, {"a": 1}, knows={A: 1}, hlc=8)
    # With a clock that is behind.
    row.take((A, 2), "update", {"a": 3}, {"a": 2}, knows={B: 1, C: 1}, hlc=1)
    assert row.visible == {"a": 3}
    assert row.conflicts == []


def test_identical_edits_are_no_conflict() -> None:
    row = inserted({"a": None})
    row.take((B, 1), "update", {"a": {"x": 1, "y": [2]}}, {"a": None}, knows={A: 1})
    row.take((C, 1), "update", {"a": {"y": [2], "x": 1}}, {"a": None}, knows={A: 1})
    assert row.visible == {"a": {"x": 1, "y": [2]}}
    assert row.conflicts == []


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (Decimal("1.0"), Decimal("1.00"))])
def test_values_that_are_written_differently_are_a_conflict(one: Value, other: Value) -> None:
    row = inserted({"a": None})
    row.take((B, 1), "update", {"a": one}, {"a": None}, knows={A: 1})
    row.take((C, 1), "update", {"a": other}, {"a": None}, knows={A: 1})
    (conflict,) = row.conflicts
    assert [repr(each.value) for each in (conflict.winner, *conflict.losers)] == [
        repr(other),
        repr(one),
    ]


def test_row_that_two_have_made_has_all_columns_of_one() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((B, 1), "write", {**KEY, "a": 2, "b": 2}, knows={})
    row.take((A, 2), "update", {"b": 3}, {"b": 1}, knows={A: 1})
    assert row.visible == {"a": 2, "b": 3}
    assert [each.column for each in row.conflicts] == ["a", "b"]


def test_update_takes_nothing_back_that_its_writer_did_not_know() -> None:
    row = inserted({"a": 1})
    row.take((B, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1}, hlc=1)
    row.take((A, 2), "update", {"a": 3}, {"a": 1}, knows={A: 1}, hlc=5)
    row.take((B, 2), "update", {"a": 4}, {"a": 2}, knows={A: 1, B: 1}, hlc=2)
    assert row.visible == {"a": 3}
    assert [each.value for each in row.conflicts[0].losers] == [4]


def test_of_several_changes_of_one_changeset_the_last_counts() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((B, 1), "update", {"a": 2, "b": 2}, {"a": 1, "b": 1}, knows={A: 1})
    row.take((B, 1), "update", {"a": 3}, {"a": 2}, knows={A: 1})
    row.take((C, 1), "update", {"a": 9}, {"a": 1}, knows={A: 1})
    assert row.visible == {"a": 9, "b": 2}
    # The value before all of them is the common ancestor.
    assert row.conflicts[0].losers == [Candidate(Stamp(1, B, 1), 3, 1)]


def test_changeset_knows_itself() -> None:
    row = Row()
    steps: list[tuple[Action, dict[str, Value]]] = [("write", {"a": 1}), ("update", {"a": 2})]
    for action, after in steps:
        change = RowChange(table="t", action=action, key=KEY, before={"a": 1}, after=after)
        row.state.apply(change, Stamp(1, B, 3), {B: 2}, PLAIN)
    assert row.visible == {"a": 2}
    assert row.state.stamps("a") == [Stamp(1, B, 3)]


def test_what_was_made_and_changed_in_one_changeset_was_nothing_before() -> None:
    row = Row()
    row.take((A, 1), "write", {"a": 1}, knows={})
    row.take((A, 1), "update", {"a": 2}, {"a": 1}, knows={})
    row.take((B, 1), "write", {"a": 3}, knows={})
    assert row.conflicts[0].losers == [Candidate(Stamp(1, A, 1), 2, None)]


def test_row_that_is_made_again_has_nothing_of_the_one_before() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((A, 2), "delete", before={"a": 1, "b": 1}, knows={A: 1})
    row.take((A, 3), "write", {**KEY, "a": 2}, knows={A: 2})
    assert row.visible == {"a": 2}
    assert row.state.stamps("") == [Stamp(3, A, 3)]


def test_delete_and_insert_in_one_changeset_is_another_row() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((A, 2), "delete", before={"a": 1, "b": 1}, knows={A: 1})
    row.take((A, 2), "write", {"a": 2}, knows={A: 1})
    assert row.visible == {"a": 2}


def test_insert_and_delete_in_one_changeset_is_no_row() -> None:
    row = Row()
    row.take((A, 1), "write", {"a": 2}, knows={})
    row.take((A, 1), "delete", before={"a": 2}, knows={})
    assert row.visible is None


def test_insert_where_others_have_deleted_does_not_mix_with_what_they_have_deleted() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((A, 2), "update", {"a": 7}, {"a": 1}, knows={A: 1})
    row.take((B, 1), "delete", before={"a": 1, "b": 1}, knows={A: 2}, hlc=3)
    row.take((C, 1), "write", {**KEY, "a": 2}, knows={}, hlc=1)
    assert row.visible == {"a": 2}
    assert [each.column for each in row.conflicts] == [""]


@pytest.mark.parametrize(
    ("on_delete", "hlc", "visible"),
    [
        ("update-wins", 3, {"a": 2, "b": 1}),
        ("update-wins", 5, {"a": 2, "b": 1}),
        ("delete-wins", 3, None),
        ("delete-wins", 5, None),
        ("last-writer", 3, {"a": 2, "b": 1}),
        ("last-writer", 5, None),
    ],
)
def test_row_that_one_has_deleted_and_another_has_changed(
    on_delete: OnDelete, hlc: int, visible: Any
) -> None:
    row = inserted({"a": 1, "b": 1}, TableRules(on_delete=on_delete))
    row.take((B, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1}, hlc=4)
    row.take((C, 1), "delete", before={"a": 1, "b": 1}, knows={A: 1}, hlc=hlc)
    assert row.visible == visible
    changed, deleted = Candidate(Stamp(4, B, 1), {"a": 2}), Candidate(Stamp(hlc, C, 1), None)
    if visible is None:
        assert row.conflicts == [Conflict("", deleted, [changed])]
    else:
        assert row.conflicts == [Conflict("", changed, [deleted])]


def test_two_deletes_are_no_conflict() -> None:
    row = inserted({"a": 1})
    row.take((B, 1), "delete", before={"a": 1}, knows={A: 1})
    row.take((C, 1), "delete", before={"a": 1}, knows={A: 1})
    assert row.visible is None
    assert row.conflicts == []
    assert row.state.stamps("") == [Stamp(1, B, 1), Stamp(1, C, 1)]


def test_update_of_nothing_says_that_there_is_a_row() -> None:
    row = inserted({"a": 1})
    row.take((B, 1), "delete", before={"a": 1}, knows={A: 1})
    row.take((C, 1), "update", {}, {}, knows={A: 1})
    assert [each.column for each in row.conflicts] == [""]
    row.take((A, 2), "update", {}, {}, knows={B: 1, C: 1})
    assert row.visible == {"a": 1}
    assert row.conflicts == []


def test_each_column_has_its_rule() -> None:
    longest = custom("longest", lambda versions: max((each.value for each in versions), key=len))
    rules = Rules(
        origin_priority("B"), tables={"t": TableRules(columns={"b": first_writer(), "c": longest})}
    ).of("t")
    row = inserted({"a": "", "b": "", "c": ""}, rules)
    row.take((B, 1), "update", {"a": "B", "b": "B", "c": "BB"}, {}, knows={A: 1}, hlc=2)
    row.take((C, 1), "update", {"a": "C", "b": "C", "c": "C"}, {}, knows={A: 1}, hlc=3)
    assert row.visible == {"a": "B", "b": "B", "c": "BB"}
    assert [[each.value for each in conflict.losers] for conflict in row.conflicts] == [
        ["C"],
        ["C"],
        ["C"],
    ]


def test_custom_rule_may_make_what_nobody_has_written() -> None:
    rule = custom("joined", lambda versions: "".join(each.value for each in versions))
    row = inserted({"a": ""}, TableRules(default=rule))
    row.take((C, 1), "update", {"a": "C"}, {"a": ""}, knows={A: 1}, hlc=2)
    row.take((B, 1), "update", {"a": "B"}, {"a": ""}, knows={A: 1}, hlc=3)
    assert row.visible == {"a": "CB"}
    assert [each.value for each in row.conflicts[0].losers] == ["B", "C"]


def test_last_version_is_seen_if_a_rule_fails_and_the_reason_has_no_values() -> None:
    largest = custom("largest", lambda versions: max(int(each.value) for each in versions))
    row = inserted({"a": "1", "b": ""}, TableRules(columns={"a": largest}))
    row.take((B, 1), "update", {"a": "secret"}, {"a": "1"}, knows={A: 1}, hlc=2)
    row.take((C, 1), "update", {"a": "7"}, {"a": "1"}, knows={A: 1}, hlc=3)
    assert row.visible == {"a": "7", "b": ""}
    (conflict,) = row.conflicts
    assert [each.value for each in conflict.losers] == ["secret"]
    assert conflict.problem == "the rule 'custom largest' of column a has failed: ValueError"


def test_default_rule_that_gives_a_counter_no_number_has_failed() -> None:
    rules = TableRules(default=custom("text", str), columns={"n": counter()})
    row = Row(rules)
    row.take((A, 1), "write", {"n": 1}, knows={})
    row.take((B, 1), "write", {"n": 2}, knows={}, hlc=2)
    row.take((A, 2), "update", {"n": 5}, {"n": 2}, knows={B: 1}, hlc=3)
    assert row.visible == {"n": 5}
    assert "column n is a counter" in row.conflicts[0].problem


@pytest.mark.parametrize("action", ["read", "truncate", "schema"])
def test_actions_that_replicas_do_not_have_are_refused(action: Action) -> None:
    row = inserted({"a": 1})
    with pytest.raises(ValueError, match=f"'{action}'"):
        row.take((A, 2), action, {"a": 2}, knows={A: 1})
    assert row.visible == {"a": 1}


def test_changesets_that_are_called_otherwise_can_go_on_with_other_numbers() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((A, 2), "update", {"a": 2}, {"a": 1}, knows={A: 1})
    row.take((A, 7), "update", {"b": 2}, {"b": 1}, knows={A: 6})
    row.state.renamed(A, 4, B, less=2)
    assert row.state.stamps("a") == [Stamp(2, A, 2)]
    assert row.state.stamps("b") == [Stamp(7, B, 5)]
    row.state.renamed(A, 1, C)
    assert row.state.stamps("a") == [Stamp(2, C, 1)]


# State that can be discarded.


def test_deleted_row_can_be_forgotten_when_all_know() -> None:
    row = inserted({"a": 1})
    assert not row.state.is_collectable({A: 9, B: 9})
    row.take((B, 1), "delete", before={"a": 1}, knows={A: 1})
    assert not row.state.is_collectable({A: 1})
    assert not row.state.is_collectable({B: 1})
    assert row.state.is_collectable({A: 1, B: 1})


def test_row_that_a_rule_hides_is_kept_until_somebody_has_resolved_that() -> None:
    row = inserted({"a": 1}, TableRules(on_delete="delete-wins"))
    row.take((B, 1), "delete", before={"a": 1}, knows={A: 1})
    row.take((C, 1), "update", {"a": 2}, {"a": 1}, knows={A: 1})
    assert row.visible is None
    assert not row.state.is_collectable({A: 9, B: 9, C: 9})
    row.take((A, 2), "delete", before={}, knows={B: 1, C: 1})
    assert row.state.is_collectable({A: 9, B: 9, C: 9})


def test_what_was_there_before_is_forgotten_with_what_came_then() -> None:
    row = inserted({"a": 1, "b": 1})
    row.take((A, 2), "update", {"a": 2, "b": 2}, {"a": "old", "b": 1}, knows={A: 1})
    here = RowState.decode(row.state.encode())
    row.take((A, 3), "update", {"a": 3}, {"a": 2}, knows={A: 2})
    assert b"old" not in row.state.encode()
    here.join({A: 2}, row.state, {A: 3})
    assert here.encode() == row.state.encode()


def test_nothing_is_left_of_columns_that_were_all_written_again() -> None:
    row = inserted({"a": 1})
    for number in range(2, 50):
        row.take((A, number), "update", {"a": number}, {"a": number - 1}, knows={A: number - 1})
    assert len(row.state.encode()) < 150


@pytest.mark.parametrize("octets", [b"", b"2[[],{}]", b"1", b"1[[],{}", b"1[[[1]],{}]", b"1\xff"])
def test_octets_that_are_no_state_are_refused(octets: bytes) -> None:
    with pytest.raises(ValueError, match="this is no state of a row"):
        RowState.decode(octets)
