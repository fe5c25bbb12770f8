"""A frame codec without checks: it accepts frames that a strict codec rejects."""

from __future__ import annotations

from stompkit.frames import Frame, Version, escape, unescape

__all__ = ["changed", "decoded", "encoded", "whole"]

_UNESCAPED = ("CONNECT", "STOMP", "CONNECTED")
#: Digits of the largest number of a header: Python converts no more than 4,300 of them.
_MOST_DIGITS = 18


def decoded(octets: bytes, version: Version) -> Frame:
    """Return the frame that stompkit's broker has encoded for a client of ``version``."""
    head, _, rest = octets.partition(b"\n\n")
    command, *lines = head.decode("utf-8", "surrogateescape").split("\n")
    pairs = []
    for line in lines:
        name, _, value = line.partition(":")
        if command not in _UNESCAPED:
            name, value = unescape(name, version), unescape(value, version)
        pairs.append((name, value))
    # A line feed may follow the NUL that ends the body.
    return Frame(command, dict(pairs), rest[: rest.rfind(b"\0")])


def encoded(frame: Frame, version: Version, end: bytes = b"\0") -> bytes:
    """Return the frame as bytes, with the escapes of ``version`` and no additional headers."""
    lines = [frame.command]
    for name, value in frame.items():
        if frame.command not in _UNESCAPED:
            name, value = escape(name, version), escape(value, version)
        lines.append(f"{name}:{value}")
    head = "\n".join(lines).encode("utf-8", "surrogateescape")
    return b"%b\n\n%b%b" % (head, frame.body, end)


def changed(frame: Frame, *dropped: str, **headers: str) -> Frame:
    """Return a copy of a frame with headers removed and replaced; ``_`` in names is ``-``."""
    kept = {name: value for name, value in frame.headers.items() if name not in dropped}
    kept.update((name.replace("_", "-"), value) for name, value in headers.items())
    return Frame(frame.command, kept, frame.body, frame.repeated)


def whole(digits: str) -> int:
    """Return a number of ASCII digits; instead of a larger one, ``10**18``."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _MOST_DIGITS else 10**_MOST_DIGITS
