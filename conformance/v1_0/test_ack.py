"""Acknowledgement in the modes auto and client, as all versions have them."""

from stompkit.conformance import Peer, Target, case


def filled(target: Target, number: int) -> str:
    """A queue with that many messages, whose bodies are 1, 2, ..."""
    queue = target.queue()
    sender = target.connect()
    for n in range(1, number + 1):
        sender.call("SEND", {"destination": queue}, b"%d" % n)
    sender.close()
    return queue


@case(
    "1.0/subscribe/ack-default-auto",
    "1.1/ack-mode/default-auto",
    "1.2/ack-mode/default-auto",
    "1.1/ack-mode/auto-received-when-sent",
    "1.2/ack-mode/auto-received-when-sent",
    level={"1.0": "SHOULD"},
    rests_on=(
        *("1.1/ack-mode/default-auto", "1.1/ack-mode/auto-received-when-sent"),
        *("1.2/ack-mode/default-auto", "1.2/ack-mode/auto-received-when-sent"),
    ),
)
def test_auto_is_the_default(target: Target, peer: Peer) -> None:
    """SUBSCRIBE without ack, receive, and cut the connection; the message does not come again.

    1.0 does not say what the mode auto means: there the case is no more than a recommendation.
    """
    queue = filled(target, 1)
    target.subscribe(peer, queue)
    peer.expect("MESSAGE")
    peer.reset()
    bodies = target.leftovers(queue)
    assert not bodies, f"delivered again: {bodies}"


@case("1.1/ack-mode/auto-no-ack-needed", "1.2/ack-mode/auto-no-ack-needed")
def test_auto_needs_no_ack(target: Target, peer: Peer) -> None:
    """Receive 300 messages in the mode auto without an ACK; all arrive, in order."""
    queue = target.queue()
    target.subscribe(peer, queue, ack="auto")
    for number in range(300):
        peer.call("SEND", {"destination": queue}, b"%d" % number)
    bodies = [frame.body for frame in peer.expect_messages(300)]
    assert bodies == [b"%d" % n for n in range(300)], "the order was changed"


@case(
    "1.0/subscribe/ack-client-until-acked",
    "1.1/ack-mode/client-unacked-on-failure",
    "1.2/ack-mode/client-unacked-on-failure",
    "1.0/ack/unacked-not-consumed",
    "1.1/ack/unacked-not-consumed",
    "1.2/ack/unacked-not-consumed",
    "1.1/subscribe/ack-controls-mode",
    "1.2/subscribe/ack-controls-mode",
    level={"1.1": "SHOULD", "1.2": "SHOULD"},
)
def test_unacknowledged_message_comes_again(target: Target, peer: Peer) -> None:
    """Receive in the mode client and cut the connection; a new subscriber gets the message.

    1.1 and 1.2 say that the server MAY redeliver it. 1.0 leaves no such choice: what is not
    considered to have been consumed, nor delivered, is still in the queue.
    """
    queue = filled(target, 1)
    target.subscribe(peer, queue, ack="client")
    peer.expect("MESSAGE")
    peer.reset()
    bodies = target.leftovers(queue, 1)
    assert bodies == [b"1"], f"a new subscriber got {bodies}"


@case(
    "1.0/ack/acknowledges-consumption",
    "1.1/ack/acknowledges",
    "1.2/ack/acknowledges",
    "1.1/ack/message-id-matches",
    "1.1/ack/subscription-matches",
    "1.2/ack/id-matches-ack-header",
    "1.2/overview/ack-by-own-header",
    "1.2/ack/id-only-suffices",
)
def test_acknowledged_message_is_gone(target: Target, peer: Peer) -> None:
    """ACK with a receipt and cut the connection; a new subscriber gets nothing.

    A message whose consumption was acknowledged, and that is delivered all the same, was not
    acknowledged.
    """
    queue = filled(target, 1)
    target.subscribe(peer, queue, ack="client")
    peer.acknowledge(peer.expect("MESSAGE"))
    peer.reset()
    bodies = target.leftovers(queue)
    assert not bodies, f"delivered again: {bodies}"


@case("1.0/ack/message-id-matches")
def test_ack_of_nothing(target: Target, peer: Peer) -> None:
    """ACK by the message-id received gets its RECEIPT; record the answer to one never received."""
    target.subscribe(peer, filled(target, 1), ack="client")
    peer.acknowledge(peer.expect("MESSAGE"))
    peer.send("ACK", {"message-id": "stompkit-unknown", "receipt": "unknown"})
    outcome = peer.outcome("unknown", target.quiet_s)
    target.note(f"ACK with a message-id that no message has is {outcome}")


@case(
    "1.0/ack/message-id-required",
    "1.1/ack/message-id-required",
    "1.2/ack/id-required",
    "1.2/headers/ack-nack",
    level="SHOULD",
)
def test_ack_needs_to_say_which(target: Target, peer: Peer) -> None:
    """ACK without the header that names the message gets no RECEIPT.

    The header is a duty of the client: no version says what the server does without it.
    """
    target.subscribe(peer, filled(target, 1), ack="client")
    message = peer.expect("MESSAGE")
    headers = {"subscription": "s1"}
    if target.version == "1.2":
        headers["message-id"] = message.headers["message-id"]
    peer.send("ACK", {**headers, "receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/ack/subscription-required", level="SHOULD")
def test_ack_needs_subscription(target: Target, peer: Peer) -> None:
    """ACK with message-id alone gets no RECEIPT.

    The header is a duty of the client. A server that finds the message without it is lenient.
    """
    target.subscribe(peer, filled(target, 1), ack="client")
    message = peer.expect("MESSAGE")
    peer.send("ACK", {"message-id": message.headers["message-id"], "receipt": "r"})
    peer.expect_refusal("r")


@case("1.1/ack-mode/client-may-redeliver", "1.2/ack-mode/client-may-redeliver")
def test_redelivery_to_another(target: Target, peer: Peer) -> None:
    """Cut the connection of one of two subscribers; record what the other gets, and how."""
    queue = filled(target, 1)
    target.subscribe(peer, queue, ack="client")
    peer.expect("MESSAGE")
    other = target.connect()
    target.subscribe(other, queue, ack="client")
    peer.reset()
    for message in other.gather_messages(1):
        redelivered = message.headers.get("redelivered", "(no such header)")
        target.note(f"redelivered with redelivered:{redelivered}")
        return
    target.note("not redelivered to the other subscriber")
