"""A transcript that is written while frames come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stompkit.testing.frames.events import Event
from stompkit.testing.transcripts.format import FIRST_LINE, written_event

if TYPE_CHECKING:
    from stompkit.testing.frames.log import FrameLog

__all__ = ["TranscriptFile"]


class TranscriptFile:
    """A file with all events of a log from now on, however many the log holds at a time."""

    def __init__(self, path: str | os.PathLike[str], log: FrameLog) -> None:
        """Write events as soon as the log drops them; ``finish`` writes the others."""
        self._path = Path(path)
        self._log = log
        self._file: TextIO | None = None
        self._problem: OSError | None = None
        log.hand_on(self._write)

    def finish(self) -> None:
        """Write the remaining events and close the file; raises the first OSError."""
        try:
            for event in self._log.hand_on(None).events:
                self._write(event)
            if self._problem is None:
                self._opened()
        finally:
            if self._file is not None:
                self._file.close()
        if self._problem is not None:
            raise self._problem

    def _write(self, event: Event) -> None:
        """Write an event. An error is kept until ``finish``: connections have to go on."""
        if self._problem is None:
            try:
                self._opened().write(f"\n{written_event(event)}")
            except OSError as error:
                self._problem = error

    def _opened(self) -> TextIO:
        """Return the file, which has its first line."""
        if self._file is None:
            self._file = self._path.open("w", encoding="utf-8", newline="\n")
            self._file.write(f"{FIRST_LINE}\n")
        return self._file
