"""What an acknowledgement does to connection and messages, and what the want of one does.

There are brokers that don't know ACK, and close the connection on one. Here it is sent to all,
also to a target of which --no-ack says that it does not know it.
"""

from stompkit.conformance import FailedError, Peer, Target, frame_octets, trial
from stompkit.frames import Frame

SECTION = "ACK"


def filled(target: Target) -> str:
    """A queue with three messages."""
    queue, sender = target.queue(), target.connect()
    for body in (b"1", b"2", b"3"):
        sender.call("SEND", {"destination": queue}, body)
    sender.close()
    return queue


def acknowledge(peer: Peer, message: Frame) -> None:
    """Send an ACK, with what the MESSAGE has of the headers that it takes."""
    headers = {"message-id": message.headers.get("message-id", "none")}
    if peer.version == "1.1":
        headers["subscription"] = message.headers.get("subscription", "none")
    if peer.version == "1.2":
        headers = {"id": message.headers.get("ack", headers["message-id"])}
    peer.send_raw(frame_octets("ACK", headers, version=peer.version))


def what_came_of_it(target: Target, peer: Peer) -> str:
    """Whether the connection lives, in words."""
    try:
        peer.call("SEND", {"destination": target.sink()}, b"to nobody")
    except FailedError:
        told = [frame for frame in peer.frames if frame.command == "ERROR"]
        if not peer.is_closed_by_target:
            peer.collect(target.quiet_s)
        ends = "ends" if peer.is_closed_by_target else "stays open"
        if told:
            return f"draws ERROR, and the connection {ends}"
        return "ends the connection" if peer.is_closed_by_target else "silences the connection"
    return "is taken"


def left_over(target: Target, queue: str, number: int) -> str:
    """Which of the three messages somebody else gets, in words."""
    bodies = target.leftovers(queue, number)
    return " ".join(body.decode() for body in bodies) or "none"


@trial(
    "behaviour/no-ack/ack",
    "A server of 1.0 that has only the mode auto may not know ACK.",
    level="MAY",
    section=SECTION,
)
def test_ack(target: Target, peer: Peer) -> None:
    """ACK the first of three messages and cut the connection; record what becomes of it and them.

    Whatever the target makes of ACK, a new connection is served.
    """
    queue = filled(target)
    target.subscribe(peer, queue, ack="client")
    acknowledge(peer, peer.expect("MESSAGE"))
    target.profile("ACK", what_came_of_it(target, peer))
    peer.reset()
    came = left_over(target, queue, 2)
    target.profile("of three messages, after an ACK of the first there come again", came)


@trial(
    "behaviour/no-ack/without",
    "A server may deliver in the mode client as in the mode auto, where it does not know ACK.",
    level="MAY",
    section=SECTION,
)
def test_no_ack(target: Target, peer: Peer) -> None:
    """Receive in the mode client, ACK nothing, and cut the connection; record what comes again."""
    queue = filled(target)
    target.subscribe(peer, queue, ack="client")
    delivered = [frame for frame in peer.collect(target.quiet_s) if frame.command == "MESSAGE"]
    does = f"{len(delivered)} of 3 at once"
    target.profile("messages that nobody acknowledges are delivered", does)
    peer.reset()
    came = left_over(target, queue, 3)
    target.profile("of three messages, without any ACK there come again", came)
