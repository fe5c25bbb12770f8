"""The wire log of a case."""

from __future__ import annotations

from stompkit.conformance.wire.recorder import Recorder


def test_log_of_a_long_case_keeps_its_beginning_and_its_end() -> None:
    recorder = Recorder()
    for number in range(10_000):
        recorder.note(1, "<", b"%d" % number)
    texts = [event.text for event in recorder.events]
    assert texts[:500] == [str(n) for n in range(500)]
    assert texts[500] == "(9400 events left out)"
    assert texts[501:] == [str(n) for n in range(9_900, 10_000)]


def test_log_of_large_frames_is_bounded() -> None:
    recorder = Recorder()
    for _ in range(1_000):
        recorder.note(1, "<", bytes(range(256)) * 1_000)
    assert sum(len(event.text) for event in recorder.events) < 1_000_000
    assert recorder.events[0].text.endswith("... 256000 octets")
    assert recorder.events[-1].text.endswith("... 256000 octets")


def test_log_shows_octets() -> None:
    recorder = Recorder()
    recorder.note(1, ">", b"SEND\r\n\n\x00\x1b[31m\xc3\xa9\n")
    recorder.say(2, "closed \udcff")
    event, said = recorder.events
    assert event.text == "SEND\\x0d\n\n^@\\x1b[31m\\xc3\\xa9\n"
    assert (event.connection, event.direction) == (1, ">")
    assert (said.connection, said.direction, said.text) == (2, ".", "closed \\udcff")
