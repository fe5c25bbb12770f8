"""ACKs of messages that wait for none: whether they are refused is open, what they spare is not."""

from stompkit.conformance import Outcome, Peer, Target, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    SINCE_1_1,
    answer,
    left_after_reset,
    naming,
    reaction,
    receive,
    unsubscribe,
)

SECTION = "ACK"


@trial(
    "behaviour/ack/unknown",
    "An ACK of an unknown message settles none.",
    level="FACT",
    section=SECTION,
    versions=("1.0", "1.1", "1.2"),
    rests_on=statements("ack/unacked-not-consumed"),
)
def test_ack_of_an_unknown_message(target: Target, peer: Peer) -> None:
    """ACK an id that was never delivered; the message that waits comes again. Record the answer."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    name = "id" if target.version == "1.2" else "message-id"
    headers = {**naming(peer, message), name: "never-delivered"}
    target.profile("ACK of an unknown message", reaction(target, peer, "ACK", headers))
    peer.reset()
    left = left_after_reset(target, queue, 1, "client")
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/ack/repeated",
    "To acknowledge a message twice settles no other.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("ack/unacked-not-consumed"),
)
def test_repeated_ack(target: Target, peer: Peer) -> None:
    """Receive two and ACK the first twice; the second comes again. Record the answer."""
    queue, messages = receive(target, peer, 2)
    peer.acknowledge(messages[0])
    outcome = reaction(target, peer, "ACK", naming(peer, messages[0]))
    target.profile("repeated ACK", outcome)
    peer.reset()
    left = left_after_reset(target, queue, 1, "client-individual")
    assert left == [messages[1].body], f"a new subscriber got {left}"


@trial(
    "behaviour/ack/foreign",
    "An ACK settles no message that another connection received.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("ack/unacked-not-consumed"),
)
def test_ack_of_another_connections_message(target: Target, peer: Peer) -> None:
    """Another subscriber of the queue sends the ACK; the message comes again. Record the answer."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    other = target.connect()
    target.subscribe(other, queue, ack="client")
    outcome = reaction(target, other, "ACK", naming(peer, message))
    target.profile("ACK of another connection's message", outcome)
    other.close()
    peer.reset()
    left = left_after_reset(target, queue, 1, "client")
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/ack/former-connection",
    "An ACK that arrives on a new connection is too late for a message of the former one.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("ack/unacked-not-consumed"),
)
def test_ack_after_a_reconnect(target: Target, peer: Peer) -> None:
    """Receive, cut the connection and ACK on a new one; the message comes again."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    peer.reset()
    again = target.connect()
    outcome = reaction(target, again, "ACK", naming(peer, message))
    target.profile("ACK of a former connection's message", outcome)
    again.close()
    left = left_after_reset(target, queue, 1, "client")
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/ack/after-unsubscribe",
    "An ACK that gets its RECEIPT settles the message, though the subscription has ended.",
    level="SHOULD",
    section=SECTION,
    versions=SINCE_1_1,
)
def test_ack_after_unsubscribe(target: Target, peer: Peer) -> None:
    """Receive, UNSUBSCRIBE and ACK: if that gets its RECEIPT, the message does not come again."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    unsubscribe(peer, queue)
    outcome = reaction(target, peer, "ACK", naming(peer, message))
    target.profile("ACK after UNSUBSCRIBE", outcome)
    peer.reset()
    if outcome == Outcome.ACCEPTED:
        left = target.leftovers(queue)
        assert not left, f"the ACK got its RECEIPT; a new subscriber got {left}"


@trial(
    "behaviour/ack/in-auto-mode",
    "What becomes of an ACK in auto mode, which needs none, is left open.",
    level="MAY",
    section="SUBSCRIBE / SUBSCRIBE ack Header",
)
def test_ack_in_auto_mode(target: Target, peer: Peer) -> None:
    """Receive in the mode auto and ACK; record the answer."""
    _, (message,) = receive(target, peer, 1, ack="auto")
    outcome = reaction(target, peer, "ACK", naming(peer, message))
    target.profile("ACK in the mode auto", outcome)


@trial(
    "behaviour/ack/wrong-subscription",
    "What becomes of an ACK with another subscription's id is left open.",
    level="MAY",
    section=SECTION,
    versions=("1.1",),
)
def test_ack_with_a_wrong_subscription(target: Target, peer: Peer) -> None:
    """ACK with the right message-id and a strange subscription; record what it does."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    headers = {**naming(peer, message), "subscription": "another"}
    outcome = answer(target, peer, "ACK", headers)
    peer.reset()
    settles = "" if target.leftovers(queue) else ", settles the message"
    target.profile("ACK with a wrong subscription on 1.1", f"{outcome}{settles}")
