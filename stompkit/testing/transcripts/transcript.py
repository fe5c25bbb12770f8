"""A transcript: recorded traffic as a value and as text. The format: transcripts.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from stompkit.testing.frames.events import Event
from stompkit.testing.transcripts.format import parse_transcript, written_transcript
from stompkit.testing.transcripts.normalising import normalised, replaced

__all__ = ["Transcript"]


@dataclass(frozen=True)
class Transcript:
    """Recorded events between clients and a broker.

    ``str()`` returns it as text, which ``parse`` reads again; ``stompkit.testing.transcripts``
    documents the format.
    """

    events: tuple[Event, ...] = ()
    """Connections, frames and data that is not a frame, in the order in which they were seen."""
    forgotten: int = 0
    """Number of events before the first of these."""
    timed: bool = True
    """True if the events have meaningful times, which are written."""

    def __str__(self) -> str:
        """Return the text, with a line end at its end."""
        return written_transcript(self.events, self.forgotten, timed=self.timed)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text written by ``str()`` or by hand; raises TranscriptError."""
        return cls(*parse_transcript(text))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file; raises OSError, and TranscriptError for an invalid file."""
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
        return cls(*parse_transcript(text, str(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file; raises OSError."""
        Path(path).write_text(str(self), encoding="utf-8", newline="\n")

    def by_connection(self) -> Self:
        """Return the same events sorted by connection."""
        return replace(self, events=tuple(sorted(self.events, key=lambda it: it.connection)))

    def replaced(self, replacements: Mapping[str, str]) -> Self:
        """Return a copy with texts replaced in header values and bodies.

        Each key is replaced by its value wherever it occurs: use it for the name of a destination
        that differs between runs, for example.
        """
        return replace(self, events=replaced(self.events, replacements))

    def normalised(self, replacements: Mapping[str, str] | None = None) -> Self:
        """Return a copy without values that differ between runs, and with ``replacements``.

        Times and the reasons of closes are left out. Connections are numbered from 1. Values that a
        broker or a client library chooses are numbered in the order of appearance:
        ``message-id-1``, ``ack-1``, ``session-1``, ``receipt-1``, ``subscription-1``,
        ``transaction-1``. ``server`` and ``time`` replace the values of the headers ``server``,
        ``timestamp`` and ``expires``.
        """
        changed = self.replaced(replacements or {})
        return replace(changed, events=normalised(changed.events), timed=False)
