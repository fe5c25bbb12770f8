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


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (
            b"MESSAGE\ndestination:/queue/a\ncontent-length:9\n\nabc\0",
            "only a part of a frame: MESSAGE.*abc.*; 6 octets of its body are missing",
        ),
        (b"RECEIPT\nreceipt-id:message-0012\n\n", "only a part of a frame: RECEIPT"),
        (
            b"RECEIPT\nreceipt-id:message-12\n\n\0",
            "its receipt-id differs from character 9 on: '12', not '0012'",
        ),
        (b"RECEIPT\n\n\0", "only RECEIPT with {} and 0 octets: it has no receipt-id"),
    ],
)
def test_what_came_instead_is_told(octets: bytes, reason: str, target: Dial) -> None:
    """A frame that is cut or damaged came, and is not called nothing."""

    def damages(line: Line) -> None:
        connected(line)
        line.send(octets)
        line.wait()

    peer = target(damages, IMPATIENT_S).connect()
    with pytest.raises(FailedError, match=reason):
        peer.expect_receipt("message-0012")


@pytest.mark.parametrize("is_raw", [False, True])
def test_frame_that_was_accepted_is_named(is_raw: bool, target: Dial) -> None:  # noqa: FBT001
    peer = target(receipts).connect()
    if is_raw:
        peer.send_raw(b"SEND\nDestination:/queue/a\nreceipt:r\n\n\0")
    else:
        peer.send("SEND", {"Destination": "/queue/a", "receipt": "r"})
    reason = "answers 'SEND Destination:/queue/a receipt:r'"
    with pytest.raises(FailedError, match=reason):
        peer.expect_refusal("r")


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
