"""Version vectors: known changesets, missing ones, and those known to all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.replica.vectors import (
    count,
    covers,
    dominates,
    dot_text,
    least,
    merged,
    missing,
    parse_dot,
    settled,
)
from tests.replica.row_histories import histories, rules_for, vectors

maps = st.dictionaries(st.sampled_from(["A~1", "B~1", "10~2"]), st.integers(0, 5))


def dots(vector: dict[str, int]) -> set[tuple[str, int]]:
    """Return all changesets that a vector contains."""
    return {
        (origin, number) for origin, sequence in vector.items() for number in range(1, sequence + 1)
    }


@given(maps, st.tuples(st.sampled_from(["A~1", "C~1"]), st.integers(1, 6)))
def test_vector_covers_what_it_stands_for(vector: dict[str, int], dot: tuple[str, int]) -> None:
    assert covers(vector, dot) == (dot in dots(vector))


@given(maps, maps)
def test_vector_dominates_those_of_which_it_has_all(
    one: dict[str, int], other: dict[str, int]
) -> None:
    assert dominates(one, other) == (dots(one) >= dots(other))


@given(st.lists(maps))
def test_merged_vector_has_what_any_has(given: list[dict[str, int]]) -> None:
    found = merged(*given)
    assert dots(found) == set().union(*map(dots, given))
    assert 0 not in found.values()


@given(st.lists(maps, min_size=1))
def test_least_vector_has_what_all_have(given: list[dict[str, int]]) -> None:
    found = least(*given)
    assert dots(found) == set.intersection(*map(dots, given))
    assert 0 not in found.values()


def test_least_of_no_vectors_is_nothing() -> None:
    assert least() == {}


@given(maps, maps)
def test_missing_are_all_that_others_have_beyond(
    have: dict[str, int], theirs: dict[str, int]
) -> None:
    ranges = missing(have, theirs)
    found = {
        (origin, number)
        for origin, (first, last) in ranges.items()
        for number in range(first, last + 1)
    }
    assert found == dots(theirs) - dots(have)
    assert count(ranges) == len(found)


@pytest.mark.parametrize("dot", [("A~1f2e3d4c", 17), ("10~00000000", 100_000), ("a:b", 1)])
def test_dot_comes_back_from_its_text(dot: tuple[str, int]) -> None:
    assert parse_dot(dot_text(dot)) == dot


def test_dot_as_text() -> None:
    assert dot_text(("A~1f2e3d4c", 17)) == "A~1f2e3d4c:17"


@pytest.mark.parametrize("text", ["", "A~1", "A~1:", ":1", "A~1:0", "A~1:-1", "A~1:01", "A~1:x"])
def test_text_that_is_no_dot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no origin and number"):
        parse_dot(text)


def test_what_a_replica_says_that_it_has_counts_when_its_changesets_are_here() -> None:
    own = {"A~1": 5, "B~1": 3}
    # B's fourth may have been made without A's fifth, and it is missing here.
    assert settled(own, {"B~1": {"B~1": 3}}, [("B~1", {"A~1": 5, "B~1": 4})]) == {"B~1": 3}
    assert settled(own, {"B~1": {"B~1": 3}}, [("B~1", {"A~1": 5, "B~1": 3})]) == own


def test_replica_that_has_never_been_heard_may_know_nothing() -> None:
    own = {"A~1": 5}
    assert settled(own, {"B~1": {}, "C~1": {}}, [("B~1", {"A~1": 5})]) == {}
    assert settled(own, {"B~1": {}, "C~1": {}}, [("B~1", {"A~1": 5}), ("C~1", {"A~1": 2})]) == {
        "A~1": 2
    }


def test_replica_that_is_alone_knows_what_all_know() -> None:
    assert settled({"A~1": 5}, {}, [("gone~1", {"A~1": 1})]) == {"A~1": 5}


@given(st.data())
def test_what_is_settled_is_in_the_past_of_all_that_can_still_come(data: st.DataObject) -> None:
    history = data.draw(histories(rules_for("update-wins")))
    own = data.draw(vectors(history))
    origins = {each.stamp.origin for each in history}
    clocks: dict[str, dict[str, int]] = {origin: {} for origin in origins}
    for each in history:
        if covers(own, each.dot):
            clocks[each.stamp.origin] = dict(each.clock)
    heard = [(each.stamp.origin, each.clock) for each in data.draw(st.permutations(history))]
    found = settled(own, clocks, heard[: data.draw(st.integers(0, len(heard)))])
    assert dominates(own, found)
    for each in history:
        assert covers(own, each.dot) or dominates(each.clock, found)
