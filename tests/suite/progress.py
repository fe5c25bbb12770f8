"""Report what the suite will do, what it does, and its results."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.suite.missing import missing
from tests.suite.parts import Part
from tests.suite.running import Outcome

__all__ = ["Progress", "announce", "estimate_s", "summarise"]

#: Width of the line that shows what runs, in characters.
_WIDTH: Final = 100
#: Number of reasons for skipped tests that the summary shows.
_MOST_REASONS: Final = 20
#: Number of parts that the summary names as the longest.
_LONGEST: Final = 8


def announce(parts: Sequence[Part], slots: int) -> None:
    """Print how long the parts will take, and which servers are missing."""
    processors = len(os.sched_getaffinity(0))
    expected = estimate_s(parts, slots)
    print(
        f"{len(parts)} parts, {slots} at a time on {processors} processors: "
        f"about {_minutes(expected)}"
    )
    absent = list(missing())
    if not absent:
        print("All servers and programs of .ci/debian-packages are installed.")
    elif os.environ.get("STOMPKIT_MQ_MISSING") == "fail":
        print("Missing, so that their tests will fail:")
    else:
        print("Missing, so that their tests are skipped, and that it takes less time:")
    for name, remedy in absent:
        print(f"  {name}: {remedy}")
    print(flush=True)


def estimate_s(parts: Iterable[Part], slots: int) -> float:
    """Return the expected duration of all parts, in seconds; a part was measured beside others."""
    parts = list(parts)
    total_s = sum(part.expected_s for part in parts if not part.is_background)
    return max([total_s / slots, *(part.expected_s for part in parts)])


class Progress:
    """Prints a line for each finished part, and on a terminal the running parts."""

    def __init__(self, parts: Sequence[Part]) -> None:
        """Start the clock."""
        self._count = len(parts)
        self._ended = 0
        self._started = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def ended(self, outcome: Outcome) -> None:
        """Print the outcome of a part; the output of one that failed is shown at once."""
        self._ended += 1
        elapsed = _clock(time.monotonic() - self._started)
        verdict = "ok" if outcome.is_good else f"FAILED (exit status {outcome.status})"
        self._clear()
        print(
            f"{elapsed}  [{self._ended:2}/{self._count}]  {outcome.part.name:34}"
            f" {outcome.duration_s:6.1f} s  {_counts(outcome)}{verdict}",
            flush=True,
        )
        if not outcome.is_good:
            print(f"\n{outcome.log.read_text(encoding='utf-8', errors='replace')}", flush=True)

    def show(self, running: Sequence[str]) -> None:
        """Show the parts that run, on a terminal."""
        if self._is_terminal and running:
            elapsed = _clock(time.monotonic() - self._started)
            line = f"{elapsed}  [{self._ended:2}/{self._count}]  running: {', '.join(running)}"
            self._clear()
            print(line[:_WIDTH], end="", flush=True)

    def _clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="")


def summarise(outcomes: Sequence[Outcome], duration_s: float, logs: Path) -> int:
    """Print the results and the duration; return the exit status."""
    reasons: Counter[str] = Counter()
    for each in outcomes:
        reasons.update(each.skipped)
    bad = sorted(each.part.name for each in outcomes if not each.is_good)
    _print_longest(outcomes, duration_s)
    if reasons:
        print("\nSkipped:")
        for reason, count in reasons.most_common(_MOST_REASONS):
            print(f"  {count:5}  {reason}")
    if bad:
        print(f"\nFailed: {', '.join(bad)}. Logs are in {logs}")
    passed = sum(each.passed for each in outcomes)
    # A part that ends badly without a failed test has failed as a whole.
    failed = sum(each.failed or not each.is_good for each in outcomes)
    print(f"\nTime: {_minutes(duration_s)}")
    print(f"{passed} passed, {failed} failed, {sum(reasons.values())} skipped")
    return 1 if bad else 0


def _print_longest(outcomes: Sequence[Outcome], duration_s: float) -> None:
    busy = sum(each.processor_s for each in outcomes)
    processors = len(os.sched_getaffinity(0))
    print(
        f"\nProcessors were busy {busy / duration_s / processors:.0%} of the time. Longest parts:"
    )
    for each in sorted(outcomes, key=lambda outcome: -outcome.duration_s)[:_LONGEST]:
        print(
            f"  {each.duration_s:6.1f} s, {each.processor_s:6.1f} s of processor  {each.part.name}"
        )


def _counts(outcome: Outcome) -> str:
    if not outcome.part.has_tests:
        return ""
    skipped = sum(outcome.skipped.values())
    numbers = ((outcome.passed, "passed"), (outcome.failed, "failed"), (skipped, "skipped"))
    return "".join(f"{number} {what}, " for number, what in numbers if number)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:2}:{int(seconds) % 60:02}"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
