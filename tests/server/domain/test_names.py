"""Names of destinations: kinds, patterns, and patterns that cover others."""

from __future__ import annotations

import itertools

import pytest

from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.names import Kind, Pattern, is_pattern, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/queue/a", Kind.QUEUE),
        ("/queue//", Kind.QUEUE),
        ("/queue/ ", Kind.QUEUE),
        ("/topic/a.b", Kind.TOPIC),
        ("/fanout/a", Kind.FANOUT),
        ("/temp-queue/a", Kind.TEMP_QUEUE),
        ("/temp-topic/a", Kind.TEMP_TOPIC),
        ("/dlq/a", Kind.DEAD_LETTERS),
    ],
)
def test_the_prefix_says_the_kind(name: str, kind: Kind) -> None:
    assert kind_of(name) is kind


@pytest.mark.parametrize(
    "name", ["", "/", "a", "/queue", "/queue/", "queue/a", "/Queue/a", " /queue/a", "/exchange/a"]
)
def test_a_name_without_a_kind_or_anything_behind_it_is_unknown(name: str) -> None:
    with pytest.raises(RefusedError, match="is unknown") as caught:
        kind_of(name)
    assert caught.value.code == "unknown-destination"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("/queue/a.*", True),
        ("/queue/*", True),
        ("/topic/a.>", True),
        ("/topic/#", True),
        ("/topic/a.*.b", True),
        ("/topic/a*", False),
        ("/topic/a.b*.c", False),
        ("/topic/a>b", False),
        ("/topic/**", False),
        ("/topic/a.b", False),
    ],
)
def test_only_a_whole_level_is_a_wildcard(name: str, *, answer: bool) -> None:
    assert is_pattern(name) is answer


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("/queue/*", ["a", "", "a-b", "*"], ["a.b", "a."]),
        ("/queue/a.*", ["a.b", "a."], ["a", "a.b.c", "b.b", "A.b"]),
        ("/queue/*.b", ["a.b", "x.b"], ["b", "a.b.c", "a.c"]),
        ("/queue/a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
        ("/queue/>", ["a", "a.b.c"], []),
        ("/queue/a.>", ["a.b", "a.b.c"], ["a", "b.a", "ab.c"]),
        ("/queue/#", ["a", "a.b.c"], []),
        ("/queue/a.#", ["a", "a.b", "a.b.c"], ["b", "ab", "b.a"]),
        ("/queue/*.#", ["a", "a.b", "b.c.d"], []),
        ("/queue/*.>", ["a.b", "b.c.d"], ["a"]),
        ("/queue/a.*.>", ["a.b.c", "a.b.c.d"], ["a.b", "a", "b.b.c"]),
    ],
)
def test_patterns_match_by_levels(pattern: str, matching: list[str], others: list[str]) -> None:
    read = Pattern(pattern)
    levels = [*matching, *others]
    assert [name for name in levels if read.matches(f"/queue/{name}")] == matching
    assert not any(read.matches(f"/topic/{name}") for name in levels), "another kind"


@pytest.mark.parametrize("pattern", ["/queue/>.a", "/queue/#.a", "/topic/a.>.>", "/topic/#.>"])
def test_the_wildcards_for_the_rest_stand_at_the_end(pattern: str) -> None:
    with pytest.raises(RefusedError, match="last level") as caught:
        Pattern(pattern)
    assert caught.value.code == "bad-destination"


LEVELS = ["a", "b", "*", ">", "#"]
PATTERNS = [
    "/queue/" + ".".join(levels)
    for length in (1, 2, 3)
    for levels in itertools.product(LEVELS, repeat=length)
    if not {">", "#"} & set(levels[:-1])
]
NAMES = [
    "/queue/" + ".".join(levels)
    for length in (1, 2, 3, 4)
    for levels in itertools.product("abc", repeat=length)
]


def test_a_pattern_covers_another_where_it_matches_all_that_the_other_does() -> None:
    # With four levels and a letter that no pattern has, the names distinguish all these patterns.
    read = [Pattern(text) for text in PATTERNS]
    matched = {each.text: {name for name in NAMES if each.matches(name)} for each in read}
    for one, other in itertools.product(read, repeat=2):
        expected = matched[one.text] >= matched[other.text]
        assert one.covers(other) is expected, (one.text, other.text)


def test_a_pattern_covers_none_of_another_kind() -> None:
    assert not Pattern("/queue/>").covers(Pattern("/topic/a"))
    assert not Pattern("/queue/#").covers(Pattern("/topic/#"))
