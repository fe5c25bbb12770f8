"""The encoder of frames: an encoded frame is decoded as the same frame, and as no other."""

from __future__ import annotations

from typing import Final

from fuzz._driver import main
from fuzz._input import chosen
from stompkit.frames import (
    AFTER_LOGIN,
    COMMANDS,
    VERSIONS,
    Frame,
    FrameDecoder,
    LocalProtocolError,
    Tolerance,
    Version,
    encode,
    escape,
    unescape,
)

__all__ = ["SEEDS", "check"]

_VERSIONS: Final[tuple[Version | None, ...]] = (None, *VERSIONS)
_COMMANDS: Final = (*COMMANDS, "send", "", "SEND\n", "CONNECT\r")
#: Separates the texts of an input.
_BETWEEN: Final = b"\xfe"
_NEXT: Final = b"ERROR\n\n\0"

_TEXTS: Final = (
    (b"body", b"destination", b"/queue/a"),
    (b"", b"id", b"1", b"receipt", b"a:b"),
    (b"x\0y", b"content-length", b"3", b"a", b"\\c\\n\\r\\\\"),
    (b"", b"a", b"1", b"a", b"2", b"b", b"\r\n"),
    (b"", b"", b"x"),
    (b"\xff", b"\xc3\xa9", b"\xff", b"a:b", b"c"),
    (b"", b"accept-version", b"1.2", b"host", b"a:b:c", b"x", b"end\r"),
)
SEEDS: Final = tuple(
    bytes((number, number * 3, number % 4)) + _BETWEEN.join(texts)
    for number, texts in enumerate(_TEXTS * 3)
)


def check(data: bytes) -> None:
    """Make a frame of the bytes, encode it and decode it again."""
    settings, rest = data[:3].ljust(3, b"\0"), data[3:]
    version = chosen(_VERSIONS, settings[0])
    command = chosen(_COMMANDS, settings[1])
    tolerance = chosen(
        (Tolerance.NONE, Tolerance.INVALID_UTF8, Tolerance.BODY, Tolerance.LENIENT), settings[2]
    )
    body, *octets = rest.split(_BETWEEN)
    texts = [each.decode("utf-8", "surrogateescape") for each in octets]
    headers: dict[str, str] = {}
    repeated = []
    for name, value in zip(texts[::2], texts[1::2], strict=False):
        if name in headers:
            repeated.append((name, value))
        else:
            headers[name] = value
    for text in texts:
        _escaped(text)
    frame = Frame(command, headers, body, tuple(repeated))
    try:
        wire = encode(frame, version, tolerance=tolerance)
    except LocalProtocolError as error:
        assert str(error).isascii(), str(error)
        return
    assert wire.startswith(command.encode() + b"\n") and wire.endswith(b"\0")
    if body and not COMMANDS[command].body:
        return
    # Before a version is known, and in CONNECT, colons in values are raw.
    reader = (tolerance & Tolerance.INVALID_UTF8) | Tolerance.RAW_COLON
    # The encoder has no limits; a decoder without a version has those before login.
    decoder = FrameDecoder(version, tolerance=reader, limits=AFTER_LOGIN)
    got = decoder.feed(wire + _NEXT)
    got += decoder.feed(b"")
    if body:
        headers.setdefault("content-length", str(len(body)))
    assert got == [Frame(command, headers, body, tuple(repeated)), Frame("ERROR")]


def _escaped(text: str) -> None:
    for version in VERSIONS[1:]:
        assert unescape(escape(text, version), version) == text


if __name__ == "__main__":
    main(__file__)
