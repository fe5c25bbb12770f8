"""The file of results: one JSON object in a line, from which a run can resume."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.mutant import Mutant

__all__ = ["FOUND", "Check", "Outcome", "Results", "comparison", "summary"]

#: Outcomes of a mutant that tests have detected.
FOUND: Final = ("found", "timeout")


class Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="mutant", omit_defaults=True):
    """The result of one mutant."""

    id: int
    #: ``found``, ``timeout`` (a test did not end), ``survived`` or ``gone`` (not in the tree).
    outcome: str
    #: The test that found it; a file, if that could not be imported.
    test: str = ""
    why: str = ""
    seconds: float = 0.0
    #: Number of tests that passed on it.
    passed: int = 0
    #: True if tests were left at the end of its budget.
    is_over: bool = False
    #: True if the same test as before has found it.
    is_same: bool = False


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """The result of a test without any mutant, within the limit of a test."""

    test: str
    passes: bool


_DECODER: Final = msgspec.json.Decoder(Outcome | Check)


class Results:
    """The results so far; the last outcome of a mutant counts."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it exists; ignore an incomplete line."""
        self.path = path
        self.outcomes: dict[int, Outcome] = {}
        self.checks: dict[str, bool] = {}
        self._lock = threading.Lock()
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines[:-1]:
            self._take(_DECODER.decode(line))
        if lines and lines[-1]:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size - len(lines[-1]))

    def _take(self, record: Outcome | Check) -> None:
        if isinstance(record, Check):
            self.checks[record.test] = record.passes
        else:
            self.outcomes[record.id] = record

    def add(self, record: Outcome | Check) -> None:
        """Append an outcome or a check."""
        with self._lock:
            self._take(record)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(record) + b"\n")

    def is_found(self, number: int) -> bool:
        """Return True if a mutant was found by a test that passes without it."""
        outcome = self.outcomes.get(number)
        return (
            outcome is not None
            and outcome.outcome in FOUND
            and self.checks.get(outcome.test, False)
        )

    def unchecked(self) -> list[str]:
        """Return the tests that have found a mutant, but were not run without it."""
        tests = {each.test for each in self.outcomes.values() if each.outcome in FOUND}
        return sorted(tests - self.checks.keys())

    def failing(self) -> frozenset[str]:
        """Return the tests that fail without any mutant."""
        return frozenset(test for test, passes in self.checks.items() if not passes)


def summary(results: Results, mutants: Iterable[Mutant]) -> Iterator[str]:
    """Yield a table by part of the product: drawn, run, found, timeouts, survived."""
    columns = ("drawn", "run", "found", "of these timeouts", "survived", "gone")
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        for row in (mutant.part, "all"):
            count = counts.setdefault(row, Counter())
            count["drawn"] += 1
            outcome = results.outcomes.get(mutant.id)
            if outcome is None:
                continue
            count["run"] += 1
            if results.is_found(mutant.id):
                count["found"] += 1
                count["of these timeouts"] += outcome.outcome == "timeout"
            elif outcome.outcome in ("survived", "gone"):
                count[outcome.outcome] += 1
    yield from _table("part", columns, counts)


def comparison(before: Results, after: Results, mutants: Iterable[Mutant]) -> Iterator[str]:
    """Yield a table of the mutants found before: the test that still finds each, or the reason."""
    columns = ("found before", "by the same test", "by another", "gone", "not found", "left to do")
    counts: dict[str, Counter[str]] = {}
    for mutant in mutants:
        if not before.is_found(mutant.id):
            continue
        for row in (mutant.part, "all"):
            count = counts.setdefault(row, Counter())
            count["found before"] += 1
            outcome = after.outcomes.get(mutant.id)
            if after.is_found(mutant.id) and outcome is not None:
                count["by the same test" if outcome.is_same else "by another"] += 1
            elif outcome is None or outcome.outcome in FOUND:
                count["left to do"] += 1
            else:
                count["gone" if outcome.outcome == "gone" else "not found"] += 1
    yield from _table("part", columns, counts)


def _table(first: str, columns: tuple[str, ...], counts: dict[str, Counter[str]]) -> Iterator[str]:
    """Yield the rows of a table in Markdown, that of all last."""
    rows = sorted(counts.items(), key=lambda row: row[0] == "all")
    yield f"| {first} | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * len(columns)}"
    for name, count in rows:
        yield f"| {name} | {' | '.join(str(count[column]) for column in columns)} |"
