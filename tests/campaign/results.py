"""The file of verdicts: one JSON object in a line, appended as runs end, so that it can go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.campaign.running import Verdict

__all__ = ["Results"]

_DECODER: Final = msgspec.json.Decoder(Verdict)


class Results:
    """What is known so far."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there; a line that was cut off by the end of a run is left out.

        Of a seed that was run again the last verdict stands.
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
        """Whether a seed has been run to its end: it need not be run again.

        One of which nothing can be said, as its broker did not start, is.
        """
        return seed in self._verdicts and not self._verdicts[seed].problem

    def __iter__(self) -> Iterator[Verdict]:
        """All verdicts by their seeds."""
        return iter(verdict for _, verdict in sorted(self._verdicts.items()))

    def add(self, verdict: Verdict) -> None:
        """Note one more."""
        self._verdicts[verdict.seed] = verdict
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(verdict) + b"\n")
