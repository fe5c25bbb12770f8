"""The wire log of one case, without secrets and limited in size."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable

from stompkit.conformance.verdict import WireEvent
from stompkit.conformance.wire.octets import plain
from stompkit.frames import escape

__all__ = ["Recorder"]

#: Number of events kept from the start of a case in full; of the rest only the last events are
#: kept.
_FIRST_EVENTS = 500
_FIRST_BYTES = 128 * 1024
_LAST_EVENTS = 100
#: Maximum number of bytes shown of one event, at the start and at the end.
_SHOWN_BYTES = 4_096
_SHOWN_LATE_BYTES = 256
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")
_NAME = b"passcode:"
_PASSCODE = re.compile(rb"^passcode:[^\n]*", re.MULTILINE)
_HIDDEN = b"***"
_OCTETS = ("utf-8", "surrogateescape")
#: Ways to escape a text: in headers, in Python's notation beside a quotation mark, and in reports.
_ESCAPES: tuple[Callable[[str], str], ...] = (
    lambda text: escape(text, "1.2"),
    lambda text: repr(text + '"')[1:-2],
    lambda text: repr(text.encode(*_OCTETS) + b'"')[2:-2],
    lambda text: plain(text, len(text)),
)
#: Maximum number of nested escapes: a header in a verdict, and the verdict in a note.
_NESTED = 3
#: Minimum length of a passcode to mask: a shorter one would match too much of the log.
_SECRET_CHARACTERS = 4


def _forms(secret: str) -> tuple[str, ...]:
    """Return a text as it is, and as headers and verdicts escape it, one within the other."""
    forms = {secret} - {""}
    for _ in range(_NESTED):
        forms |= {way(form) for way in _ESCAPES for form in forms}
    return tuple(sorted(forms, key=len, reverse=True))


class Recorder:
    """The wire log of one case.

    The passcode is masked as the value of a header, in whatever pieces it is sent. If ``secret``
    contains it, it is also masked in text that the target repeats in one piece, escaped or not.
    """

    def __init__(self, secret: str | None = None) -> None:
        """Start now; ``secret`` is a text to mask."""
        self.began = time.monotonic()
        long_enough = secret if secret and len(secret) >= _SECRET_CHARACTERS else ""
        #: The secret in all forms in which a target or the suite may write it, longest first.
        self._forms = _forms(long_enough)
        self._octet_forms = [form.encode(*_OCTETS) for form in self._forms]
        self._first: list[WireEvent] = []
        self._last: deque[WireEvent] = deque(maxlen=_LAST_EVENTS)
        self._shown_bytes = 0
        self._left_out = 0
        #: Start of the current line of each stream, as far as needed to recognise a passcode.
        self._lines: dict[tuple[int, str], bytes] = {}

    @property
    def events(self) -> list[WireEvent]:
        """All recorded events; a long case lacks its middle, with a note."""
        if not self._left_out:
            return [*self._first, *self._last]
        gap = WireEvent(0, self._first[-1].at_ms, ".", f"({self._left_out} events left out)")
        return [*self._first, gap, *self._last]

    def note(self, connection: int, direction: str, octets: bytes) -> None:
        """Record bytes, without the passcode and up to the maximum size."""
        shown = self._masked(connection, direction, octets)
        late = len(self._first) >= _FIRST_EVENTS or self._shown_bytes >= _FIRST_BYTES
        most = _SHOWN_LATE_BYTES if late else _SHOWN_BYTES
        text = shown[:most].decode("latin-1").replace("\0", "^@")
        text = _UNPRINTABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
        if len(octets) > most:
            text += f"... {len(octets)} octets"
        at_ms = int((time.monotonic() - self.began) * 1000)
        event = WireEvent(connection, at_ms, direction, text)
        if late:
            self._left_out += len(self._last) == _LAST_EVENTS
            self._last.append(event)
        else:
            self._shown_bytes += len(text)
            self._first.append(event)

    def say(self, connection: int, text: str) -> None:
        """Record an event without bytes."""
        self.note(connection, ".", text.encode("utf-8", "backslashreplace"))

    def hide(self, text: str) -> str:
        """Return a text with the secret masked, also in escaped form."""
        for form in self._forms:
            text = text.replace(form, _HIDDEN.decode())
        return text

    def _masked(self, connection: int, direction: str, octets: bytes) -> bytes:
        """Return the bytes to show, and a few more, with passcode headers masked."""
        stream = connection, direction
        begun = self._lines.get(stream, b"")
        # A secret that is cut at the end would not be recognised.
        most = _SHOWN_BYTES + max(map(len, self._octet_forms), default=0)
        masked = _PASSCODE.sub(_NAME + _HIDDEN, begun + octets[:most])[len(begun) :]
        for form in self._octet_forms:
            masked = masked.replace(form, _HIDDEN)
        line_start = octets.rfind(b"\n") + 1
        line = octets[line_start : line_start + len(_NAME)]
        self._lines[stream] = line if line_start else (begun + line)[: len(_NAME)]
        return masked
