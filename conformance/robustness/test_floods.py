"""Much at once: frames, line ends, connections."""

import time
from typing import Final

from stompkit.conformance import FailedError, Peer, Target, frame_octets, trial
from stompkit.conformance.limits import KIB, MIB
from stompkit.conformance.robustness import (
    NEIGHBOURS,
    RECEIPTS,
    STREAM,
    Bystander,
    need_receipts,
    settle,
)

SECTION: Final = "Robustness: floods"

FRAMES: Final = 10_000
LINE_ENDS: Final = MIB
EARLY_LINE_ENDS: Final = 64 * KIB
NULS: Final = 100 * KIB
CONNECTIONS: Final = 200
STORM: Final = 300
#: How long it may take to open them, in seconds; then there are fewer.
OPENING_S: Final = 3.0
#: How long an answer may take, in seconds, that is only recorded.
ANSWER_S: Final = 1.0


@trial(
    "robustness/floods/frames",
    "However many frames come in one piece, each is dealt with.",
    level="MUST",
    section=SECTION,
    rests_on=(*STREAM, *RECEIPTS),
)
def test_flood_of_frames(target: Target) -> None:
    """Send 10,000 tiny frames in one piece; each gets its RECEIPT, and others go on."""
    need_receipts(target)
    bystander = Bystander(target)
    peer = target.connect()
    sink = target.sink()
    peer.send_raw(
        b"".join(
            frame_octets("SEND", {"destination": sink, "receipt": str(number)})
            for number in range(FRAMES)
        )
    )
    bystander.check(f"{FRAMES} frames in one piece")
    answered = receipts(peer)
    while len(answered) < FRAMES and not peer.is_closed_by_target:
        settle([peer], lambda peer: len(receipts(peer)) == FRAMES, target.timeout_s)
        before, answered = answered, receipts(peer)
        if len(answered) == len(before):
            break
    assert len(answered) == FRAMES, f"{len(answered)} of {FRAMES} frames were answered"


def receipts(peer: Peer) -> set[str]:
    """All that have come."""
    return {frame.headers["receipt-id"] for frame in peer.frames if frame.command == "RECEIPT"}


@trial(
    "robustness/floods/line-ends",
    "Line ends between frames trouble nobody else, and ought to be taken in any number.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_flood_of_line_ends(target: Target) -> None:
    """Send a million line ends between two frames; the session and all others go on."""
    bystander = Bystander(target)
    peer = target.connect()
    peer.send_raw(b"\n" * LINE_ENDS)
    bystander.check("a million line ends")
    try:
        peer.call("SEND", {"destination": target.sink()}, b"x")
    except FailedError as error:
        target.should(False, f"after a million line ends in its session: {error}")


@trial(
    "robustness/floods/early-line-ends",
    "Who sends line ends instead of CONNECT troubles nobody else.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_flood_of_line_ends_before_connect(target: Target) -> None:
    """Send 64 KiB of line ends before CONNECT; record the answer, others go on."""
    bystander = Bystander(target)
    peer = target.open()
    peer.send_raw(b"\n" * EARLY_LINE_ENDS)
    peer.send("CONNECT", target.connect_headers())
    target.profile("64 KiB of line ends before CONNECT", fate(peer, "CONNECTED"))
    bystander.check("line ends before CONNECT")


@trial(
    "robustness/floods/nuls",
    "Who sends NULs instead of frames troubles nobody else.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_flood_of_nuls(target: Target) -> None:
    """Send 100 KiB of NUL in a session; record the answer, others go on."""
    bystander = Bystander(target)
    peer = target.connect()
    peer.send_raw(b"\0" * NULS)
    bystander.check("many NULs")
    peer.send("SEND", {"destination": target.sink(), "receipt": "r"}, b"x")
    target.profile("100 KiB of NUL", fate(peer, "RECEIPT"))
    bystander.check("many NULs")


def fate(peer: Peer, wanted: str) -> str:
    """What becomes of a session: the answer that is wanted, an ERROR, or the end."""

    def commands() -> set[str]:
        return {frame.command for frame in peer.frames}

    settle([peer], lambda peer: wanted in commands(), ANSWER_S)
    if wanted in commands():
        return "ignored"
    words = ["ERROR"] if "ERROR" in commands() else []
    words += ["close"] if peer.is_closed_by_target else []
    return ", ".join(words) or "no answer"


@trial(
    "robustness/floods/connections",
    "Clients that come all at once trouble nobody else, and ought to be let in in the end.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_many_connections_at_once(target: Target) -> None:
    """Open 200 connections, then send CONNECT on all; all are answered, and others go on."""
    bystander = Bystander(target)
    peers: list[Peer] = []
    until = time.monotonic() + OPENING_S
    while len(peers) < CONNECTIONS and time.monotonic() < until:
        peers.append(target.open())
    for peer in peers:
        peer.send("CONNECT", target.connect_headers())
    bystander.check(f"{len(peers)} connections at once")
    settle(peers, lambda peer: bool(peer.frames), target.timeout_s)
    answered = sum(any(frame.command == "CONNECTED" for frame in peer.frames) for peer in peers)
    target.should(answered == len(peers), f"{answered} of {len(peers)} got CONNECTED")


@trial(
    "robustness/floods/storm",
    "Clients that come and go at once, in whatever way, trouble nobody else.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_storm_of_connections(target: Target) -> None:
    """Connect 300 times and go in five ways, from a reset at once to DISCONNECT; others go on."""
    bystander = Bystander(target)
    until = time.monotonic() + OPENING_S
    number = 0
    while number < STORM and time.monotonic() < until:
        come_and_go(target, number % 5)
        number += 1
    bystander.check(f"{number} short connections")


def come_and_go(target: Target, way: int) -> None:
    """Open a connection, say more or less on it, and end it without waiting for anything."""
    peer = target.open()
    connect = frame_octets("CONNECT", target.connect_headers())
    if way == 1:
        peer.send_raw(connect[:20])
    elif way > 1:
        peer.send_raw(connect)
    if way > 3:
        peer.send("DISCONNECT")
    if way % 2:
        peer.close()
    else:
        peer.reset()
