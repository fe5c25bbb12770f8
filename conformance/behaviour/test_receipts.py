"""What a RECEIPT promises, and which words it takes."""

from stompkit.conformance import Peer, Target, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import (
    SINCE_1_1,
    bodies,
    expect_long_receipt,
    fill,
    naming,
    numbered,
    receipts,
    receive,
    unsubscribe,
)
from stompkit.frames import Frame

SECTION = "Server Frames / RECEIPT"
HEADER = "Standard Headers / Header receipt"
#: Number of messages in a queue: more than a server writes at once.
BACKLOG = 300


@trial(
    "behaviour/receipt/send-survives-sender",
    "A SEND that got its RECEIPT is in the queue, whatever becomes of the sender.",
    level="FACT",
    section=SECTION,
    rests_on=statements("receipt-frame/after-success", "receipt-frame/means-processed"),
)
def test_confirmed_messages_survive_their_sender(target: Target, peer: Peer) -> None:
    """SEND twenty, each with its RECEIPT, and cut the connection; all twenty are there."""
    queue = target.queue()
    for body in numbered(20):
        peer.call("SEND", {"destination": queue}, body)
    peer.reset()
    left = target.leftovers(queue, 20)
    assert sorted(left) == sorted(numbered(20)), f"of twenty there are {len(left)}"


@trial(
    "behaviour/receipt/subscribe-in-force",
    "Once SUBSCRIBE got its RECEIPT, messages that others send to the topic arrive.",
    level="FACT",
    section=SECTION,
    rests_on=statements("receipt-frame/after-success", "subscribe/delivered-as-message"),
)
def test_receipt_of_subscribe(target: Target, peer: Peer) -> None:
    """Subscribe to ten topics, another connection sends to each right after; all ten arrive."""
    sender = target.connect()
    for number in range(10):
        topic = target.topic()
        target.subscribe(peer, topic, id=str(number))
        sender.call("SEND", {"destination": topic}, b"%d" % number)
    number = len(peer.gather_messages(10))
    assert number == 10, f"{number} of ten arrived"


@trial(
    "behaviour/receipt/unsubscribe-in-force",
    "Once UNSUBSCRIBE got its RECEIPT, nothing that is sent later arrives.",
    level="FACT",
    section=SECTION,
    rests_on=statements(
        "receipt-frame/after-success", "unsubscribe/no-more-messages", "send/unprocessable-error"
    ),
)
def test_receipt_of_unsubscribe(target: Target, peer: Peer) -> None:
    """End ten subscriptions of topics, another connection sends to each then; nothing arrives."""
    sender = target.connect()
    for number in range(10):
        topic = target.topic()
        target.subscribe(peer, topic, id=str(number))
        peer.call("UNSUBSCRIBE", {"id": str(number), "destination": topic})
        sender.call("SEND", {"destination": topic}, b"%d" % number)
    peer.expect_nothing(target.quiet_s)


@trial(
    "behaviour/unsubscribe/backlog",
    "Once UNSUBSCRIBE got its RECEIPT, nothing arrives for it, however much is waiting.",
    level="FACT",
    section="Client Frames / UNSUBSCRIBE",
    versions=SINCE_1_1,
    rests_on=statements("unsubscribe/no-more-messages"),
)
def test_unsubscribe_amid_a_backlog(target: Target, peer: Peer) -> None:
    """Subscribe to a queue with 300 messages and UNSUBSCRIBE; none comes after its RECEIPT."""
    queue = fill(target, BACKLOG)
    peer.send("SUBSCRIBE", {"destination": queue, "id": "s1"})
    peer.expect("MESSAGE")
    unsubscribe(peer, queue)
    peer.collect(target.quiet_s)
    confirmed = max(n for n, frame in enumerate(peer.frames, start=1) if is_confirmation(frame))
    late = bodies(peer.frames[confirmed:])
    assert not late, f"{len(late)} messages came after it"


def is_confirmation(frame: Frame) -> bool:
    """Whether a target with or without receipts says so that it has processed a frame."""
    return frame.command == "RECEIPT" or frame.headers.get("subscription") == "barrier"


@trial(
    "behaviour/receipt/ack-covers-earlier",
    "ACKs before a frame that got its RECEIPT count, though the connection is lost right after.",
    level="SHOULD",
    section=SECTION,
    covers=("1.2/receipt-frame/processing-continues",),
)
def test_receipt_covers_earlier_acks(target: Target, peer: Peer) -> None:
    """ACK twenty messages, the last with a receipt, and cut the connection; none comes again."""
    queue, messages = receive(target, peer, 20)
    for message in messages[:-1]:
        peer.send("ACK", naming(peer, message))
    peer.acknowledge(messages[-1])
    peer.reset()
    left = target.leftovers(queue)
    assert not left, f"{len(left)} of 20 are delivered again"


@trial(
    "behaviour/receipt/disconnect-covers-earlier",
    "Before DISCONNECT gets its RECEIPT all earlier frames have come into force.",
    level="SHOULD",
    section="DISCONNECT",
    versions=SINCE_1_1,
)
def test_receipt_of_disconnect_covers_all(target: Target, peer: Peer) -> None:
    """ACK, and COMMIT a SEND, without receipts, then DISCONNECT with one; both are in force."""
    queue, (message,) = receive(target, peer, 1, ack="client")
    other = target.queue()
    peer.send("ACK", naming(peer, message))
    peer.send("BEGIN", {"transaction": "t"})
    peer.send("SEND", {"destination": other, "transaction": "t"}, b"x")
    peer.send("COMMIT", {"transaction": "t"})
    peer.call("DISCONNECT")
    peer.reset()
    assert target.leftovers(other, 1) == [b"x"], "the message of the transaction is not there"
    left = target.leftovers(queue)
    assert not left, f"the acknowledged message is delivered again: {left}"


@trial(
    "behaviour/receipt/disconnect-comes-last",
    "The RECEIPT of DISCONNECT comes after those of all frames before it.",
    level="SHOULD",
    section="DISCONNECT",
)
def test_receipt_of_disconnect_is_the_last(target: Target, peer: Peer) -> None:
    """SEND 25 and DISCONNECT, all with receipts, without waiting; its RECEIPT is the last."""
    queue = target.queue()
    asked = [peer.new_receipt() for _ in range(25)]
    for receipt in asked:
        peer.send("SEND", {"destination": queue, "receipt": receipt}, b"x")
    last = peer.new_receipt()
    peer.send("DISCONNECT", {"receipt": last})
    peer.expect_receipt(last)
    got = receipts(peer.frames)
    missing = set(asked) - set(got[: got.index(last)])
    assert not missing, f"before the RECEIPT of DISCONNECT {len(missing)} of 25 had not come"


@trial(
    "behaviour/receipt/same-id-again",
    "A receipt that was answered can be asked for again.",
    level="FACT",
    section=HEADER,
    rests_on=statements("receipt/server-sends-receipt", "receipt/server-acknowledges"),
)
def test_receipt_id_is_used_again(target: Target, peer: Peer) -> None:
    """Use one value for five frames, one after the other; each time RECEIPT comes."""
    for _ in range(5):
        peer.send("SEND", {"destination": target.queue(), "receipt": "same"}, b"x")
        peer.expect_receipt("same")


@trial(
    "behaviour/receipt/same-id-twice",
    "Two frames that ask for one receipt at the same time get one each.",
    level="SHOULD",
    section=HEADER,
)
def test_receipt_id_is_used_twice(target: Target, peer: Peer) -> None:
    """SEND two with the same receipt, without waiting; RECEIPT comes twice."""
    queue = target.queue()
    for _ in range(2):
        peer.send("SEND", {"destination": queue, "receipt": "same"}, b"x")
    for _ in range(2):
        peer.expect_receipt("same")


@trial(
    "behaviour/receipt/unusual-ids",
    "A receipt-id is the receipt that was asked for, character by character.",
    level="FACT",
    section=HEADER,
    versions=SINCE_1_1,
    covers=("1.1/receipt/arbitrary-value", "1.2/receipt/arbitrary-value"),
)
def test_unusual_receipt_ids(target: Target, peer: Peer) -> None:
    """Ask with blanks at the ends, control characters and lookalikes; each comes back as it was."""
    values = [
        " before",
        "after ",
        "\tboth\t",
        "\\n, not a line end",
        "receipt-id:another",
        "::",
        "\x01\x1f\x7f",
        "\u00e9 e\u0301",
        "\u200b\u2028\ufeff",
        "null",
        "0",
        "007",
        "1.50",
        "MiXed",
        '"quoted"',
        "100%41%20",
        "a+b",
        "<&amp;>",
    ]
    if target.version == "1.2":
        values.append("\r")
    for number, value in enumerate(values):
        peer.send("BEGIN", {"transaction": str(number), "receipt": value})
        peer.expect_receipt(value)
    expect_long_receipt(target, peer, "x" * 3_000)
