"""Shapes of heads change no result, and exact heads can be sent again as they arrived."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.frames import (
    VERSIONS,
    Frame,
    FrameDecoder,
    Limits,
    RemoteProtocolError,
    Tolerance,
    Version,
    encode,
)
from tests.frames.helpers import ESCAPING, LIMITS_BROKEN, RELAXED

#: More heads than a decoder reads before it keeps shapes.
MANY = 12
#: More heads than a decoder reads before it looks for shapes again that it has not found.
LONG = 40
_NAMES = st.sampled_from(
    ["destination", "receipt", "x", "xx", "x-1", "", "é", "a b", "a\\cb", "a\\", "a\rb", "n" * 65]
) | st.sampled_from(["destination", "x", "content-length"])
_VALUES = st.text("a1 :\\cnrt\ré-/", max_size=5) | st.sampled_from(
    [
        "/queue/a",
        "12\\c30\\c00",
        "C\\c\\\\in",
        "long" * 20,
        "\\n",
        "\\r",
        "\\t",
        "0",
        "4",
        "04",
        "5",
    ]
)
_LINES = st.builds("{}:{}".format, _NAMES, _VALUES) | st.sampled_from(["x:1", "no colon", "\r"])
_COMMANDS = st.sampled_from(["SEND", "SEND", "SEND", "ACK", "MESSAGE", "CONNECT", "NONE", "SEND\r"])
_ENDS = st.sampled_from(
    [b"\n\n\0", b"\n\nbody\0", b"\n\nb\0dy\0", b"\r\n\r\n\0", b"\n\0", b"\n\n\0\n"]
)
_LIMITS = st.sampled_from(
    [None, None, Limits(max_headers=3), Limits(max_header_line_bytes=30), Limits(max_body_bytes=3)]
)
_TOLERANCES = st.sampled_from([Tolerance.NONE, Tolerance.LENIENT]) | st.integers(
    0, Tolerance.LENIENT.value
).map(Tolerance)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Draw a frame, or nearly one."""
    lines = draw(st.lists(_LINES, max_size=6))
    head = "\n".join([draw(_COMMANDS), *lines]).encode()
    if len(head) > 8 and draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(5, len(head)))
        head = head[:at] + draw(st.sampled_from([b"\xff", b"\0"])) + head[at:]
    return head + draw(_ENDS)


def practised(
    version: Version, limits: Limits | None = None, tolerance: Tolerance = Tolerance.NONE
) -> FrameDecoder:
    """Return a decoder that has read many different heads."""
    decoder = FrameDecoder(version, limits=limits, tolerance=tolerance)
    for number in range(MANY):
        assert decoder.feed(b"SEND\ndestination:%d\nx:%d\n\n\0" % (number, number))
    return decoder


def read(decoder: FrameDecoder, pieces: list[bytes]) -> list[tuple[Frame, bytes | None] | str]:
    """Return the frames with their heads, and the error that ends them.

    Which limit is broken first may depend on the pieces.
    """
    found: list[tuple[Frame, bytes | None] | str] = []
    try:
        for piece in pieces:
            got = decoder.feed(piece)
            while got:
                found += [(frame, frame.head) for frame in got]
                got = decoder.feed(b"")
    except RemoteProtocolError as error:
        is_limit = error.code in LIMITS_BROKEN and len(pieces) > 1
        found.append("a limit" if is_limit else f"{error.code}: {error} {error.reply}")
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("tolerance", [Tolerance.NONE, Tolerance.LENIENT])
@pytest.mark.parametrize(
    "lines",
    [b"x:a:b", b"x:\\q", b"x:\\", b"x:\xff", b"x:a\r", b"x", b":a", b"n" * 65 + b":1"],
    ids=["colon", "escape", "backslash", "utf8", "cr", "no-colon", "no-name", "long-name"],
)
def test_heads_of_a_known_shape_that_are_not_as_usual(
    version: Version, tolerance: Tolerance, lines: bytes
) -> None:
    sent = b"SEND\ndestination:a\n" + lines + b"\n\n\0"
    decoder = practised(version, tolerance=tolerance)
    for _ in range(2):
        found = read(decoder, [sent])
        assert found == read(FrameDecoder(version, tolerance=tolerance), [sent])
        if isinstance(found[0], str):
            return


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_command_is_none_later_either(version: Version) -> None:
    sent = [b"NONE\nx:1\n\n\0"]
    assert read(practised(version), sent) == read(FrameDecoder(version), sent)


@pytest.mark.parametrize("version", VERSIONS)
@settings(RELAXED, max_examples=400)
@given(
    st.lists(frames(), min_size=1, max_size=4),
    _LIMITS,
    _TOLERANCES,
    st.lists(st.integers(0, 200), max_size=4),
)
def test_known_shapes_make_no_difference(
    version: Version,
    sent: list[bytes],
    limits: Limits | None,
    tolerance: Tolerance,
    cuts: list[int],
) -> None:
    decoder = practised(version, limits, tolerance)
    # Shapes are kept when they arrive for the first time, and found later.
    for octets in sent * 3:
        ends = sorted({*cuts, len(octets)})
        pieces = [octets[at:end] for at, end in zip([0, *ends], ends, strict=False)]
        fresh = FrameDecoder(version, limits=limits, tolerance=tolerance)
        before = decoder.eols
        found = read(decoder, pieces)
        assert found == read(fresh, pieces)
        assert decoder.eols - before == fresh.eols
        assert decoder.pending_bytes == fresh.pending_bytes
        if decoder.pending_bytes or any(isinstance(each, str) for each in found):
            return


@pytest.mark.parametrize("version", VERSIONS)
@settings(RELAXED, max_examples=300)
@given(st.lists(frames(), min_size=1, max_size=4), _TOLERANCES)
def test_an_exact_head_is_what_the_encoder_writes(
    version: Version, sent: list[bytes], tolerance: Tolerance
) -> None:
    decoder = practised(version, None, tolerance)
    for octets in sent * 3:
        try:
            found = decoder.feed(octets)
        except RemoteProtocolError:
            return
        for frame in found:
            # The encoder checks that content-length is that of the body.
            headers = {k: v for k, v in frame.headers.items() if k != "content-length"}
            wanted = encode(Frame(frame.command, headers), "1.2") if frame.is_exact else b""
            if frame.is_exact:
                lines = frame.header_lines({"content-length"})
                assert frame.command.encode() + b"\n" + lines + b"\n\0" == wanted
                assert (frame.head or b"") + b"\n" == frame.command.encode() + b"\n" + (
                    frame.header_lines()
                )
            if frame.is_plain:
                assert frame.is_exact
                for each in VERSIONS:
                    assert encode(Frame(frame.command, headers), each) == wanted
        if decoder.pending_bytes:
            return


@pytest.mark.parametrize("version", ESCAPING)
@pytest.mark.parametrize(
    ("head", "is_plain"),
    [
        (b"SEND\ndestination:/queue/a\nx:1", True),
        (b"SEND\nx:1\ndestination:/queue/a", True),
        (b"SEND\ndestination:/queue/a\nnew:1\nx:1", True),
        ("SEND\ndestination:/queue/a\nx:ü".encode(), True),
        (rb"SEND%cdestination:/queue/a%cx:12\c30" % (10, 10), False),
        (rb"SEND%cdestination:a\\b%cx:\n" % (10, 10), False),
        (b"ACK\nid:1\nmessage-id:1\nsubscription:1", True),
    ],
)
def test_a_usual_head_is_exact(version: Version, head: bytes, is_plain: bool) -> None:  # noqa: FBT001 (a parameter of the test)
    [frame] = practised(version).feed(head + b"\n\n\0")
    assert frame.is_exact
    assert frame.is_plain == is_plain


def test_frames_of_one_shape_share_it() -> None:
    decoder = practised("1.2")
    octets = b"SEND\ndestination:a\nx:1\n\n\0SEND\ndestination:b\ny:1\n\n\0"
    got = [frame for _ in range(3) for frame in decoder.feed(octets)]
    assert got[2].shape is got[4].shape is not None
    assert got[3].shape is got[5].shape is not None
    assert got[2].shape is not got[3].shape


def test_a_frame_that_arrives_in_pieces_is_exact_as_well() -> None:
    decoder = practised("1.2")
    octets = b"SEND\ndestination:/queue/a\nx:1\ncontent-length:3\n\nabc\0" * 3
    found = [frame for octet in octets for frame in decoder.feed(bytes([octet]))]
    assert [(frame.is_exact, frame.body) for frame in found] == [(True, b"abc")] * 3


def test_single_headers_are_those_of_the_mapping() -> None:
    for value in (b"1", b"12\\c30"):
        octets = b"SEND\ndestination:a\nx:%b\n\n\0" % value
        [frame], [same] = practised("1.2").feed(octets), FrameDecoder("1.2").feed(octets)
        assert frame.get("missing") is None
        assert {name: frame.get(name) for name in same.headers} == same.headers
        assert frame.headers == same.headers
        frame.headers["x"] = "changed"
        frame.headers["new"] = "2"
        assert (frame.get("x"), frame.get("new")) == ("changed", "2")
        frame.headers = {"y": "3"}
        assert (frame.get("x"), frame.get("y")) == (None, "3")


def test_a_frame_with_a_head_but_no_headers_has_none() -> None:
    frame = Frame("BEGIN", head=b"BEGIN")
    assert frame.get("x") is None
    assert frame.headers == {}


@pytest.mark.parametrize("receipts", [[1], [1] * MANY, [*range(MANY)]])
def test_header_lines_are_those_that_arrived_or_some_of_them(receipts: list[int]) -> None:
    for decoder in (FrameDecoder("1.2"), practised("1.2")):
        for receipt in receipts:
            lines = b"destination:a\nx-receipt:1\nreceipt:%d\n" % receipt
            # What repeats the head before it has no shape.
            decoder.feed(b"SEND\nx-%d:1\n\n\0" % receipt)
            [each] = decoder.feed(b"SEND\n" + lines + b"\n\0")
            assert each.header_lines() == lines
            assert each.header_lines({"receipt", "other"}) == b"destination:a\nx-receipt:1\n"
            assert each.header_lines({"destination", "x-receipt", "receipt"}) == b""


def test_a_head_without_headers_has_no_header_lines() -> None:
    [frame] = FrameDecoder("1.2").feed(b"BEGIN\n\n\0")
    assert frame.is_exact
    assert frame.header_lines() == frame.header_lines({"x"}) == b""


def test_a_frame_that_is_not_exact_has_no_header_lines() -> None:
    [repeated] = FrameDecoder("1.2").feed(b"SEND\nx:1\nx:2\n\n\0")
    for frame in (repeated, Frame("SEND", {"destination": "/queue/a"})):
        assert not (frame.is_exact or frame.is_plain)
        with pytest.raises(ValueError, match="encode it"):
            frame.header_lines()


def test_a_peer_with_new_names_in_each_head_may_repeat_itself_later() -> None:
    decoder = practised("1.2")
    # Of these shapes more are kept for a while than there is room for.
    for number in range(1_000):
        names = [f"x-{number}-{index}" for index in range(3)]
        lines = "".join(f"{name}:1\n" for name in names)
        [frame] = decoder.feed(f"SEND\ndestination:a\n{lines}\n\0".encode())
        assert list(frame.headers) == ["destination", *names]
        assert frame.shape is None
    found = [decoder.feed(b"SEND\ndestination:%d\ny:1\n\n\0" % number)[0] for number in range(LONG)]
    assert found[-1].shape is not None


def test_shapes_in_use_are_not_replaced() -> None:
    decoder = practised("1.2")
    for number in range(200):
        [frame] = decoder.feed(b"SEND\ndestination:%d\nx:1\n\n\0" % number)
        assert frame.shape is not None
        decoder.feed(b"SEND\ndestination:a\nx-%d:1\n\n\0" % number)


def test_a_head_may_have_more_names_than_are_kept() -> None:
    # With these limits a head of this size cannot break one, so its shape is looked up.
    decoder = practised("1.2", Limits(max_headers=2_000))
    headers = {f"x-{number}": str(number) for number in range(300)}
    for _ in range(3):
        [frame] = decoder.feed(encode(Frame("SEND", {"destination": "a", **headers}), "1.2"))
        assert frame.headers == {"destination": "a", **headers}


@pytest.mark.memory
def test_a_hostile_peer_fills_a_bounded_amount_of_memory() -> None:
    """Shapes with long names, one name or none each, and for all commands."""
    decoder = practised("1.2")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20_000):
            decoder.feed(b"SEND\n%060d:1\n\n\0ABORT\n%d:1\n\n\0BEGIN\n\n\0" % (number, number))
        assert tracemalloc.get_traced_memory()[0] - before < 256 * 1024
    finally:
        tracemalloc.stop()
