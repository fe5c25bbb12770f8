"""CONNECT, CONNECTED and DISCONNECT, as all versions have them."""

from stompkit.conformance import FailedError, Peer, Target, case


@case(
    "1.0/connect/always-connected",
    "1.1/connect/connected-on-accept",
    "1.2/connect/connected-on-accept",
)
def test_connect_is_answered(target: Target) -> None:
    """Send CONNECT; the first frame of the answer is CONNECTED."""
    peer = target.open()
    peer.send("CONNECT", target.connect_headers())
    peer.expect("CONNECTED")
    assert peer.frames[0].command == "CONNECTED", f"the first frame is {peer.frames[0].command}"


@case("1.0/connected/session-header")
def test_session_header(target: Target) -> None:
    """Send CONNECT without accept-version; CONNECTED has a session that is not empty."""
    peer = target.open()
    peer.send("CONNECT", target.connect_headers())
    assert peer.expect("CONNECTED").headers.get("session"), "CONNECTED has no session"


@case(
    "1.0/connected/session-unique", "1.1/connected/session-unique", "1.2/connected/session-unique"
)
def test_sessions_differ(target: Target) -> None:
    """Open ten sessions at a time; no two session headers are the same."""
    peers = [target.connect() for _ in range(10)]
    sessions = [
        peer.frames[0].headers["session"] for peer in peers if "session" in peer.frames[0].headers
    ]
    assert len(set(sessions)) == len(sessions), f"sessions repeat: {sessions}"
    target.note(f"{len(sessions)} of 10 CONNECTED frames have a session header")


@case("1.1/connect/client-initiates", "1.2/connect/client-initiates")
def test_server_waits_for_connect(target: Target) -> None:
    """Open a connection and say nothing for a second; the server sends nothing."""
    peer = target.open()
    frames = peer.collect(1.0)
    assert not frames and not peer.arrivals, "the server spoke before CONNECT"


@case("1.0/disconnect/graceful", level="SHOULD")
def test_disconnect_ends_the_session(peer: Peer) -> None:
    """Send DISCONNECT; the server closes the connection without an ERROR.

    1.0 speaks of closing the socket as what the client does afterwards.
    """
    peer.send("DISCONNECT")
    peer.expect_close()
    errors = [frame for frame in peer.inbox if frame.command == "ERROR"]
    assert not errors, "DISCONNECT drew an ERROR"


@case("1.1/disconnect/receipt-answered", "1.2/disconnect/receipt-answered")
def test_disconnect_receipt(peer: Peer) -> None:
    """Send DISCONNECT with a receipt; its RECEIPT comes before the connection ends."""
    peer.send("DISCONNECT", {"receipt": "77"})
    peer.expect_receipt("77")


@case("1.1/disconnect/receipt-covers-previous", "1.2/disconnect/receipt-covers-previous")
def test_disconnect_receipt_covers_what_came_before(target: Target, peer: Peer) -> None:
    """Send 30 messages without receipts and DISCONNECT with one; all 30 are in the queue."""
    queue = target.queue()
    for number in range(30):
        peer.send("SEND", {"destination": queue}, b"%d" % number)
    peer.send("DISCONNECT", {"receipt": "bye"})
    peer.expect_receipt("bye")
    peer.close()
    bodies = target.leftovers(queue, 30)
    assert sorted(bodies, key=int) == [b"%d" % n for n in range(30)], f"{len(bodies)} of 30 arrived"


@case("1.2/disconnect/early-close-warning", level="SHOULD")
def test_disconnect_receipt_is_never_cut_off(target: Target) -> None:
    """Connect and DISCONNECT with a receipt 50 times; the RECEIPT is seen each time.

    The specification warns that it may get lost, and does not forbid that.
    """
    for number in range(50):
        peer = target.connect()
        peer.send("DISCONNECT", {"receipt": "bye"})
        try:
            peer.expect_receipt("bye")
        except FailedError as error:
            raise FailedError(f"at the {number + 1}. of 50: {error}") from None
        peer.close()


@case("1.1/disconnect/no-frames-after", "1.2/disconnect/no-frames-after")
def test_frames_after_disconnect(target: Target, peer: Peer) -> None:
    """Send DISCONNECT and a SEND in one write; record what becomes of the message."""
    queue = target.queue()
    peer.send_raw(b"DISCONNECT\nreceipt:bye\n\n\0SEND\ndestination:%b\n\nlate\0" % queue.encode())
    frames = [frame.command for frame in peer.collect(target.quiet_s)]
    late = target.leftovers(queue)
    target.note(
        f"answered with {frames}; the late message was {'delivered' if late else 'ignored'}"
    )


@case("1.1/lingering/rapid-connect", "1.2/lingering/rapid-connect")
def test_rapid_connections(target: Target) -> None:
    """Open and cut 200 connections as fast as possible; a CONNECT afterwards is answered."""
    for number in range(200):
        peer = target.open()
        if number % 2:
            peer.send("CONNECT", target.connect_headers())
        if number % 4 > 1:
            peer.reset()
        peer.close()
    target.connect()


@case("1.1/disconnect/any-time", "1.2/disconnect/any-time")
def test_end_without_disconnect(target: Target, peer: Peer) -> None:
    """Send 200 messages and close the connection at once; record how many are delivered."""
    queue = target.queue()
    for number in range(200):
        peer.send("SEND", {"destination": queue}, b"%d" % number)
    peer.close()
    target.note(f"{len(target.leftovers(queue, 200))} of 200 messages were delivered")


@case(
    "1.0/connect/login-passcode",
    "1.1/connect/login-optional",
    "1.2/connect/login-optional",
    "1.1/connect/passcode-optional",
    "1.2/connect/passcode-optional",
)
def test_login(target: Target) -> None:
    """Send CONNECT with login and passcode; CONNECTED comes."""
    headers = {"login": "guest", "passcode": "guest", **target.connect_headers()}
    peer = target.open()
    peer.send("CONNECT", headers)
    peer.expect("CONNECTED")
