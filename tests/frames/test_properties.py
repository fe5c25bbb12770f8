"""Properties of every frame, every chunking and every byte; and those of the strategies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from stompkit.frames import (
    COMMANDS,
    TRANSITIONS,
    Frame,
    FrameDecoder,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    Role,
    Session,
    State,
    Tolerance,
    Version,
    encode,
)
from stompkit.testing.strategies import (
    bodies,
    chunkings,
    client_frames,
    frames,
    header_names,
    header_values,
    headers,
    mutations,
    server_frames,
    wire_garbage,
)
from tests.frames.helpers import EVERY_VERSION, LIMITS_BROKEN, RELAXED, VERSIONS, read, requirement

NARROW = Limits(
    max_command_bytes=12,
    max_header_line_bytes=30,
    max_headers=4,
    max_body_bytes=40,
    max_frame_bytes=120,
)
#: Finds any example, not the simplest one.
FIRST = settings(RELAXED, phases=[Phase.generate], database=None)
versions = st.sampled_from(VERSIONS)
any_version = st.sampled_from(EVERY_VERSION)
#: Tolerances: none, all, and any choice of them.
tolerances = st.one_of(
    st.just(Tolerance.NONE),
    st.just(Tolerance.LENIENT),
    st.integers(0, Tolerance.LENIENT.value).map(Tolerance),
)
limits = st.sampled_from([None, NARROW, replace(NARROW, max_command_bytes=4, max_headers=1)])
#: Any short text, lone surrogates included, so that names collide.
_text = st.text(
    st.one_of(st.characters(exclude_categories=[]), st.sampled_from("a:\\\r\n\0")), max_size=4
)
#: Frames outside of all specifications: any command, any text, any body.
wild_frames = st.builds(
    Frame,
    st.sampled_from([*COMMANDS, "send", ""]),
    st.dictionaries(_text, _text, max_size=3),
    st.binary(max_size=5),
    st.lists(st.tuples(_text, _text), max_size=2).map(tuple),
)


def counted(frame: Frame) -> Frame:
    """Return the frame as its reader sees it: with the length that the encoder adds to a body."""
    if frame.body and "content-length" not in frame.headers:
        headers = {**frame.headers, "content-length": str(len(frame.body))}
        return Frame(frame.command, headers, frame.body, frame.repeated)
    return frame


# Round trips.


@requirement("1.1/encoding/encode-reverse", "1.2/encoding/encode-reverse")
@requirement("1.1/utf8/must-support", "1.2/utf8/must-support", "1.2/headers/user-headers-may")
@RELAXED
@given(st.data(), versions, st.sampled_from([Tolerance.NONE, Tolerance.RAW_COLON]))
def test_what_is_encoded_is_decoded(data: st.DataObject, version: Version, also: Tolerance) -> None:
    frame = data.draw(frames(version))
    (got,) = FrameDecoder(version, tolerance=also).feed(encode(frame, version))
    assert got == counted(frame)
    assert list(got.headers)[: len(frame.headers)] == list(frame.headers)


@RELAXED
@given(st.data(), versions)
def test_what_the_handshake_encodes_the_handshake_decodes(
    data: st.DataObject, version: Version
) -> None:
    connect = client_frames(version, commands=["CONNECT", "STOMP"])
    frame = data.draw(st.one_of(connect, server_frames(version, commands=["CONNECTED"])))
    wire = encode(frame, None)
    assert wire == encode(frame, version)
    assert FrameDecoder().feed(wire) == [frame]


@RELAXED
@given(wild_frames, any_version, tolerances)
def test_whatever_can_be_encoded_is_decoded_to_the_same_or_refused(
    frame: Frame, version: Version | None, tolerance: Tolerance
) -> None:
    """No frame, however odd, is decoded as another one or as several frames."""
    try:
        wire = encode(frame, version, tolerance=tolerance & Tolerance.INVALID_UTF8)
    except LocalProtocolError:
        return
    reader = tolerance & (Tolerance.INVALID_UTF8 | Tolerance.RAW_COLON | Tolerance.EXTRA_NUL)
    got, error = read(FrameDecoder(version, tolerance=reader), [wire, b"ERROR\n\n\0"])
    assert error is None
    assert got == [counted(frame), Frame("ERROR")]


@RELAXED
@given(wire_garbage(), versions, tolerances)
def test_whatever_is_decoded_can_be_encoded_again(
    wire: bytes, version: Version, tolerance: Tolerance
) -> None:
    got, _ = read(FrameDecoder(version, tolerance=tolerance), [wire])
    for frame in got:
        # A length may have leading zeros, or count a body that was dropped.
        frame.headers.pop("content-length", None)
        frame.repeated = tuple(pair for pair in frame.repeated if pair[0] != "content-length")
        try:
            again = encode(frame, version, tolerance=tolerance)
        except LocalProtocolError as error:
            assert frame.command in ("CONNECT", "STOMP", "CONNECTED")
            assert "carriage return" in str(error)  # the frame may come from a peer of 1.0
            continue
        (same,) = FrameDecoder(version, tolerance=tolerance & ~Tolerance.CRLF).feed(again)
        if not tolerance & Tolerance.PADDING or version != "1.0":
            assert same == counted(frame)


# Chunkings.


def outcome(
    pieces: list[bytes], version: Version | None, limits: Limits | None, tolerance: Tolerance
) -> tuple[list[Frame], list[bytes | None], str | None, int, int]:
    """Return the result: frames, their heads, kind of error, bytes pending, and line ends."""
    decoder = FrameDecoder(version, limits=limits, tolerance=tolerance)
    got, error = read(decoder, pieces)
    code = None if error is None else error.code
    if code in LIMITS_BROKEN:
        code = "limit"
    eols = 0 if error is not None else decoder.eols
    return got, [frame.head for frame in got], code, decoder.pending_bytes, eols


def agree(
    data: st.DataObject,
    wire: bytes,
    version: Version | None,
    limits: Limits | None,
    tolerance: Tolerance,
) -> None:
    whole = outcome([wire], version, limits, tolerance)
    pieces = data.draw(chunkings(wire))
    assert outcome(pieces, version, limits, tolerance) == whole


@requirement("1.1/bnf/stream", "1.2/bnf/stream", "1.0/bnf/frame-stream")
@RELAXED
@given(st.data(), versions, limits, tolerances)
def test_any_chunking_of_frames_gives_the_same(
    data: st.DataObject, version: Version, limits: Limits | None, tolerance: Tolerance
) -> None:
    drawn = data.draw(st.lists(frames(version), max_size=4))
    gaps = data.draw(st.lists(st.sampled_from([b"", b"\n", b"\n\n\n"]), min_size=4, max_size=4))
    wire = b"".join(gap + encode(f, version) for gap, f in zip(gaps, drawn, strict=False))
    agree(data, wire, version, limits, tolerance)


@RELAXED
@given(st.data(), any_version, limits, tolerances, wire_garbage())
def test_any_chunking_of_garbage_gives_the_same(
    data: st.DataObject,
    version: Version | None,
    limits: Limits | None,
    tolerance: Tolerance,
    wire: bytes,
) -> None:
    agree(data, wire, version, limits, tolerance)


@RELAXED
@given(st.data(), versions, limits, tolerances)
def test_any_chunking_of_damaged_frames_gives_the_same(
    data: st.DataObject, version: Version, limits: Limits | None, tolerance: Tolerance
) -> None:
    drawn = data.draw(st.lists(frames(version), min_size=1, max_size=3))
    wire = data.draw(mutations(b"\n".join(encode(frame, version) for frame in drawn)))
    agree(data, wire, version, limits, tolerance)


# Random bytes.


@requirement("1.1/conformance/limits-may", "1.2/conformance/limits-may")
@RELAXED
@given(st.data(), any_version, tolerances)
def test_garbage_raises_one_kind_of_error_and_fills_no_memory(
    data: st.DataObject, version: Version | None, tolerance: Tolerance
) -> None:
    damaged = frames("1.2").map(lambda frame: encode(frame, "1.2")).flatmap(mutations)
    wire = data.draw(st.one_of(wire_garbage(), damaged))
    decoder = FrameDecoder(version, limits=NARROW, tolerance=tolerance)
    for piece in data.draw(chunkings(wire)):
        try:
            got = decoder.feed(piece)
            while got:
                for frame in got:
                    assert len(frame.body) <= NARROW.max_body_bytes
                    assert len(list(frame.items())) <= NARROW.max_headers
                    assert len(frame.head or b"") <= NARROW.max_frame_bytes
                    assert repr(frame)
                got = decoder.feed(b"")
        except RemoteProtocolError as error:
            assert decoder.pending_bytes == 0
            assert error.reply is not None
            with pytest.raises(RemoteProtocolError):
                decoder.eof()
            return
        assert decoder.pending_bytes <= NARROW.max_frame_bytes + len(piece)
        if version is not None:
            assert decoder.pending_bytes <= NARROW.max_frame_bytes


@RELAXED
@given(wild_frames, any_version, tolerances)
def test_a_frame_that_cannot_be_encoded_raises_one_kind_of_error(
    frame: Frame, version: Version | None, tolerance: Tolerance
) -> None:
    try:
        wire = encode(frame, version, tolerance=tolerance)
    except LocalProtocolError as error:
        assert str(error).isascii()
    else:
        assert wire.endswith(b"\0")
        assert wire.startswith(frame.command.encode() + b"\n")


@RELAXED
@given(st.data(), wire_garbage(), st.sampled_from(list(Role)), tolerances)
def test_a_session_survives_garbage(
    data: st.DataObject, wire: bytes, role: Role, tolerance: Tolerance
) -> None:
    session = Session(role, limits=NARROW, limits_before_login=NARROW, tolerance=tolerance)
    if role is Role.CLIENT:
        session.connect({}, 0)
    try:
        for piece in data.draw(chunkings(wire)):
            while session.receive(piece, 0):
                piece = b""
                if session.state is State.CONNECTING:
                    session.accept({}, 0)
        session.receive_eof()
    except RemoteProtocolError as error:
        assert error.reply is not None
        if session.state is not State.CLOSED and role is Role.SERVER:
            try:
                session.send(error.reply, 0)
            except LocalProtocolError:  # the owner sends a shorter reply
                session.send(Frame("ERROR", {"message": "malformed"}), 0)
            assert session.state is State.FAILED


# Two sessions.


def connected(version: Version) -> dict[Role, Session]:
    client, server = Session(Role.CLIENT, versions=(version,)), Session(Role.SERVER)
    server.receive(client.connect({"host": "h"}, 0), 0)
    client.receive(server.accept({"session": "1"}, 0), 0)
    return {Role.CLIENT: client, Role.SERVER: server}


def sendable(version: Version, role: Role, state: State) -> st.SearchStrategy[Frame]:
    """Return a strategy of frames that one end may send in a state."""
    sender = client_frames if role is Role.CLIENT else server_frames
    return sender(version, commands=TRANSITIONS[role, state].keys())


@requirement("1.0/bnf/client-command-set", "1.1/bnf/client-commands", "1.2/bnf/client-commands")
@requirement("1.0/bnf/server-command-set", "1.1/bnf/server-commands", "1.2/bnf/server-commands")
@RELAXED
@given(st.data(), versions)
def test_what_one_end_sends_the_other_receives(data: st.DataObject, version: Version) -> None:
    ends = connected(version)
    for role in data.draw(st.lists(st.sampled_from(list(Role)), max_size=8)):
        here, there = ends[role], ends[Role.SERVER if role is Role.CLIENT else Role.CLIENT]
        if not TRANSITIONS[role, here.state]:
            continue
        frame = data.draw(sendable(version, role, here.state))
        wire = here.send(frame, 0)
        got = [frame for piece in data.draw(chunkings(wire)) for frame in there.receive(piece, 0)]
        assert got == [counted(frame)]
        assert here.state is there.state


# The strategies themselves.


@RELAXED
@given(st.data(), versions, st.sampled_from(list(Role)))
def test_frames_drawn_are_those_of_the_table(
    data: st.DataObject, version: Version, role: Role
) -> None:
    sender = client_frames if role is Role.CLIENT else server_frames
    frame = data.draw(sender(version))
    row = COMMANDS[frame.command]
    assert row.sender is role
    assert all(any(name in frame.headers for name in names) for names in row.required[version])
    assert row.body or not frame.body
    assert all(name in frame.headers for name, _ in frame.repeated)
    assert frame.headers.get("content-length", str(len(frame.body))) == str(len(frame.body))


@RELAXED
@given(st.data(), versions)
def test_headers_drawn_can_be_sent(data: st.DataObject, version: Version) -> None:
    drawn = {**data.draw(headers(version))}
    drawn[data.draw(header_names(version))] = data.draw(header_values(version))
    drawn.pop("content-length", None)
    frame = Frame("SEND", drawn, data.draw(bodies()))
    assert FrameDecoder(version).feed(encode(frame, version)) == [counted(frame)]
    if version == "1.0":
        assert all(name.isascii() and value.isascii() and value for name, value in drawn.items())


@RELAXED
@given(st.data(), st.binary(max_size=20))
def test_chunkings_join_to_what_was_cut(data: st.DataObject, octets: bytes) -> None:
    assert b"".join(data.draw(chunkings(octets))) == octets


@pytest.mark.parametrize("declares", [True, False])
def test_frames_drawn_declare_their_length_or_do_not(*, declares: bool) -> None:
    sent = client_frames("1.2", commands=["SEND"])
    find(sent, lambda frame: ("content-length" in frame.headers) is declares, settings=FIRST)


def test_commands_can_be_chosen() -> None:
    @RELAXED
    @given(client_frames("1.0", commands=["SEND", "NACK", "MESSAGE"]))
    def only_send(frame: Frame) -> None:
        assert frame.command == "SEND"

    only_send()


IMPORTS = """
import sys
{before}
import stompkit.testing.strategies
assert not any(name.partition(".")[0] == "twisted" for name in sys.modules), "Twisted was imported"
"""


def run(before: str = "") -> subprocess.CompletedProcess[str]:
    """Import the strategies in a separate interpreter."""
    command = [sys.executable, "-c", IMPORTS.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_strategies_do_not_import_twisted() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")


def test_without_hypothesis_the_error_names_the_extra() -> None:
    done = run("sys.modules['hypothesis'] = None")
    assert done.returncode == 1
    assert "ImportError: stompkit.testing.strategies needs Hypothesis" in done.stderr
    assert "stompkit[testing]" in done.stderr
