"""Collapsed changes: one state for each row, in several steps if needed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.model.events import RowChange
from stompkit.spark.fence import are_in_order, beyond, moved, ranges_of, sort_key
from stompkit.spark.states import Choice, Step, TableRules
from stompkit.spark.targets.base import chunks
from stompkit.spark.targets.planning.collapse import Collapse, collapse
from tests.replication.sinks.sql_targets import change
from tests.spark.change_rows import batch_of, row_of

#: The kind of a step; and for each row its key, its columns, and True if it is new.
Summary = list[tuple[str, list[tuple[dict[str, Any], dict[str, Any] | None, bool]]]]


def summary(steps: list[Step]) -> Summary:
    return [
        (step.kind, [(state.key, state.columns, state.is_new) for state in step.states])
        for step in steps
    ]


def collapsed(*changes: RowChange, choice: Choice | None = None) -> Summary:
    rows = [row_of(each, ordinal) for ordinal, each in enumerate(changes)]
    # In batches of two, whose limits must not matter.
    batches = [batch_of(rows[begin : begin + 2]) for begin in range(0, len(rows), 2)]
    steps, problems = collapse(batches, choice)
    assert not problems
    return summary(steps)


def problems_of(*rows: dict[str, Any]) -> list[str]:
    return [str(each) for each in collapse([batch_of(rows)])[1]]


def write(number: int, **columns: Any) -> RowChange:
    return change("write", {"id": number}, after={"id": number, **columns})


def update(number: int, **columns: Any) -> RowChange:
    return change("update", {"id": number}, after=columns)


def delete(number: int) -> RowChange:
    return change("delete", {"id": number})


def test_columns_of_several_changes_are_laid_over_each_other() -> None:
    assert collapsed(write(1, a=1, b=1), update(1, a=2), update(1, c=3), write(2, a=0)) == [
        (
            "rows",
            [
                ({"id": 1}, {"id": 1, "a": 2, "b": 1, "c": 3}, False),
                ({"id": 2}, {"id": 2, "a": 0}, False),
            ],
        )
    ]


def test_a_row_that_was_deleted_and_written_again_is_new() -> None:
    assert collapsed(update(1, a=1), delete(1), write(1, b=2)) == [
        ("rows", [({"id": 1}, {"id": 1, "b": 2}, True)])
    ]


def test_a_row_that_was_written_and_deleted_is_gone() -> None:
    assert collapsed(write(1, a=1), update(1, a=2), delete(1)) == [
        ("rows", [({"id": 1}, None, True)])
    ]


def test_a_change_of_a_key_comes_between_what_was_before_and_after() -> None:
    moves = change("update", {"id": 2}, after={"a": 5}, old_key={"id": 1})
    steps = collapsed(update(1, a=1), moves, update(2, a=6), delete(1))
    assert [kind for kind, _ in steps] == ["rows", "move", "rows"]
    assert steps[1] == ("move", [({"id": 2}, {"id": 2, "a": 5}, False)])
    assert steps[2] == (
        "rows",
        [({"id": 2}, {"id": 2, "a": 6}, False), ({"id": 1}, None, True)],
    )


def test_keys_that_change_places_in_one_changeset_do_so_together() -> None:
    one = change("update", {"id": 2}, after={}, old_key={"id": 1})
    other = change("update", {"id": 1}, after={}, old_key={"id": 2})
    together = collapse([batch_of([row_of(one, 7, 0), row_of(other, 7, 1)])])[0]
    apart = collapse([batch_of([row_of(one, 7), row_of(other, 8)])])[0]
    assert [len(step.states) for step in together] == [2]
    assert [len(step.states) for step in apart] == [1, 1]


@pytest.mark.parametrize("alone", [False, True])
def test_they_do_so_whatever_else_the_changeset_has(*, alone: bool) -> None:
    one = change("update", {"id": 2}, after={"a": 1}, old_key={"id": 1})
    other = change("update", {"id": 1}, after={"b": 2}, old_key={"id": 2})
    more = change("write", {"id": 1}, "other", after={"id": 1})
    made = Collapse(alone=alone)
    made.add(batch_of([row_of(each, 7, at) for at, each in enumerate((one, more, other))]))
    assert sorted((step.kind, len(step.states)) for step in made.steps()) == [
        ("move", 2),
        ("rows", 1),
    ]


def test_nothing_is_left_of_what_was_before_all_rows_went() -> None:
    steps = collapsed(write(1), change("truncate", {}), write(2))
    assert steps == [("truncate", [({}, None, True)]), ("rows", [({"id": 2}, {"id": 2}, False)])]


def test_rows_without_a_key_stay_in_order() -> None:
    steps = collapsed(
        change("write", {}, after={"a": 1}),
        change("write", {}, after={"a": 2}),
        change("update", {}, before={"a": 1}, after={"a": 3}),
        change("delete", {}, before={"a": 2}),
    )
    assert [(kind, len(rows)) for kind, rows in steps] == [
        ("insert", 2),
        ("update_one", 1),
        ("delete_one", 1),
    ]


def test_a_key_is_the_same_whatever_its_columns_are_in_order_of() -> None:
    one = change("write", {"x": 1, "y": 2}, after={"x": 1, "y": 2, "a": 1})
    other = change("update", {"y": 2, "x": 1}, after={"a": 2})
    again = change("delete", {"y": 2, "x": 1})
    assert len(collapsed(one, other)[0][1]) == 1
    assert len(collapsed(one, other, again)[0][1]) == 1


def test_equal_values_of_other_columns_are_another_row() -> None:
    first = change("write", {"id": 5}, after={"id": 5, "uid": 9})
    second = change("write", {"uid": 5}, after={"id": 7, "uid": 5})
    assert collapsed(first, second) == [
        ("rows", [({"id": 5}, {"id": 5, "uid": 9}, False)]),
        ("rows", [({"uid": 5}, {"id": 7, "uid": 5}, False)]),
    ]


def test_keys_of_any_type_are_told_apart() -> None:
    first = change("write", {"id": b"\x01"}, after={"id": b"\x01", "a": 1})
    other = change("write", {"id": b"\x02"}, after={"id": b"\x02", "a": 2})
    again = change("update", {"id": b"\x01"}, after={"a": 3})
    ((_, rows),) = collapsed(first, other, again)
    assert [columns and columns["a"] for _, columns, _ in rows] == [3, 2]


def test_only_chosen_tables_and_columns_are_left() -> None:
    other = change("write", {"id": 9}, "u", after={"id": 9})
    choice = Choice(tables=frozenset({"t"}), columns=frozenset({"a", "b"}))
    assert collapsed(write(1, a=1, b=2, c=3), other, choice=choice) == [
        ("rows", [({"id": 1}, {"id": 1, "a": 1, "b": 2}, False)])
    ]
    choice = Choice(except_columns=frozenset({"a", "id"}))
    assert collapsed(write(1, a=1, b=2), choice=choice) == [
        ("rows", [({"id": 1}, {"id": 1, "b": 2}, False)])
    ]


IMAGES = st.none() | st.fixed_dictionaries(
    {}, optional={name: st.none() | st.integers(0, 2) for name in ("id", "a", "secret")}
)


@given(
    changes=st.lists(
        st.builds(
            RowChange,
            table=st.just("t"),
            action=st.sampled_from(["write", "update", "delete", "truncate"]),
            key=st.sampled_from([{}, {"id": 1}, {"id": 2}]),
            before=IMAGES,
            after=IMAGES,
            old_key=st.sampled_from([None, {"id": 1}, {"id": 2}]),
        ),
        max_size=6,
    ),
    choice=st.sampled_from(
        [
            Choice(except_columns=frozenset({"secret"})),
            Choice(columns=frozenset({"a"})),
            Choice(columns=frozenset({"a", "secret"}), except_columns=frozenset({"secret"})),
            Choice(keys={"": ("a",)}, columns=frozenset({"id"})),
        ]
    ),
    mode=st.sampled_from(["together", "alone", "by age"]),
)
def test_no_step_has_a_column_that_is_excluded(
    changes: list[RowChange], choice: Choice, mode: str
) -> None:
    admit = None if mode != "by age" else lambda source, key, place, *, is_gone: True
    made = Collapse(choice, alone=mode != "together", admit=admit)
    made.add(batch_of([row_of(each, ordinal) for ordinal, each in enumerate(changes)]))
    for step in made.steps():
        for state in step.states:
            assert "secret" not in {**state.key, **(state.columns or {}), **(state.old or {})}


def test_row_without_a_key_is_found_by_the_columns_that_are_applied() -> None:
    choice = Choice(except_columns=frozenset({"secret"}), ignores_null_updates=True)
    old, new = {"a": 1, "secret": 2}, {"a": 3, "b": None, "secret": 4}
    update = change("update", {}, before=old, after=new)
    steps, problems = collapse([batch_of([row_of(update, 0)])], choice)
    ((state,),) = [step.states for step in steps]
    assert (state.old, state.columns, problems) == ({"a": 1}, {"a": 3}, [])
    unseen = change("update", {}, before=old, after={"secret": 5})
    assert collapse([batch_of([row_of(unseen, 0)])], choice) == ([], [])


def test_updates_to_null_are_ignored_on_demand() -> None:
    choice = Choice(ignores_null_updates=True)
    assert collapsed(write(1, a=1, b=None), update(1, a=None, c=2), choice=choice) == [
        ("rows", [({"id": 1}, {"id": 1, "a": 1, "b": None, "c": 2}, False)])
    ]


def test_a_key_that_is_chosen_goes_before_that_of_the_changes() -> None:
    choice = Choice(keys={"t": ("code",)})
    one = change("write", {"id": 1}, after={"id": 1, "code": "x"})
    other = change("update", {"id": 1}, before={"id": 1, "code": "x"}, after={"id": 1, "code": "y"})
    steps = collapsed(one, other, choice=choice)
    assert [(kind, rows[0][0]) for kind, rows in steps] == [
        ("rows", {"code": "x"}),
        ("move", {"code": "y"}),
    ]


def test_changes_that_make_no_sense_are_told_with_their_place() -> None:
    broken = {**row_of(write(1), 4, 2, partition=3), "after": "[1"}
    unreadable = {
        **row_of(write(1), 5),
        "operation": "unreadable",
        "table": None,
        "schema": None,
        "problem": "no JSON at all",
    }
    null = row_of(change("delete", {"id": None}), 6)
    said = problems_of(broken, unreadable, null, row_of(write(2), 7))
    assert len(said) == 3
    assert said[0].startswith("change 2 of message 4 in partition 3 of the spool: write of")
    assert said[1].endswith("no JSON at all")
    assert said[2].endswith("NULL in the key")


def test_what_is_wrong_in_one_row_leaves_the_others_of_its_batch() -> None:
    broken = {**row_of(write(1), 0), "after": '{"id": 1}, {"id": 2'}
    steps, problems = collapse([batch_of([broken, row_of(write(3), 1)])])
    assert len(problems) == 1
    assert summary(steps) == [("rows", [({"id": 3}, {"id": 3}, False)])]


def test_linked_tables_are_written_to_in_the_order_of_their_ranks() -> None:
    rules = {"parent": TableRules(0, 1), "child": TableRules(0, 2)}
    made = Collapse(None, lambda schema, table: rules[table])
    changes = [
        change("write", {"id": 1}, "child", after={"id": 1}),
        change("write", {"id": 1}, "parent", after={"id": 1}),
        change("delete", {"id": 5}, "parent"),
        change("delete", {"id": 5}, "child"),
        change("write", {"id": 2}, "child", after={"id": 2}),
    ]
    made.add(batch_of([row_of(each, number) for number, each in enumerate(changes)]))
    assert [step.table[1] for step in made.steps()] == [
        "parent",
        "child",
        "child",
        "parent",
        "child",
    ]


def test_alone_each_change_is_a_step() -> None:
    made = Collapse(alone=True)
    made.add(batch_of([row_of(update(1, a=number), number) for number in range(5)]))
    assert [step.states[0].columns for step in made.steps()] == [
        {"a": number, "id": 1} for number in range(5)
    ]


# Fences.


def rows_at(*places: tuple[int, int]) -> pa.RecordBatch:
    return batch_of([row_of(write(1), ordinal, partition=each) for each, ordinal in places])


def test_a_fence_keeps_out_what_is_applied_partition_by_partition() -> None:
    batch = rows_at((0, 4), (0, 5), (0, 6), (1, 4), (2, 0))
    left = beyond(batch, {0: 5, 1: 9})
    assert left.column("_ordinal").to_pylist() == [6, 0]
    assert beyond(batch, {}).num_rows == 5
    assert beyond(batch, {7: 1}).num_rows == 5


@pytest.mark.parametrize(
    ("places", "in_order"),
    [
        ([(0, 1), (0, 2), (0, 5)], True),
        ([(0, 1), (1, 0), (0, 2), (1, 1)], True),
        ([(0, 2), (0, 1)], False),
        # The same change twice.
        ([(0, 1), (0, 1)], False),
    ],
)
def test_it_is_seen_whether_changes_come_in_order(
    places: list[tuple[int, int]], *, in_order: bool
) -> None:
    whole = rows_at(*places)
    assert ranges_of([whole])[1] is in_order
    assert ranges_of([whole.slice(0, 1), whole.slice(1)])[1] is in_order


def test_changes_of_one_message_come_in_the_order_of_their_numbers() -> None:
    rows = [row_of(write(1), 3, number) for number in (0, 1, 2)]
    whole = {0: ((3, 0), (3, 2))}
    assert ranges_of([batch_of(rows)]) == (whole, True)
    assert ranges_of([batch_of(rows[:1]), batch_of(rows[1:])]) == (whole, True)
    assert ranges_of([batch_of(rows[::-1])]) == (whole, False)
    # As for a message with more changes than are processed together.
    halves = [ranges_of([batch_of(some)])[0] for some in (rows[:1], rows[1:])]
    assert are_in_order(halves)
    assert not are_in_order(halves[::-1])
    assert are_in_order(sorted(halves[::-1], key=sort_key))
    assert moved({}, halves) == {0: 3}


def test_parts_follow_each_other_or_are_sorted_first() -> None:
    parts = [{0: ((5, 0), (9, 0))}, {1: ((0, 0), (3, 1))}, {0: ((0, 0), (4, 2))}]
    parts.sort(key=sort_key)
    assert are_in_order(parts)
    assert not are_in_order([{0: ((0, 0), (4, 2))}, {0: ((4, 2), (5, 0))}])
    assert moved({0: 2, 3: 1}, parts) == {0: 9, 1: 3, 3: 1}


def test_changes_are_collapsed_in_groups_of_bounded_size() -> None:
    batch = pa.RecordBatch.from_pydict({"after": ["x" * (1 << 20)] * 10})
    groups = list(chunks([batch] * 30, 200_000))
    assert sum(map(len, groups)) == 30
    assert max(sum(each.nbytes for each in group) for group in groups) < 80 << 20
    assert len(list(chunks([batch] * 30, 50))) == 6
