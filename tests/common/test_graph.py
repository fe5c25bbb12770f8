"""The order of things that reference each other."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from stompkit._common.graph import components, parents_first, ranks, references_of

nodes = st.lists(st.integers(0, 9), unique=True)
pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)))
graphs = st.builds(references_of, nodes, pairs)
#: References to smaller numbers only.
acyclic = st.builds(
    references_of, nodes, pairs.map(lambda found: [each for each in found if each[1] < each[0]])
)


def reachable(graph: Mapping[int, list[int]], start: int) -> set[int]:
    """Return what a key references, also indirectly, without others than keys."""
    found: set[int] = set()
    left = [start]
    while left:
        new = [each for each in graph[left.pop()] if each in graph and each not in found]
        found.update(new)
        left += new
    return found


@given(graph=graphs)
def test_all_keys_are_in_the_order_once(graph: dict[int, list[int]]) -> None:
    assert sorted(parents_first(graph)) == sorted(graph)


@given(graph=acyclic)
def test_without_cycles_every_key_follows_what_it_references(graph: dict[int, list[int]]) -> None:
    found = parents_first(graph)
    for child, parents in graph.items():
        for parent in parents:
            assert parent not in graph or found.index(parent) < found.index(child)


@given(graph=graphs)
def test_a_group_is_a_cycle_and_follows_what_it_references(graph: dict[int, list[int]]) -> None:
    groups = components(graph)
    place = {node: number for number, group in enumerate(groups) for node in group}
    for node in graph:
        below = reachable(graph, node)
        mutual = {each for each in below if node in reachable(graph, each)}
        assert set(groups[place[node]]) == mutual | {node}
        assert all(place[each] <= place[node] for each in below)


@given(graph=acyclic)
def test_a_rank_is_one_more_than_that_of_what_is_referenced(graph: dict[int, list[int]]) -> None:
    found = ranks(graph)
    for node, rank in found.items():
        assert rank == 1 + max((found[each] for each in graph[node] if each in graph), default=0)


@given(graph=graphs)
def test_members_of_a_cycle_have_one_rank_above_what_they_reference(
    graph: dict[int, list[int]],
) -> None:
    found = ranks(graph)
    for group in components(graph):
        assert len({found[node] for node in group}) == 1
        for node in group:
            others = [each for each in graph[node] if each in graph and each not in group]
            assert all(found[each] < found[node] for each in others)


def test_the_order_is_unchanged_without_references() -> None:
    def order(names: str, *references: str) -> str:
        return "".join(
            parents_first(references_of(names, [(each[0], each[1]) for each in references]))
        )

    assert order("abc") == "abc"
    assert order("az", "az") == "za"
    # The members of a cycle come after what one of them references.
    assert order("abz", "ab", "ba", "bz", "aa") == "zba"


def test_a_long_chain_is_no_deep_recursion() -> None:
    chain = list(range(20_000))
    graph = references_of(chain, [(n, n + 1) for n in chain[:-1]])
    assert parents_first(graph) == chain[::-1]
    assert ranks(graph)[0] == len(chain)


def test_many_references_take_no_longer_than_they_are() -> None:
    """The number of paths through these is 2 to the power of 400."""
    graph = {node: list(range(node)) for node in range(400)}
    assert ranks(graph) == {node: node + 1 for node in range(400)}
    assert components(graph) == [[node] for node in range(400)]
