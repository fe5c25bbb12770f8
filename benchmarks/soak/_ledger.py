"""What was sent, what has come, and what should not have: a look at every single message."""

from __future__ import annotations

from threading import Lock
from typing import Final

__all__ = ["Lane", "Mistakes"]

#: What is known of a message; several of these at a time.
_SENT: Final = 1
_KEPT: Final = 2
_SEEN: Final = 4
_DONE: Final = 8
#: It was taken back before it took effect, and must not come.
_VOID: Final = 16
#: Mistakes that are told in words; the others are counted.
_TOLD: Final = 20


class Mistakes:
    """What the broker, or the network, has done wrong; for several threads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = Lock()
        self.lost = 0
        self.doubled = 0
        self.strays = 0
        self.broken = 0
        self.told: list[str] = []

    def add(self, kind: str, text: str, count: int = 1) -> None:
        """Note a mistake; ``kind`` is one of the counters."""
        with self._lock:
            setattr(self, kind, getattr(self, kind) + count)
            if len(self.told) < _TOLD:
                self.told.append(f"{kind}: {text}")


class Lane:
    """Numbered messages that have to be settled once each, whatever way they take."""

    def __init__(self, name: str, mistakes: Mistakes) -> None:
        """Begin with no messages; ``name`` is for people."""
        self.name = name
        self._mistakes = mistakes
        self._states = bytearray()
        self._lock = Lock()
        #: Messages that the broker has confirmed and nobody has settled.
        self.waiting = 0
        self.deliveries = 0
        self.redeliveries = 0

    @property
    def sent(self) -> int:
        """How many numbers there are."""
        return len(self._states)

    def next(self) -> int:
        """A number for a message that is about to be sent."""
        with self._lock:
            self._states.append(_SENT)
            return len(self._states) - 1

    def is_sent(self, number: int) -> None:
        """The same for a number that comes from another lane."""
        with self._lock:
            if number >= len(self._states):
                self._states.extend(bytes(number + 1 - len(self._states)))
            self._states[number] |= _SENT

    def is_void(self, number: int) -> None:
        """A message was part of a transaction that has not been committed."""
        with self._lock:
            self._states[number] = _VOID

    def is_kept(self, number: int) -> None:
        """The broker has confirmed a message."""
        with self._lock:
            state = self._states[number]
            if not state & _KEPT:
                self._states[number] = state | _KEPT
                self.waiting += not state & _DONE

    def has_come(self, number: int, *, is_redelivered: bool) -> None:
        """A message was delivered."""
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
        """The broker has confirmed an acknowledgement."""
        with self._lock:
            state = self._states[number]
            self._states[number] = state | _DONE
            self.waiting -= bool(state & _KEPT and not state & _DONE)
        if state & _DONE:
            self._mistakes.add("doubled", f"{self.name}: {number} was acknowledged twice")

    def close(self) -> None:
        """Nothing more will come: what is missing is lost."""
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
