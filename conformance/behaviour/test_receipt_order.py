"""When RECEIPTs come, and in which order: much of that is left open."""

from collections import Counter

from stompkit.conformance import Peer, Target, trial
from stompkit.conformance.requirements import statements
from stompkit.conformance.scenarios import begin, fill, naming, receipts, receive, unsubscribe

SECTION = "Server Frames / RECEIPT"
HEADER = "Standard Headers / Header receipt"


@trial(
    "behaviour/receipt/pipelined",
    "Each of many frames that are sent without waiting gets one RECEIPT; the order is left open.",
    level="FACT",
    section=HEADER,
    rests_on=statements("receipt/server-sends-receipt", "receipt/server-acknowledges"),
)
def test_each_frame_gets_its_receipt(target: Target, peer: Peer) -> None:
    """Send sixty frames of all kinds, twenty at a time; each gets one RECEIPT. Record the order."""
    queue = target.queue()
    asked: list[str] = []

    def ask(command: str, headers: dict[str, str], body: bytes = b"") -> None:
        asked.append(peer.new_receipt())
        peer.send(command, {**headers, "receipt": asked[-1]}, body)

    for round_ in range(3):
        ask("SUBSCRIBE", {"destination": target.queue(), "id": str(round_)})
        for _ in range(6):
            name = {"transaction": peer.new_transaction()}
            ask("BEGIN", name)
            ask("SEND", {"destination": queue}, b"x")
            ask("COMMIT", name)
        ask("SEND", {"destination": queue}, b"x")
        for receipt in asked[-20:]:
            peer.expect_receipt(receipt)
    peer.collect(target.quiet_s)
    got = receipts(peer.frames)
    again = [receipt for receipt, times in Counter(got).items() if times > 1]
    assert not again, f"came more than once: {again}"
    target.profile("order of RECEIPTs", "as asked for" if got == asked else "any")


@trial(
    "behaviour/receipt/no-need-to-wait",
    "Frames can be sent without waiting for what the ones before them do.",
    level="SHOULD",
    section=SECTION,
)
def test_frames_that_build_on_each_other(target: Target, peer: Peer) -> None:
    """SUBSCRIBE, SEND and UNSUBSCRIBE at once, ten times; though a message comes, no ERROR does."""
    for number in range(10):
        queue, id = target.queue(), f"s{number}"
        peer.send("SUBSCRIBE", {"destination": queue, "id": id})
        peer.send("SEND", {"destination": queue}, b"x")
        unsubscribe(peer, queue, id)
    peer.call("SEND", {"destination": target.queue()}, b"x")


def before_and_after(target: Target, peer: Peer, receipt: str, end: str) -> str:
    """When the RECEIPT of a frame in transaction ``t`` comes, which this ends."""
    another = peer.new_receipt()
    peer.send("BEGIN", {"transaction": "another", "receipt": another})
    peer.expect_receipt(another)
    if receipt not in receipts(peer.frames):
        peer.collect(target.quiet_s)
    before = receipts(peer.frames).count(receipt)
    peer.call(end, {"transaction": "t"})
    peer.collect(target.quiet_s)
    after = receipts(peer.frames).count(receipt) - before
    words = {
        (0, 0): "never",
        (1, 0): "at once",
        (0, 1): f"after {end}",
        (1, 1): f"at once and after {end}",
    }
    return words.get((before, after), f"{before} times at once, {after} times after {end}")


@trial(
    "behaviour/receipt/send-in-transaction",
    "Whether a SEND in a transaction gets its RECEIPT at once or at COMMIT is left open.",
    level="MAY",
    section=SECTION,
)
def test_receipt_of_a_send_in_a_transaction(target: Target) -> None:
    """SEND with a receipt in transactions that end by COMMIT and ABORT; record when it comes."""
    for end in ("COMMIT", "ABORT"):
        peer = target.connect()
        begin(peer, "t")
        headers = {"destination": target.queue(), "transaction": "t", "receipt": "s"}
        peer.send("SEND", headers, b"x")
        when = before_and_after(target, peer, "s", end)
        target.profile(f"RECEIPT of a SEND before {end}", when)


@trial(
    "behaviour/receipt/ack-in-transaction",
    "Whether an ACK in a transaction gets its RECEIPT at once or at COMMIT is left open.",
    level="MAY",
    section=SECTION,
)
def test_receipt_of_an_ack_in_a_transaction(target: Target, peer: Peer) -> None:
    """ACK with a receipt in a transaction, then COMMIT; record when it comes."""
    _, (message,) = receive(target, peer, 1)
    begin(peer, "t")
    peer.send("ACK", {**naming(peer, message), "transaction": "t", "receipt": "a"})
    when = before_and_after(target, peer, "a", "COMMIT")
    target.profile("RECEIPT of an ACK before COMMIT", when)


@trial(
    "behaviour/receipt/subscribe-to-full-queue",
    "Whether the RECEIPT of SUBSCRIBE comes before the first message is left open.",
    level="MAY",
    section=SECTION,
)
def test_receipt_of_subscribe_to_a_full_queue(target: Target, peer: Peer) -> None:
    """Subscribe to a queue that has a message; record which comes first."""
    receipt = peer.new_receipt()
    queue = fill(target, 1)
    peer.send("SUBSCRIBE", {"destination": queue, "id": "s1", "receipt": receipt})
    peer.expect_receipt(receipt)
    peer.expect("MESSAGE")
    commands = [frame.command for frame in peer.frames]
    first = commands.index("RECEIPT") < commands.index("MESSAGE")
    target.profile("RECEIPT of SUBSCRIBE comes", f"{'before' if first else 'after'} MESSAGE")
