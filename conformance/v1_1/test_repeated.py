"""Repeated headers, as 1.1 and 1.2 speak of them."""

from stompkit.conformance import Peer, Target, case


@case(
    "1.1/repeated/server-may-update",
    "1.2/repeated/server-may-update",
    "1.1/repeated/later-ignored",
    "1.2/repeated/later-ignored",
)
def test_what_the_server_makes_of_headers(target: Target, peer: Peer) -> None:
    """Send a header once and another one twice; record the entries that arrive."""
    queue = target.queue()
    target.subscribe(peer, queue)
    headers = [("destination", queue), ("once", "a"), ("twice", "first"), ("twice", "second")]
    peer.send("SEND", headers, b"x")
    message = peer.expect("MESSAGE")
    target.note(f"once:a arrives as {message.values('once')}")
    target.note(f"twice:first and twice:second arrive as {message.values('twice')}")
