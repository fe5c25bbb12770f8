"""Flow control: pausing and resuming reading from the broker."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Reader", "ReadingGate"]


class Reader(Protocol):
    """A connection that can pause reading."""

    def pause_reading(self) -> None:
        """Pause reading."""

    def resume_reading(self) -> None:
        """Resume reading."""

    @property
    def has_unread(self) -> bool:
        """Return True if bytes from the broker wait to be read."""


class ReadingGate:
    """Pauses reading while a queue is full and no caller waits for an answer.

    One stream carries both messages and answers. A caller that would make room in a queue may be
    waiting for a receipt behind further messages in the stream. If the client did not read those
    messages, it would deadlock. Therefore a pending answer keeps the stream flowing.
    """

    def __init__(self) -> None:
        """Start open, without a connection."""
        self._full: set[object] = set()
        self._awaiting: set[object] = set()
        self._reader: Reader | None = None
        self._is_closed = False

    def attach(self, reader: Reader) -> None:
        """Control a connection that is reading."""
        self._reader = reader
        self._is_closed = False
        self._apply()

    def detach(self) -> None:
        """Stop controlling the connection."""
        self._reader = None

    @property
    def has_unread(self) -> bool:
        """Return True if an unread answer may have arrived."""
        return self._reader is not None and self._reader.has_unread

    def set_full(self, queue: object, *, full: bool) -> None:
        """Record whether a queue is full."""
        (self._full.add if full else self._full.discard)(queue)
        self._apply()

    def set_awaiting(self, party: object, *, awaiting: bool) -> None:
        """Record whether *party* waits for an answer from the broker."""
        (self._awaiting.add if awaiting else self._awaiting.discard)(party)
        self._apply()

    def _apply(self) -> None:
        is_closed = bool(self._full) and not self._awaiting
        if self._reader is None or is_closed == self._is_closed:
            return
        self._is_closed = is_closed
        if is_closed:
            self._reader.pause_reading()
        else:
            self._reader.resume_reading()
