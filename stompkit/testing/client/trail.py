"""A record of the last frames of a connection, shown in failures."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from stompkit.frames import Frame
from stompkit.testing.client.errors import ClientFailureError
from stompkit.testing.frames.words import Secrets, shown_frame, shown_text

__all__ = ["Trail", "unread"]

_SHOWN_LAST: Final = 12


class Trail:
    """The last frames of a connection, without passcodes."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Start empty; ``secrets`` are further texts to hide."""
        self._secrets = Secrets(secrets)
        self._last: deque[tuple[str, Frame | bytes | str]] = deque(maxlen=_SHOWN_LAST)

    def sent(self, what: Frame | bytes) -> None:
        """Record a frame, or bytes, that the client sends."""
        self._last.append((">", what))

    def received(self, frames: Iterable[Frame]) -> None:
        """Record frames that came from the broker."""
        self._last.extend(("<", frame) for frame in frames)

    def ended(self, how: str) -> None:
        """Record the end of the connection."""
        self._last.append(("-", how))

    def failure(
        self, kind: type[ClientFailureError], reason: str, frame: Frame | None = None
    ) -> ClientFailureError:
        """Return a failure that shows the last frames."""
        lines = ["no frame was sent or received"]
        if self._last:
            lines = ["the last frames (> to the broker, < from it):"]
            lines += [f"  {sign} {self._shown(what)}" for sign, what in self._last]
        return kind(reason, "\n".join(lines), frame=frame)

    def said(self, error: Frame) -> str:
        """Return the text of an ERROR frame on one line."""
        message = error.headers.get("message", "").strip()
        first_line = error.body.decode("utf-8", "replace").partition("\n")[0].strip()
        # The message header of some brokers is uninformative; the body of others repeats it.
        parts = [message] + [first_line] * (first_line not in message)
        return shown_text(self._secrets.text(": ".join(filter(None, parts))))

    def _shown(self, what: Frame | bytes | str) -> str:
        if isinstance(what, Frame):
            return shown_frame(self._secrets.frame(what))
        return what if isinstance(what, str) else shown_text(self._secrets.octets(what))


def unread(inbox: Iterable[Frame]) -> str:
    """Return the number of frames that were received and not taken, as the end of a sentence."""
    commands = Counter(frame.command for frame in inbox)
    counts = ", ".join(f"{command} ({number})" for command, number in commands.items())
    return f"; what came instead: {counts or 'nothing'}"
