"""What a person sees while the cases run."""

from __future__ import annotations

from typing import TextIO

from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["Progress"]

_WIDTH = 79
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
        self._is_terminal = stream.isatty()

    def result(self, result: CaseResult) -> None:
        """Show that a case is done."""
        self._done += 1
        if self._is_terminal:
            line = f"{self._done}/{self._total}  {result.verdict:<13}  {result.id}"
            self._stream.write(f"\r{line[:_WIDTH]:<{_WIDTH}}")
        else:
            self._stream.write(_MARKS[result.verdict])
            if self._done % 60 == 0 or self._done == self._total:
                self._stream.write(f"  {self._done}/{self._total}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line clean for what comes next."""
        if self._is_terminal:
            self._stream.write("\r" + " " * _WIDTH + "\r")
        elif self._done < self._total:
            self._stream.write("\n")
        self._stream.flush()
