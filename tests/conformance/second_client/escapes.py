"""Escape sequences in headers, by the version of the protocol."""

from __future__ import annotations

import re
from typing import Final

from tests.conformance.second_client.switches import Switch

#: Escape sequences of each version, with their meaning.
_SEQUENCES: Final = {
    b"1.0": {},
    b"1.1": {rb"\\": b"\\", rb"\n": b"\n", rb"\c": b":"},
    b"1.2": {rb"\\": b"\\", rb"\n": b"\n", rb"\c": b":", rb"\r": b"\r"},
}


class Lost(Exception):
    """The session has ended with an error."""


def unescape(text: bytes, version: bytes, switch: Switch) -> bytes:
    """Unescape a text by the rules of the version."""
    version = version or b"1.2"
    if version == b"1.0" and switch.has("unescapes on 1.0"):
        version = b"1.1"
    if version == b"1.1" and switch.has("takes carriage returns for escapes on 1.1"):
        version = b"1.2"
    plain = _SEQUENCES[version]
    if not plain or switch.has("keeps escapes"):
        return text

    def one(found: re.Match[bytes]) -> bytes:
        sequence = found[0]
        if switch.has("takes escapes in capitals"):
            sequence = sequence.lower()
        if sequence in plain:
            return plain[sequence]
        if switch.has("keeps a backslash at the end") and sequence == b"\\":
            return sequence
        if switch.has("keeps undefined escapes"):
            return sequence
        raise Lost("an escape sequence that is not defined")

    return re.sub(rb"\\.?", one, text, flags=re.DOTALL)


def escape(text: bytes, version: bytes, switch: Switch) -> bytes:
    """Escape a text by the rules of the version; raises :class:`Lost` if there is no escape."""
    version = version or b"1.2"
    if switch.has("does not escape"):
        return text
    if version == b"1.0" and switch.has("escapes on 1.0"):
        version = b"1.1"
    if version == b"1.1" and switch.has("escapes carriage returns on 1.1"):
        version = b"1.2"
    sequences = {plain: sequence for sequence, plain in _SEQUENCES[version].items()}
    is_free = sequences or switch.has("lets line ends into headers of 1.0")
    if b"\n" in text and not is_free:
        raise Lost("STOMP 1.0 has no line ends in headers")
    return b"".join(sequences.get(bytes([octet]), bytes([octet])) for octet in text)
