"""What NACK does: nearly all of it is for the server to choose, and only recorded here."""

from stompkit.conformance import Outcome, Peer, Target, UnsupportedError, trial
from stompkit.conformance.extensions import BROWSING, PERSISTENT, dead_letter_queues
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    SINCE_1_1,
    answer,
    begin,
    bodies,
    left_after_reset,
    naming,
    reaction,
    receive,
    refuse,
    require_ack_header,
)

SECTION = "NACK"
#: How often a message is refused at the most, to see when the target gives up.
MOST_DELIVERIES = 20


def is_dead_letter(target: Target, queue: str, body: bytes) -> bool:
    """Whether a message has come to one of the places that are known for that."""
    for place in dead_letter_queues(queue):
        peer = target.connect()
        # What is there may be somebody's: it is looked at, and left.
        headers = {"destination": place, "id": "dead", "ack": "client-individual", **BROWSING}
        if answer(target, peer, "SUBSCRIBE", headers) is Outcome.ACCEPTED:
            found = body in bodies(peer.collect(target.quiet_s))
            peer.close()
            if found:
                return True
    return False


@trial(
    "behaviour/nack/policy",
    "What becomes of a message that is refused, and after how many attempts, is left open.",
    level="MAY",
    section=SECTION,
)
def test_nack_policy(target: Target, peer: Peer) -> None:
    """NACK a message as often as it comes; record how often that is, and where it goes then."""
    queue = target.queue()
    # There are brokers that keep no dead letters of messages that are not persistent.
    peer.call("SEND", {"destination": queue, **PERSISTENT}, queue.encode())
    target.subscribe(peer, queue, ack="client-individual")
    message = peer.expect("MESSAGE")
    require_ack_header(message, target)
    times = 0
    while times < MOST_DELIVERIES:
        times += 1
        outcome = answer(target, peer, "NACK", naming(peer, message))
        if outcome is not Outcome.ACCEPTED:
            target.profile("NACK", outcome)
            return
        again = peer.gather_messages(1, target.quiet_s)
        if not again:
            break
        message = again[0]
    else:
        target.profile("NACK", "redelivered")
        target.profile("NACKs until a message is given up", f"more than {MOST_DELIVERIES}")
        return
    peer.close()
    if target.leftovers(queue):
        target.profile("NACK", "kept for other subscriptions")
        return
    fate = "dead-lettered" if is_dead_letter(target, queue, queue.encode()) else "discarded"
    target.profile("NACK", fate if times == 1 else f"redelivered, then {fate}")
    target.profile("NACKs until a message is given up", str(times))


@trial(
    "behaviour/nack/receiver",
    "A message that is refused may go to another client.",
    level="MAY",
    section=SECTION,
)
def test_who_gets_what_is_refused(target: Target, peer: Peer) -> None:
    """NACK while another connection waits for messages; record who gets it next."""
    queue, (message,) = receive(target, peer, 1)
    other = target.connect()
    target.subscribe(other, queue, ack="client-individual")
    refuse(target, peer, message)
    if other.gather_messages(1, target.quiet_s):
        target.profile("a NACKed message goes to", "another subscriber")
    elif peer.gather_messages(1, target.quiet_s):
        target.profile("a NACKed message goes to", "the same subscriber")
    else:
        target.profile("a NACKed message goes to", "neither")


@trial(
    "behaviour/nack/in-client-mode",
    "Brokers differ in whether a NACK in client mode is for the earlier messages, too.",
    level="MAY",
    section=SECTION,
)
def test_nack_in_client_mode(target: Target, peer: Peer) -> None:
    """Receive three in the mode client and NACK the second; record whether that is for two."""
    queue, messages = receive(target, peer, 3, ack="client")
    refuse(target, peer, messages[1])
    # What is redelivered comes in between; what the NACK was not for still waits.
    again = set(bodies(peer.gather_messages(2, target.quiet_s)))
    if not again:
        peer.reset()
        again = set(bodies(messages)) - set(target.leftovers(queue, 1))
    words = {
        frozenset({messages[0].body, messages[1].body}): "cumulative",
        frozenset({messages[1].body}): "for one message",
    }
    does = words.get(frozenset(again), f"for {len(again)} of three")
    target.profile("NACK in the mode client", does)


@trial(
    "behaviour/nack/unknown",
    "A NACK of an unknown message concerns none.",
    level="FACT",
    section=SECTION,
    rests_on=statements("ack/unacked-not-consumed"),
)
def test_nack_of_an_unknown_message(target: Target, peer: Peer) -> None:
    """NACK an id that was never delivered; the message that waits comes again."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    name = "id" if target.version == "1.2" else "message-id"
    headers = {**naming(peer, message), name: "never-delivered"}
    target.profile("NACK of an unknown message", reaction(target, peer, "NACK", headers))
    peer.reset()
    left = left_after_reset(target, queue, 1, "client")
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/nack/after-ack",
    "A message that was acknowledged stays so, though it is refused later.",
    level="FACT",
    section=SECTION,
    rests_on=statements("ack/acknowledges"),
)
def test_nack_after_ack(target: Target, peer: Peer) -> None:
    """ACK a message, then NACK it; it does not come again. Record the answer."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    peer.acknowledge(message)
    outcome = reaction(target, peer, "NACK", naming(peer, message))
    target.profile("NACK of an acknowledged message", outcome)
    peer.reset()
    left = target.leftovers(queue)
    assert not left, f"delivered again: {left}"


@trial(
    "behaviour/nack/in-transaction",
    "A NACK in a transaction has no effect before COMMIT, and none at all after ABORT.",
    level="SHOULD",
    section=SECTION,
    versions=SINCE_1_1,
)
def test_nack_in_a_transaction(target: Target, peer: Peer) -> None:
    """NACK in a transaction: nothing comes; ABORT and cut the connection: the message comes.

    The specification says that an acknowledgement SHOULD be part of the transaction that it names,
    and no more than that of a NACK.
    """
    queue, (message,) = receive(target, peer, 1, ack="client")
    other = target.connect()
    target.subscribe(other, queue, ack="client-individual")
    begin(peer, "t")
    refuse(target, peer, message, {"transaction": "t"})
    for each in (peer, other):
        each.expect_nothing(target.quiet_s)
    other.close()
    peer.call("ABORT", {"transaction": "t"})
    peer.reset()
    left = target.leftovers(queue, 1)
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/nack/in-auto-mode",
    "What becomes of a NACK in auto mode is left open.",
    level="MAY",
    section=SECTION,
)
def test_nack_in_auto_mode(target: Target, peer: Peer) -> None:
    """Receive in the mode auto and NACK; record the answer."""
    _, (message,) = receive(target, peer, 1, ack="auto")
    outcome = reaction(target, peer, "NACK", naming(peer, message))
    target.profile("NACK in the mode auto", outcome)


@trial(
    "behaviour/nack/requeue-false",
    "RabbitMQ's header requeue of a NACK is not in the specification.",
    level="MAY",
    section=SECTION,
)
def test_nack_that_asks_for_no_redelivery(target: Target, peer: Peer) -> None:
    """NACK with requeue:false; record whether the message comes again, as it does without."""
    _, (message,) = receive(target, peer, 1)
    refuse(target, peer, message)
    again = peer.gather_messages(1, target.quiet_s)
    if not again:
        raise UnsupportedError("the target redelivers nothing after a NACK")
    refuse(target, peer, again[0], {"requeue": "false"})
    is_back = peer.gather_messages(1, target.quiet_s)
    target.profile("requeue:false of a NACK", "ignored" if is_back else "honoured")
