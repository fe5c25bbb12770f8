"""Fuzzing by difference: the reference, the classes of disagreements, and the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fuzz._disagreements import CLASSES, Class, classify, compare, table
from fuzz._peers import REFUSED, Outcome, Peer, Seen, Stream, read_stompkit, stomp_py, stompjs
from fuzz._reference import COMPLETE, INCOMPLETE, decode
from fuzz.difference import Report, differ, main
from stompkit.frames import Version
from tests.integration.clients.driver import LIBRARIES, LibraryMissing
from tests.optional import report_missing

FRAMES = 10_000
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "fuzzing.rst"
STOMP_JS = LIBRARIES["stomp.js"]


def read_all(streams: Sequence[Stream]) -> list[Outcome]:
    return [read_stompkit(stream) for stream in streams]


@pytest.fixture(scope="module")
def stomp_js(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """The parser of stomp.js in a process of Node.js."""
    try:
        command = STOMP_JS.install(tmp_path_factory.mktemp("stompjs"))
    except LibraryMissing as missing:
        reason = f"stomp.js is not installed: {missing}"
        report_missing(pytestconfig, reason, STOMP_JS.package)
    with stompjs(command) as peer:
        yield peer


def kinds_of(name: str, peer: Peer, each: Class) -> list[str | None]:
    """Return the class of the example of each class, or ``None`` where there is no disagreement."""
    stream = Stream(*each.example)
    (outcome,) = peer([stream])
    difference = compare(name, stream, decode(stream.octets, stream.version), outcome)
    return [] if difference is None else [classify(difference)]


def assert_classified(report: Report, who: set[str]) -> None:
    assert report.frames >= FRAMES
    assert report.read > FRAMES / 2
    assert not report.unclassified
    usual = {each.name for each in CLASSES.values() if not each.rare and who & {*each.who}}
    assert usual <= {kind for _, kind in report.classes} <= {*CLASSES}


# The reference.


@pytest.mark.parametrize(
    ("version", "octets", "headers", "body"),
    [
        ("1.0", b"SEND\na: b:c\\n \n\nx\0", {"a": " b:c\\n "}, b"x"),
        ("1.1", b"\nSEND\na:\\n\\c\\\\n\na:2\n\n\0\n\n", {"a": "\n:\\n"}, b""),
        ("1.1", b"SEND\na:\r\n\n\0", {"a": "\r"}, b""),
        ("1.2", b"\r\nSEND\r\na:\\r\r\n\r\n\0\r\n", {"a": "\r"}, b""),
        ("1.2", b"CONNECT\na:b:c\\n\n\n\0", {"a": "b:c\\n"}, b""),
        ("1.2", b"SEND\ncontent-length:03\n\n\0\n\0\0", {"content-length": "03"}, b"\0\n\0"),
    ],
)
def test_the_reference_reads_what_the_grammar_has(
    version: str, octets: bytes, headers: dict[str, str], body: bytes
) -> None:
    (frame,), end = decode(octets, version)
    assert (frame.headers, frame.body, end) == (headers, body, COMPLETE)
    for size in range(1, frame.end):
        frames, end = decode(octets[:size], version)
        assert not frames
        assert end == (INCOMPLETE if octets[:size].strip(b"\n\r") else end)


@pytest.mark.parametrize(
    ("version", "octets", "reason"),
    [
        ("1.0", b"SEND\na:\n\n\0", "empty value"),
        ("1.0", b"NACK\n\n\0", "command of another version"),
        ("1.1", b"SEND\r\na:1\r\n\n\0", "unknown command"),
        ("1.1", b"SEND\na:\\r\n\n\0", "undefined escape"),
        ("1.2", b"SEND\na:\\\n\n\0", "undefined escape"),
        ("1.2", b"SEND\na:\r\r\n\n\0", "carriage return"),
        ("1.2", b"SEND\na\\c:b:c\n\n\0", "raw colon"),
        ("1.2", b"ACK\ncontent-length:1\n\n", "body not allowed"),
        ("1.2", b"SEND\ncontent-length:1\n\n\0\n", "no NUL at the end"),
    ],
)
def test_the_reference_refuses_what_the_grammar_has_not(
    version: str, octets: bytes, reason: str
) -> None:
    frames, end = decode(b"ACK\n\n\0" + octets, version)
    assert ([frame.command for frame in frames], end) == (["ACK"], reason)


# The classes.


@pytest.mark.parametrize("each", CLASSES.values(), ids=CLASSES)
def test_an_example_is_of_its_class(each: Class) -> None:
    for name, peer in (("stompkit", read_all), ("stomp.py", stomp_py)):
        expected = [each.name] if name in each.who else []
        assert kinds_of(name, peer, each) == expected, name


@pytest.mark.parametrize("each", CLASSES.values(), ids=CLASSES)
def test_an_example_is_of_its_class_for_stomp_js(each: Class, stomp_js: Peer) -> None:
    expected = [each.name] if "stompjs" in each.who else []
    assert kinds_of("stompjs", stomp_js, each) == expected


@pytest.mark.parametrize(
    ("name", "version", "octets"),
    [
        # Of the line, stomp.js makes a length: it reads a body of one octet, or waits for more.
        ("CR before 1.2", "1.1", b"SEND\n\rcontent-length:1\n\n\0\0"),
        ("CR before 1.2", "1.1", b"MESSAGE\n\rcontent-length:3\n\n\0"),
        ("CR before 1.2", "1.0", b"SEND\n\rcontent-length:99999999999999999999\nx:y\n\n\0\n"),
        # Of the line, stomp.js makes the end of the head, however many there are.
        ("carriage return", "1.2", b"MESSAGE\n\r\r\n\0"),
        ("carriage return", "1.2", b"COMMIT\r\nack:1\r\n\r\r\r\n\0"),
    ],
)
def test_a_line_that_begins_with_a_carriage_return_is_another_for_stomp_js(
    name: str, version: Version, octets: bytes, stomp_js: Peer
) -> None:
    each = Class(name, ("stompjs",), "", "", (version, octets))
    assert kinds_of("stompjs", stomp_js, each) == [each.name]


def test_frames_are_read_alike_but_for_the_classes() -> None:
    report = differ(FRAMES, 1, {"stomp.py": stomp_py})
    assert_classified(report, {"stompkit", "stomp.py"})
    # The same seed draws the same frames.
    assert differ(FRAMES, 1, {"stomp.py": stomp_py}) == report


def test_frames_are_read_alike_by_stomp_js_but_for_the_classes(stomp_js: Peer) -> None:
    report = differ(FRAMES, 2, {"stompjs": stomp_js})
    assert_classified(report, {"stompkit", "stompjs"})


@pytest.mark.parametrize("name", ["stompkit", "stomp.py", "stompjs"])
def test_what_no_rule_fits_has_no_class(name: str) -> None:
    octets = b"SEND\na:1\n\nx\0"
    stream = Stream("1.2", octets)
    for wrong in (
        Outcome([Seen("SEND", {"a": "1"}, b"y")], COMPLETE),
        Outcome([Seen("SEND", {"a": "2"}, b"x")], COMPLETE),
        Outcome([Seen("SEND", {"a": "1"}, b"x")], INCOMPLETE),
        Outcome([Seen("SEND", {"a": "1"}, b"x")] * 2, COMPLETE),
        Outcome([], COMPLETE),
        Outcome([], REFUSED),
    ):
        difference = compare(name, stream, decode(octets, "1.2"), wrong)
        assert difference is not None
        assert classify(difference) is None, wrong


# The command.


def test_a_run_says_what_it_has_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--frames", "500", "--seed", "7", "--peers", "reference,stomp.py"]) == 0
    shown = capsys.readouterr().out
    assert "raw colon" in shown
    assert "stomp.py" in shown


def test_a_peer_that_reads_nothing_is_found_out() -> None:
    def nothing(streams: Sequence[Stream]) -> list[Outcome]:
        return [Outcome([], COMPLETE) for _ in streams]

    report = differ(2_000, 1, {"stompjs": nothing})
    assert len(report.unclassified) >= 10


def test_a_peer_that_there_is_not_is_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--peers", "stompest"])
    assert "there is no peer stompest" in capsys.readouterr().err


def test_the_page_has_the_table_of_the_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--table"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == table()
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m fuzz.difference --table has it"
