"""The work for decoding is linear in the number of bytes, in every chunking.

Work is counted, never timed: the bytes that methods of ``bytearray`` read, move or copy, and the
function calls. Twice the bytes may cost twice the work. If a decoder scans anything again, they
cost four times as much.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

from stompkit.frames import Frame, FrameDecoder, Limits, Role, Session, Tolerance, Version, _decoder
from stompkit.frames import _session as session_module
from tests.frames.helpers import octets, read

pytestmark = pytest.mark.pure

_ENOUGH = 1 << 40
UNLIMITED = Limits(_ENOUGH, _ENOUGH, _ENOUGH, _ENOUGH, _ENOUGH)


@dataclass
class Work:
    """Amount of work done."""

    octets: int = 0
    calls: int = 0


WORK = Work()


def _over_all(name: str) -> Any:
    """Return a counting method that scans the whole buffer."""
    method = getattr(bytearray, name)

    def counted(self: bytearray, *arguments: Any) -> Any:
        WORK.octets += len(self)
        return method(self, *arguments)

    return counted


def _over_a_part(name: str) -> Any:
    """Return a counting method that scans a part of the buffer, or up to the match."""
    method = getattr(bytearray, name)

    def counted(self: bytearray, sub: Any, start: Any = None, end: Any = None) -> Any:
        result = method(self, sub, start, end)
        last = len(self) if end is None else min(end, len(self))
        if name == "find" and result >= 0:
            last = result
        WORK.octets += max(last - (start or 0), 0) + 1
        return result

    return counted


class CountingBuffer(bytearray):
    """A ``bytearray`` that counts the bytes that its methods scan."""

    find = _over_a_part("find")
    rfind = _over_a_part("rfind")
    count = _over_a_part("count")
    index = _over_all("index")
    split = _over_all("split")
    strip = _over_all("strip")
    lstrip = _over_all("lstrip")
    replace = _over_all("replace")
    decode = _over_all("decode")
    __contains__ = _over_all("__contains__")
    __iter__ = _over_all("__iter__")
    __delitem__ = _over_all("__delitem__")  # the rest may move

    def __bytes__(self) -> bytes:
        """Count the copy."""
        WORK.octets += len(self)
        return bytes(memoryview(self))

    def __getitem__(self, index: Any) -> Any:
        """Count the bytes read."""
        got = super().__getitem__(index)
        WORK.octets += 1 if isinstance(got, int) else len(got)
        return got


class CountingView:
    """A ``memoryview`` that counts the bytes read."""

    def __init__(self, buffer: bytes | bytearray) -> None:
        """Open a view of ``buffer``."""
        self._view = memoryview(buffer)

    def __enter__(self) -> CountingView:
        """Return the view itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Release the buffer."""
        self._view.release()

    def __getitem__(self, part: slice) -> bytes:
        """Read bytes and count them."""
        got = bytes(self._view[part])
        WORK.octets += len(got)
        return got


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the buffers of the decoder and the session by counting ones."""
    monkeypatch.setattr(_decoder, "bytearray", CountingBuffer, raising=False)
    monkeypatch.setattr(_decoder, "memoryview", CountingView, raising=False)
    monkeypatch.setattr(session_module, "bytearray", CountingBuffer, raising=False)


def work(job: Callable[[], object]) -> Work:
    """Run a job and return its work."""

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        WORK.calls += event in ("call", "c_call")

    WORK.octets = WORK.calls = 0
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(before)
    return Work(WORK.octets, WORK.calls)


def is_linear(job_of: Callable[[int], Callable[[], object]], size: int = 4096) -> None:
    """Assert that twice the bytes cost twice the work, with a tolerance of 10%."""
    small, large = work(job_of(size)), work(job_of(2 * size))
    assert small.octets >= size, "what was counted is not what was read"
    assert large.octets <= 2.2 * small.octets + 100, (small, large)
    assert large.calls <= 2.2 * small.calls + 100, (small, large)


def reading(
    data: bytes,
    frames: int,
    *,
    step: int = 1,
    version: Version | None = "1.2",
    tolerance: Tolerance = Tolerance.NONE,
) -> Callable[[], object]:
    """Return a job that feeds ``data`` in pieces of ``step`` bytes."""
    pieces = [data[at : at + step] for at in range(0, len(data), step)]

    def job() -> None:
        decoder = FrameDecoder(version, limits=UNLIMITED, tolerance=tolerance)
        got, error = read(decoder, pieces)
        assert error is None
        assert len(got) == frames

    return job


def test_what_is_read_again_would_be_noticed() -> None:
    def job_of(size: int) -> Callable[[], object]:
        def job() -> None:
            buffer = CountingBuffer()
            for octet in octets(b"x" * size):
                buffer += octet
                buffer.find(b"\0")

        return job

    with pytest.raises(AssertionError):
        is_linear(job_of)


@pytest.mark.parametrize("version", [None, "1.1", "1.2"])
def test_a_long_header_octet_by_octet(version: Version | None) -> None:
    is_linear(lambda size: reading(b"SEND\na:%b\n\n\0" % (b"x" * size), 1, version=version))


def test_a_long_command_octet_by_octet() -> None:
    def job_of(size: int) -> Callable[[], object]:
        decoder = FrameDecoder("1.2", limits=UNLIMITED)
        return lambda: read(decoder, octets(b"X" * size))

    is_linear(job_of)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_many_small_headers_octet_by_octet(end: bytes) -> None:
    is_linear(lambda size: reading(b"SEND%b%b%b\0" % (end, (b"a:" + end) * size, end), 1))


@pytest.mark.parametrize("filler", [b"\r", b"\\\\", b"\n:", b"\xff"])
def test_a_header_full_of_what_is_looked_for_octet_by_octet(filler: bytes) -> None:
    def job_of(size: int) -> Callable[[], object]:
        decoder = FrameDecoder("1.2", limits=UNLIMITED)
        return lambda: read(decoder, octets(b"SEND\na:" + filler * size))

    is_linear(job_of)


def test_a_body_octet_by_octet() -> None:
    is_linear(lambda size: reading(b"SEND\na:b\n\n%b\0" % (b"\n" * size), 1))


def test_a_counted_body_octet_by_octet() -> None:
    is_linear(lambda size: reading(b"SEND\ncontent-length:%d\n\n%b\0" % (size, bytes(size)), 1))


def test_a_counted_body_without_blank_line_octet_by_octet() -> None:
    def job_of(size: int) -> Callable[[], object]:
        data = b"SEND\ncontent-length:%d\na:%b\n\0" % (size, b"x" * size)
        decoder = FrameDecoder("1.2", limits=UNLIMITED, tolerance=Tolerance.LENIENT)
        return lambda: read(decoder, octets(data + bytes(size)))

    is_linear(job_of)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_many_line_ends_octet_by_octet(end: bytes) -> None:
    def job_of(size: int) -> Callable[[], object]:
        return reading(b"SEND\n\nx" + b"y" * size + b"\0" + end * size, 1)

    is_linear(job_of)


def test_many_line_ends_at_once_behind_a_frame_in_pieces() -> None:
    def job_of(size: int) -> Callable[[], object]:
        decoder = FrameDecoder("1.2", limits=UNLIMITED)
        return lambda: read(decoder, [b"SEND\n\n", b"\0" + b"\n" * size])

    is_linear(job_of)


@pytest.mark.parametrize("step", [1, 3, 64])
def test_many_frames_in_small_pieces(step: int) -> None:
    frame = b"SEND\na:b\ncontent-length:1\n\nx\0"
    is_linear(lambda size: reading(frame * (size // 8), size // 8, step=step))


def test_many_frames_in_one_piece_behind_the_beginning_of_one() -> None:
    frame = b"SEND\na:b\n\nx\0"

    def job_of(size: int) -> Callable[[], object]:
        decoder = FrameDecoder("1.2", limits=UNLIMITED)
        return lambda: read(decoder, [frame[:3], frame[3:] + frame * size])

    is_linear(job_of)


def test_octets_held_until_the_version_is_settled() -> None:
    def job_of(size: int) -> Callable[[], object]:
        session = Session(Role.SERVER, limits_before_login=UNLIMITED, limits=UNLIMITED)
        assert session.receive(b"CONNECT\naccept-version:1.2\n\n\0", 0) == [
            Frame("CONNECT", {"accept-version": "1.2"})
        ]

        def job() -> None:
            for octet in octets(b"\n" * size):
                assert session.receive(octet, 0) == []
            session.accept({}, 0)
            assert session.receive(b"", 0) == []

        return job

    is_linear(job_of)
