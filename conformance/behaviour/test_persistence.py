"""What is left after a restart: messages, acknowledgements and transactions.

All messages are sent with persistent:true, and what counts has been answered by a RECEIPT. That
nothing at all is left is no failure: it is a target that keeps its messages in memory. How reliable
it is the specification leaves to the server, so that losses are NON-STRICT; not so that what was in
an open transaction is aborted.
"""

from stompkit.conformance import FailedError, Peer, Target, UnsupportedError, trial
from stompkit.conformance.extensions import PERSISTENT
from stompkit.conformance.requirements import statements

SECTION = "Standard Headers / Receipt; not in STOMP: persistent"


def send(peer: Peer, queue: str, *bodies: bytes, **headers: str) -> None:
    """Send messages, and wait until the target has answered for each."""
    for body in bodies:
        receipt = peer.new_receipt()
        given = {"destination": queue, "receipt": receipt, **PERSISTENT, **headers}
        peer.send("SEND", given, body)
        peer.expect_receipt(receipt)


@trial(
    "behaviour/persistence/receipted",
    "A persistent message that was answered by a RECEIPT is there after a restart.",
    level="SHOULD",
    section=SECTION,
    alone=True,
)
def test_messages_survive(target: Target, peer: Peer) -> None:
    """Send a message without persistent:true, and twenty with it, and restart; these are there.

    To lose all of them, or their order, is NON-STRICT; what becomes of the other one is recorded.
    """
    queue, other = target.queue(), target.queue()
    sent = [b"%d" % number for number in range(20)]
    peer.call("SEND", {"destination": other}, b"without")
    send(peer, queue, *sent)
    target.restart()
    bodies = target.leftovers(queue, len(sent))
    target.should(bool(bodies), "none of the messages is there after the restart")
    if not bodies:
        return
    lost = set(sent) - set(bodies)
    assert not lost, f"{len(lost)} of {len(sent)} messages are not there after the restart"
    target.should(bodies == sent, f"after the restart they come as {bodies}")
    does = "is kept" if target.leftovers(other) else "is lost"
    target.profile("message without persistent:true, at a restart", does)


@trial(
    "behaviour/persistence/acknowledged",
    "What was acknowledged does not come again after a restart; what was only delivered does.",
    level="SHOULD",
    section=SECTION,
    alone=True,
)
def test_acknowledgements_survive(target: Target, peer: Peer) -> None:
    """Receive two of three messages, ACK the first, and restart; the second and third are there."""
    queue = target.queue()
    send(peer, queue, b"1", b"2", b"3")
    target.subscribe(peer, queue, ack="client")
    peer.acknowledge(peer.expect("MESSAGE"))
    peer.expect("MESSAGE")
    target.restart()
    bodies = target.leftovers(queue, 2)
    if not bodies:
        raise UnsupportedError("the target keeps no messages over a restart")
    assert b"1" not in bodies, "a message that was acknowledged came again after the restart"
    assert set(bodies) == {b"2", b"3"}, f"after the restart there came {bodies}"


@trial(
    "behaviour/persistence/transactions",
    "After a restart there is all of a transaction that was committed, and nothing of an open one.",
    level="FACT",
    section=SECTION,
    alone=True,
    rests_on=statements("begin/implicit-abort-tcp"),
)
def test_transactions_survive(target: Target, peer: Peer) -> None:
    """COMMIT a transaction with two messages, leave another one open, and restart."""
    queue = target.queue()
    send(peer, queue, b"before")
    for name, bodies in (("done", (b"1", b"2")), ("open", (b"3", b"4"))):
        try:
            peer.call("BEGIN", {"transaction": name})
        except FailedError as error:
            raise UnsupportedError(f"the target does not take BEGIN: {error}") from None
        for body in bodies:
            headers = {"destination": queue, "transaction": name, **PERSISTENT}
            peer.send("SEND", headers, body)
    peer.call("COMMIT", {"transaction": "done"})
    target.restart()
    left = target.leftovers(queue, 3)
    if not left:
        raise UnsupportedError("the target keeps no messages over a restart")
    never = sorted({b"3", b"4"} & set(left))
    assert not never, f"the open transaction left {never} behind"
    target.should(set(left) == {b"before", b"1", b"2"}, f"after the restart there came {left}")
