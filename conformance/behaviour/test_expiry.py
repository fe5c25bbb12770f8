"""Messages that are of use for some time only: in time, too late, and what becomes of them then."""

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.extensions import (
    BROWSING,
    PERSISTENT,
    dead_letter_queues,
    expired,
    lives,
    new_name,
)

SECTION = "not in STOMP: expires (ms since 1970) and expiration (ms)"
LONG_MS = 600_000
SHORT_MS = 700
#: How long to wait for the end of a message, in seconds; brokers look for it now and then.
PASSED_S = 1.5
#: The same for a message that is too late when it is sent, or a millisecond later.
AT_ONCE_S = 0.1


def arrived(target: Target, peer: Peer, queue: str) -> list[bytes]:
    """What a subscriber gets of a queue, up to a message that is sent now.

    Raises UnsupportedError where something has come that was too late already when it was sent.
    """
    peer.call("SEND", {"destination": queue}, b"end")
    peer.collect(AT_ONCE_S)
    target.subscribe(peer, queue)
    bodies = []
    while (body := peer.expect("MESSAGE").body) != b"end":
        bodies.append(body)
    if b"too late" in bodies:
        raise UnsupportedError("the target delivers messages whatever their time is")
    return bodies


@trial(
    "behaviour/expiry/honoured",
    "A server may know that a message is of use for some time only.",
    level="MAY",
    section=SECTION,
)
def test_expiry(target: Target, peer: Peer) -> None:
    """Send a message whose time is over; record whether it is delivered."""
    queue = target.queue()
    peer.call("SEND", {"destination": queue, **expired()}, b"too late")
    does = "not delivered"
    try:
        arrived(target, peer, queue)
    except UnsupportedError:
        does = "delivered all the same"
    target.profile("message whose time is over", does)


@trial(
    "behaviour/expiry/in-time",
    "A message is delivered while it is in time, whatever became of others before it.",
    level="SHOULD",
    section=SECTION,
)
def test_messages_in_time(target: Target, peer: Peer) -> None:
    """Send one that has ten minutes, one that is too late, and another; the two in time come."""
    queue = target.queue()
    peer.call("SEND", {"destination": queue, **lives(LONG_MS)}, b"1")
    peer.call("SEND", {"destination": queue, **expired()}, b"too late")
    peer.call("SEND", {"destination": queue, **lives(LONG_MS)}, b"2")
    bodies = arrived(target, peer, queue)
    assert bodies == [b"1", b"2"], f"there came {bodies}"


@trial(
    "behaviour/expiry/waiting",
    "A message whose time runs out while it waits in its queue is not delivered.",
    level="SHOULD",
    section=SECTION,
)
def test_time_runs_out(target: Target, peer: Peer) -> None:
    """Send a message that has 0.7 seconds, and wait for 1.5; only what has no end comes."""
    queue = target.queue()
    peer.call("SEND", {"destination": queue, **lives(SHORT_MS)}, b"short")
    peer.call("SEND", {"destination": queue}, b"endless")
    peer.call("SEND", {"destination": queue, **expired()}, b"too late")
    peer.collect(PASSED_S)
    bodies = arrived(target, peer, queue)
    assert bodies == [b"endless"], f"there came {bodies}"


@trial(
    "behaviour/expiry/returned",
    "A server is free in what it does with a message whose time has run out at its consumer.",
    level="MAY",
    section=SECTION,
)
def test_time_runs_out_at_the_consumer(target: Target, peer: Peer) -> None:
    """Receive in time, acknowledge nothing, and leave too late; record whether it comes again."""
    queue = target.queue()
    sender = target.connect()
    sender.call("SEND", {"destination": queue, **expired()}, b"too late")
    sender.call("SEND", {"destination": queue, **lives(2 * SHORT_MS)}, b"short")
    sender.collect(AT_ONCE_S)
    target.subscribe(peer, queue, ack="client")
    bodies = [frame.body for frame in peer.gather_messages(1)]
    if not bodies:
        raise UnsupportedError("the time of the message was over before it was delivered")
    if bodies == [b"too late"]:
        raise UnsupportedError("the target delivers messages whatever their time is")
    sender.collect(2 * PASSED_S)
    peer.reset()
    does = "is delivered again" if target.leftovers(queue) else "is not delivered again"
    target.profile("message whose time runs out at its consumer", does)


@trial(
    "behaviour/expiry/where-to",
    "A server is free to keep what nobody has taken in time, where that can be looked at.",
    level="MAY",
    section=SECTION,
)
def test_where_it_goes(target: Target, peer: Peer) -> None:
    """Look for a persistent message that was too late in the usual places; record where it is."""
    queue, body = target.queue(), new_name().encode()
    peer.call("SEND", {"destination": queue, **expired(), **PERSISTENT}, body)
    peer.call("SEND", {"destination": queue}, b"end")
    peer.collect(AT_ONCE_S)
    target.subscribe(peer, queue)
    if peer.expect("MESSAGE").body == body:
        raise UnsupportedError("the target delivers messages whatever their time is")
    places = [place for place in dead_letter_queues(queue) if holds(target, place, body)]
    target.profile("message that nobody took in time", "dead letter" if places else "is not seen")
    for place in places:
        target.note(f"it is in {place.replace(queue.rpartition('/')[2], 'NAME')}")


def holds(target: Target, place: str, body: bytes) -> bool:
    """Whether there is this message in a queue; it is left there."""
    peer = target.connect()
    try:
        # Where browsing is not known, what is not acknowledged goes back.
        target.subscribe(peer, place, ack="client", headers=BROWSING)
    except FailedError:
        return False
    frames = peer.collect(target.quiet_s)
    peer.close()
    return any(frame.body == body for frame in frames)
