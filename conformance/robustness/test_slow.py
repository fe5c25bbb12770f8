"""Clients that take their time: they cost nobody else any."""

import time
from typing import Final

from stompkit.conformance import Peer, Target, frame_octets, trial
from stompkit.conformance.limits import KIB
from stompkit.conformance.robustness import NEIGHBOURS, STREAM, Bystander, need_receipts, settle

SECTION: Final = "Robustness: slow clients"

#: The pause between two octets of a slow sender, in seconds.
PAUSE_S: Final = 0.005
#: How long those are watched that do not log in, in seconds.
LOGIN_S: Final = 2.0
HALF_FRAMES: Final = 20
#: How often others are looked after then: a target may come to the halves a moment later.
CHECKS: Final = 5
#: What a slow reader is sent: more than fits into the buffers of two sockets.
MESSAGES: Final = 200
#: After so many the others are looked after.
CHUNK: Final = 10
MESSAGE: Final = b"x" * 128 * KIB
#: How long it may take until that is sent, in seconds: a target may hold up who sends too much.
SENDING_S: Final = 4.0
#: What makes one suspect, in seconds, that the target waits for the slow reader; and how long
#: others may have to wait with it.
HELD_UP_S: Final = 0.5
PATIENCE_S: Final = 2.0


def drip(peer: Peer, octets: bytes) -> None:
    """Send octets one at a time; the pauses are what the case is about."""
    for octet in octets:
        peer.send_raw(bytes([octet]))
        time.sleep(PAUSE_S)


@trial(
    "robustness/slow/sender",
    "A frame may arrive as slowly as the network pleases; other sessions do not wait for it.",
    level="MUST",
    section=SECTION,
    rests_on=(*STREAM, *NEIGHBOURS),
)
def test_slow_sender(target: Target) -> None:
    """Go through a session one octet at a time; all is answered, and others go on meanwhile."""
    bystander = Bystander(target)
    queue = target.queue()
    peer = target.open()
    version = target.version
    drip(peer, frame_octets("CONNECT", target.connect_headers(), version=version))
    peer.expect("CONNECTED")
    peer.switch(version)
    drip(peer, frame_octets("SUBSCRIBE", {"destination": queue, "id": "1"}, version=version))
    send = frame_octets("SEND", {"destination": queue}, b"slow", version=version)
    drip(peer, send[:-10])
    bystander.check("half a frame")
    drip(peer, send[-10:])
    body = peer.expect("MESSAGE").body
    assert body == b"slow", f"the message arrived as {body!r}"


@trial(
    "robustness/slow/half-frames",
    "Clients that stop in the middle of a frame hold up nobody else.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_half_frames(target: Target) -> None:
    """Stop in the middle of a head on 10 connections and of a body on 10; others go on."""
    bystander = Bystander(target)
    half = {"destination": target.sink(), "content-length": "1000"}
    # In sessions that the target has begun: what has connected only, it need not have looked at
    # when the others go on.
    peers = [target.connect() for _ in range(HALF_FRAMES)]
    for number, peer in enumerate(peers):
        octets = frame_octets("SEND", half, b"x", version=peer.version)
        peer.send_raw(octets[: 20 if number % 2 else -1])
    for _ in range(CHECKS):
        bystander.check("20 halves of frames")


@trial(
    "robustness/slow/login",
    "A server may end connections that do not log in; it says how long it waits.",
    level="MAY",
    section=SECTION,
)
def test_slow_login(target: Target) -> None:
    """Say nothing, half a CONNECT, or line ends only; record whether the target waits for 2 s."""
    bystander = Bystander(target)
    silent, half, blank = (target.open() for _ in range(3))
    half.send_raw(frame_octets("CONNECT", target.connect_headers())[:10])
    began = time.monotonic()
    ended: dict[Peer, float] = {}
    while (now := time.monotonic() - began) < LOGIN_S and len(ended) < 3:
        if not blank.is_closed_by_target:
            blank.send_raw(b"\n")
        settle([silent], lambda peer: False, 0.25)
        settle([half, blank], lambda peer: True, 0.01)
        for peer in (silent, half, blank):
            if peer.is_closed_by_target:
                ended.setdefault(peer, now)
    for name, peer in (
        ("says nothing", silent),
        ("stops in CONNECT", half),
        ("sends line ends", blank),
    ):
        does = f"ended after {ended[peer]:.0f} s" if peer in ended else f"kept for {LOGIN_S:.0f} s"
        target.profile(f"a stranger who {name}", does)
    bystander.check("slow logins")


@trial(
    "robustness/slow/queue-reader",
    "A consumer of a queue that does not read holds up no other client.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_slow_reader_of_queue(target: Target) -> None:
    """Send 25 MiB to a consumer that does not read; others go on. Record what it gets then."""
    slow_reader(target, target.queue(), "queue")


@trial(
    "robustness/slow/topic-reader",
    "A subscriber of a topic that does not read holds up no other client.",
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_slow_reader_of_topic(target: Target) -> None:
    """Send 25 MiB to a subscriber that does not read; others go on. Record what it gets then."""
    slow_reader(target, target.topic(), "topic")


def slow_reader(target: Target, destination: str, kind: str) -> None:
    """Send to a subscriber that does not read, look after the others, and then let it read."""
    need_receipts(target)
    target.extend_deadline(SENDING_S)
    bystander = Bystander(target)
    slow = target.connect()
    target.subscribe(slow, destination)
    sent = send_much(target, destination, bystander)
    if sent < MESSAGES:
        target.note(f"{sent} messages of {len(MESSAGE)} octets were taken in the time")
    got = read_all(slow, sent, target.quiet_s)
    fate = "all" if got >= sent else "some"
    if slow.is_closed_by_target:
        fate += ", then the end of the connection"
    target.profile(f"what a slow reader of a {kind} gets", fate)
    target.note(f"{got} of {sent} messages arrived when it read")
    bystander.check("a client that did not read")


def send_much(target: Target, destination: str, bystander: Bystander) -> int:
    """Send messages, each when the one before has been dealt with, until one is not.

    Gives the number of those that were.
    """
    until = time.monotonic() + SENDING_S
    sender = target.connect()
    sent = 0
    while sent < MESSAGES and time.monotonic() < until:
        receipt = sender.new_receipt()
        sender.send("SEND", {"destination": destination, "receipt": receipt}, MESSAGE)
        is_held_up = not is_answered(sender, receipt, HELD_UP_S)
        if is_held_up or sent % CHUNK == 0:
            began = time.monotonic()
            bystander.check(f"{sent} messages to a client that does not read")
            took = time.monotonic() - began
            target.should(took < PATIENCE_S, f"others wait {took:.1f} s for a client to read")
        if is_held_up and not is_answered(sender, receipt, 2 * HELD_UP_S):
            break
        sent += 1
    return sent


def is_answered(sender: Peer, receipt: str, seconds: float) -> bool:
    """Whether the RECEIPT comes in the time."""

    def has_receipt(peer: Peer) -> bool:
        return any(frame.headers.get("receipt-id") == receipt for frame in peer.frames)

    settle([sender], has_receipt, seconds)
    return has_receipt(sender)


def read_all(slow: Peer, sent: int, quiet_s: float) -> int:
    """The number of messages that come, up to what was sent."""

    def got() -> int:
        return sum(frame.body == MESSAGE for frame in slow.frames)

    before = -1
    while before < got() < sent and not slow.is_closed_by_target:
        before = got()
        settle([slow], lambda slow: got() >= sent, quiet_s)
    return got()
