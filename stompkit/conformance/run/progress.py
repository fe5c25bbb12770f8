"""The progress display while the cases run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from stompkit.conformance.case import Case
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["Progress"]

_WIDTH = 79
_MARKS_A_LINE = 60
_MARKS = {
    Verdict.OK: ".",
    Verdict.NON_STRICT: "n",
    Verdict.FAILED: "F",
    Verdict.UNSUPPORTED: "u",
    Verdict.INFORMATIONAL: "i",
}


class Progress:
    """One line that is rewritten on a terminal; otherwise a mark for each case."""

    def __init__(
        self, stream: TextIO, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start; ``total`` is the number of cases, ``clock`` returns seconds."""
        self._stream = stream
        self._total = total
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._failed = 0
        #: Ids of the running cases, the earliest first.
        self._running: dict[str, None] = {}
        self._is_terminal = stream.isatty()

    def case(self, case: Case) -> None:
        """Show that a case has started."""
        self._running[case.id] = None
        self._show()

    def result(self, result: CaseResult) -> None:
        """Show that a case is complete."""
        self._done += 1
        self._failed += result.verdict is Verdict.FAILED
        self._running.pop(result.id, None)
        if self._is_terminal:
            self._show()
            return
        self._stream.write(_MARKS[result.verdict])
        if self._done % _MARKS_A_LINE == 0 or self._done == self._total:
            self._stream.write(f"  {self._done}/{self._total}\n")
        self._stream.flush()

    def end(self) -> None:
        """Clear the line for further output."""
        if self._is_terminal:
            self._rewrite("")
            self._stream.write("\r")
        elif self._done < self._total and self._done % _MARKS_A_LINE:
            self._stream.write("\n")
        self._stream.flush()

    def _show(self) -> None:
        """Show the progress, and the case that has been running for longest."""
        if not self._is_terminal:
            return
        minutes, seconds = divmod(int(self._clock() - self._began), 60)
        told = [f"{self._done}/{self._total}", f"{minutes}:{seconds:02}"]
        if self._failed:
            told.append(f"{self._failed} failed")
        if self._running:
            others = len(self._running) - 1
            told.append(f"{next(iter(self._running))}{f' + {others}' if others else ''}")
        self._rewrite("  ".join(told))

    def _rewrite(self, line: str) -> None:
        self._stream.write(f"\r{line[:_WIDTH]:<{_WIDTH}}")
        self._stream.flush()
