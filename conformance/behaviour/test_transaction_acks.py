"""Acknowledgements in transactions: they count after COMMIT, and are undone by ABORT.

An acknowledgement SHOULD be part of the transaction that it names, says the specification of ACK.
A server that does not follow that is NON-STRICT here; one that spoils a SEND beside it is FAILED.
"""

from stompkit.conformance import Peer, Target, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import SINCE_1_1, begin, bodies, naming, reaction, receive

SECTION = "BEGIN"


@trial(
    "behaviour/transaction/ack-after-abort",
    "After ABORT a message waits for ACK as before, on the same connection.",
    level="SHOULD",
    section="ABORT",
    versions=SINCE_1_1,
)
def test_ack_after_abort(target: Target, peer: Peer) -> None:
    """ACK in a transaction, ABORT, and ACK the message (or what comes in its place) for good."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    begin(peer, "t")
    peer.acknowledge(message, transaction="t")
    peer.call("ABORT", {"transaction": "t"})
    again = peer.gather_messages(1, target.quiet_s)
    does = "comes again on the connection" if again else "waits for another ACK"
    target.profile("after ABORT an acknowledged message", does)
    peer.acknowledge(again[0] if again else message)
    peer.reset()
    left = target.leftovers(queue)
    assert not left, f"acknowledged after ABORT, and delivered again: {left}"


@trial(
    "behaviour/transaction/ack-cumulative",
    "A cumulative ACK is undone by ABORT for all messages that it was for.",
    level="SHOULD",
    section="ABORT",
)
def test_cumulative_ack_is_undone(target: Target, peer: Peer) -> None:
    """Receive three in the mode client, ACK the third in a transaction, ABORT; all come again."""
    queue, messages = receive(target, peer, 3, ack="client")
    begin(peer, "t")
    peer.acknowledge(messages[2], transaction="t")
    peer.call("ABORT", {"transaction": "t"})
    peer.reset()
    left = target.leftovers(queue, 3)
    assert sorted(left) == sorted(bodies(messages)), f"a new subscriber got {left}"


@trial(
    "behaviour/transaction/ack-twice",
    "What becomes of an ACK that an open transaction has already is left open.",
    level="MAY",
    section="ACK",
)
def test_ack_of_what_a_transaction_has(target: Target, peer: Peer) -> None:
    """ACK in a transaction, then outside; record the answer."""
    _, (message,) = receive(target, peer, 1, ack="client")
    begin(peer, "t")
    peer.acknowledge(message, transaction="t")
    outcome = reaction(target, peer, "ACK", naming(peer, message))
    target.profile("ACK of what an open transaction has", outcome)


@trial(
    "behaviour/transaction/ack-and-disconnect",
    "DISCONNECT undoes the acknowledgements of open transactions.",
    level="SHOULD",
    section=SECTION,
    versions=SINCE_1_1,
    covers=("1.1/begin/implicit-abort-disconnect", "1.2/begin/implicit-abort-disconnect"),
)
def test_disconnect_undoes_acks(target: Target, peer: Peer) -> None:
    """ACK in a transaction and DISCONNECT; the message comes again."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    begin(peer, "t")
    peer.acknowledge(message, transaction="t")
    peer.call("DISCONNECT")
    peer.close()
    left = target.leftovers(queue, 1)
    assert left == [b"1"], f"a new subscriber got {left}"


@trial(
    "behaviour/transaction/move",
    "COMMIT of an ACK and a SEND moves a message: it is gone here and arrives there.",
    level="FACT",
    section=SECTION,
    versions=SINCE_1_1,
    rests_on=statements("commit/commits"),
)
def test_message_is_moved(target: Target, peer: Peer) -> None:
    """ACK a message and SEND its body elsewhere in a transaction, COMMIT; it is there only."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    there = target.queue()
    begin(peer, "t")
    peer.acknowledge(message, transaction="t")
    peer.send("SEND", {"destination": there, "transaction": "t"}, message.body)
    peer.call("COMMIT", {"transaction": "t"})
    peer.reset()
    assert target.leftovers(there, 1) == [message.body], "it has not arrived"
    left = target.leftovers(queue)
    assert not left, f"it is still here: {left}"


@trial(
    "behaviour/transaction/move-undone",
    "ABORT of an ACK and a SEND moves nothing.",
    level="FACT",
    section=SECTION,
    rests_on=statements("abort/rolls-back"),
)
def test_message_is_not_moved(target: Target, peer: Peer) -> None:
    """ACK a message and SEND its body elsewhere in a transaction, ABORT; it is here only."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    there = target.queue()
    begin(peer, "t")
    peer.send("SEND", {"destination": there, "transaction": "t"}, message.body)
    peer.acknowledge(message, transaction="t")
    peer.call("ABORT", {"transaction": "t"})
    peer.reset()
    target.should(target.leftovers(queue, 1) == [message.body], "it is not here any more")
    left = target.leftovers(there)
    assert not left, f"it has arrived: {left}"


def refused_in_no_transaction(target: Target, peer: Peer, command: str) -> None:
    """Send the ACK or NACK of a message in a transaction that has not begun."""
    _, (message,) = receive(target, peer, 1, ack="client")
    receipt = peer.new_receipt()
    headers = {**naming(peer, message), "transaction": "unknown", "receipt": receipt}
    peer.send(command, headers)
    peer.expect_refusal(receipt)


@trial(
    "behaviour/transaction/ack-unknown",
    "ACK in a transaction that has not begun is refused.",
    level="SHOULD",
    section="ACK",
    versions=SINCE_1_1,
)
def test_ack_in_no_transaction(target: Target, peer: Peer) -> None:
    """ACK in a transaction that nobody has begun gets no RECEIPT."""
    refused_in_no_transaction(target, peer, "ACK")


@trial(
    "behaviour/transaction/nack-unknown",
    "NACK in a transaction that has not begun is refused.",
    level="SHOULD",
    section="NACK",
)
def test_nack_in_no_transaction(target: Target, peer: Peer) -> None:
    """NACK in a transaction that nobody has begun gets no RECEIPT."""
    refused_in_no_transaction(target, peer, "NACK")
