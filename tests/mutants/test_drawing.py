"""A draw depends on its seed, and each part of the product has its share."""

from __future__ import annotations

from collections import Counter

from tests.mutants.drawing import draw, part_of
from tests.mutants.mutant import locate

TEXT = """\
class A:
    def {name}(self, a, b):
        if a < b and a:
            self.x = a + 1
        return max(a, b)

    def again(self, a):
        self.y = a
        for each in a:
            if each > 7:
                break
"""
SOURCES = {
    f"stompkit/{folder}/{name}.py": TEXT.format(name=name) * times
    for folder, times in (("frames", 1), ("server", 8), ("server/stores", 2), ("client", 2))
    for name in ("one", "two", "three")
}


def test_the_same_seed_draws_the_same() -> None:
    assert draw(SOURCES, seed=5, count=40) == draw(SOURCES, seed=5, count=40)
    backwards = dict(reversed(SOURCES.items()))
    assert draw(SOURCES, seed=5, count=40) == draw(backwards, seed=5, count=40)
    assert draw(SOURCES, seed=5, count=40) != draw(SOURCES, seed=6, count=40)


def test_each_part_has_a_share_by_its_lines() -> None:
    drawn = draw(SOURCES, seed=1, count=60).mutants
    counts = Counter(each.part for each in drawn)
    assert sum(counts.values()) == 60
    assert set(counts) == {"frames", "server", "stores", "client"}
    assert counts["server"] > 2 * counts["stores"]
    assert counts["frames"] >= 5


def test_no_line_has_two_and_all_operators_have_some() -> None:
    drawn = draw(SOURCES, seed=1, count=60).mutants
    assert len({(each.file, each.line) for each in drawn}) == 60
    assert len({each.operator for each in drawn}) >= 8
    assert [each.id for each in drawn] == list(range(1, 61))


def test_each_is_found_where_it_was_drawn() -> None:
    for each in draw(SOURCES, seed=3, count=60).mutants:
        place = locate(each, SOURCES)
        assert place is not None
        assert (place.file, place.first + 1) == (each.file, each.line)


def test_parts() -> None:
    assert part_of("stompkit/server/stores/log.py") == "stores"
    assert part_of("stompkit/server/domain/queues/queue.py") == "server"
    assert part_of("stompkit/replica/clock.py") == "replica"
    assert part_of("stompkit/replication/model/events.py") == "replication"
    assert part_of("stompkit/_pure.py") == "rest"
