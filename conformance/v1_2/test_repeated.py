"""Repeated headers: in 1.2 the first counts for servers, too."""

from stompkit.conformance import Peer, Target, case


@case("1.2/repeated/first-wins-server")
def test_first_of_repeated_headers(target: Target, peer: Peer) -> None:
    """Send two destinations, receipts and values of a header; the first of each counts."""
    first, second = target.queue(), target.queue()
    target.subscribe(peer, first, id="first")
    target.subscribe(peer, second, id="second")
    names = {"destination": (first, second), "receipt": ("one", "two"), "foo": ("World", "Hello")}
    peer.send("SEND", [(name, value) for name in names for value in names[name]], b"x")
    receipt = peer.expect("RECEIPT").headers.get("receipt-id")
    assert receipt == "one", f"for the receipts one and two RECEIPT has {receipt}"
    message = peer.expect("MESSAGE").headers
    subscription = message.get("subscription")
    assert subscription == "first", f"the message went to the {subscription} of two destinations"
    assert message.get("foo") == "World", f"for World and Hello MESSAGE has {message.get('foo')}"
    peer.expect_nothing(target.quiet_s)
