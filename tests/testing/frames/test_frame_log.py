"""The log of frames: its contents, waiting, its text and hidden secrets."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stompkit.frames import Frame
from stompkit.testing.frames.events import Octets
from stompkit.testing.frames.log import FrameLog, FrameNotSeenError, UnexpectedFrameError

LONG_S = 60.0


def message(destination: str = "/queue/a", body: bytes = b"", **headers: str) -> Frame:
    return Frame("MESSAGE", {"destination": destination, **headers}, body)


@pytest.fixture
def log() -> FrameLog:
    """A log with one conversation."""
    log = FrameLog()
    log.opened(1)
    log.record("received", 1, Frame("CONNECT", {"accept-version": "1.2"}))
    log.record("sent", 1, Frame("CONNECTED", {"version": "1.2"}))
    log.record("received", 1, Frame("SUBSCRIBE", {"id": "0", "destination": "/queue/a"}))
    log.record("sent", 1, message(body=b"first"))
    log.record("sent", 1, message(body=b"second"))
    return log


@contextmanager
def meanwhile(action: Callable[[], object]) -> Iterator[None]:
    """Run a function in another thread, and join the thread at the end."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join(LONG_S)
    assert not thread.is_alive()


# Contents.


def test_frames_are_told_by_direction_in_their_order(log: FrameLog) -> None:
    assert [seen.command for seen in log.received] == ["CONNECT", "SUBSCRIBE"]
    assert [seen.command for seen in log.sent] == ["CONNECTED", "MESSAGE", "MESSAGE"]
    assert [seen.command for seen in log.all] == [
        *("CONNECT", "CONNECTED", "SUBSCRIBE", "MESSAGE", "MESSAGE"),
    ]


def test_a_seen_frame_has_the_parts_of_the_frame(log: FrameLog) -> None:
    (seen,) = log.find("MESSAGE", body="first")
    assert (seen.direction, seen.connection) == ("sent", 1)
    assert (seen.command, seen.headers) == ("MESSAGE", {"destination": "/queue/a"})
    assert (seen.body, seen.text) == (b"first", "first")


def test_times_are_seconds_since_the_beginning(log: FrameLog) -> None:
    times = [seen.at_s for seen in log.all]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < LONG_S


def test_what_becomes_of_a_frame_later_does_not_reach_the_log() -> None:
    log, frame = FrameLog(), message(foo="before")
    log.record("sent", 1, frame)
    frame.headers["foo"] = "after"
    assert log.sent[0].headers["foo"] == "before"


def test_a_list_of_frames_does_not_grow(log: FrameLog) -> None:
    before = log.all
    log.record("sent", 1, message())
    assert len(log.all) == len(before) + 1


def test_heart_beats_are_counted_by_direction() -> None:
    log = FrameLog()
    for direction in ("received", "sent", "received"):
        log.beat("sent" if direction == "sent" else "received", 1)
    assert (log.beats("received"), log.beats("sent")) == (2, 1)
    assert "(heart-beats: 2 received, 1 sent)" in log.text()
    assert log.all == []


def test_connections_that_are_open_are_counted(log: FrameLog) -> None:
    assert log.connections == 1
    log.opened(2)
    log.closed(1, "the client closed")
    log.opened(3)
    assert log.connections == 2


def test_a_cleared_log_begins_anew_with_the_connections_that_are_open(log: FrameLog) -> None:
    log.beat("sent", 1)
    log.clear()
    assert (log.all, log.beats("sent"), log.connections, log.text()) == ([], 0, 1, "")
    log.record("sent", 1, message())
    assert log.find("MESSAGE")[0].at_s < LONG_S
    assert "forgotten" not in str(log.transcript())


def test_the_end_of_a_connection_without_events_belongs_to_an_earlier_test(log: FrameLog) -> None:
    """The proxy notices it later than the client, which may be after the clear."""
    log.opened(2)
    log.clear()
    log.record("sent", 2, message())
    log.closed(1, by="client")
    log.closed(2, by="client")
    assert log.connections == 0
    assert [event.connection for event in log.transcript().events] == [2, 2]


def test_a_log_that_starts_over_ignores_the_connections_before(log: FrameLog) -> None:
    """A client can send more before it notices that its connection has been closed."""
    log.start_over()
    log.record("received", 1, Frame("ACK", {"id": "1"}))
    log.beat("received", 1)
    log.undecodable("received", 1, b"?")
    log.closed(1)
    assert (log.all, log.beats("received"), log.connections, log.text()) == ([], 0, 0, "")
    log.opened(2)
    log.record("sent", 2, message())
    log.beat("sent", 2)
    assert (len(log.all), log.beats("sent"), log.connections) == (1, 1, 1)
    log.closed(2)
    assert log.connections == 0


@pytest.mark.parametrize("wait", [FrameLog.wait_for, FrameLog.find, FrameLog.expect_none])
@pytest.mark.parametrize("clear", [FrameLog.clear, FrameLog.start_over])
def test_a_connection_that_had_ended_before_cannot_be_looked_for(
    wait: Callable[..., object], clear: Callable[[FrameLog], None], log: FrameLog
) -> None:
    log.opened(2)
    log.closed(1)
    clear(log)
    log.opened(3)
    log.record("received", 3, Frame("NACK", {"id": "1"}))
    with pytest.raises(ValueError, match=r"connection is 1, .* since then has the number 3"):
        wait(log, "NACK", connection=1)
    assert log.wait_for("NACK", connection=3)
    log.expect_none("NACK", connection=4)
    if clear is FrameLog.clear:
        log.expect_none("NACK", connection=2)  # still open


# Limits.


def test_the_oldest_events_go_and_that_is_told() -> None:
    log = FrameLog(max_events=3)
    for number in range(5):
        log.record("sent", 1, message(body=b"%d" % number))
    assert [seen.text for seen in log.all] == ["2", "3", "4"]
    assert log.text().startswith("(2 earlier events are not shown)")
    assert log.transcript().forgotten == 2
    with pytest.raises(FrameNotSeenError, match=r"\(2 earlier events have been forgotten\)"):
        log.wait_for("MESSAGE", body="0", timeout_s=0)


def test_large_bodies_make_the_oldest_events_go() -> None:
    log = FrameLog(max_bytes=2_500)
    for number in range(5):
        log.record("sent", 1, message(body=b"%d" % number + bytes(999)))
    assert [seen.body[:1] for seen in log.all] == [b"3", b"4"]


def test_large_headers_make_the_oldest_events_go() -> None:
    log = FrameLog(max_bytes=2_500)
    for number in range(5):
        log.record("sent", 1, message(foo=f"{number}" * 1_000))
    assert [seen.headers["foo"][0] for seen in log.all] == ["3", "4"]


def test_a_body_above_the_bound_is_cut_and_that_is_told() -> None:
    log = FrameLog(max_body_bytes=4)
    log.record("sent", 1, message(body=b"12345678"))
    log.record("sent", 1, message(body=b"1234"))
    assert [(seen.body, seen.cut_bytes) for seen in log.all] == [(b"1234", 4), (b"1234", 0)]
    assert log.text().count("(4 more octets)") == 1


# Waiting.


def test_a_frame_that_was_seen_before_is_found_at_once(log: FrameLog) -> None:
    assert log.wait_for("SUBSCRIBE", destination="/queue/a", timeout_s=0).headers["id"] == "0"


def test_a_frame_that_comes_while_it_is_waited_for_is_found(log: FrameLog) -> None:
    def disturb() -> None:
        log.record("received", 1, Frame("ACK", {"id": "other"}))
        log.beat("sent", 1)
        log.record("received", 1, Frame("ACK", {"id": "7"}))

    with meanwhile(disturb):
        assert log.wait_for("ACK", id="7", timeout_s=LONG_S).headers["id"] == "7"


def test_the_time_of_a_wait_has_two_names(log: FrameLog) -> None:
    """A text value is still the value of a header."""
    with pytest.raises(FrameNotSeenError, match=r"not seen within 0\.01 s: SEND"):
        log.wait_for("SEND", timeout=0.01)
    with pytest.raises(FrameNotSeenError, match=r"within 0\.01 s: SEND with timeout '9'"):
        log.wait_for("SEND", timeout="9", timeout_s=0.01)
    with pytest.raises(FrameNotSeenError, match=r"wanted 3 open connections within 0\.01 s"):
        log.wait_for_connections(3, timeout=0.01)


def test_the_count_includes_frames_from_before_and_during_the_wait(log: FrameLog) -> None:
    def add() -> None:
        log.record("sent", 1, message(body=b"third"))
        log.record("sent", 1, message(body=b"fourth"))

    with meanwhile(add):
        assert log.wait_for("MESSAGE", count=4, timeout_s=LONG_S).text == "fourth"
    assert log.wait_for("MESSAGE", count=2).text == "second"


def test_frames_after_another_one_are_waited_for(log: FrameLog) -> None:
    first = log.wait_for("MESSAGE")
    assert log.wait_for("MESSAGE", after=first).text == "second"
    assert log.wait_for("MESSAGE", count=1, after=log.received[0]).text == "first"
    with pytest.raises(FrameNotSeenError):
        log.wait_for("MESSAGE", count=2, after=first, timeout_s=0)


def test_the_order_of_frames_outlives_a_clear(log: FrameLog) -> None:
    before = log.wait_for("MESSAGE")
    log.clear()
    log.record("sent", 1, message(body=b"later"))
    assert log.wait_for("MESSAGE", after=before).text == "later"


def test_waiting_goes_on_through_a_clear() -> None:
    log = FrameLog(max_events=2)
    waiting = threading.Event()

    def add() -> None:
        waiting.wait(LONG_S)
        for _ in range(10):
            log.record("sent", 1, message())
            log.clear()
        log.record("sent", 1, message("/queue/b"))

    with meanwhile(add):
        waiting.set()
        assert log.wait_for(destination="/queue/b", timeout_s=LONG_S)


def test_many_threads_record_while_others_wait() -> None:
    log, threads, each = FrameLog(), 4, 200

    def add() -> None:
        for number in range(each):
            log.record("sent", 1, message(body=b"%d" % number))

    workers = [threading.Thread(target=add) for _ in range(threads)]
    for worker in workers:
        worker.start()
    log.wait_for("MESSAGE", count=threads * each, timeout_s=LONG_S)
    for worker in workers:
        worker.join()
    numbers = [seen.number for seen in log.all]
    assert numbers == list(range(threads * each))


def test_connections_that_are_leaving_are_waited_for(log: FrameLog) -> None:
    """Other connections may stay."""
    log.opened(2)
    log.record("received", 2, Frame("CONNECT", {}))
    log.settle(timeout_s=0)
    log.record("received", 1, Frame("DISCONNECT", {"receipt": "r"}))
    with meanwhile(lambda: log.closed(1)):
        log.settle(timeout_s=LONG_S)
        assert log.connections == 1


def test_connection_that_does_not_leave_is_not_waited_for_without_end(log: FrameLog) -> None:
    log.record("received", 1, Frame("DISCONNECT", {}))
    log.settle(timeout_s=0.01)
    assert log.connections == 1


def test_connections_are_waited_for() -> None:
    log = FrameLog()

    def open_two() -> None:
        log.opened(1)
        log.opened(2)

    def close_two() -> None:
        log.closed(2, "gone")
        log.closed(1, "gone")

    with meanwhile(open_two):
        log.wait_for_connections(2, timeout_s=LONG_S)
    with meanwhile(close_two):
        log.wait_for_connections(0, timeout_s=LONG_S)
    with pytest.raises(FrameNotSeenError) as error:
        log.wait_for_connections(3, timeout_s=0)
    assert "wanted 3 open connections within 0 s, but there are 0" in str(error.value)
    assert "#2 closed: gone" in str(error.value)


def test_no_frame_can_be_waited_for_none_times(log: FrameLog) -> None:
    with pytest.raises(ValueError, match="count is 0"):
        log.wait_for("MESSAGE", count=0)


def test_the_time_to_wait_is_kept(log: FrameLog) -> None:
    began = time.monotonic()
    with pytest.raises(FrameNotSeenError, match=r"within 0\.2 s"):
        log.wait_for("NACK", timeout_s=0.2)
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("wait", [FrameLog.wait_for, FrameLog.find, FrameLog.expect_none])
def test_what_can_never_be_seen_is_refused(wait: Callable[..., object], log: FrameLog) -> None:
    with pytest.raises(ValueError, match="'subscribe' is not a command"):
        wait(log, "subscribe")
    with pytest.raises(ValueError, match="does not know any passcode"):
        wait(log, "CONNECT", passcode="swordfish")


# Failures.


def test_a_frame_that_does_not_come_is_compared_with_the_nearest(log: FrameLog) -> None:
    log.record("sent", 2, message("/queue/b", b"first"))
    with pytest.raises(FrameNotSeenError) as error:
        log.wait_for("MESSAGE", destination="/queue/b", connection=1, body="first", timeout_s=0)
    lines = str(error.value).splitlines()
    assert lines[0] == (
        "not seen within 0 s: MESSAGE on connection 1 with destination '/queue/b',"
        " with the body 'first'"
    )
    nearest = lines.index("the nearest that were seen:")
    assert "#2 sent     MESSAGE  destination:/queue/b  'first'" in lines[nearest + 1]
    assert lines[nearest + 2].strip() == "connection: wanted 1, was 2"
    assert lines[nearest + 4].strip() == "destination: wanted '/queue/b', was '/queue/a'"
    last = lines.index("the last frames:")
    assert "CONNECT  accept-version:1.2" in lines[last + 1]


def test_the_nearest_frames_are_few_and_the_latest_of_their_kind() -> None:
    log = FrameLog()
    for number in range(50):
        log.record("sent", 1, message(body=b"%d" % number))
    with pytest.raises(FrameNotSeenError) as error:
        log.wait_for("MESSAGE", destination="/queue/b", timeout_s=0)
    assert str(error.value).count("wanted '/queue/b', was '/queue/a'") == 3
    assert "'49'" in str(error.value).splitlines()[2]
    assert len(str(error.value).splitlines()) < 25


def test_a_command_that_was_not_seen_is_told_with_those_that_were(log: FrameLog) -> None:
    with pytest.raises(FrameNotSeenError) as error:
        log.wait_for("ACK", id="1", timeout_s=0)
    assert (
        "there is no ACK among the 5 frames: CONNECT (1), CONNECTED (1), SUBSCRIBE (1), MESSAGE (2)"
    ) in str(error.value)


def test_a_log_without_frames_says_so() -> None:
    with pytest.raises(FrameNotSeenError, match="no frame at all was seen"):
        FrameLog().wait_for("ACK", timeout_s=0)


def test_too_few_frames_are_told_by_number(log: FrameLog) -> None:
    with pytest.raises(FrameNotSeenError, match="seen 2 times within 0 s, wanted 3 times: MESSAGE"):
        log.wait_for("MESSAGE", count=3, timeout_s=0)


def test_a_frame_that_should_not_be_there_is_shown(log: FrameLog) -> None:
    log.expect_none("MESSAGE", body="third")
    log.expect_none("NACK")
    with pytest.raises(UnexpectedFrameError) as error:
        log.expect_none("MESSAGE", destination=re.compile("^/queue/"))
    assert str(error.value).startswith(
        "seen, but expected not to be: MESSAGE with destination matching '^/queue/'"
    )
    assert "'first'" in str(error.value)
    assert "'second'" in str(error.value)


def test_forgotten_frames_are_no_proof_that_there_were_none() -> None:
    log = FrameLog(max_events=3)
    log.record("received", 1, Frame("NACK", {"id": "1"}))
    for _ in range(3):
        log.record("received", 1, Frame("ACK", {"id": "2"}))
    for match in ({}, {"id": "1"}, {"direction": "received"}, {"connection": 1}):
        with pytest.raises(UnexpectedFrameError, match="cannot be known: NACK") as caught:
            log.expect_none("NACK", **match)
        assert "clear() it" in str(caught.value)
    with pytest.raises(UnexpectedFrameError, match="cannot be known: any frame with id '1'"):
        log.expect_none(id="1")
    # Commands of which nothing was forgotten are known, and all of them after a clear.
    log.expect_none("ERROR")
    log.expect_none("ACK", id="1")
    log.expect_none(direction="sent")
    log.clear()
    log.expect_none("NACK")


@pytest.mark.parametrize(
    ("body", "is_known"),
    [
        ("12345678", False),
        (b"12345678", False),
        (re.compile("8"), False),
        (re.compile(rb"^9"), False),
        ("1234", True),
        ("123456789", True),
        ("x2345678", True),
    ],
)
def test_a_cut_body_is_no_proof_of_its_end(
    body: str | bytes | re.Pattern[str], *, is_known: bool
) -> None:
    log = FrameLog(max_body_bytes=4)
    log.record("sent", 1, message(body=b"12345678"))
    assert not log.find("MESSAGE", body=body)
    if is_known:
        log.expect_none("MESSAGE", body=body)
        return
    with pytest.raises(UnexpectedFrameError, match=r"cannot be known(.|\n)*4 more octets"):
        log.expect_none("MESSAGE", body=body)
    log.expect_none("MESSAGE", destination="/queue/other", body=body)


@pytest.mark.parametrize("wait", [FrameLog.wait_for, FrameLog.find, FrameLog.expect_none])
@pytest.mark.parametrize(
    "match",
    [
        {"body": "wonder.land"},
        {"body": b"no wonder.land"},
        {"body": re.compile("wonder.land")},
        {"body": re.compile(re.escape(b"wonder.land"))},
        {"note": "pass=wonder.land"},
        {"note": re.compile(re.escape("wonder.land"))},
        {"passcode": re.compile("wonder")},
    ],
)
def test_a_secret_cannot_be_looked_for(
    wait: Callable[..., object], match: dict[str, object]
) -> None:
    log = FrameLog(secrets=["wonder.land"])
    with pytest.raises(ValueError, match=r"contains a secret|does not know any passcode") as error:
        wait(log, "SEND", **match)
    assert "land" not in str(error.value)


def test_a_masked_secret_is_no_proof_of_what_it_was() -> None:
    log = FrameLog(secrets=["wonderland"])
    log.record("received", 1, Frame("SEND", {"note": "pass=wonderland"}, b"in wonderland"))
    for match in ({"body": re.compile("(?i)WONDER")}, {"note": re.compile("^pass=w")}):
        with pytest.raises(UnexpectedFrameError, match="cannot be known") as error:
            log.expect_none("SEND", **match)
        assert "wonderland" not in str(error.value)
    log.expect_none("SEND", body=re.compile("alice"))
    log.expect_none("SEND", note=re.compile("^word="))
    with pytest.raises(UnexpectedFrameError, match="seen"):
        log.expect_none("SEND", body=re.compile(re.escape("***")))


@pytest.mark.parametrize("error", [FrameNotSeenError, UnexpectedFrameError])
def test_failures_are_failed_assertions(error: type[Exception]) -> None:
    assert issubclass(error, AssertionError)


# Text.


def test_the_text_has_a_line_for_each_event(log: FrameLog) -> None:
    log.closed(1, "the client closed", by="client")
    lines = [line.partition(" s  ")[2] for line in log.text().splitlines()]
    assert lines[:2] == ["#1 opened", "#1 received CONNECT  accept-version:1.2"]
    assert lines[-2:] == [
        "#1 sent     MESSAGE  destination:/queue/a  'second'",
        "#1 closed by the client: the client closed",
    ]


def test_the_text_can_be_limited_to_the_last_events(log: FrameLog) -> None:
    lines = log.text(last=2).splitlines()
    assert lines[0] == "(4 earlier events are not shown)"
    assert len(lines) == 3
    assert log.text(last=100) == log.text()


def test_what_is_strange_or_long_is_quoted_in_the_text() -> None:
    log = FrameLog()
    log.record("sent", 1, message("/queue/a b", b"\xff\n", foo="x\ny", long="z" * 1_000))
    (line,) = log.text().splitlines()
    assert r"destination:'/queue/a b'  foo:'x\ny'  long:'zzz" in line
    assert line.endswith(r"b'\xff\n'")
    assert len(line) < 500


def test_repeated_headers_are_in_the_text() -> None:
    log = FrameLog()
    log.record("sent", 1, Frame("MESSAGE", {"foo": "1"}, b"", (("foo", "2"),)))
    assert "foo:1  foo:2" in log.text()


def test_octets_that_are_no_frame_are_kept_within_bounds() -> None:
    log = FrameLog()
    log.undecodable("received", 1, b"\x16\x03")
    log.undecodable("sent", 1, b"\x15")
    log.undecodable("received", 1, b"\x01" + bytes(100_000))
    lines = log.text().splitlines()
    assert len(lines) == 2
    assert r"#1 received no frame but b'\x16\x03\x01\x00" in lines[0]
    assert len(log.text()) < 2_000
    assert len(str(log.transcript())) < 20_000
    assert log.all == []


def test_octets_of_a_new_connection_are_told_apart() -> None:
    log = FrameLog(max_events=2)
    for number in (1, 2, 3):
        log.undecodable("received", number, b"a")
        log.undecodable("received", number, b"b")
        log.closed(number, "")
    log.undecodable("received", 4, b"c")
    assert "b'c'" in log.text()
    assert "b'ab'" not in log.text()


# Secrets.


EVERY_OUTPUT: list[Callable[[FrameLog], object]] = [
    FrameLog.text,
    lambda log: str(log.transcript()),
    lambda log: repr([log.all, log.transcript()]),
    lambda log: log.wait_for("NACK", timeout_s=0),
    lambda log: log.wait_for("ERROR", body="hunter2", timeout_s=0),
    lambda log: log.wait_for("CONNECT", login="x", passcode=None, timeout_s=0),
    lambda log: log.expect_none("CONNECT"),
    lambda log: log.expect_none("ERROR"),
    lambda log: log.wait_for_connections(7, timeout_s=0),
]


@pytest.mark.parametrize("output", EVERY_OUTPUT)
def test_secrets_are_in_no_output(output: Callable[[FrameLog], object]) -> None:
    log = FrameLog(secrets=["hunter2"])
    credentials = {"login": "hunter2", "passcode": "swordfish", " Passcode": "swordfish"}
    connect = Frame("CONNECT", credentials, b"", (("passcode", "swordfish"),))
    connect.head = b"CONNECT\npasscode:swordfish"
    log.record("received", 1, connect)
    log.record("sent", 1, Frame("ERROR", {"message": "no hunter2"}, b"hunter2 is wrong"))
    log.undecodable("received", 2, b"CONNECT\nPasscode: swordfish\nfoo:hun")
    log.undecodable("received", 2, b"ter2\n")
    log.closed(1, "hunter2 again")
    try:
        shown = str(output(log))
    except (AssertionError, ValueError) as error:
        shown = str(error)
    assert shown
    assert "hunter2" not in shown
    assert "swordfish" not in shown


def test_a_secret_at_the_bound_of_what_is_kept_is_masked() -> None:
    log = FrameLog(secrets=["hunter2"], max_body_bytes=4)
    log.record("sent", 1, message(body=b"hunter2"))
    assert log.sent[0].body == b"***"
    log.undecodable("sent", 1, b"." * 4_093)
    log.undecodable("sent", 1, b"hunter2")
    assert "hun" not in str(log.transcript())


def test_the_beginning_of_a_secret_is_not_kept_where_the_rest_is_not() -> None:
    log = FrameLog(secrets=["hunter2"])
    log.undecodable("sent", 1, b"hunter2" * 1_000)
    (event,) = log.transcript().events
    assert isinstance(event, Octets)
    assert set(event.octets) == {ord("*")}


def test_a_secret_that_is_a_part_of_another_is_masked_with_it() -> None:
    log = FrameLog(secrets=["tree", "treehouse"])
    log.record("sent", 1, message(body=b"treehouse and tree"))
    assert log.sent[0].text == "*** and ***"


def test_a_short_secret_is_let_be() -> None:
    log = FrameLog(secrets=["abc", ""])
    log.record("sent", 1, message("/queue/abc"))
    assert log.sent[0].headers["destination"] == "/queue/abc"


def test_whether_there_was_a_passcode_can_be_asked() -> None:
    log = FrameLog()
    log.record("received", 1, Frame("CONNECT", {"passcode": "swordfish"}))
    assert log.find("CONNECT", passcode=re.compile(""))
    assert not log.find("CONNECT", passcode=None)
