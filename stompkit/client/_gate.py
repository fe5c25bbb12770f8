"""When to read from the broker, and when to leave what it sends in the network's buffers."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Reader", "ReadingGate"]


class Reader(Protocol):
    """A connection that can stop reading for a while."""

    def pause_reading(self) -> None:
        """Read no more."""

    def resume_reading(self) -> None:
        """Read again."""

    @property
    def has_unread(self) -> bool:
        """Return whether octets of the broker wait to be read."""


class ReadingGate:
    """Stops reading while some queue is full, and nobody waits for an answer.

    One stream carries messages and answers alike. Whoever would make room in a queue may be
    waiting for a receipt, which stands behind further messages in the stream: not to read those
    would stop both for ever. So an answer that somebody waits for keeps the stream flowing.
    """

    def __init__(self) -> None:
        """Start without a connection, open."""
        self._full: set[object] = set()
        self._awaiting: set[object] = set()
        self._reader: Reader | None = None
        self._is_closed = False

    def attach(self, reader: Reader) -> None:
        """Take charge of a connection that is reading."""
        self._reader = reader
        self._is_closed = False
        self._apply()

    def detach(self) -> None:
        """Forget the connection."""
        self._reader = None

    @property
    def has_unread(self) -> bool:
        """Return whether an answer may have come that was not read yet."""
        return self._reader is not None and self._reader.has_unread

    def set_full(self, queue: object, *, full: bool) -> None:
        """Note whether a queue has had enough."""
        (self._full.add if full else self._full.discard)(queue)
        self._apply()

    def set_awaiting(self, party: object, *, awaiting: bool) -> None:
        """Note whether somebody waits for an answer of the broker's."""
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
