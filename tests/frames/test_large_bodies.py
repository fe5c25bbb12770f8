"""Large bodies: any chunks give the same frames, in bounded memory."""

from __future__ import annotations

import tracemalloc
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.frames import Frame, FrameDecoder, Limits, RemoteProtocolError, Role, Session, encode
from tests.frames.helpers import RELAXED

#: Sizes around those at which the decoder keeps a chunk as it is.
_SIZES = st.one_of(st.integers(0, 9), st.integers(4_090, 4_100), st.integers(0, 9_000))
#: Size at which a head of these tests is complete.
_HEAD_BYTES = 60
_HEAD = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n"


def _send(size: int, seed: int) -> Frame:
    body = (bytes(range(seed, 251)) * (size // 200 + 1))[:size]
    return Frame("SEND", {"destination": "/queue/a", "content-length": str(size)}, body)


@RELAXED
@given(
    st.lists(_SIZES, min_size=1, max_size=5),
    st.lists(_SIZES, min_size=1, max_size=20).filter(lambda chunks: sum(chunks) > 1_000),
)
def test_any_chunks_of_large_bodies_give_the_same(bodies: list[int], chunks: list[int]) -> None:
    sent = [_send(size, number) for number, size in enumerate(bodies)]
    encoded = [encode(frame, "1.2") for frame in sent]
    wire = b"".join(encoded)
    ends = [0, *accumulate(map(len, encoded))]
    decoder = FrameDecoder("1.2")
    got: list[Frame] = []
    start = 0
    while start < len(wire):
        for size in chunks:
            chunk = wire[start : start + size]
            got += decoder.feed(chunk)
            start += len(chunk)
            assert decoder.pending_bytes == start - ends[len(got)]
            if decoder.missing_bytes:
                assert decoder.missing_bytes == ends[len(got) + 1] - start
            else:
                assert decoder.pending_bytes < _HEAD_BYTES
    assert got == sent
    assert decoder.pending_bytes == 0
    decoder.eof()


def test_the_rest_of_a_frame_of_known_length_is_known() -> None:
    session = Session(Role.SERVER, 0.0)
    session.receive(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", 0.0)
    session.accept({}, 0.0)
    assert session.missing_bytes == 0
    assert session.receive(b"SEND\ndestination:/queue/a\n", 0.0) == []
    assert session.missing_bytes == 0
    assert session.receive(b"content-length:10\n\nabc", 0.0) == []
    assert session.missing_bytes == 8
    [frame] = session.receive(b"defghij\0", 0.0)
    assert frame.body == b"abcdefghij"
    assert session.missing_bytes == 0


@RELAXED
@given(_SIZES, st.lists(_SIZES, min_size=1, max_size=5))
def test_a_byte_in_place_of_the_last_nul_is_refused(size: int, chunks: list[int]) -> None:
    decoder = FrameDecoder("1.2")
    wire = _HEAD % size + b"x" * size + b"!" + b"\0" * 9
    start = 0
    with pytest.raises(RemoteProtocolError) as caught:
        for chunk in [*chunks, len(wire), 0]:
            assert decoder.feed(wire[start : start + chunk]) == []
            start += chunk
    assert caught.value.code == "bad-content-length"
    assert decoder.pending_bytes == 0
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"")


@pytest.mark.memory
@pytest.mark.parametrize("chunks", [(1,), (2,), (3, 4_095), (4_096, 1)])
def test_small_chunks_of_a_large_body_take_little_more_than_their_size(
    chunks: tuple[int, ...],
) -> None:
    size = 1 << 17
    decoder = FrameDecoder("1.2", limits=Limits(max_body_bytes=size, max_frame_bytes=2 * size))
    decoder.feed(_HEAD % size)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        while decoder.pending_bytes < size - 5_000:
            for chunk in chunks:
                # Each chunk is an object of its own, as one that was received.
                decoder.feed(b"x" * chunk)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 1.2 * size


def test_a_body_in_large_chunks_is_copied_once() -> None:
    """While the last chunk is fed, there is no more than the chunks and the body."""
    size, chunk = 1 << 20, 1 << 16
    wire = _HEAD % size + b"x" * size + b"\0"
    decoder = FrameDecoder("1.2")
    pieces = [wire[start : start + chunk] for start in range(0, len(wire), chunk)]
    tracemalloc.start()
    try:
        frames = [frame for piece in pieces for frame in decoder.feed(piece)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(frames[0].body) == size
    assert peak < size + 3 * chunk
