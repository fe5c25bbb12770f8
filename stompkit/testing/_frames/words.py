"""Frames in words that fit on a line, and the masking of what must not be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from stompkit.frames import Frame

__all__ = ["MASK", "Secrets", "is_secret", "shown_frame", "shown_text"]

#: What stands for a secret.
MASK: Final = "***"

_SHOWN_CHARACTERS: Final = 120
#: A shorter secret is too likely to be a part of other words, and too weak to be worth it.
_SECRET_CHARACTERS: Final = 4
#: In octets that are no frame: the passcode of a CONNECT that nobody can read.
_PASSCODE: Final = re.compile(rb"(?i)(passcode[ \t]*:)[^\r\n\0]*")
#: A value that needs no quotes to be read.
_PLAIN: Final = re.compile(r"[^\s'\"\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff]+")


def is_secret(header: str) -> bool:
    """Whether the values of a header are never shown."""
    return header.strip().lower() == "passcode"


def shown_text(value: str | bytes) -> str:
    """Quote a text or octets as Python does, the end left out where it is long."""
    if len(value) <= _SHOWN_CHARACTERS:
        return repr(value)
    unit = "characters" if isinstance(value, str) else "octets"
    return f"{value[:_SHOWN_CHARACTERS]!r}... ({len(value)} {unit})"


def shown_frame(frame: Frame) -> str:
    """A frame on one line."""
    words = [frame.command]
    for name, value in frame.items():
        whole = len(value) <= _SHOWN_CHARACTERS and _PLAIN.fullmatch(value)
        words.append(f"{name if _PLAIN.fullmatch(name) else repr(name)}:")
        words[-1] += MASK if is_secret(name) else value if whole else shown_text(value)
    if frame.body:
        try:
            words.append(shown_text(frame.body.decode("utf-8")))
        except UnicodeDecodeError:
            words.append(shown_text(frame.body))
    return "  ".join(words)


class Secrets:
    """Passcodes and other texts, and how to keep them out of what is recorded."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Take texts that must not be shown; those of less than four characters are not."""
        # The longest first: one may be a part of another.
        self._texts = sorted(
            {secret for secret in secrets if len(secret) >= _SECRET_CHARACTERS},
            key=lambda secret: (-len(secret), secret),
        )
        self._octets = [secret.encode("utf-8", "surrogateescape") for secret in self._texts]
        #: How many octets may have to be seen to know the first of them for a secret's.
        self.longest_bytes = max(map(len, self._octets), default=0)

    def text(self, text: str) -> str:
        """A text without the secrets."""
        for secret in self._texts:
            text = text.replace(secret, MASK)
        return text

    def octets(self, octets: bytes) -> bytes:
        """Octets without the secrets, and without what follows the word ``passcode:``."""
        return self.body(_PASSCODE.sub(rb"\g<1>" + MASK.encode(), octets))

    def body(self, octets: bytes) -> bytes:
        """The body of a frame without the secrets."""
        for secret in self._octets:
            octets = octets.replace(secret, MASK.encode())
        return octets

    def frame(self, frame: Frame) -> Frame:
        """A copy of a frame without the secrets; ``head`` is gone with them."""
        return Frame(
            frame.command,
            {name: self._value(name, value) for name, value in frame.headers.items()},
            self.body(frame.body),
            tuple((name, self._value(name, value)) for name, value in frame.repeated),
        )

    def _value(self, name: str, value: str) -> str:
        return MASK if is_secret(name) else self.text(value)
