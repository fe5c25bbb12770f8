"""Encoding of frames for cases, and printable forms of a target's data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stompkit.conformance.verdict import FailedError
from stompkit.frames import Frame, Version, escape

__all__ = [
    "Headers",
    "describe",
    "difference",
    "frame_octets",
    "header",
    "header_lines",
    "plain",
    "raw_value",
]

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

_SHOWN_HEADERS = 8
_SHOWN_VALUE_CHARACTERS = 100
_SHOWN_TEXT_CHARACTERS = 1_000
#: Number of characters shown from where two texts differ on.
_SHOWN_REST = 20


def frame_octets(
    command: str,
    headers: Headers = (),
    body: bytes = b"",
    *,
    version: Version = "1.2",
    length: bool = True,
    eol: str = "\n",
) -> bytes:
    """Encode a frame exactly as given; ``length`` adds content-length to a body.

    Header names and values are escaped by ``version``, except in CONNECT. Bytes of a target that
    were not UTF-8 are encoded unchanged.
    """
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    if body and length and all(name != "content-length" for name, _ in pairs):
        pairs.append(("content-length", str(len(body))))
    if command not in ("CONNECT", "STOMP"):
        pairs = [(escape(name, version), escape(value, version)) for name, value in pairs]
    lines = [command, *(f"{name}:{value}" for name, value in pairs), "", ""]
    return eol.join(lines).encode("utf-8", "surrogateescape") + body + b"\0"


def header_lines(frame: Frame, version: Version) -> list[bytes]:
    """Return the raw header lines of a received frame, without their line ends.

    In 1.2 each line can end in CR LF or in LF, whatever the others do. In earlier versions a CR is
    part of the value.
    """
    lines = (frame.head or b"").split(b"\n")[1:]
    return [line.removesuffix(b"\r") for line in lines] if version == "1.2" else lines


def raw_value(frame: Frame, name: str, version: Version = "1.2") -> bytes:
    """Return the raw bytes of a received header's value, including escapes.

    Lines end as in ``version``. Raises :class:`FailedError` if the frame has no header of that
    (unescaped) name.
    """
    for line in header_lines(frame, version):
        key, _, value = line.partition(b":")
        if key == name.encode():
            return value
    raise FailedError(f"{frame.command} has no header {name}")


def header(frame: Frame, name: str) -> str:
    """Return the value of a header; raises :class:`FailedError` if the frame has no such header."""
    value = frame.headers.get(name)
    if value is None:
        raise FailedError(f"{frame.command} has no {name} header")
    return value


def describe(frame: Frame, hide: Callable[[str], str] = str) -> str:
    """Return a frame in a few words, for a reason.

    ``hide`` masks secrets, which could not be recognised once a text is cut.
    """
    headers = frame.headers
    if frame.command == "ERROR":
        text = headers.get("message") or frame.body.decode("utf-8", "replace").strip()
        return f"ERROR {hide(text)[: 2 * _SHOWN_VALUE_CHARACTERS]!r}"
    shown = {
        hide(name)[:_SHOWN_VALUE_CHARACTERS]: hide(value)[:_SHOWN_VALUE_CHARACTERS]
        for name, value in list(headers.items())[:_SHOWN_HEADERS]
    }
    return f"{frame.command} with {shown} and {len(frame.body)} octets"


def difference(name: str, got: str | None, wanted: str, hide: Callable[[str], str] = str) -> str:
    """Return where a header differs from the awaited one, for a reason; empty if it does not.

    ``hide`` masks secrets: of a value that has one, no part is shown.
    """
    if got is None:
        return f"it has no {name}"
    if got == wanted:
        return ""
    pairs = enumerate(zip(got, wanted, strict=False))
    place = next((n for n, (one, other) in pairs if one != other), min(len(got), len(wanted)))
    if hide(got) != got:
        return f"its {name} differs from character {place + 1} on"
    theirs, ours = (text[place:][:_SHOWN_REST] for text in (got, wanted))
    return f"its {name} differs from character {place + 1} on: {theirs!r}, not {ours!r}"


def plain(text: str, most: int = _SHOWN_TEXT_CHARACTERS) -> str:
    """Return any text in printable form: one line, with a maximum length."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:most]
    )
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"
