"""One-line texts for frames, and the masking of secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from stompkit.frames import Frame

__all__ = ["MASK", "Secrets", "is_secret", "shown_frame", "shown_text"]

#: Replacement text for a secret.
MASK: Final = "***"

_SHOWN_CHARACTERS: Final = 120
#: Maximum length of a value that is shown whole: to cut it would save nothing, since the number of
#: its characters follows.
_WHOLE_CHARACTERS: Final = _SHOWN_CHARACTERS + len("... (140 characters)")
#: Minimum length of a secret: a shorter one is likely to be a part of other words, and weak anyway.
_SECRET_CHARACTERS: Final = 4
#: The passcode of a CONNECT in bytes that cannot be parsed as a frame.
_PASSCODE: Final = re.compile(rb"(?i)(passcode[ \t]*:)[^\r\n\0]*")
#: A value that can be shown without quotes.
_PLAIN: Final = re.compile(r"[^\s'\"\\\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff]+")


def is_secret(header: str) -> bool:
    """Return True if the values of a header are never shown."""
    return header.strip().lower() == "passcode"


def shown_text(value: str | bytes) -> str:
    """Quote a text or bytes as Python does; a long value is cut at the end."""
    if len(value) <= _WHOLE_CHARACTERS:
        return repr(value)
    unit = "characters" if isinstance(value, str) else "octets"
    return f"{value[:_SHOWN_CHARACTERS]!r}... ({len(value)} {unit})"


def shown_frame(frame: Frame) -> str:
    """Return a frame on one line."""
    words = [frame.command]
    for name, value in frame.items():
        whole = len(value) <= _WHOLE_CHARACTERS and _PLAIN.fullmatch(value)
        words.append(f"{name if _PLAIN.fullmatch(name) else repr(name)}:")
        words[-1] += MASK if is_secret(name) else value if whole else shown_text(value)
    if frame.body:
        try:
            words.append(shown_text(frame.body.decode("utf-8")))
        except UnicodeDecodeError:
            words.append(shown_text(frame.body))
    return "  ".join(words)


class Secrets:
    """Passcodes and other secret texts, and methods that mask them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Store the texts to mask, except those shorter than four characters."""
        # The longest first: a text may be a part of another.
        self._texts = sorted(
            {secret for secret in secrets if len(secret) >= _SECRET_CHARACTERS},
            key=lambda secret: (-len(secret), secret),
        )
        self._octets = [secret.encode("utf-8", "surrogateescape") for secret in self._texts]
        #: Length in bytes of the longest secret: the lookahead needed to detect one at a boundary.
        self.longest_bytes = max(map(len, self._octets), default=0)

    def text(self, text: str) -> str:
        """Return a text with the secrets masked."""
        for secret in self._texts:
            text = text.replace(secret, MASK)
        return text

    def are_in(self, text: str | bytes) -> bool:
        """Return True if a text contains a secret, possibly escaped for a pattern."""
        if isinstance(text, bytes):
            return any(secret in text or re.escape(secret) in text for secret in self._octets)
        return any(secret in text or re.escape(secret) in text for secret in self._texts)

    def originals(self, frame: Frame) -> Iterator[Frame]:
        """Yield the frames of which a masked frame may be the copy, one for each secret."""
        values = (value for _, value in frame.items())
        if MASK.encode() not in frame.body and not any(MASK in value for value in values):
            return
        for text, octets in zip(self._texts, self._octets, strict=True):
            headers = {name: value.replace(MASK, text) for name, value in frame.headers.items()}
            yield Frame(frame.command, headers, frame.body.replace(MASK.encode(), octets))

    def octets(self, octets: bytes) -> bytes:
        """Return bytes with the secrets masked, and with the value after ``passcode:``."""
        return self.body(_PASSCODE.sub(rb"\g<1>" + MASK.encode(), octets))

    def body(self, octets: bytes) -> bytes:
        """Return the body of a frame with the secrets masked."""
        for secret in self._octets:
            octets = octets.replace(secret, MASK.encode())
        return octets

    def frame(self, frame: Frame) -> Frame:
        """Return a copy of a frame with the secrets masked; ``head`` is removed, too."""
        return Frame(
            frame.command,
            {name: self._value(name, value) for name, value in frame.headers.items()},
            self.body(frame.body),
            tuple((name, self._value(name, value)) for name, value in frame.repeated),
        )

    def _value(self, name: str, value: str) -> str:
        return MASK if is_secret(name) else self.text(value)
