"""Encode frames as bytes."""

from __future__ import annotations

from typing import Final

from stompkit.frames._commands import COMMANDS
from stompkit.frames._errors import LocalProtocolError
from stompkit.frames._escapes import escape
from stompkit.frames._frame import Frame
from stompkit.frames._grammar import UNESCAPED_COMMANDS, Tolerance, Version

__all__ = ["encode"]

_COLON: Final = escape(":", "1.2")
_WITH_BODY: Final = frozenset(name for name, row in COMMANDS.items() if row.body)


def encode(
    frame: Frame,
    version: Version | None = None,
    *,
    tolerance: Tolerance = Tolerance.NONE,
    eol: bool = False,
) -> bytes:
    """Encode one frame by the rules of ``version``; ``None`` before one is negotiated.

    A body gets its ``content-length`` if the frame has none (1.2, "Header content-length"). Raises
    :class:`LocalProtocolError` for input that the version cannot express. That is an unknown
    command, a body where none is allowed, or a ``content-length`` that is not the body's. It is
    also an empty header name, an unescaped line end or colon in a header, or a NUL in any header.
    ``tolerance`` allows ``INVALID_UTF8`` (bytes kept by a tolerant decoder) and ``BODY`` (any
    command has one). With ``eol`` a line feed follows the NUL, which every version allows and some
    clients need.
    """
    command, headers, body = frame.command, frame.headers, frame.body
    if command not in COMMANDS:
        raise LocalProtocolError(f"unknown command {command!a}")
    lines = [f"{name}:{value}" for name, value in headers.items()]
    if frame.repeated:
        _check_repeated(frame)
        lines += [f"{name}:{value}" for name, value in frame.repeated]
    text = "\n".join(lines)
    count = len(lines)
    if (
        "\\" in text
        or "\r" in text
        or "\0" in text
        or text.count("\n") != count - (count > 0)
        or "" in headers
    ):
        text = "\n".join(_careful_lines(frame, version))
    elif text.count(":") != count:
        text = "\n".join(_lines_with_colons(frame, version))
    declared = headers.get("content-length")
    if body or declared is not None:
        text = _with_length(text, frame, declared, tolerance)
    if text:
        text += "\n"
    try:
        head = f"{command}\n{text}\n".encode()
    except UnicodeEncodeError:
        head = _encode_anyway(f"{command}\n{text}\n", tolerance)
    return b"%b%b%b" % (head, body, b"\0\n" if eol else b"\0")


def _check_repeated(frame: Frame) -> None:
    """Refuse a repeated entry without a first one: a receiver would take it for the valid one."""
    for name, _ in frame.repeated:
        if name not in frame.headers:
            raise LocalProtocolError(f"header {name!a} is repeated, but it is not in headers")


def _with_length(text: str, frame: Frame, declared: str | None, tolerance: Tolerance) -> str:
    size = len(frame.body)
    if size and frame.command not in _WITH_BODY and not tolerance & Tolerance.BODY:
        raise LocalProtocolError(f"the frame {frame.command} must not have a body")
    if declared is None:
        line = f"content-length:{size}"
        return f"{text}\n{line}" if text else line
    if declared != str(size):
        raise LocalProtocolError(f"content-length is {declared!a} but the body has {size} octets")
    return text


def _lines_with_colons(frame: Frame, version: Version | None) -> list[str]:
    """Return the header lines when they have further colons, and nothing else to escape.

    Most such frames have a few values with colons, as ids and times have them.
    """
    if version is None or not _has_escapes(frame, version):
        return _careful_lines(frame, version)
    return [
        f"{name.replace(':', _COLON) if ':' in name else name}:"
        f"{value.replace(':', _COLON) if ':' in value else value}"
        for name, value in [*frame.headers.items(), *frame.repeated]
    ]


def _has_escapes(frame: Frame, version: Version) -> bool:
    return version != "1.0" and frame.command not in UNESCAPED_COMMANDS


def _careful_lines(frame: Frame, version: Version | None) -> list[str]:
    """Return the header lines when at least one needs escapes or cannot be sent."""
    if "" in frame.headers:
        raise LocalProtocolError("a header name must not be empty")
    handshake = frame.command in UNESCAPED_COMMANDS
    if version is not None and _has_escapes(frame, version):
        return _escaped_lines(frame, version)
    for name, value in frame.items():
        if ":" in name:
            raise LocalProtocolError(f"header name {name!a} holds a colon, which cannot be escaped")
        if "\n" in name or "\n" in value or "\0" in name or "\0" in value:
            raise _unsendable(name, frame, version)
        # A receiver reads this as CR LF, in any version.
        if (handshake or version is None) and "\r" in name + value:
            raise LocalProtocolError(f"header {name!a} of {frame.command} holds a carriage return")
    return [f"{name}:{value}" for name, value in frame.items()]


def _escaped_lines(frame: Frame, version: Version) -> list[str]:
    texts = [text for entry in frame.items() for text in entry]
    # Escape all at once, joined by NUL, which has no escape and may occur in none of them.
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        names = (name for name, value in frame.items() if "\0" in name + value)
        raise _unsendable(next(names), frame, version)
    escaped = iter(escape(joined, version).split("\0"))
    return [f"{name}:{value}" for name, value in zip(escaped, escaped, strict=True)]


def _unsendable(name: str, frame: Frame, version: Version | None) -> LocalProtocolError:
    return LocalProtocolError(
        f"header {name!a} holds a line feed or NUL, which"
        f" {frame.command} cannot carry on STOMP {version or '(not negotiated)'}"
    )


def _encode_anyway(text: str, tolerance: Tolerance) -> bytes:
    errors = "surrogateescape" if tolerance & Tolerance.INVALID_UTF8 else "strict"
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError:
        raise LocalProtocolError("a header holds a lone surrogate, which is not UTF-8") from None
