"""How far an ACK reaches, and what the modes mean in detail."""

from stompkit.conformance import Outcome, Peer, Target, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    SINCE_1_1,
    answer,
    bodies,
    fill,
    left_after_reset,
    naming,
    receive,
    unsubscribe,
)

MODES = "SUBSCRIBE / SUBSCRIBE ack Header"


@trial(
    "behaviour/ack/cumulative-again",
    "In client mode every ACK is cumulative, not only the first of a subscription.",
    level="FACT",
    section=MODES,
    versions=SINCE_1_1,
    rests_on=statements("ack-mode/client-cumulative"),
)
def test_every_ack_is_cumulative(target: Target, peer: Peer) -> None:
    """Receive five in the mode client and ACK the second, then the fourth; the fifth is left."""
    queue, messages = receive(target, peer, 5, ack="client")
    peer.acknowledge(messages[1])
    peer.acknowledge(messages[3])
    peer.reset()
    left = left_after_reset(target, queue, 1, "client")
    assert left == [messages[4].body], f"a new subscriber got {left}"


@trial(
    "behaviour/ack/cumulative-order-of-delivery",
    "A cumulative ACK settles nothing that was delivered after the message it names.",
    level="FACT",
    section=MODES,
    rests_on=statements("ack-mode/client-cumulative", "ack/unacked-not-consumed"),
)
def test_cumulative_ack_spares_later_messages(target: Target, peer: Peer) -> None:
    """Receive ten in the mode client and ACK the first; the other nine come again."""
    queue, messages = receive(target, peer, 10, ack="client")
    peer.acknowledge(messages[0])
    peer.reset()
    left = left_after_reset(target, queue, 9, "client")
    assert sorted(left) == sorted(bodies(messages[1:])), f"a new subscriber got {left}"


@trial(
    "behaviour/ack/cumulative-reused-id",
    "A cumulative ACK settles nothing of an earlier subscription with the same id.",
    level="SHOULD",
    section=MODES,
)
def test_cumulative_ack_forgets_former_subscriptions(target: Target, peer: Peer) -> None:
    """Receive, UNSUBSCRIBE, use the id again, receive and ACK; the first message comes again.

    Different subscriptions of a connection MUST have different ids: it is disputed whether that is
    about those that have ended, too.
    """
    queue, _ = receive(target, peer, 1, ack="client")
    unsubscribe(peer, queue)
    _, (message,) = receive(target, peer, 1, ack="client")
    peer.acknowledge(message)
    peer.reset()
    left = target.leftovers(queue, 1)
    assert left == [b"1"], f"of the former subscription's queue a new subscriber got {left}"


@trial(
    "behaviour/ack/any-order",
    "In client-individual mode messages can be acknowledged in any order.",
    level="FACT",
    section=MODES,
    versions=SINCE_1_1,
    rests_on=statements("ack-mode/individual-not-cumulative"),
)
def test_individual_acks_in_any_order(target: Target, peer: Peer) -> None:
    """Receive five in the mode client-individual and ACK all but one, anyhow; that one is left."""
    queue, messages = receive(target, peer, 5)
    for number in (3, 0, 4, 1):
        peer.acknowledge(messages[number])
    peer.reset()
    left = left_after_reset(target, queue, 1, "client-individual")
    assert left == [messages[2].body], f"a new subscriber got {left}"


@trial(
    "behaviour/ack/settled-already",
    "What an ACK means of a message that a cumulative one has settled is left open.",
    level="MAY",
    section=MODES,
)
def test_ack_of_what_is_settled_already(target: Target, peer: Peer) -> None:
    """Receive three in the mode client, ACK the third, then the first; record the answer."""
    _, messages = receive(target, peer, 3, ack="client")
    peer.acknowledge(messages[2])
    outcome = answer(target, peer, "ACK", naming(peer, messages[0]))
    target.profile("ACK of what a cumulative ACK has settled", outcome)


@trial(
    "behaviour/ack/cumulative-in-1.0",
    "1.0 does not say whether an ACK is cumulative.",
    level="MAY",
    section="ACK",
    versions=("1.0",),
)
def test_cumulative_before_it_was_defined(target: Target, peer: Peer) -> None:
    """Receive three in the mode client and ACK the second; record whether the first is settled."""
    queue, messages = receive(target, peer, 3, ack="client")
    peer.acknowledge(messages[1])
    peer.reset()
    left = sorted(target.leftovers(queue, 1))
    words = {(b"3",): "cumulative", (b"1", b"3"): "for one message"}
    target.profile("ACK in the mode client on 1.0", words.get(tuple(left), f"leaves {left}"))


@trial(
    "behaviour/ack/individual-in-1.0",
    "1.0 does not know the mode client-individual.",
    level="MAY",
    section="SUBSCRIBE",
    versions=("1.0",),
)
def test_individual_before_it_was_defined(target: Target, peer: Peer) -> None:
    """Subscribe in the mode client-individual on 1.0; record what that means to the target."""
    queue = fill(target, 3)
    headers = {"destination": queue, "id": "s1", "ack": "client-individual"}
    outcome = answer(target, peer, "SUBSCRIBE", headers)
    if outcome is not Outcome.ACCEPTED:
        target.profile("mode client-individual on 1.0", outcome)
        return
    messages = peer.gather_messages(3)
    peer.acknowledge(messages[-1])
    peer.reset()
    words = {0: "taken for another mode", 2: "known"}
    number = len(target.leftovers(queue, len(messages) - 1))
    target.profile("mode client-individual on 1.0", words.get(number, f"leaves {number} of 3"))


@trial(
    "behaviour/ack/auto-is-final",
    "What was delivered in auto mode stays delivered when the client leaves in good order.",
    level="FACT",
    section=MODES,
    rests_on=statements("ack-mode/auto-received-when-sent"),
)
def test_auto_is_final(target: Target, peer: Peer) -> None:
    """Receive three in the mode auto, UNSUBSCRIBE and DISCONNECT; none comes again."""
    queue, _ = receive(target, peer, 3, ack="auto")
    unsubscribe(peer, queue)
    peer.call("DISCONNECT")
    peer.close()
    left = target.leftovers(queue)
    assert not left, f"delivered again: {left}"


@trial(
    "behaviour/ack/id-alone-counts",
    "In 1.2 the id says which message is meant, whatever other headers there are.",
    level="FACT",
    section="ACK",
    versions=("1.2",),
    covers=("1.2/ack/id-only-suffices",),
)
def test_id_alone_counts(target: Target, peer: Peer) -> None:
    """ACK with the right id beside another message-id and subscription; the message is settled."""
    queue, (message,) = receive(target, peer, 1)
    strange = {"message-id": "another", "subscription": "another"}
    peer.call("ACK", {**naming(peer, message), **strange})
    peer.reset()
    left = target.leftovers(queue)
    assert not left, f"delivered again: {left}"


@trial(
    "behaviour/ack/ack-header-is-no-id",
    "In 1.2 ACK names the message in id; an ack header, as MESSAGE has it, does not do.",
    level="SHOULD",
    section="ACK",
    versions=("1.2",),
    covers=("1.2/ack/id-required",),
)
def test_ack_header_is_no_id(target: Target, peer: Peer) -> None:
    """ACK with the value in a header ack and no id gets no RECEIPT.

    The id is a duty of the client: no version says what the server does without it.
    """
    _, (message,) = receive(target, peer, 1)
    receipt = peer.new_receipt()
    peer.send("ACK", {"ack": message.headers["ack"], "receipt": receipt})
    peer.expect_refusal(receipt)
