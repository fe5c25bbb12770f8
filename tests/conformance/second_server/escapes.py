"""Escape sequences in headers, by the version of the protocol."""

from __future__ import annotations

import re
from typing import Final

from tests.conformance.second_server.switches import Switch

#: Escape sequences of each version, by the bytes that they represent.
_ESCAPES: Final = {
    b"1.0": {},
    b"1.1": {b"\\": rb"\\", b"\n": rb"\n", b":": rb"\c"},
    b"1.2": {b"\\": rb"\\", b"\n": rb"\n", b":": rb"\c", b"\r": rb"\r"},
}


class Refusal(Exception):
    """A frame that is refused with ERROR."""


def escape(text: bytes, version: bytes, switch: Switch) -> bytes:
    """Escape a text by the rules of the version."""
    table = _ESCAPES[version or b"1.0"]
    if version == b"1.0" and switch.has("escapes on 1.0"):
        table = _ESCAPES[b"1.1"]
    pieces = (table.get(bytes([octet]), bytes([octet])) for octet in text)
    return b"".join(pieces) if table else text.replace(b"\n", b" ")


def unescape(text: bytes, version: bytes, switch: Switch) -> bytes:
    """Unescape a text by the rules of the version."""
    plain = {sequence: octet for octet, sequence in _ESCAPES[version].items()}
    if not plain:
        return text

    def one(found: re.Match[bytes]) -> bytes:
        if found[0] in plain:
            return plain[found[0]]
        if switch.has("keeps undefined escapes"):
            return found[0]
        raise Refusal("an escape sequence that is not defined")

    return re.sub(rb"\\.?", one, text, flags=re.DOTALL)


def unescape_connect(text: bytes) -> bytes:
    """Unescape a text of CONNECT, for one of the switches."""

    def one(found: re.Match[bytes]) -> bytes:
        plain = {sequence: octet for octet, sequence in _ESCAPES[b"1.2"].items()}
        if found[0] not in plain:
            raise Refusal("an escape sequence that is not defined")
        return plain[found[0]]

    return re.sub(rb"\\.?", one, text)
