"""Run tests on mutants, several in parallel, and check the failing ones without mutants."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from tests.mutants.copies import Copy
from tests.mutants.mutant import Mutant
from tests.mutants.results import FOUND, Check, Outcome, Results
from tests.mutants.sessions import Session, Tester

__all__ = ["Plan", "Runner", "Settings", "in_groups"]

#: The tests for a mutant, in groups: each is one run of pytest.
Plan: TypeAlias = Callable[[Mutant], Iterable[Sequence[str]]]
#: Number of files in the first runs of pytest: its start and collection are expensive.
_GROUPS: Final = (1, 3, 8)
#: After this many mutants, the tests that found them are run without them.
_CHECK_EVERY: Final = 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the runs of tests."""

    tree: Path
    python: Path
    scratch: Path
    jobs: int = 1
    #: No test starts on a mutant after this, not counting the start of pytest.
    budget_s: float = 90.0
    #: A test that takes longer counts as hanging.
    hang_s: float = 120.0
    #: A test passes without a mutant if one of these attempts passes: a busy machine may fail some.
    attempts: int = 3
    #: Arguments of pytest for all runs of tests of mutants.
    arguments: Sequence[str] = ()


class Runner:
    """Runs tests on mutants, and prints the progress."""

    def __init__(
        self, settings: Settings, results: Results, say: Callable[[str], None] = print
    ) -> None:
        """Create a copy for each job."""
        self._settings = settings
        self._results = results
        self._say = say
        self._places: queue.SimpleQueue[tuple[Copy, Tester]] = queue.SimpleQueue()
        for number in range(settings.jobs):
            copy = Copy(settings.tree, settings.scratch / f"copy-{number}")
            tester = Tester(
                copy.folder,
                settings.python,
                settings.scratch,
                hang_s=settings.hang_s,
                arguments=settings.arguments,
            )
            tester.check()
            self._places.put((copy, tester))
        self.copy = copy

    def collect(self, arguments: Sequence[str]) -> list[str]:
        """Return the tests that pytest would run with some arguments."""
        _, tester = place = self._places.get()
        try:
            return tester.run([], "--collect-only", *arguments).collected
        finally:
            self._places.put(place)

    def run(self, mutants: Iterable[Mutant], plan: Plan, *, found_by: dict[int, str]) -> None:
        """Test mutants until each has a final outcome.

        A mutant whose test also fails without it is tested again, without that test.
        """
        left = list(mutants)
        # In random order, so that any part of them is a sample of all.
        random.Random(0).shuffle(left)
        while left:
            begun, total = time.monotonic(), len(left)
            for first in range(0, total, _CHECK_EVERY):
                some = left[first : first + _CHECK_EVERY]
                with ThreadPoolExecutor(self._settings.jobs) as pool:
                    for number, outcome in enumerate(
                        pool.map(lambda each: self._outcome(each, plan, found_by), some), first + 1
                    ):
                        self._tell(outcome, number, total, begun)
                self.check()
            left = [
                each
                for each in left
                if self._results.outcomes[each.id].outcome in FOUND
                and not self._results.is_found(each.id)
            ]

    def _tell(self, outcome: Outcome, number: int, total: int, begun: float) -> None:
        left_min = (time.monotonic() - begun) / number * (total - number) / 60
        by = f" by {outcome.test}" if outcome.test else ""
        self._say(
            f"{number}/{total}, {left_min:.0f} min left: mutant {outcome.id} {outcome.outcome}{by},"
            f" {outcome.seconds:.0f} s"
        )

    def _outcome(self, mutant: Mutant, plan: Plan, found_by: dict[int, str]) -> Outcome:
        copy, tester = place = self._places.get()
        try:
            outcome = self._tested(mutant, plan, copy, tester, found_by.get(mutant.id))
        finally:
            self._places.put(place)
        self._results.add(outcome)
        return outcome

    def _tested(
        self, mutant: Mutant, plan: Plan, copy: Copy, tester: Tester, known: str | None
    ) -> Outcome:
        where = copy.place_of(mutant)
        if where is None:
            return Outcome(id=mutant.id, outcome="gone")
        hunt = _Hunt(tester, self._settings.budget_s, self._results.failing())
        with copy.changed(where):
            found = hunt.search(plan(mutant))
        return Outcome(
            id=mutant.id,
            outcome=found.outcome if found else "survived",
            test=found.test if found else "",
            why=found.why if found else "",
            seconds=round(hunt.seconds(), 1),
            passed=hunt.passed,
            is_over=hunt.is_over,
            is_same=found is not None and found.test == known,
        )

    def check(self) -> None:
        """Run the tests that have found a mutant without any, unless that was done."""
        _, tester = place = self._places.get()
        try:
            while tests := self._results.unchecked():
                self._say(f"checking that {len(tests)} tests pass without a mutant")
                left = tests
                for _ in range(self._settings.attempts):
                    left = _not_passing(tester, left) if left else left
                for test in tests:
                    self._results.add(Check(test=test, passes=test not in left))
                for test in left:
                    self._say(f"{test} fails without a mutant too, and is left out")
        finally:
            self._places.put(place)


class _Finding(NamedTuple):
    outcome: str
    test: str
    why: str


class _Hunt:
    """Runs tests on one mutant until one fails on it twice."""

    def __init__(self, tester: Tester, budget_s: float, failing: frozenset[str]) -> None:
        self.passed = 0
        self.is_over = False
        self._tester = tester
        self._begun = time.monotonic()
        self._budget_s = budget_s
        self._spent_s = 0.0
        #: Unreliable tests: they fail without a mutant, or not each time.
        self._left_out = set(failing)

    def seconds(self) -> float:
        """Return the seconds since its start."""
        return time.monotonic() - self._begun

    def search(self, plan: Iterable[Sequence[str]]) -> _Finding | None:
        """Run groups of tests in turn, each again without tests that fail at random."""
        for targets in plan:
            while wanted := [each for each in targets if each not in self._left_out]:
                left_s = self._budget_s - self._spent_s
                if left_s <= 0:
                    self.is_over = True
                    return None
                deselected = [f"--deselect={test}" for test in sorted(self._left_out)]
                session = self._tester.run(wanted, "-x", *deselected, budget_s=left_s)
                self._spent_s += session.seconds
                self.passed += len(session.passed)
                self.is_over |= session.is_over
                found = _finding(session, wanted[0])
                if found is None:
                    break
                if self._is_repeated(found):
                    return found
                self._left_out.add(found.test)
        return None

    def _is_repeated(self, found: _Finding) -> bool:
        """Return True if a test fails again; a hanging one is not run twice."""
        return found.outcome == "timeout" or bool(_not_passing(self._tester, [found.test]))


def _finding(session: Session, first: str) -> _Finding | None:
    """Return the finding of a run about a mutant."""
    for test, why in session.failed.items():
        return _Finding("found", test, why)
    if session.hung:
        test = first.partition("::")[0] if session.hung == "start" else session.hung
        return _Finding("timeout", test, "did not end")
    return None


def _not_passing(tester: Tester, tests: Sequence[str]) -> list[str]:
    """Run tests, or import files of tests; return those that fail, hang or are missing."""
    bad: list[str] = []
    for file in (test for test in tests if "::" not in test):
        session = tester.run([file], "--collect-only")
        if session.failed or session.hung or not session.collected:
            bad.append(file)
    left = [test for test in tests if "::" in test]
    while left:
        session = tester.run(left)
        good = [test for test in left if test in session.passed and test not in session.failed]
        done = {*good, *session.failed, session.hung}
        if not done.intersection(left) or not session.hung:
            return bad + [test for test in left if test not in good]
        bad += [test for test in left if test in done and test not in good]
        left = [test for test in left if test not in done]
    return bad


def in_groups(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield files in groups: the first alone, since it is often enough."""
    first = 0
    for size in _GROUPS:
        if files[first : first + size]:
            yield files[first : first + size]
        first += size
    if files[first:]:
        yield files[first:]
