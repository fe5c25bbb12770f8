"""What a person sees while the cases run."""

from __future__ import annotations

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
    """One line that is rewritten on a terminal; elsewhere a mark for each case."""

    def __init__(self, stream: TextIO, total: int) -> None:
        """Begin; ``total`` is the number of cases."""
        self._stream = stream
        self._total = total
        self._done = 0
        self._failed = 0
        self._is_terminal = stream.isatty()

    def case(self, case: Case) -> None:
        """Show which case is run now."""
        if self._is_terminal:
            failed = f"{self._failed} failed  " if self._failed else ""
            self._rewrite(f"{self._done + 1}/{self._total}  {failed}{case.id}")

    def result(self, result: CaseResult) -> None:
        """Show that a case is done."""
        self._done += 1
        self._failed += result.verdict is Verdict.FAILED
        if self._is_terminal:
            return
        self._stream.write(_MARKS[result.verdict])
        if self._done % _MARKS_A_LINE == 0 or self._done == self._total:
            self._stream.write(f"  {self._done}/{self._total}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line clean for what comes next."""
        if self._is_terminal:
            self._rewrite("")
            self._stream.write("\r")
        elif self._done < self._total and self._done % _MARKS_A_LINE:
            self._stream.write("\n")
        self._stream.flush()

    def _rewrite(self, line: str) -> None:
        self._stream.write(f"\r{line[:_WIDTH]:<{_WIDTH}}")
        self._stream.flush()
