"""The decoder of frames: all chunkings give the same frames, and these can be encoded again."""

from __future__ import annotations

from typing import Final

from fuzz._driver import main
from fuzz._input import chosen, pieces
from stompkit.frames import (
    AFTER_LOGIN,
    BEFORE_LOGIN,
    VERSIONS,
    Frame,
    FrameDecoder,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    Tolerance,
    Version,
    encode,
)

__all__ = ["SEEDS", "check"]

_VERSIONS: Final[tuple[Version | None, ...]] = (None, *VERSIONS)
_NARROW: Final = Limits(
    max_command_bytes=12,
    max_header_line_bytes=30,
    max_headers=4,
    max_body_bytes=40,
    max_frame_bytes=120,
)
_LIMITS: Final = (BEFORE_LOGIN, AFTER_LOGIN, _NARROW)
#: Codes of a broken limit. Which limit is met first may depend on the chunking.
_BROKEN: Final = {"header-too-large", "too-many-headers", "frame-too-large"}
#: Bytes before the wire data: version and limits, tolerance (2 bytes), and sizes of chunks.
_SETTINGS: Final = 6

#: Frames like those in the examples of the specifications.
_WIRE: Final = (
    b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:stomp.example\nheart-beat:0,1000\n\n\0",
    b"CONNECTED\nversion:1.2\nsession:1\nserver:x/1\n\n\0",
    b"SEND\ndestination:/queue/a\ncontent-length:5\n\nhel\0o\0\n\nACK\nid:1\n\n\0",
    b"SEND\ndestination:/queue/a\n\nhello queue a\n\0SEND\ndestination:/queue/a\nreceipt:1\n\nx\0",
    b"SEND\r\ndestination:/queue/a\r\nfoo:a\\cb\\nc\\\\d\\r\r\n\r\nbody\0\r\n\r\n",
    b"MESSAGE\nfoo:World\nfoo:Hello\nsubscription:0\nmessage-id:7\ndestination:/q\n\n\0\n",
    b"ACK\nid:1\n\n\0ACK\nid:2\n\n\0ACK\nid:3\n\n\0NACK\nid:4\ntransaction:t\n\n\0",
    b"SEND\ndestination: a \nx:\xc3\xa9\xff\n\n\xff\xfe\0\0\nDISCONNECT\nreceipt:77\n\0",
    b"ERROR\nreceipt-id:message-12345\ncontent-length:3\n\nThe\0",
    b"SUBSCRIBE\nid:0\ndestination:/q\nack:client\n\nbody\0BEGIN\ntransaction:a\n\n\0",
)
SEEDS: Final = tuple(
    bytes((number, number % 4 * 85, number % 3, 3, 1, 20)) + wire
    for number, wire in enumerate(_WIRE * 4)
)


def _drained(
    decoder: FrameDecoder, chunks: list[bytes], limits: Limits
) -> tuple[list[Frame], str | None]:
    """Feed chunks as an owner does; return the frames, and the code of the error."""
    frames: list[Frame] = []
    try:
        for chunk in chunks:
            most = limits.max_frame_bytes
            if decoder.version is None:
                # Without a version, it returns one frame at a time, and keeps the rest.
                most += len(chunk)
            got = decoder.feed(chunk)
            while got:
                frames += got
                got = decoder.feed(b"")
            assert decoder.pending_bytes <= most, f"{decoder.pending_bytes} octets are held"
    except RemoteProtocolError as error:
        assert error.reply is not None
        assert decoder.pending_bytes == 0
        return frames, "limit" if error.code in _BROKEN else error.code
    return frames, None


def check(data: bytes) -> None:
    """Decode the bytes whole, one by one and in chunks; encode the decoded frames."""
    settings, wire = data[:_SETTINGS].ljust(_SETTINGS, b"\0"), data[_SETTINGS:]
    version = chosen(_VERSIONS, settings[0])
    limits = chosen(_LIMITS, settings[0] // len(_VERSIONS))
    every = int(Tolerance.LENIENT.value)
    tolerance = Tolerance(int.from_bytes(settings[1:3], "big") & every)

    def outcome(chunks: list[bytes]) -> tuple[object, ...]:
        decoder = FrameDecoder(version, limits=limits, tolerance=tolerance)
        frames, code = _drained(decoder, chunks, limits)
        ends = 0 if code is not None else decoder.eols
        heads = [frame.head for frame in frames]
        return frames, code, heads, decoder.pending_bytes, ends

    whole = outcome([wire])
    assert outcome(pieces(wire, settings[3:])) == whole
    assert outcome([wire[at : at + 1] for at in range(len(wire))]) == whole
    frames = whole[0]
    assert isinstance(frames, list)
    for frame in frames:
        assert len(frame.body) <= limits.max_body_bytes
        assert len(list(frame.items())) <= limits.max_headers
        assert repr(frame)
        _encode_again(frame, version, tolerance)


def _encode_again(frame: Frame, version: Version | None, tolerance: Tolerance) -> None:
    # A length may have leading zeros, or count a body that was dropped.
    headers = {name: value for name, value in frame.items() if name != "content-length"}
    repeated = tuple(pair for pair in frame.repeated if pair[0] != "content-length")
    headers = {name: frame.headers[name] for name in headers}
    again = Frame(frame.command, headers, frame.body, repeated)
    try:
        wire = encode(again, version, tolerance=tolerance)
    except LocalProtocolError as error:
        # The peer may speak 1.0, or the version is not known yet.
        handshake = frame.command in ("CONNECT", "STOMP", "CONNECTED") or version is None
        assert handshake and "carriage return" in str(error), str(error)
        return
    if tolerance & Tolerance.PADDING and version in (None, "1.0"):
        return
    decoder = FrameDecoder(version, limits=AFTER_LOGIN, tolerance=tolerance & ~Tolerance.CRLF)
    (same,) = decoder.feed(wire)
    if frame.body:
        headers["content-length"] = str(len(frame.body))
    assert same == again or same == Frame(frame.command, headers, frame.body, repeated)


if __name__ == "__main__":
    main(__file__)
