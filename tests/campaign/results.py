"""The file of verdicts, one JSON object in a line, from which a campaign can resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.campaign.running import Verdict

__all__ = ["Results"]

_DECODER: Final = msgspec.json.Decoder(Verdict)


class Results:
    """The verdicts so far."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it exists; ignore an incomplete line.

        The last verdict of a seed counts.
        """
        self.path = path
        self._verdicts: dict[int, Verdict] = {}
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for line in lines[:-1]:
            verdict = _DECODER.decode(line)
            self._verdicts[verdict.seed] = verdict
        if lines and lines[-1]:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size - len(lines[-1]))

    def __contains__(self, seed: object) -> bool:
        """Return True if a seed has been run to its end, and need not be run again.

        A seed without a verdict, such as one whose broker did not start, is run again.
        """
        return seed in self._verdicts and not self._verdicts[seed].problem

    def __iter__(self) -> Iterator[Verdict]:
        """Yield all verdicts in the order of their seeds."""
        return iter(verdict for _, verdict in sorted(self._verdicts.items()))

    def add(self, verdict: Verdict) -> None:
        """Append a verdict."""
        self._verdicts[verdict.seed] = verdict
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(verdict) + b"\n")
