"""A transcript: what happened on the wire, as a value and as text. The format: transcripts.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from stompkit.testing._frames.events import Event
from stompkit.testing._transcripts.format import parse_transcript, written_transcript
from stompkit.testing._transcripts.normalising import normalised, replaced

__all__ = ["Transcript"]


@dataclass(frozen=True)
class Transcript:
    """What happened between clients and a broker.

    ``str()`` gives it as text, which ``parse`` reads again; ``stompkit.testing.transcripts`` says
    how that text is written.
    """

    events: tuple[Event, ...] = ()
    """Connections, frames and what was no frame, in the order in which they were seen."""
    forgotten: int = 0
    """How many events there were before the first of these."""
    timed: bool = True
    """Whether the times of the events mean anything and are written."""

    def __str__(self) -> str:
        """The text, with an end of line at its end."""
        return written_transcript(self.events, self.forgotten, timed=self.timed)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str()`` has written, or a person; raises TranscriptError."""
        return cls(*parse_transcript(text))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file; raises OSError, and TranscriptError for a file that is no transcript."""
        text = Path(path).read_bytes().decode("utf-8", "surrogateescape")
        return cls(*parse_transcript(text, str(path)))

    def save(self, path: str | Path) -> None:
        """Write a file; raises OSError."""
        Path(path).write_text(str(self), encoding="utf-8", newline="\n")

    def by_connection(self) -> Self:
        """The same events, but all those of connection 1 first, then those of 2, and so on."""
        return replace(self, events=tuple(sorted(self.events, key=lambda it: it.connection)))

    def replaced(self, replacements: Mapping[str, str]) -> Self:
        """The same with other texts in the values of headers and in bodies.

        Each key is replaced by its value wherever it stands: for the name of a destination, say,
        that is another one each time.
        """
        return replace(self, events=replaced(self.events, replacements))

    def normalised(self, replacements: Mapping[str, str] | None = None) -> Self:
        """The same without what differs from one run to the next, and with ``replacements``.

        Times and the reasons of closes are left out. What a broker or a client library chooses is
        numbered in the order of appearance: ``message-id-1``, ``ack-1``, ``session-1``,
        ``receipt-1``, ``subscription-1``, ``transaction-1``; ``server`` and ``time`` stand for the
        values of the headers ``server``, ``timestamp`` and ``expires``.
        """
        changed = self.replaced(replacements or {})
        return replace(changed, events=normalised(changed.events), timed=False)
