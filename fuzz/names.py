"""Names of destinations: kinds, patterns, the tree of patterns and the dialects."""

from __future__ import annotations

from typing import Final, get_args

from fuzz._driver import main
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.names import Pattern, canonical, is_pattern, kind_of
from stompkit.server.domain.pattern_tree import PatternTree
from stompkit.server.settings.broker import Dialect

__all__ = ["SEEDS", "check"]

_DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)
_BETWEEN: Final = "\n"

SEEDS: Final = (
    b"/queue/a",
    b"/queue/a.b.c\n/queue/a.*.c\n/queue/a.>\n/queue/#\n/queue/*",
    b"/topic/a..b\n/topic/.\n/topic/>\n/topic/a.>.b\n/topic/#.a\n/topic/a*b",
    b"queue/a\ntopic/b\nqueue://x\n/amq/queue/q\n/exchange/amq.topic/a.b\n/exchange/e/k",
    b"/temp-queue/x\n/reply-queue/x\n/remote-temp-queue/ID:1\ntemp-topic://a",
    b"jms.queue.a\njms.topic.b\nname\n/name\n/fanout/a\n/dlq/a\n/queue/\n",
    b"/queue/*.*\n/queue/*.#\n/queue/*.>\n/queue/a.b\n/queue/*.b\n/queue/a.*",
)


def check(data: bytes) -> None:
    """Parse texts as names and as patterns, and compare all pairs."""
    texts = data.decode("utf-8", "surrogateescape").split(_BETWEEN)[:8]
    found: list[str] = []
    for text in texts:
        for dialect in _DIALECTS:
            for headers in ({}, {"destination-type": text}, {"subscription-type": "MULTICAST"}):
                name = canonical(text, headers, dialect)
                assert canonical(name, headers, dialect) == name or not name.startswith("/")
        try:
            kind_of(text)
        except RefusedError as refused:
            assert refused.message.isascii()
            continue
        found.append(text)
    patterns = []
    for text in found:
        is_pattern(text)
        try:
            patterns.append(Pattern(text))
        except RefusedError as refused:
            assert refused.message.isascii()
    tree: PatternTree[int] = PatternTree()
    for number, pattern in enumerate(patterns):
        tree.add(pattern, number)
    names = [text for text in found if not is_pattern(text)]
    for name in names:
        wanted = [number for number, each in enumerate(patterns) if each.matches(name)]
        assert tree.find(name) == wanted, (name, tree.find(name), wanted)
    for one in patterns:
        assert one.covers(one)
        for other in patterns:
            if one.covers(other):
                assert all(one.matches(name) for name in names if other.matches(name))
    for number, pattern in enumerate(patterns):
        tree.remove(pattern, number)
    assert tree.is_empty


if __name__ == "__main__":
    main(__file__)
