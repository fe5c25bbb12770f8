"""Runs tests on mutants, several at a time, and checks those that fail without them too."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tests.mutants.copies import Copy
from tests.mutants.mutant import Mutant
from tests.mutants.results import FOUND, Check, Outcome, Results
from tests.mutants.sessions import Session, Tester

__all__ = ["Plan", "Runner", "Settings", "in_groups"]

#: The tests for a mutant, in groups: each is one run of pytest.
Plan: TypeAlias = Callable[[Mutant], Iterable[Sequence[str]]]
#: How many files the first runs of pytest have: to start is expensive, and so is to collect.
_GROUPS: Final = (1, 3, 8)
#: After so many mutants, the tests that found them are run without them.
_CHECK_EVERY: Final = 20


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How tests are run."""

    tree: Path
    python: Path
    scratch: Path
    jobs: int = 1
    #: No test begins on a mutant after that.
    budget_s: float = 90.0
    #: A test that takes longer does not end.
    hang_s: float = 120.0
    #: Given to pytest whenever it runs tests of mutants.
    arguments: Sequence[str] = ()


class Runner:
    """Has mutants tested, and says how far it is."""

    def __init__(
        self, settings: Settings, results: Results, say: Callable[[str], None] = print
    ) -> None:
        """Make a copy for each job."""
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
        """Test mutants until each has an outcome that holds.

        One that was found by a test which fails without it is tested again, without that test.
        """
        left = list(mutants)
        # In any order but that of the product, so that a part of them is a sample of all.
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
        begun = time.monotonic()
        deselected = [f"--deselect={test}" for test in sorted(self._results.failing())]
        passed, is_over = 0, False
        with copy.changed(where):
            for targets in plan(mutant):
                left_s = self._settings.budget_s - (time.monotonic() - begun)
                wanted = [each for each in targets if each not in self._results.failing()]
                if left_s <= 0:
                    is_over = True
                    break
                if not wanted:
                    continue
                session = tester.run(wanted, "-x", *deselected, budget_s=left_s)
                passed += len(session.passed)
                is_over |= session.is_over
                seconds = round(time.monotonic() - begun, 1)
                for name, test, why in _findings(session, wanted[0]):
                    return Outcome(
                        id=mutant.id,
                        outcome=name,
                        test=test,
                        why=why,
                        seconds=seconds,
                        passed=passed,
                        is_same=test == known,
                    )
        return Outcome(
            id=mutant.id,
            outcome="survived",
            seconds=round(time.monotonic() - begun, 1),
            passed=passed,
            is_over=is_over,
        )

    def check(self) -> None:
        """Run the tests that have found something without any mutant, if that was not done."""
        _, tester = place = self._places.get()
        try:
            while tests := self._results.unchecked():
                self._say(f"checking that {len(tests)} tests pass without a mutant")
                whole = [test for test in tests if "::" not in test]
                single = [test for test in tests if "::" in test]
                for test in whole:
                    session = tester.run([test], "--collect-only")
                    self._note(test, is_good=not session.failed and not session.hung)
                if single:
                    self._note_all(single, tester.run(single))
        finally:
            self._places.put(place)

    def _note_all(self, tests: Sequence[str], session: Session) -> None:
        for test in tests:
            if test in session.failed or test == session.hung:
                self._note(test, is_good=False)
            elif test in session.passed:
                self._note(test, is_good=True)
            elif not session.hung:
                self._note(test, is_good=False)
        if session.hung and session.hung not in tests:
            self._note(tests[0], is_good=False)

    def _note(self, test: str, *, is_good: bool) -> None:
        self._results.add(Check(test=test, passes=is_good))
        if not is_good:
            self._say(f"{test} fails without a mutant too, and is left out")


def _findings(session: Session, first: str) -> Iterator[tuple[str, str, str]]:
    """What a run says about a mutant: the outcome, the test and why."""
    for test, why in session.failed.items():
        yield "found", test, why
    if session.hung:
        test = first.partition("::")[0] if session.hung == "start" else session.hung
        yield "timeout", test, "did not end"


def in_groups(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield files in groups: the first alone, since it is likely to be enough."""
    first = 0
    for size in _GROUPS:
        if files[first : first + size]:
            yield files[first : first + size]
        first += size
    if files[first:]:
        yield files[first:]
