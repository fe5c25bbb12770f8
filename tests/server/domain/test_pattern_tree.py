"""The tree of patterns finds the same items as a comparison with each pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.server.domain.names import Pattern
from stompkit.server.domain.pattern_tree import PatternTree
from stompkit.testing.memory import MemoryBroker, MemoryClient

KINDS = st.sampled_from(["/queue/", "/topic/", "/dlq/"])
#: Few words, so that patterns and names often match; the empty word is a level as well.
WORDS = st.sampled_from(["a", "b", ""])
HEADS = st.lists(WORDS | st.just("*"), max_size=4)
NAMES = st.lists(WORDS, min_size=1, max_size=5).filter(any).map(".".join)
#: Texts that are not names of destinations, but may be looked up.
STRANGE = st.lists(WORDS | st.sampled_from("*>#"), min_size=1, max_size=4).map(".".join)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    """Draw the levels of a pattern."""
    head = draw(HEADS)
    tail = draw(st.sampled_from(([], [">"], ["#"])))
    return ".".join([*head, *tail]) or "*"


def wanted(pattern: str, name: str) -> bool:
    """Return True if a pattern matches a name: by the definition, slowly."""
    return _wanted(pattern.split("."), name.split("."))


def _wanted(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "#":
        return True
    if not name:
        return False
    if pattern[0] == ">":
        return True
    return pattern[0] in ("*", name[0]) and _wanted(pattern[1:], name[1:])


#: A kind, a pattern, an item; the same ones are added and removed repeatedly.
STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "remove")), KINDS, patterns(), st.integers(1, 3)),
    max_size=30,
)


@given(STEPS, st.lists(st.tuples(KINDS, NAMES | STRANGE), min_size=1, max_size=5))
def test_what_stands_under_matching_patterns_is_found_in_order(
    steps: list[tuple[str, str, str, int]], names: list[tuple[str, str]]
) -> None:
    tree: PatternTree[int] = PatternTree()
    standing: dict[tuple[str, str, int], None] = {}
    for verb, kind, levels, item in steps:
        pattern, key = Pattern(kind + levels), (kind, levels, item)
        if verb == "add":
            tree.add(pattern, item)
            standing.setdefault(key)
        else:
            tree.remove(pattern, item)
            standing.pop(key, None)
        # After each step, because cached results must not stay.
        for name_kind, name in names:
            right = [
                each
                for each_kind, each_levels, each in standing
                if each_kind == name_kind and wanted(each_levels, name)
            ]
            assert tree.find(name_kind + name) == right


@given(st.lists(st.tuples(KINDS, patterns()), min_size=1, max_size=20, unique=True), NAMES)
def test_nothing_is_left_of_patterns_that_have_gone(
    pairs: list[tuple[str, str]], name: str
) -> None:
    tree: PatternTree[str] = PatternTree()
    read = [Pattern(kind + levels) for kind, levels in pairs]
    for each in read:
        tree.add(each, each.text)
    for each in reversed(read):
        tree.remove(each, each.text)
        assert each.text not in tree.find(each.kind.value + name)
    assert tree.is_empty


def test_a_tree_that_was_cleared_can_be_used_again() -> None:
    tree: PatternTree[str] = PatternTree()
    pattern = Pattern("/queue/a.*")
    tree.add(pattern, "before")
    tree.clear()
    assert tree.find("/queue/a.b") == []
    tree.add(pattern, "after")
    assert tree.find("/queue/a.b") == ["after"]


def test_what_was_never_there_can_be_removed() -> None:
    tree: PatternTree[str] = PatternTree()
    tree.remove(Pattern("/queue/a.*"), "x")
    tree.add(Pattern("/queue/a.b.*"), "y")
    for text in ("/queue/a.*", "/queue/a.b.c", "/queue/b.*", "/topic/a.b.*", "/queue/a.b.*"):
        tree.remove(Pattern(text), "x")
    assert tree.find("/queue/a.b.c") == ["y"]


def test_a_name_without_a_kind_is_found_under_nothing() -> None:
    tree: PatternTree[str] = PatternTree()
    tree.add(Pattern("/queue/>"), "x")
    assert tree.find("/topic/a") == tree.find("queue/a") == tree.find("") == []


@given(
    st.lists(patterns(), min_size=1, max_size=6, unique=True),
    st.lists(NAMES, min_size=1, max_size=4, unique=True),
    st.data(),
)
def test_each_message_goes_to_the_patterns_of_that_moment(
    texts: list[str], names: list[str], data: st.DataObject
) -> None:
    """Patterns are added and removed while topics are created, kept, deleted and created again."""
    broker = MemoryBroker()
    client, keeper, producer = broker.client(), broker.client(), broker.client()
    subscribed: set[str] = set()
    kept: set[str] = set()
    for _ in range(data.draw(st.integers(1, 12))):
        text = data.draw(st.sampled_from(texts))
        name = data.draw(st.sampled_from(names))
        for who, those, levels, doing in (
            (client, subscribed, text, data.draw(st.booleans())),
            (keeper, kept, name, data.draw(st.booleans())),
        ):
            if doing:
                toggle(who, those, levels)
        keeper.take()
        producer.publish(f"/topic/{name}", b"x")
        got = [each.headers["subscription"] for each in client.take("MESSAGE")]
        assert sorted(got) == sorted(each for each in subscribed if wanted(each, name))
        assert len(keeper.take("MESSAGE")) == (name in kept)
    assert client.error is keeper.error is producer.error is None


def toggle(client: MemoryClient, those: set[str], levels: str) -> None:
    """Subscribe to a topic or a pattern of topics, or end that subscription."""
    if levels in those:
        those.remove(levels)
        client.send("UNSUBSCRIBE", id=levels)
    else:
        those.add(levels)
        client.subscribe(f"/topic/{levels}", id=levels)


@given(
    st.lists(patterns(), min_size=1, max_size=4, unique=True),
    st.lists(NAMES, min_size=1, max_size=6),
    st.data(),
)
def test_durable_subscriptions_to_patterns_collect_until_they_are_removed(
    texts: list[str], names: list[str], data: st.DataObject
) -> None:
    broker = MemoryBroker()
    client, producer = broker.client(), broker.client()
    durable = {"durable": "true", "auto_delete": "false"}
    for text in texts:
        client.subscribe(f"/topic/{text}", id=text, **durable)
    removed = data.draw(st.sets(st.sampled_from(texts)))
    for text in removed:
        client.send("UNSUBSCRIBE", id=text, durable="true", auto_delete="false")
    for text in texts:
        if text not in removed:
            client.send("UNSUBSCRIBE", id=text)
    client.take()
    assert client.error is None
    for number, name in enumerate(names):
        producer.publish(f"/topic/{name}", b"%d" % number)
    for text in texts:
        client.subscribe(f"/topic/{text}", id=text, **durable)
        collected = client.bodies()
        right = [b"%d" % at for at, name in enumerate(names) if wanted(text, name)]
        assert collected == ([] if text in removed else right)


@pytest.mark.parametrize("end", ["removed", "reset"])
def test_nothing_is_kept_for_a_durable_subscription_that_is_no_more(end: str) -> None:
    broker = MemoryBroker()
    client = broker.client()
    client.subscribe("/topic/a.*", id="d", durable="true", auto_delete="false")
    client.publish("/topic/a.b", b"x")
    assert set(broker.destinations) == {"/topic/a.b"}
    if end == "removed":
        client.send("UNSUBSCRIBE", id="d", durable="true", auto_delete="false")
        assert client.error is None
    else:
        broker.broker.reset()
    broker.client().publish("/topic/a.c", b"x")
    # A topic with a durable subscriber would still exist.
    assert broker.destinations == {}
