"""Verification of every single message: the sent ones, the received ones and the duplicates."""

from __future__ import annotations

from threading import Lock
from typing import Final

__all__ = ["Lane", "Mistakes"]

#: Flags of a message, which can be combined.
_SENT: Final = 1
_KEPT: Final = 2
_SEEN: Final = 4
_DONE: Final = 8
#: It was rolled back before it took effect, and must not be delivered.
_VOID: Final = 16
#: Number of mistakes that are described; the others are counted only.
_TOLD: Final = 20


class Mistakes:
    """The faults of the broker or the network; thread-safe."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = Lock()
        self.lost = 0
        self.doubled = 0
        self.strays = 0
        self.broken = 0
        self.told: list[str] = []

    def add(self, kind: str, text: str, count: int = 1) -> None:
        """Record a mistake; ``kind`` is one of the counters."""
        with self._lock:
            setattr(self, kind, getattr(self, kind) + count)
            if len(self.told) < _TOLD:
                self.told.append(f"{kind}: {text}")


class Lane:
    """Numbered messages that must be settled once each, on any path."""

    def __init__(self, name: str, mistakes: Mistakes) -> None:
        """Start without messages; ``name`` is for readers."""
        self.name = name
        self._mistakes = mistakes
        self._states = bytearray()
        self._lock = Lock()
        #: Messages that the broker has confirmed and no consumer has settled.
        self.waiting = 0
        self.deliveries = 0
        self.redeliveries = 0

    @property
    def sent(self) -> int:
        """Number of messages."""
        return len(self._states)

    def next(self) -> int:
        """Return a number for a message that is about to be sent."""
        with self._lock:
            self._states.append(_SENT)
            return len(self._states) - 1

    def is_sent(self, number: int) -> None:
        """Record a number of another lane as about to be sent."""
        with self._lock:
            if number >= len(self._states):
                self._states.extend(bytes(number + 1 - len(self._states)))
            self._states[number] |= _SENT

    def is_void(self, number: int) -> None:
        """Record that a message belongs to a transaction that was not committed."""
        with self._lock:
            self._states[number] = _VOID

    def is_kept(self, number: int) -> None:
        """Record that the broker has confirmed a message."""
        with self._lock:
            state = self._states[number]
            if not state & _KEPT:
                self._states[number] = state | _KEPT
                self.waiting += not state & _DONE

    def has_come(self, number: int, *, is_redelivered: bool) -> None:
        """Record that a message was delivered."""
        with self._lock:
            self.deliveries += 1
            self.redeliveries += is_redelivered
            state = self._states[number] if number < len(self._states) else 0
            if state & _SENT:
                self._states[number] = state | _SEEN
        if state & _VOID or not state & _SENT:
            self._mistakes.add("strays", f"{self.name}: {number} came, which was never sent")
        elif state & _DONE:
            self._mistakes.add("doubled", f"{self.name}: {number} came after its acknowledgement")
        elif state & _SEEN and not is_redelivered:
            self._mistakes.add("doubled", f"{self.name}: {number} came again, not as redelivered")

    def is_settled(self, number: int) -> None:
        """Record that the broker has confirmed an acknowledgement."""
        with self._lock:
            state = self._states[number]
            self._states[number] = state | _DONE
            self.waiting -= bool(state & _KEPT and not state & _DONE)
        if state & _DONE:
            self._mistakes.add("doubled", f"{self.name}: {number} was acknowledged twice")

    def close(self) -> None:
        """Count all missing messages as lost; no more will arrive."""
        missing = [
            number
            for number, state in enumerate(self._states)
            if state & _KEPT and not state & _DONE
        ]
        if missing:
            text = (
                f"{self.name}: {len(missing)} of {self.sent} never came, {missing[:5]} among them"
            )
            self._mistakes.add("lost", text, len(missing))
