"""Connections that end in the wrong place, and those that only seem to be there."""

import time
from typing import Final

from stompkit.conformance import Peer, Target, UnsupportedError, frame_octets, trial
from stompkit.conformance.robustness import (
    NEIGHBOURS,
    WHOLE_FRAMES,
    Bystander,
    need_receipts,
    settle,
)

SECTION: Final = "Robustness: closing"
CUT_OFF: Final = (
    "A frame that was cut off is none: nobody gets a message of it, and other sessions go on."
)

MESSAGES: Final = 50
HALF_CLOSED: Final = 10
#: What a session promises to send, and how long it is silent then.
BEAT_MS: Final = 500
SILENCE_S: Final = 5.0


@trial(
    "robustness/closing/half-close",
    "A client that sends no more troubles nobody else, and may still listen; in the end the server"
    " ought to close, too.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_half_close(target: Target) -> None:
    """Close the sending side behind a SEND, ten times; record whether RECEIPT comes."""
    need_receipts(target)
    bystander = Bystander(target)
    peers = [target.connect() for _ in range(HALF_CLOSED)]
    for peer in peers:
        peer.send("SEND", {"destination": target.sink(), "receipt": "r"}, b"x")
        peer.finish_sending()
    settle(peers, lambda peer: False, target.timeout_s)
    answered = sum(any(frame.command == "RECEIPT" for frame in peer.frames) for peer in peers)
    does = "delivered" if answered == HALF_CLOSED else "lost" if not answered else "sometimes lost"
    target.profile("answers after a half-close", does)
    bystander.check("half-closed connections")
    open_still = sum(not peer.is_closed_by_target for peer in peers)
    target.should(not open_still, f"{open_still} of {HALF_CLOSED} half-closed connections stay")


@trial(
    "robustness/closing/reset-in-head",
    CUT_OFF,
    level="MUST",
    section=SECTION,
    rests_on=(*WHOLE_FRAMES, *NEIGHBOURS),
)
def test_reset_in_head(target: Target) -> None:
    """Reset connections in the middle of a head; other sessions go on."""
    bystander = Bystander(target)
    octets = frame_octets("SEND", {"destination": target.sink()}, b"x")
    for cut in range(1, octets.index(b"\n\n")):
        peer = target.connect()
        peer.send_raw(octets[:cut])
        peer.reset()
    bystander.check("resets in the middle of heads")


@trial(
    "robustness/closing/in-body",
    CUT_OFF,
    level="MUST",
    section=SECTION,
    rests_on=(*WHOLE_FRAMES, *NEIGHBOURS),
)
def test_end_in_body(target: Target) -> None:
    """Close, half-close and reset in the middle of a counted body; nobody gets the message."""
    cut_off(target, {"content-length": "10"}, b"cut off")


@trial(
    "robustness/closing/before-nul",
    CUT_OFF,
    level="MUST",
    section=SECTION,
    rests_on=(*WHOLE_FRAMES, *NEIGHBOURS),
)
def test_end_before_nul(target: Target) -> None:
    """Close, half-close and reset where only NUL is missing; nobody gets the message."""
    cut_off(target, {}, b"cut off")


def cut_off(target: Target, headers: dict[str, str], body: bytes) -> None:
    """Send a frame without its end to a queue, and see what comes out of that."""
    bystander = Bystander(target)
    queue = target.queue()
    octets = frame_octets("SEND", {"destination": queue, **headers}, body, length=False)[:-1]
    peers = [target.connect() for _ in range(3)]
    for peer in peers:
        peer.send_raw(octets)
    closed, half_closed, reset = peers
    closed.close()
    half_closed.finish_sending()
    reset.reset()
    bystander.check("frames that were cut off")
    # The server may not have seen the ends yet. Where it closes, it has dealt with this one.
    settle([half_closed], lambda peer: False, target.timeout_s)
    bystander.check("frames that were cut off")
    delivered = target.leftovers(queue)
    assert not delivered, f"what was cut off is delivered: {delivered}"


@trial(
    "robustness/closing/after-send",
    "What a client has sent before it closes was sent, unless nobody asked for a receipt.",
    level="MAY",
    section=SECTION,
)
def test_close_after_send(target: Target) -> None:
    """Send 50 messages without receipts and close, or reset; record how many were kept."""
    bystander = Bystander(target)
    for way, end in (("close", "a close"), ("reset", "a reset")):
        queue = target.queue()
        peer = target.connect()
        octets = frame_octets("SEND", {"destination": queue}, b"x")
        peer.send_raw(octets * MESSAGES)
        if way == "close":
            peer.close()
        else:
            peer.reset()
        kept = len(target.leftovers(queue, MESSAGES))
        does = "all" if kept == MESSAGES else "some" if kept else "none"
        target.profile(f"messages kept that were sent right before {end}", does)
        target.note(f"{kept} of {MESSAGES} messages kept that were sent right before {end}")
    bystander.check("clients that send and go")


@trial(
    "robustness/closing/half-open",
    "A client that falls silent troubles nobody else; if it has promised heart-beats, what it did"
    " not acknowledge ought to go to somebody else.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_half_open(target: Target) -> None:
    """Promise heart-beats, take a message and fall silent; it goes to somebody else in 5 s."""
    target.extend_deadline(SILENCE_S)
    bystander = Bystander(target)
    queue = target.queue()
    gone = target.connect({"heart-beat": f"{BEAT_MS},0"})
    beats = gone.frames[0].headers.get("heart-beat", "0,0")
    if beats.endswith(",0"):
        raise UnsupportedError(f"the target wants no heart-beats: heart-beat:{beats}")
    target.subscribe(gone, queue, ack="client")
    target.connect().call("SEND", {"destination": queue}, b"x")
    gone.expect("MESSAGE")
    fell_silent = time.monotonic()
    other = target.connect()
    target.subscribe(other, queue, ack="auto")

    def has_message(peer: Peer) -> bool:
        return any(frame.command == "MESSAGE" for frame in peer.frames)

    settle([other], has_message, SILENCE_S)
    bystander.check("a client that fell silent")
    target.note(f"watched for {time.monotonic() - fell_silent:.1f} s")
    target.should(
        has_message(other), f"heart-beats of every {BEAT_MS} ms do not come, and it is still there"
    )
