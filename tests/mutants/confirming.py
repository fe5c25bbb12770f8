"""Confirmation that a later tree's tests of one lane still find the same mutants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.mutants.choosing import Chooser
from tests.mutants.mutant import Mutant
from tests.mutants.results import Results
from tests.mutants.running import in_groups

__all__ = ["Lane"]


class Lane:
    """The tests of a later tree that have to find the same mutants."""

    def __init__(self, tests: Iterable[str], before: Results, chooser: Chooser) -> None:
        """Set the ids of all tests of the lane."""
        self._before = before
        self._chooser = chooser
        self._by_file: defaultdict[str, list[str]] = defaultdict(list)
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        self._all: set[str] = set()
        for test in tests:
            self._all.add(test)
            self._by_file[test.partition("::")[0]].append(test)
            self._by_name[_name(test)].append(test)

    def plan(self, mutant: Mutant) -> Iterator[Sequence[str]]:
        """Yield the test that found it, those of the same name, then the files that execute it."""
        test = self._before.outcomes[mutant.id].test
        first = self._first(test)
        if first:
            yield first
        for files in in_groups(self._chooser.files(mutant)):
            tests = [each for file in files for each in self._by_file.get(file, ())]
            left = [each for each in tests if [each] != first]
            if left:
                yield left

    def _first(self, test: str) -> Sequence[str]:
        if test in self._all:
            return [test]
        if "::" not in test:
            return self._by_file.get(test, [])[:1]
        function = _name(test)
        return self._by_name.get(function) or [
            each
            for name, tests in self._by_name.items()
            if name.partition("[")[0] == function.partition("[")[0]
            for each in tests
        ]


def _name(test: str) -> str:
    """Return the function of a test with its parameters, without file and class."""
    head, bracket, parameters = test.partition("[")
    return head.rpartition("::")[2] + bracket + parameters
