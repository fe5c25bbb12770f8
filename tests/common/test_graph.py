"""The order of tables in a snapshot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompkit.replication.sources._order import parents_first

tables = st.lists(st.integers(0, 9), unique=True)
edges = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))


@given(tables=tables, references=edges)
def test_all_tables_are_there_once(tables: list[int], references: list[tuple[int, int]]) -> None:
    assert sorted(parents_first(tables, references)) == sorted(tables)


@given(tables=tables, references=edges)
def test_without_circles_every_parent_comes_first(
    tables: list[int], references: list[tuple[int, int]]
) -> None:
    down = [(child, parent) for child, parent in references if parent < child]
    found = parents_first(tables, down)
    for child, parent in down:
        if child in found and parent in found:
            assert found.index(parent) < found.index(child)


def test_what_refers_to_nothing_stays_where_it_is() -> None:
    assert parents_first(["a", "b", "c"], []) == ["a", "b", "c"]
    assert parents_first(["achild", "zparent"], [("achild", "zparent")]) == ["zparent", "achild"]
    # A cycle keeps its order, and comes after the tables to which it refers.
    circle = [("a", "b"), ("b", "a"), ("b", "z"), ("a", "a")]
    assert parents_first(["a", "b", "z"], circle) == ["z", "b", "a"]


def test_a_long_chain_is_no_deep_recursion() -> None:
    chain = list(range(20_000))
    assert parents_first(chain, [(n, n + 1) for n in chain[:-1]]) == chain[::-1]
