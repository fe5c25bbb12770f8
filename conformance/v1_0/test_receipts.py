"""Receipts, as all versions have them."""

from stompkit.conformance import Peer, Target, case
from stompkit.conformance.scenarios import (
    begin,
    expect_long_receipt,
    provoke,
    receipts,
    unsubscribe,
)


@case(
    "1.0/receipt/any-client-frame-but-connect",
    "1.1/receipt/any-frame-but-connect",
    "1.2/receipt/any-frame-but-connect",
    "1.0/commands/allowed-after-connect",
    "1.1/client-frames/list",
    "1.2/client-frames/list",
    "1.2/overview/backward-compatible",
)
def test_every_client_frame_gets_its_receipt(target: Target, peer: Peer) -> None:
    """Send each command with a receipt, correctly; each gets its RECEIPT and none an ERROR."""
    queue = target.queue()
    peer.call("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "client"})
    peer.call("SEND", {"destination": queue}, b"x")
    peer.acknowledge(peer.expect("MESSAGE"))
    for end in ("COMMIT", "ABORT"):
        begin(peer, end)
        peer.call(end, {"transaction": end})
    unsubscribe(peer, queue, "1")
    peer.call("DISCONNECT")


@case(
    "1.0/receipt/server-sends-receipt",
    "1.1/receipt/server-acknowledges",
    "1.2/receipt/server-acknowledges",
    "1.0/receipt/receipt-id-equals-receipt",
    "1.0/receipt-frame/receipt-id-header",
    "1.1/receipt-frame/receipt-id",
    "1.2/receipt-frame/receipt-id",
    "1.2/headers/receipt",
    "1.0/receipt-frame/only-on-request",
)
def test_one_receipt_for_each_request(target: Target, peer: Peer) -> None:
    """Send twenty messages, every other with a receipt; ten RECEIPTs come, each once."""
    queue = target.queue()
    asked = set()
    for number in range(20):
        headers = {"destination": queue}
        if number % 2:
            headers["receipt"] = f"n{number}"
            asked.add(f"n{number}")
        peer.send("SEND", headers, b"x")
    for receipt in asked:
        peer.expect_receipt(receipt)
    more = [frame for frame in peer.collect(target.quiet_s) if frame.command == "RECEIPT"]
    assert not more, f"{len(more)} RECEIPTs too many"


@case("1.0/receipt/arbitrary-value", "1.1/receipt/arbitrary-value", "1.2/receipt/arbitrary-value")
def test_receipt_values_come_back(target: Target, peer: Peer) -> None:
    """Ask for receipts with blanks and punctuation; they come back.

    So does one of a thousand characters, unless the target refuses that.
    """
    values = ["a b", "message-12345", "Mixed Case", "!\"#$%&'()*+,-./;<=>?@[]^_`{|}~"]
    if target.version != "1.0":
        values += ["a:b", "back\\slash", "line\nfeed", "\u20ac \U0001f600"]
    for value in values:
        peer.send("SEND", {"destination": target.queue(), "receipt": value}, b"x")
        peer.expect_receipt(value)
    expect_long_receipt(target, peer, "x" * 1_000)


@case("1.1/receipt-frame/after-success", "1.2/receipt-frame/after-success")
def test_no_receipt_for_a_failure(target: Target, peer: Peer) -> None:
    """COMMIT an unknown transaction with a receipt; no RECEIPT comes, at least none beside ERROR.

    A server that takes the COMMIT can have processed it: commit/names-transaction is about that.
    """
    provoke(target, peer, "COMMIT", {"transaction": "unknown", "receipt": "r"})
    if "r" in receipts(peer.frames):
        has_failed = any(frame.command == "ERROR" for frame in peer.frames)
        assert not has_failed and not peer.is_closed_by_target, "a RECEIPT came as well"
        target.should(False, "COMMIT of an unknown transaction was accepted")


@case("1.2/receipt-frame/means-processed")
def test_receipt_means_processed(target: Target, peer: Peer) -> None:
    """After the RECEIPT of a SEND a new subscriber of the queue gets the message."""
    queue = target.queue()
    peer.call("SEND", {"destination": queue}, b"x")
    assert target.leftovers(queue, 1) == [b"x"], "the message is not in the queue"


@case("1.2/receipt-frame/cumulative-received", "1.2/receipt-frame/processing-continues")
def test_receipt_covers_what_came_before(target: Target, peer: Peer) -> None:
    """Send 30 messages, the last with a receipt, and close; all 30 are in the queue."""
    queue = target.queue()
    for number in range(29):
        peer.send("SEND", {"destination": queue}, b"%d" % number)
    peer.call("SEND", {"destination": queue}, b"29")
    peer.close()
    number = len(target.leftovers(queue, 30))
    assert number == 30, f"only {number} of 30 arrived"
