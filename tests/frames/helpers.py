"""Helpers of the tests of the codec: every case is read in every chunking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from stompkit.frames import (
    COMMANDS,
    Frame,
    FrameDecoder,
    Limits,
    RemoteProtocolError,
    Role,
    Tolerance,
    Version,
)

#: Names the normative statements that a test covers; see test_requirements.py.
requirement = pytest.mark.requirement

#: No time limit: a slow machine gives the same result.
RELAXED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

VERSIONS: tuple[Version, ...] = ("1.0", "1.1", "1.2")
ESCAPING: tuple[Version, ...] = ("1.1", "1.2")
#: All versions, and ``None`` for the handshake, before a version is negotiated.
EVERY_VERSION: tuple[Version | None, ...] = (None, *VERSIONS)

#: A frame that may follow any other, in any version and in the handshake.
NEXT = b"ERROR\n\n\0"
NEXT_FRAME = Frame("ERROR")

#: Codes of a broken limit. Which limit is met first may depend on the chunking.
LIMITS_BROKEN = {"header-too-large", "too-many-headers", "frame-too-large"}


def octets(data: bytes) -> list[bytes]:
    """Return the bytes one by one."""
    return [data[at : at + 1] for at in range(len(data))]


def client_commands() -> list[str]:
    return [row.name for row in COMMANDS.values() if row.sender is Role.CLIENT]


def read(
    decoder: FrameDecoder, pieces: Iterable[bytes]
) -> tuple[list[Frame], RemoteProtocolError | None]:
    """Feed pieces as an owner does: each piece, then nothing until no more frames are returned."""
    frames: list[Frame] = []
    try:
        for piece in pieces:
            got = decoder.feed(piece)
            while got:
                frames += got
                got = decoder.feed(b"")
    except RemoteProtocolError as error:
        return frames, error
    return frames, None


def ways(data: bytes) -> Iterator[list[bytes]]:
    """Yield the data whole, byte by byte, and in two pieces cut at every place or at 200 places."""
    yield [data]
    yield octets(data)
    for cut in range(1, len(data), len(data) // 200 + 1):
        yield [data[:cut], data[cut:]]


def decode(
    data: bytes,
    version: Version | None = "1.2",
    *,
    limits: Limits | None = None,
    tolerance: Tolerance = Tolerance.NONE,
) -> list[Frame]:
    """Read complete frames in every way, alone and before another frame; all ways must agree."""

    def frames_of(pieces: list[bytes], *, held: int = 0) -> list[Frame]:
        decoder = FrameDecoder(version, limits=limits, tolerance=tolerance)
        frames, error = read(decoder, pieces)
        assert error is None, f"{error}: {pieces}"
        assert decoder.pending_bytes == held, pieces
        return frames

    frames = frames_of([data])
    heads = [frame.head for frame in frames]
    for pieces in ways(data):
        got = frames_of(pieces)
        assert got == frames, pieces
        assert [frame.head for frame in got] == heads, pieces
    for pieces in ([data + NEXT], [data, NEXT], octets(data + NEXT)):
        assert frames_of(pieces) == [*frames, NEXT_FRAME], pieces
    for cut in range(1, len(NEXT)):
        assert frames_of([data + NEXT[:cut]], held=cut) == frames
    return frames


def decode_one(
    data: bytes,
    version: Version | None = "1.2",
    *,
    limits: Limits | None = None,
    tolerance: Tolerance = Tolerance.NONE,
) -> Frame:
    """Read one frame like :func:`decode`."""
    (frame,) = decode(data, version, limits=limits, tolerance=tolerance)
    return frame


def refuse(
    data: bytes,
    version: Version | None = "1.2",
    *,
    code: str,
    limits: Limits | None = None,
    tolerance: Tolerance = Tolerance.NONE,
    after: int = 0,
) -> RemoteProtocolError:
    """Read bytes that are refused in every way, alone, behind and before another frame.

    ``after`` complete frames precede the error. The returned error is the one that is raised when
    everything arrives at once.
    """
    whole: RemoteProtocolError | None = None
    for pieces in (*ways(data), [data + NEXT], octets(data + NEXT)):
        decoder = FrameDecoder(version, limits=limits, tolerance=tolerance)
        frames, error = read(decoder, pieces)
        assert error is not None, pieces
        assert error.code == code, (error, pieces)
        assert len(frames) == after, pieces
        assert decoder.pending_bytes == 0
        whole = whole or error
    frames, error = read(
        FrameDecoder(version, limits=limits, tolerance=tolerance), [NEXT + NEXT + data]
    )
    assert error is not None
    assert (frames[:2], error.code) == ([NEXT_FRAME, NEXT_FRAME], code)
    assert whole is not None
    assert whole.reply is not None
    assert whole.reply.command == "ERROR"
    assert whole.reply.headers["stompkit-code"] == code
    assert whole.reply.headers["message"] == str(whole)
    return whole


def receipt_named(error: RemoteProtocolError) -> str | None:
    """Return the receipt that the ERROR frame for an error names."""
    assert error.reply is not None
    return error.reply.headers.get("receipt-id")
