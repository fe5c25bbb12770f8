"""Every wait of a connection ends, with a defined result."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable

import pytest

from stompkit.conformance import FailedError, Peer
from stompkit.conformance.verdict import Ending, UnsupportedError
from tests.conformance.conftest import IMPATIENT_S, PATIENT_S, Dial
from tests.conformance.scripted import Behaviour, Line, connected, frame, receipts


def closes(line: Line) -> None:
    connected(line)
    line.frame()


def resets(line: Line) -> None:
    connected(line)
    line.frame()
    line.reset()


def says_nothing_more(line: Line) -> None:
    connected(line)
    line.wait()


@pytest.mark.parametrize(
    ("behaviour", "timeout_s", "ending"),
    [
        (receipts, PATIENT_S, Ending.CLEAN),
        (closes, PATIENT_S, Ending.CLOSED),
        (resets, PATIENT_S, Ending.DROPPED),
        (says_nothing_more, IMPATIENT_S, Ending.HUNG),
    ],
)
def test_endings(behaviour: Behaviour, timeout_s: float, ending: Ending, target: Dial) -> None:
    at = target(behaviour, timeout_s)
    peer = at.connect()
    try:
        peer.call("BEGIN", {"transaction": "t"})
        assert ending is Ending.CLEAN
    except FailedError:
        assert ending is not Ending.CLEAN
    assert at.finish() is ending


def test_worst_ending_counts(target: Dial) -> None:
    at = target(lambda line: (closes if line.number == 1 else resets)(line))
    for _ in range(2):
        peer = at.connect()
        peer.send("BEGIN", {"transaction": "t"})
        peer.expect_close()
    assert [peer.ending for peer in at.peers] == [Ending.CLOSED, Ending.DROPPED]
    assert at.finish() is Ending.DROPPED


def test_waiting_for_what_never_comes(target: Dial) -> None:
    """Each of these waits ends, reports the missing frame, and counts as HUNG."""
    waits: dict[str, Callable[[Peer], object]] = {
        "expected RECEIPT with {'receipt-id': 'r'}, but nothing like it": lambda p: (
            p.expect_receipt("r")
        ),
        "expected MESSAGE, but nothing like it came": lambda p: p.expect_messages(1),
        "neither ERROR nor the end of the connection came": lambda p: p.expect_refusal("r"),
        "the target does not close the connection": lambda p: p.expect_close(),
        "expected RECEIPT or ERROR, but nothing like it": lambda p: p.expect_answer("r"),
        "no heart-beat came for 0.2 seconds": lambda p: p.expect_beat(IMPATIENT_S),
    }
    at = target(says_nothing_more, IMPATIENT_S)
    for reason, wait in waits.items():
        peer = at.connect()
        with pytest.raises(FailedError, match=reason.replace("{", r"\{").split(".")[0]):
            wait(peer)
        assert peer.ending is Ending.HUNG
    assert at.recorder.events[-1].text == "waited in vain"


def test_target_that_does_not_read(target: Dial) -> None:
    """Sending ends with an error when the buffers are full."""

    def never_reads(line: Line) -> None:
        connected(line)
        line.hold()

    peer = target(never_reads, IMPATIENT_S).connect()
    with pytest.raises(FailedError, match="the target does not take what is sent to it"):
        peer.send_raw(b"x" * 64_000_000)
    assert peer.ending is Ending.HUNG


def test_target_that_sends_before_it_reads(target: Dial) -> None:
    """The buffers of both sides are full: the suite reads while it sends, to avoid a deadlock."""
    size = 8_000_000

    def sends_first(line: Line) -> None:
        connected(line)
        line.send(frame("MESSAGE", {"destination": "d", "content-length": str(size)}, b"m" * size))
        while size > len(line.receive()):
            pass

    peer = target(sends_first).connect()
    peer.send_raw(b"x" * size)
    assert len(peer.expect("MESSAGE").body) == size


def test_case_deadline_bounds_all_waits_together(target: Dial) -> None:
    at = target(says_nothing_more, timeout_s=IMPATIENT_S, case_timeout_s=2 * IMPATIENT_S)
    began = time.monotonic()
    peer = at.connect()
    with pytest.raises(FailedError):
        peer.expect("MESSAGE")
    for wait in (peer.collect, peer.expect_nothing, peer.expect_close, peer.collect):
        with pytest.raises(UnsupportedError, match="a longer --timeout gives more"):
            wait(PATIENT_S)
    # Without the deadline, this would take 70 seconds.
    assert time.monotonic() - began < PATIENT_S


def test_more_connections_than_select_can_watch(target: Dial) -> None:
    """File descriptors above 1023 are usable."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1_200
    if hard < wanted:
        pytest.skip("this process may not open as many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    held: list[socket.socket] = []
    try:
        while not held or held[-1].fileno() < 1_030:
            held.append(socket.socket())
        target(receipts).connect().call("BEGIN", {"transaction": "t"})
    finally:
        for each in held:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_endless_frames_are_given_up(target: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompkit.conformance.wire.stream._MOST_FRAMES", 1_000)

    def never_stops(line: Line) -> None:
        connected(line)
        while True:
            line.send(frame("RECEIPT", {"receipt-id": "r"}) * 100)

    peer = target(never_stops).connect()
    with pytest.raises(FailedError, match="the target sent more than 1000 frames"):
        peer.expect_close()
    assert len(peer.frames) < 10_000


def test_endless_octets_are_given_up(target: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompkit.conformance.wire.stream._MOST_BYTES", 1_000_000)

    def never_stops(line: Line) -> None:
        connected(line)
        line.send(b"MESSAGE\ndestination:d\n\n")
        while True:
            line.send(b"x" * 10_000)

    peer = target(never_stops).connect()
    with pytest.raises(FailedError, match="the target sent more than 1000000 octets"):
        peer.expect_close()
