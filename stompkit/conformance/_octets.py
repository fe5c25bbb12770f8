"""Frames as octets, the way cases want them; and what a target sent, safe to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stompkit.conformance.verdict import Failed
from stompkit.frames import Frame, Version, escape

__all__ = ["Headers", "describe", "frame_octets", "header", "plain", "raw_value"]

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

_SHOWN_HEADERS = 8
_SHOWN_VALUE_CHARACTERS = 100
_SHOWN_TEXT_CHARACTERS = 1_000


def frame_octets(
    command: str,
    headers: Headers = (),
    body: bytes = b"",
    *,
    version: Version = "1.2",
    length: bool = True,
    eol: str = "\n",
) -> bytes:
    """Put a frame together exactly as told; ``length`` adds content-length where there is a body.

    Header names and values are escaped by ``version``, but for CONNECT. What a target sent that
    was not UTF-8 goes back as the octets that it was.
    """
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    if body and length and all(name != "content-length" for name, _ in pairs):
        pairs.append(("content-length", str(len(body))))
    if command not in ("CONNECT", "STOMP"):
        pairs = [(escape(name, version), escape(value, version)) for name, value in pairs]
    lines = [command, *(f"{name}:{value}" for name, value in pairs), "", ""]
    return eol.join(lines).encode("utf-8", "surrogateescape") + body + b"\0"


def raw_value(frame: Frame, name: str) -> bytes:
    """The octets of a received header's value as they came, escapes and all.

    Where the target ends its lines in CR LF, as it may from 1.2 on, CR is not part of the value.
    Raises :class:`Failed` where the frame has no header of that (unescaped) name.
    """
    command, *lines = (frame.head or b"").split(b"\n")
    for line in lines:
        key, _, value = line.partition(b":")
        if key == name.encode():
            return value.removesuffix(b"\r") if command.endswith(b"\r") else value
    raise Failed(f"{frame.command} has no header {name}")


def header(frame: Frame, name: str) -> str:
    """The value of a header; raises :class:`Failed` where the frame has none of that name."""
    value = frame.headers.get(name)
    if value is None:
        raise Failed(f"{frame.command} has no {name} header")
    return value


def describe(frame: Frame) -> str:
    """A frame in a few words, for a reason."""
    headers = frame.headers
    if frame.command == "ERROR":
        text = headers.get("message") or frame.body[:200].decode("utf-8", "replace").strip()
        return f"ERROR {text[: 2 * _SHOWN_VALUE_CHARACTERS]!r}"
    shown = {
        name[:_SHOWN_VALUE_CHARACTERS]: value[:_SHOWN_VALUE_CHARACTERS]
        for name, value in list(headers.items())[:_SHOWN_HEADERS]
    }
    return f"{frame.command} with {shown} and {len(frame.body)} octets"


def plain(text: str, most: int = _SHOWN_TEXT_CHARACTERS) -> str:
    """A text that may hold anything, safe to be shown: one line, printable, not too long."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:most]
    )
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"
