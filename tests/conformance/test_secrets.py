"""The suite sends the passcode to the target, and reveals it nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stompkit.conformance import FailedError
from stompkit.conformance.wire.octets import difference, plain
from stompkit.conformance.wire.recorder import Recorder
from stompkit.frames import escape
from tests.conformance.conftest import PATIENT_S, Dial, Serve, Suite
from tests.conformance.scripted import Line, connected, connected_frame, frame, receipts

#: Both quotation marks: a text beside them is written in Python's notation in another way.
QUOTES = "'\""
SECRET = "correct-horse-battery"
CONNECT = f"CONNECT\naccept-version:1.2\nlogin:me\npasscode:{SECRET}\nhost:h\n\n\0".encode()
REPORTS = (
    *("--json", "r.json", "--junit", "r.xml", "--html", "r.html"),
    *("--markdown", "r.md", "--badge", "r.badge.json", "--update-baseline", "r.toml"),
)

CASES = '''
from stompkit.conformance import FailedError, Target, case


@case("1.2/connect/connected-on-accept")
def test_octet_by_octet(target: Target) -> None:
    """Connect."""
    peer = target.open()
    octets = b"".join(b"%b:%b\\n" % (k.encode(), v.encode())
                      for k, v in target.connect_headers().items())
    for octet in b"CONNECT\\n" + octets + b"\\n\\0":
        peer.send_raw(bytes([octet]))
    peer.expect("CONNECTED")


@case("1.2/send/delivers")
def test_complaint(target: Target) -> None:
    """Complain, with all that is known."""
    frame = target.connect().frames[0]
    target.note(f"headers: {frame.headers}")
    raise FailedError(f"the server says {frame.headers}")
'''


def nothing_told(folder: Path, *texts: str) -> None:
    for text in (*texts, *(path.read_text("utf-8") for path in folder.glob("r.*"))):
        assert SECRET not in text


@pytest.mark.parametrize("way", ["environment", "option", "file"])
def test_passcode_is_in_no_report(
    way: str,
    suite: Suite,
    serve: Serve,
    tmp_path: Path,
) -> None:
    """The passcode is masked even if the server repeats it in a header, which notes quote."""
    received = []

    def blabs(line: Line) -> None:
        _, headers = line.frame()
        received.append(headers["passcode"])
        line.send(connected_frame(headers, server=f"S/1 {SECRET}", passcode=SECRET))
        line.wait()

    (tmp_path / "test_it.py").write_text(CASES)
    run = ("--mq", serve(blabs).address, "--login", "me", "--cases", ".", *REPORTS)
    if way == "environment":
        done = suite(*run, STOMPKIT_MQ_PASSCODE=SECRET)
    elif way == "file":
        (tmp_path / "secret").write_text(f"{SECRET}\n")
        done = suite(*run, "--passcode-file", "secret")
    else:
        done = suite(*run, "--passcode", SECRET)
    assert done.status == 1, done.told
    assert set(received) == {SECRET}
    assert "Target  127.0.0.1" in done.out
    assert "S/1 ***" in done.out
    assert "passcode:***" in (tmp_path / "r.json").read_text().replace("\\n", "\n")
    nothing_told(tmp_path, done.out, done.err)


def test_passcode_is_not_in_the_message_that_says_why_it_was_refused(
    suite: Suite, serve: Serve
) -> None:
    def refuses(line: Line) -> None:
        line.frame()
        line.send(frame("ERROR", {"message": f"{SECRET} is wrong"}))

    done = suite("--mq", serve(refuses).address, "--login", "me", "--passcode", SECRET)
    assert done.status == 3, done.told
    assert "it answers CONNECT with ERROR '*** is wrong'" in done.err
    assert SECRET not in done.told


def test_passcode_that_is_the_login_hides_no_more_than_the_header(
    suite: Suite, serve: Serve, tmp_path: Path
) -> None:
    """With guest as login and passcode, other occurrences of the word stay readable."""
    case = ("--login", "guest", "--passcode", "guest", "1.2/connect/connected-on-accept")
    suite("--mq", serve(receipts).address, *REPORTS, *case)
    log = (tmp_path / "r.json").read_text()
    assert "login:guest" in log
    assert "passcode:***" in log
    assert "passcode:guest" not in log


def test_passcode_is_hidden_where_a_value_is_cut(target: Dial) -> None:
    """Reasons show the beginning of a value only, which may end within the passcode."""

    def blabs(line: Line) -> None:
        connected(line)
        for command, headers in line.frames():
            value = "-" * int(headers["place"]) + SECRET * 9
            name = "message" if command == "SEND" else "h"
            line.send(frame("ERROR" if command == "SEND" else "MESSAGE", {name: value}))

    at = target(blabs, secret=SECRET)
    peer = at.connect()
    for place in range(0, 210, 7):
        value = "-" * place + SECRET * 9
        told = [at.shown(value), difference("h", value, value[:-1], at.recorder.hide)]
        for command, answer in (("SEND", "ERROR"), ("SUBSCRIBE", "MESSAGE")):
            peer.send(command, {"place": str(place)})
            with pytest.raises(FailedError) as failed:
                peer.expect_nothing(PATIENT_S, answer)
            told.append(str(failed.value))
        for begin in range(len(SECRET) - 3):
            assert all(SECRET[begin : begin + 4] not in text for text in told), told


@pytest.mark.parametrize("cut", range(1, len(CONNECT)))
def test_passcode_is_hidden_wherever_it_is_cut(cut: int) -> None:
    recorder = Recorder()
    recorder.note(1, ">", CONNECT[:cut])
    recorder.note(2, ">", b"something else\npass")
    recorder.note(1, ">", CONNECT[cut:])
    text = "".join(event.text for event in recorder.events if event.connection == 1)
    for begin in range(len(SECRET) - 3):
        assert SECRET[begin : begin + 4] not in text
    assert text.startswith("CONNECT\naccept-version:1.2\nlogin:me\npasscode:")
    assert text.endswith("\nhost:h\n\n^@")


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_passcode_is_hidden_in_both_directions_and_in_bodies(eol: bytes) -> None:
    recorder = Recorder()
    for direction in "<>":
        recorder.note(1, direction, eol.join([b"ERROR", b"", b"passcode:" + SECRET.encode(), b"x"]))
    assert all(SECRET not in event.text for event in recorder.events)
    assert all("passcode:***" in event.text for event in recorder.events)


def test_short_passcode_is_hidden_as_a_header_only() -> None:
    """A short passcode could be any word of the log."""
    recorder = Recorder("abc")
    recorder.note(1, ">", b"CONNECT\npasscode:abc\n\n\0")
    recorder.note(1, ">", b"SEND\ndestination:/queue/abc\n\n\0")
    first, second = (event.text for event in recorder.events)
    assert "abc" not in first
    assert "abc" in second


def test_passcode_beyond_what_is_shown_is_cut_off_whole() -> None:
    recorder = Recorder(SECRET)
    for length in range(4_060, 4_100):
        recorder.note(1, "<", b"x" * length + SECRET.encode() + b"y" * 100)
    assert all("corr" not in event.text for event in recorder.events)


@pytest.mark.parametrize("secret", ["Q1:Q2\\Q3", "Q1\"Q2'Q3", "Q1\\:'\"Q2", "Q1\u00fc:Q2\u20ac"])
@pytest.mark.parametrize(
    "written",
    [
        str,
        lambda text: f"{ {'message': text, 'more': QUOTES} }",
        lambda text: f"{text.encode()!r}",
        lambda text: escape(text, "1.2"),
        lambda text: f"{escape(text, '1.1')!r}",
        lambda text: plain(f"{escape(text, '1.2').encode()!r}"),
        lambda text: f"{f'the server says {text!r}'!r}",
    ],
)
def test_escaped_passcode_is_masked(secret: str, written: Callable[[str], str]) -> None:
    """Headers, verdicts and reports escape a passcode, one within the other."""
    told = Recorder(secret).hide(written(secret))
    assert "***" in told
    assert "Q" not in told
