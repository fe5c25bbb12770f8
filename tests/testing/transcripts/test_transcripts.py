"""Transcripts: their text, their normalisation for comparison, and golden files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompkit.frames import COMMANDS, VERSIONS, Frame
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.strategies import bodies, frames
from stompkit.testing.transcripts import (
    Closed,
    Event,
    Octets,
    Opened,
    SeenFrame,
    Transcript,
    TranscriptDiffersError,
    TranscriptError,
    TranscriptFile,
    assert_golden,
)

EXAMPLE = r"""STOMP transcript 1

=== connection 1 opened at 0.000000 s

=== connection 1 received at 0.000310 s
SEND
destination:/queue/a b:c
odd\cname:with\nlines\\ and \x00\xff\x20

one
 two ^\x5e@ \x20
\xff^@

=== connection 2 sent octets at 1.500000 s
\x16\x03^@

=== connection 1 sent at 12.000000 s, 7 octets cut
MESSAGE
foo:first
foo:second

ünï ^@

=== connection 1 closed by the broker at 12.000001 s: it\nended

=== connection 2 closed at 12.000001 s
"""
EXAMPLE_EVENTS: tuple[Event, ...] = (
    Opened(1, 0.0),
    SeenFrame(
        "received",
        1,
        0.00031,
        Frame(
            "SEND",
            {"destination": "/queue/a b:c", "odd:name": "with\nlines\\ and \0\udcff "},
            b"one\n two ^^@  \n\xff",
        ),
    ),
    Octets("sent", 2, b"\x16\x03", 1.5),
    SeenFrame(
        "sent",
        1,
        12.0,
        Frame("MESSAGE", {"foo": "first"}, "ünï ".encode(), (("foo", "second"),)),
        cut_bytes=7,
    ),
    Closed(1, 12.000001, "broker", "it\nended"),
    Closed(2, 12.000001),
)

# Bytes that are not UTF-8 appear in headers as a tolerant decoder returns them.
octet_texts = st.binary(max_size=20).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
octet_names = octet_texts.filter(bool)
#: Valid frames, and frames of which only the command is valid.
any_frames = st.one_of(
    *(frames(version) for version in VERSIONS),
    st.builds(
        Frame,
        st.sampled_from(list(COMMANDS)),
        st.dictionaries(octet_names, octet_texts, max_size=4),
        bodies(),
    ),
)
directions = st.sampled_from(("received", "sent"))
connections = st.integers(1, 12)
times = st.integers(0, 10**9).map(lambda microseconds: microseconds / 1_000_000)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Opened, connections, times),
    st.builds(Closed, connections, times, st.sampled_from((None, "client", "broker")), texts),
    st.builds(Octets, directions, connections, bodies(), times),
    st.builds(SeenFrame, directions, connections, times, any_frames, st.integers(0, 9)),
)
transcripts = st.builds(
    Transcript, st.lists(events, min_size=1, max_size=5).map(tuple), st.integers(0, 3)
)


def seen(frame: Frame, connection: int = 1) -> SeenFrame:
    """Return a frame in the direction of its command."""
    sender = COMMANDS[frame.command].sender.value
    return SeenFrame("received" if sender == "client" else "sent", connection, 0.0, frame)


def normalised(*frames: Frame, connection: int = 1) -> list[Frame]:
    transcript = Transcript(tuple(seen(frame, connection) for frame in frames)).normalised()
    return [event.frame for event in transcript.events if isinstance(event, SeenFrame)]


# The text.


def test_a_transcript_is_written_as_specified() -> None:
    assert str(Transcript(EXAMPLE_EVENTS)) == EXAMPLE


def test_a_transcript_is_read_as_specified() -> None:
    assert Transcript.parse(EXAMPLE) == Transcript(EXAMPLE_EVENTS)


@given(transcripts)
def test_every_transcript_comes_back_from_its_text(transcript: Transcript) -> None:
    assert Transcript.parse(str(transcript)) == transcript


@given(transcripts)
def test_a_text_has_nothing_that_can_not_be_seen_or_gets_lost(transcript: Transcript) -> None:
    lines = str(transcript).split("\n")
    assert all(line.isprintable() and not line.endswith(" ") for line in lines)


@given(transcripts)
def test_other_ends_of_lines_change_nothing(transcript: Transcript) -> None:
    assert Transcript.parse(str(transcript).replace("\n", "\r\n")) == transcript


@given(transcripts)
def test_times_can_be_left_out(transcript: Transcript) -> None:
    without = transcript.normalised()
    assert " at " not in "".join(
        line for line in str(without).split("\n") if line.startswith("=== connection")
    )
    assert Transcript.parse(str(without)) == without


@given(st.binary(max_size=300))
def test_a_text_is_read_or_refused_in_words(octets: bytes) -> None:
    text = EXAMPLE[: len(octets) * 2] + octets.decode("utf-8", "surrogateescape")
    try:
        read = Transcript.parse(text)
    except TranscriptError as error:
        assert "transcript, line" in str(error)
    else:
        assert Transcript.parse(str(read)) == read


def test_octets_that_are_no_utf_8_may_stand_in_a_file_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "raw.stomp"
    path.write_bytes(EXAMPLE.encode().replace(rb"\xff", b"\xff"))
    assert Transcript.load(path) == Transcript(EXAMPLE_EVENTS)


def test_a_file_holds_the_text(tmp_path: Path) -> None:
    path = tmp_path / "example.stomp"
    Transcript(EXAMPLE_EVENTS).save(path)
    assert path.read_bytes() == EXAMPLE.encode()
    assert Transcript.load(str(path)) == Transcript(EXAMPLE_EVENTS)


def test_comments_and_blank_lines_may_stand_between_events() -> None:
    text = (
        "STOMP transcript 1\n# what it is about\n\n=== 3 earlier events forgotten\n"
        "=== connection 1 opened\n  \n# more\n\n=== connection 1 closed\n# end"
    )
    assert Transcript.parse(text) == Transcript((Opened(1), Closed(1)), 3, timed=False)


def test_what_looks_like_an_event_or_a_comment_in_a_body_is_none() -> None:
    body = b"# a\n=== connection 1 opened\n\nSTOMP transcript 1\n"
    transcript = Transcript((seen(Frame("SEND", {"a": "b"}, body)),))
    assert Transcript.parse(str(transcript)) == transcript


def test_an_empty_transcript_is_one() -> None:
    assert Transcript.parse(str(Transcript())) == Transcript()


FRAME = "STOMP transcript 1\n=== connection 1 received\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: a transcript begins with 'STOMP transcript 1'"),
        ("CONNECT\n", "line 1: a transcript begins with 'STOMP transcript 1'"),
        ("STOMP transcript 2\n", "line 1: version '2' of the format is not known, only 1 is"),
        ("STOMP transcript 1\n=== hello", "line 2: '=== hello' does not begin an event"),
        ("STOMP transcript 1\n=== connection 0 opened", "line 2: '=== connection 0 opened' does"),
        (
            "STOMP transcript 1\n=== connection 1 opened\n=== 3 earlier events forgotten",
            "line 3: '=== 3 earlier events forgotten' does not begin an event",
        ),
        (
            "STOMP transcript 1\n=== connection 1 opened at 1.0 s\n=== connection 1 closed",
            "line 3: some events have a time and others have none",
        ),
        ("STOMP transcript 1\n=== connection 1 opened, 3 octets cut", "only the body of a frame"),
        ("STOMP transcript 1\n=== connection 1 sent octets, 3 octets cut", "only the body"),
        ("STOMP transcript 1\n=== connection 1 opened: why", "only the end of a connection has a"),
        (FRAME + "GET / HTTP/1.1\n\n^@", "line 3: 'GET / HTTP/1.1' is not a command of STOMP"),
        (FRAME + "SEND\nfoo\n\n^@", "line 4: a header is written as name:value, not as 'foo'"),
        (FRAME + "SEND\n:foo\n\n^@", "line 4: a header is written as name:value, not as ':foo'"),
        (FRAME + "SEND\nfoo:\\t\\q\n\n^@", "line 4: '\\\\q' is not an escape sequence"),
        (FRAME + "SEND\nfoo:\\", "line 4: '\\\\' is not an escape sequence"),
        (FRAME + "SEND\n\n\\x1^@", "line 5: '\\\\x' is not an escape sequence"),
        (FRAME + "SEND\n\nbody^@ more", "line 5: something follows ^@"),
        (FRAME + "SEND\n\nbody", "line 5: the text ends within octets, before ^@"),
        (FRAME + "SEND\nfoo:bar", "line 4: the text ends within a frame, before ^@"),
        (FRAME.strip(), "line 2: the text ends within a frame, before ^@"),
    ],
)
def test_what_is_no_transcript_is_told_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(TranscriptError) as error:
        Transcript.parse(text)
    assert problem in str(error.value)


def test_a_file_that_is_no_transcript_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.stomp"
    path.write_bytes(b"\xff\0")
    with pytest.raises(TranscriptError, match=r"other\.stomp, line 1"):
        Transcript.load(path)


def test_a_log_gives_its_transcript() -> None:
    log = FrameLog(max_body_bytes=3, max_events=4)
    for _ in range(2):
        log.opened(1)
    log.record("received", 1, Frame("CONNECT", {"passcode": "swordfish"}))
    log.undecodable("sent", 1, b"\x16")
    log.record("received", 1, Frame("SEND", {}, b"abcde"))
    log.closed(1, "it ended", by="client")
    text = str(log.transcript())
    assert Transcript.parse(text) == log.transcript()
    assert [type(event).__name__ for event in log.transcript().events] == [
        *("SeenFrame", "Octets", "SeenFrame", "Closed")
    ]
    assert "=== 2 earlier events forgotten" in text
    assert "passcode:***" in text
    assert "s, 2 octets cut\nSEND\n\nabc^@" in text


@given(seen=st.lists(frames("1.2"), max_size=12), max_events=st.integers(1, 6))
def test_a_file_has_all_events_of_a_bounded_log(
    tmp_path_factory: pytest.TempPathFactory, seen: list[Frame], max_events: int
) -> None:
    path = tmp_path_factory.mktemp("file") / "seen.stomp"
    bounded, unbounded = FrameLog(max_events=max_events), FrameLog()
    file = TranscriptFile(path, bounded)
    for log in (bounded, unbounded):
        log.opened(1)
        for frame in seen:
            log.record("received", 1, frame)
        log.undecodable("received", 1, b"\x16")
        log.closed(1)
    file.finish()
    written, complete = Transcript.load(path), unbounded.transcript()
    assert str(replace(written, timed=False)) == str(replace(complete, timed=False))


def test_a_file_that_cannot_be_written_is_told_at_the_end(tmp_path: Path) -> None:
    """The log goes on."""
    log = FrameLog(max_events=1)
    file = TranscriptFile(tmp_path / "missing" / "seen.stomp", log)
    log.opened(1)
    log.opened(2)
    assert log.connections == 2
    with pytest.raises(FileNotFoundError):
        file.finish()


# Comparing.


@given(transcripts)
def test_what_is_normalised_stays_as_it_is(transcript: Transcript) -> None:
    once = transcript.normalised()
    assert once.normalised() == once


def test_ids_are_numbered_in_the_order_of_appearance_wherever_they_stand() -> None:
    sent = [
        Frame("CONNECTED", {"session": "af09", "server": "x/1.0", "version": "1.2"}),
        Frame("SUBSCRIBE", {"id": "sub-77", "destination": "/queue/a", "receipt": "uuid"}),
        Frame("RECEIPT", {"receipt-id": "uuid"}),
        Frame("MESSAGE", {"message-id": "m9", "ack": "a9", "subscription": "sub-77"}),
        Frame("MESSAGE", {"message-id": "m7", "ack": "a7", "timestamp": "123", "expires": "9"}),
        Frame("BEGIN", {"transaction": "t"}),
        Frame("ACK", {"id": "a7", "transaction": "t"}),
        Frame("NACK", {"id": "a9"}),
        Frame("ACK", {"message-id": "m7", "subscription": "sub-77"}),
        Frame("UNSUBSCRIBE", {"id": "sub-77"}),
        Frame("DISCONNECT", {"receipt": "other", "session": "af09"}),
    ]
    assert [frame.headers for frame in normalised(*sent)] == [
        {"session": "session-1", "server": "server", "version": "1.2"},
        {"id": "subscription-1", "destination": "/queue/a", "receipt": "receipt-1"},
        {"receipt-id": "receipt-1"},
        {"message-id": "message-id-1", "ack": "ack-1", "subscription": "subscription-1"},
        {"message-id": "message-id-2", "ack": "ack-2", "timestamp": "time", "expires": "time"},
        {"transaction": "transaction-1"},
        {"id": "ack-2", "transaction": "transaction-1"},
        {"id": "ack-1"},
        {"message-id": "message-id-2", "subscription": "subscription-1"},
        {"id": "subscription-1"},
        {"receipt": "receipt-2", "session": "session-1"},
    ]


def test_headers_that_only_look_like_ids_stay() -> None:
    frame = Frame("SEND", {"id": "7", "ack": "8", "destination": "/queue/7"}, b"7")
    assert normalised(frame) == [frame]


def test_an_ack_by_message_id_is_seen_as_one() -> None:
    message = Frame("MESSAGE", {"message-id": "m1"})
    assert normalised(message, Frame("ACK", {"id": "m1"}))[1].headers == {"id": "message-id-1"}
    # Other ids are of their own kind, and so is an id that was given for acknowledgements.
    both = Frame("MESSAGE", {"ack": "m1", "message-id": "m1", "subscription": "m1"})
    assert normalised(both, Frame("ACK", {"id": "m1"})) == [
        Frame(
            "MESSAGE",
            {"ack": "ack-1", "message-id": "message-id-1"} | {"subscription": "subscription-1"},
        ),
        Frame("ACK", {"id": "ack-1"}),
    ]


def test_repeated_headers_are_normalised_too() -> None:
    frame = Frame("RECEIPT", {"receipt-id": "a"}, b"", (("receipt-id", "b"),))
    (changed,) = normalised(frame)
    assert list(changed.items()) == [("receipt-id", "receipt-1"), ("receipt-id", "receipt-2")]


def test_ids_of_different_connections_are_different_unless_the_broker_gives_them() -> None:
    both = [
        seen(Frame("SUBSCRIBE", {"id": "0"}), 1),
        seen(Frame("SUBSCRIBE", {"id": "0"}), 2),
        seen(Frame("MESSAGE", {"message-id": "m"}), 1),
        seen(Frame("MESSAGE", {"message-id": "m"}), 2),
    ]
    text = str(Transcript(tuple(both)).normalised())
    assert "id:subscription-2" in text
    assert text.count("message-id:message-id-1") == 2


def test_times_and_reasons_are_left_out() -> None:
    ends = (Opened(1, 3.0), Octets("sent", 1, b"x", 4.0), Closed(1, 5.0, "broker", "why"))
    assert Transcript(ends).normalised() == Transcript(
        (Opened(1), Octets("sent", 1, b"x"), Closed(1, by="broker")), timed=False
    )


def test_who_closed_after_a_disconnect_is_left_out() -> None:
    events = (seen(Frame("DISCONNECT")), Closed(1, 5.0, "broker"), Closed(2, 5.0, "client"))
    assert Transcript(events).normalised().events[1:] == (Closed(1), Closed(2, by="client"))


def test_texts_are_replaced_in_headers_and_bodies_the_longest_first() -> None:
    frame = Frame(
        "SEND",
        {"destination": "/queue/x1", "content-length": "12"},
        b"to /queue/x1",
        (("destination", "/queue/x12"),),
    )
    transcript = Transcript((seen(frame), Opened(2)))
    changed = transcript.replaced({"/queue/x1": "/queue/a", "/queue/x12": "b", "": "nothing"})
    expected = Frame(
        "SEND",
        {"destination": "/queue/a", "content-length": "11"},
        b"to /queue/a",
        (("destination", "b"),),
    )
    assert changed == Transcript((seen(expected), Opened(2)))
    assert transcript.normalised({"/queue/x1": "/queue/a"}).timed is False


def test_events_can_be_put_in_the_order_of_connections() -> None:
    mixed = Transcript((Opened(2), Opened(1), Closed(2), Closed(1)))
    assert mixed.by_connection().events == (Opened(1), Closed(1), Opened(2), Closed(2))


# Golden files.


def conversation(destination: str, message_id: str) -> FrameLog:
    log = FrameLog()
    log.opened(1)
    log.record("received", 1, Frame("SUBSCRIBE", {"id": "0", "destination": destination}))
    log.record("sent", 1, Frame("MESSAGE", {"message-id": message_id}, b"a\nb"))
    return log


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a golden file; updates are disabled."""
    monkeypatch.delenv("STOMPKIT_UPDATE_GOLDEN", raising=False)
    return tmp_path / "golden.stomp"


def test_a_golden_file_is_written_when_that_is_wanted(golden: Path) -> None:
    assert_golden(conversation("/queue/a", "1"), golden, update=True)
    assert_golden(conversation("/queue/a", "2"), golden)
    assert_golden(conversation("/queue/b", "2"), golden, update=True)
    with pytest.raises(TranscriptDiffersError):
        assert_golden(conversation("/queue/a", "2"), golden)


def test_the_environment_can_ask_for_all_golden_files(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("", "0"):
        monkeypatch.setenv("STOMPKIT_UPDATE_GOLDEN", value)
        with pytest.raises(TranscriptDiffersError):
            assert_golden(conversation("/queue/a", "1"), golden)
        assert not golden.exists()
    monkeypatch.setenv("STOMPKIT_UPDATE_GOLDEN", "1")
    assert_golden(conversation("/queue/a", "1"), golden)
    assert golden.exists()


def test_a_golden_file_that_is_missing_is_told_with_the_remedy(golden: Path) -> None:
    with pytest.raises(
        TranscriptDiffersError,
        match=r"no golden file .*golden\.stomp; to create it, .*UPDATE_GOLDEN",
    ):
        assert_golden(Transcript(), golden)
    assert not golden.exists()


def test_a_difference_from_the_golden_file_is_shown_as_such(golden: Path) -> None:
    assert_golden(conversation("/queue/a", "1"), golden, update=True)
    with pytest.raises(TranscriptDiffersError) as error:
        assert_golden(conversation("/queue/b", "1"), golden)
    lines = str(error.value).splitlines()
    assert "UPDATE_GOLDEN=1" in lines[0]
    assert [line for line in lines if line[:1] in "-+" and line[:3] not in ("---", "+++")] == [
        "-destination:/queue/a",
        "+destination:/queue/b",
    ]


def test_a_golden_file_may_be_a_transcript_as_it_was_saved(golden: Path) -> None:
    conversation("/queue/a", "17").transcript().save(golden)
    assert_golden(conversation("/queue/a", "18"), golden)


def test_names_that_differ_each_time_are_replaced_for_the_golden_file(golden: Path) -> None:
    for name in ("/queue/run-1-a", "/queue/run-2-a"):
        update = not golden.exists()
        assert_golden(
            conversation(name, "1"), golden, update=update, replacements={name: "/queue/a"}
        )
    assert "/queue/a" in golden.read_text()


def test_the_connections_before_do_not_matter_to_a_golden_file(golden: Path) -> None:
    """A log counts the connections of earlier tests, which are not always the same."""

    def two_from(first: int) -> Transcript:
        frames = ((first, "CONNECT"), (first + 3, "STOMP"), (first, "DISCONNECT"))
        return Transcript(tuple(seen(Frame(command), number) for number, command in frames))

    two_from(5).save(golden)
    assert_golden(two_from(1), golden)
    assert_golden(two_from(7), golden, update=True)
    assert_golden(two_from(2), golden)
    assert "connection 2 received" in golden.read_text()
    assert "connection 3 " not in golden.read_text()


def test_the_order_between_connections_does_not_matter_to_a_golden_file(golden: Path) -> None:
    one, other = seen(Frame("BEGIN", {"transaction": "a"}), 1), seen(Frame("DISCONNECT"), 2)
    assert_golden(Transcript((one, other)), golden, update=True)
    assert_golden(Transcript((other, one)), golden)
