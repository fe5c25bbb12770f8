"""A mutant is located by its text and its function, wherever they are now."""

from __future__ import annotations

import pytest

from tests.mutants.drawing import PARTS, draw
from tests.mutants.mutant import SET, Mutant, MutantSet, locate

FILE = "stompkit/server/domain/queues/queue.py"
QUEUE = """\
class Queue:
    def take(self, n):
        if n > 0:
            self.left -= n
        return self.left

    def give(self, n):
        if n > 0:
            self.left += n
        return self.left
"""


def mutant(**changes: object) -> Mutant:
    fields: dict[str, object] = {
        "id": 1,
        "part": "server",
        "file": FILE,
        "scope": "Queue.give",
        "line": 8,
        "operator": "comparison",
        "before": "        if n > 0:",
        "after": "        if n >= 0:",
        "nth": 0,
        "of": 1,
        "above": "def give(self, n):",
        "below": "self.left += n",
        **changes,
    }
    return Mutant(**fields)  # type: ignore[arg-type]


def changed(text: str, file: str = FILE, **changes: object) -> str:
    place = locate(mutant(**changes), {file: text})
    assert place is not None
    assert place.file == file
    return place.text


def test_only_its_function_is_changed() -> None:
    assert changed(QUEUE) == QUEUE.replace(
        "def give(self, n):\n        if n > 0:", "def give(self, n):\n        if n >= 0:"
    )


def test_lines_may_have_moved() -> None:
    moved = f'"""A text."""\n\n\n{QUEUE}'
    assert changed(moved) == f'"""A text."""\n\n\n{changed(QUEUE)}'


def test_it_keeps_to_the_indentation() -> None:
    deeper = QUEUE.replace(
        "        if n > 0:\n            self.left += n",
        "        with self.lock:\n            if n > 0:\n                self.left += n",
    )
    assert "            if n >= 0:\n                self.left += n" in changed(deeper)


def test_several_lines_are_replaced() -> None:
    after = changed(
        QUEUE,
        before="        if n > 0:\n            self.left += n",
        after="        pass",
        below="return self.left",
    )
    assert after.endswith("    def give(self, n):\n        pass\n        return self.left\n")


TWICE = """\
class Queue:
    def give(self, n):
        first = 1
        if n > 0:
            first = 2
        last = 1
        if n > 0:
            last = 2
"""


@pytest.mark.parametrize(("nth", "line"), [(0, 3), (1, 6)])
def test_of_several_it_is_one(nth: int, line: int) -> None:
    place = locate(mutant(nth=nth, of=2), {FILE: TWICE})
    assert place is not None
    assert place.first == line


def test_with_more_of_them_the_neighbours_decide() -> None:
    place = locate(mutant(above="last = 1", below="last = 2"), {FILE: TWICE})
    assert place is not None
    assert place.first == 6


def test_without_neighbours_it_is_gone() -> None:
    assert locate(mutant(above="a", below="b"), {FILE: TWICE}) is None


def test_it_is_gone_with_its_text() -> None:
    assert locate(mutant(), {FILE: QUEUE.replace("n > 0", "n > 1")}) is None
    assert locate(mutant(), {}) is None


def test_its_function_may_be_in_another_file() -> None:
    place = locate(mutant(), {"stompkit/server/_other.py": "x = 1\n", "stompkit/new.py": QUEUE})
    assert place is not None
    assert place.file == "stompkit/new.py"


def test_two_other_files_are_one_too_many() -> None:
    assert locate(mutant(), {"stompkit/new.py": QUEUE, "stompkit/newer.py": QUEUE}) is None


def test_the_set_that_is_kept() -> None:
    kept = MutantSet.read(SET)
    assert kept.seed == 26
    assert [each.id for each in kept.mutants] == list(range(1, 331))
    assert {each.part for each in kept.mutants} == set(PARTS)
    assert all(each.before != each.after for each in kept.mutants)
    assert len({(each.file, each.line) for each in kept.mutants}) == 330


def test_a_set_is_read_as_it_was_written(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "set.json"
    drawn = draw({FILE: QUEUE}, seed=1, count=3, commit="abc")
    drawn.write(path)
    assert MutantSet.read(path) == drawn
