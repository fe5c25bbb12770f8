"""The list of frames and their headers, which 1.2 added."""

from stompkit.conformance import Peer, Target, case

#: The headers that 1.2 defines, but for CONNECTED's own and those that any frame may have.
OF_OTHERS = {
    *("accept-version", "host", "login", "passcode", "destination", "transaction", "id", "ack"),
    *("message-id", "subscription", "receipt-id", "message"),
}


@case("1.2/headers/connected")
def test_headers_of_connected(target: Target, peer: Peer) -> None:
    """Send CONNECT; CONNECTED has a version, and no header that is defined for other frames."""
    headers = peer.frames[0].headers
    assert headers.get("version") == "1.2", f"the version is {headers.get('version')}"
    strange = ", ".join(sorted(OF_OTHERS & headers.keys()))
    target.should(not strange, f"CONNECTED has headers of other frames: {strange}")
