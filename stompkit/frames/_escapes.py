"""Escape and unescape header names and values."""

from __future__ import annotations

import re
from typing import Final

from stompkit.frames._grammar import Version

__all__ = ["escape", "unescape"]

_UNESCAPES_1_1: Final = {"\\n": "\n", "\\c": ":", "\\\\": "\\"}
_UNESCAPES: Final[dict[Version, dict[str, str]]] = {
    "1.0": {},
    "1.1": _UNESCAPES_1_1,
    "1.2": {"\\r": "\r", **_UNESCAPES_1_1},
}
#: The backslash comes first, so that the backslashes added by the others are not escaped again.
_ESCAPES: Final[dict[Version, list[tuple[str, str]]]] = {
    version: [(plain, sequence) for sequence, plain in reversed(table.items())]
    for version, table in _UNESCAPES.items()
}
_SEQUENCE: Final = re.compile(r"\\.?", re.DOTALL)


def escape(text: str, version: Version) -> str:
    """Encode a header name or value for the wire (1.1 and 1.2, "Value Encoding")."""
    # Few texts contain anything to replace. Printable text has no line ends.
    if text.isprintable() and ":" not in text and "\\" not in text:
        return text
    for plain, sequence in _ESCAPES[version]:
        text = text.replace(plain, sequence)
    return text


def unescape(text: str, version: Version, *, keep_unknown: bool = False) -> str:
    r"""Decode a header name or value.

    A sequence that the version does not define, such as ``\t`` (or ``\r`` on 1.1), is a fatal
    error by both specifications: ``ValueError``, with the sequence as its only argument, unless
    ``keep_unknown`` leaves it as it stands.  1.0 has no escapes: the text comes back unchanged.
    """
    table = _UNESCAPES[version]
    if not table or "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        sequence = match[0]
        plain = table.get(sequence)
        if plain is None:
            if keep_unknown:
                return sequence
            raise ValueError(sequence)
        return plain

    return _SEQUENCE.sub(replace, text)
