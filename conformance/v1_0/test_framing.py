"""The shape of frames, as all versions have it."""

import re

from stompkit.conformance import FailedError, Peer, Target, case, frame_octets, raw_value
from stompkit.conformance.scenarios import expect_unaccepted, reaction, receipts


def send_in_pieces(peer: Peer, octets: bytes, size: int) -> None:
    """Send octets in writes of up to that many."""
    for start in range(0, len(octets), size):
        peer.send_raw(octets[start : start + size])


def delivered_in_pieces(target: Target, size: int) -> list[bytes]:
    """Bodies of what comes of SUBSCRIBE and two SENDs, sent in writes of up to that many octets."""
    peer = target.open()
    send_in_pieces(peer, frame_octets("CONNECT", target.connect_headers()), size)
    peer.expect("CONNECTED")
    peer.switch(target.version)
    queue = target.queue()
    frames = (
        ("SUBSCRIBE", {"destination": queue, "id": "s1"}, b""),
        ("SEND", {"destination": queue}, b"first"),
        ("SEND", {"destination": queue}, b"second"),
    )
    octets = [frame_octets(*frame, version=peer.version) for frame in frames]
    send_in_pieces(peer, b"".join(octets), size)
    return sorted(frame.body for frame in peer.expect_messages(2))


@case(
    "1.0/frame/null-ends-frame",
    "1.1/frame/null-terminator",
    "1.2/frame/null-terminator",
)
def test_frames_may_follow_each_other_at_once(peer: Peer) -> None:
    """Send two frames in one write with only NUL between them; both get their RECEIPT."""
    frames = [
        frame_octets("BEGIN", {"transaction": t, "receipt": t}, version=peer.version) for t in "ab"
    ]
    peer.send_raw(b"".join(frames))
    peer.expect_receipt("a")
    peer.expect_receipt("b")


@case("1.0/bnf/trailing-lf-after-null", "1.1/frame/trailing-eols", "1.2/frame/trailing-eols")
def test_line_feeds_between_frames(peer: Peer) -> None:
    """Follow frames with 0, 1 and 50 line feeds; all get their RECEIPT."""
    for number, gap in enumerate((b"", b"\n", b"\n" * 50, b"")):
        name = f"t{number}"
        octets = frame_octets("BEGIN", {"transaction": name, "receipt": name}, version=peer.version)
        peer.send_raw(octets + gap)
    for number in range(4):
        peer.expect_receipt(f"t{number}")


@case("1.0/bnf/frame-stream", "1.1/bnf/stream", "1.2/bnf/stream")
def test_octets_come_in_any_pieces(target: Target) -> None:
    """Send a session in one write, in writes of seven octets and of one; the same answers come.

    Put NULs between two frames as well; record the answer.
    """
    for size in (1_000, 7, 1):
        try:
            bodies = delivered_in_pieces(target, size)
        except FailedError as error:
            raise FailedError(f"in writes of up to {size} octets: {error}") from None
        assert bodies == [b"first", b"second"], (
            f"in writes of up to {size} octets: {bodies} arrived"
        )
    other = target.connect()
    frames = [
        frame_octets("BEGIN", {"transaction": t, "receipt": t}, version=other.version) for t in "ab"
    ]
    other.send_raw(b"\0\0".join(frames))
    target.note(f"a frame with NULs before it is {other.outcome('b', target.quiet_s)}")


@case("1.0/frame/blank-line-ends-headers", "1.1/frame/blank-line", "1.2/frame/blank-line")
def test_blank_line_ends_headers(target: Target, peer: Peer) -> None:
    """Send a body that looks like a header; it arrives as body and not as header."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"x:y\nz")
    message = peer.expect("MESSAGE")
    assert message.body == b"x:y\nz", f"the body is {message.body!r}"
    assert "x" not in message.headers, "the body became a header"


@case("1.0/bnf/body-optional")
def test_empty_body(target: Target, peer: Peer) -> None:
    """Send a message without a body; one without a body arrives."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue})
    assert peer.expect("MESSAGE").body == b"", "the body is not empty"


@case(
    "1.0/bnf/header-count-any",
    "1.1/frame/zero-headers-allowed",
    "1.2/frame/zero-headers-allowed",
    "1.2/headers/disconnect",
)
def test_frame_without_headers(peer: Peer) -> None:
    """Send DISCONNECT with no headers at all; no ERROR comes."""
    peer.send_raw(b"DISCONNECT\n\n\0")
    commands = [frame.command for frame in peer.collect(0.5)]
    assert "ERROR" not in commands, "DISCONNECT without headers drew an ERROR"


@case("1.1/frame/case-sensitive", "1.2/frame/case-sensitive")
def test_names_are_case_sensitive(target: Target) -> None:
    """Send a command in lower case, and a SEND with Destination: neither is accepted.

    The server may ignore a command that it does not know. A SEND without destination draws ERROR.
    Receipt, Transaction and Content-Length are a user's headers: a SEND with them is an ordinary
    one, which is delivered whole and at once, and gets no RECEIPT.
    """
    expect_unaccepted(target, target.connect(), "begin", {"transaction": "t"})
    second = target.connect()
    second.send("SEND", {"Destination": target.queue(), "receipt": "upper"}, b"x")
    second.expect_refusal("upper")
    third, queue = target.connect(), target.queue()
    target.subscribe(third, queue)
    capitals = {"Receipt": "upper", "Transaction": "never-begun", "Content-Length": "1"}
    third.send("SEND", {"destination": queue, **capitals}, b"whole", length=False)
    body = third.expect("MESSAGE").body
    assert body == b"whole", f"the body of a SEND with Content-Length:1 arrived as {body!r}"
    came = receipts(third.collect(target.quiet_s))
    assert "upper" not in came, "a SEND with Receipt got a RECEIPT"


@case("1.0/bnf/commands-uppercase")
def test_letter_case_in_1_0(target: Target) -> None:
    """Send a command in lower case, and a SEND with Destination; record the answers.

    The grammar is written as that of RFC 2616, where literal text is case-insensitive.
    """
    lower, upper = target.connect(), target.connect()
    headers = {"transaction": "t"}
    target.profile("command in lower case on 1.0", reaction(target, lower, "begin", headers))
    headers = {"Destination": target.queue()}
    target.profile("SEND with Destination on 1.0", reaction(target, upper, "SEND", headers, b"x"))


@case(
    "1.0/send/content-length-read-through-nulls",
    "1.1/content-length/must-read",
    "1.2/content-length/must-read",
)
def test_nul_in_a_counted_body(target: Target, peer: Peer) -> None:
    """Send a body with NUL octets and content-length; it arrives whole, and so does the next."""
    queue = target.queue()
    target.subscribe(peer, queue)
    for body in (b"a\0b\0c", b"\0\0\0", b"after"):
        peer.send("SEND", {"destination": queue}, body)
        message = peer.expect("MESSAGE")
        assert message.body == body, f"{body!r} arrived as {message.body!r}"
        if b"\0" in body:
            length = message.headers.get("content-length")
            assert length == str(len(body)), f"content-length is {length} for {len(body)} octets"


@case(
    "1.0/send/content-length-is-byte-count",
    "1.1/content-length/is-octet-count",
    "1.2/content-length/is-octet-count",
)
def test_content_length_counts_octets(target: Target, peer: Peer) -> None:
    """Send three characters in nine octets with content-length:9; body and stream stay intact."""
    queue = target.queue()
    target.subscribe(peer, queue)
    body = "\u20ac\u20ac\u20ac".encode()
    peer.send("SEND", {"destination": queue}, body)
    target.subscribe(peer, target.queue(), id="s2")
    message = peer.expect("MESSAGE")
    assert message.body == body, f"the body is {message.body!r}"
    length = message.headers.get("content-length", "9")
    assert length == "9", f"content-length is {length} for 9 octets"


@case(
    "1.0/message/null-ends-without-content-length",
    "1.1/content-length/must-with-nulls",
    "1.2/content-length/must-with-nulls",
    level={"1.0": "SHOULD"},
)
def test_message_with_nul_is_counted(target: Target, peer: Peer) -> None:
    """Send a body that begins with NUL; it arrives whole, and MESSAGE has its content-length.

    Of a body with NULs 1.0 says that the octets of its content-length should be read.
    """
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"\0x")
    message = peer.expect("MESSAGE")
    length = message.headers.get("content-length")
    assert length == "2", f"content-length is {length} for NUL and x"
    assert message.body == b"\0x", f"the body arrived as {message.body!r}"


@case("1.0/send/null-terminates-without-content-length")
def test_first_nul_ends_an_uncounted_body(target: Target, peer: Peer) -> None:
    """Send a body without content-length; the first NUL ends it."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"uncounted", length=False)
    got = peer.expect("MESSAGE").body
    assert got == b"uncounted", f"the body arrived as {got!r}"


@case(
    "1.0/send/null-after-content-length",
    "1.1/content-length/null-still-needed",
    "1.2/content-length/null-still-needed",
    level="SHOULD",
)
def test_counted_body_needs_its_nul(target: Target, peer: Peer) -> None:
    """Send content-length:2 with a body of six octets; the frame is not accepted.

    To end the frame in NUL is a duty of the client: no version says what the server does without.
    """
    headers = {"destination": target.queue(), "content-length": "2", "receipt": "short"}
    peer.send("SEND", headers, b"abcdef")
    peer.send_raw(b"\n\0")
    peer.expect_refusal("short")


@case(
    "1.0/server-frames/closed-set",
    "1.1/server-frames/closed-set",
    "1.2/server-frames/closed-set",
    "1.0/bnf/server-command-set",
    "1.1/bnf/server-commands",
    "1.2/bnf/server-commands",
    "1.1/overview/frame-based",
    "1.2/overview/frame-based",
    "1.0/frame/command-first-line",
    "1.1/frame/command-line",
    "1.2/frame/command-line",
    "1.1/bnf/frame",
    "1.2/bnf/frame",
    "1.0/bnf/command-line-lf",
    "1.1/frame/eol-lf-only",
    "1.0/frame/header-key-value-newline",
    "1.1/frame/header-format",
    "1.2/frame/header-format",
    rests_on=(
        *("1.0/bnf/server-command-set", "1.0/bnf/trailing-lf-after-null"),
        *("1.1/bnf/server-commands", "1.1/bnf/frame", "1.1/bnf/header-value-chars"),
        *("1.2/bnf/server-commands", "1.2/bnf/frame", "1.2/bnf/header-value-chars"),
    ),
)
def test_everything_received_is_a_server_frame(target: Target, peer: Peer) -> None:
    """Provoke CONNECTED, RECEIPT, MESSAGE and ERROR; all that comes fits the grammar strictly."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue, "k": "v"}, b"x")
    peer.expect("MESSAGE")
    peer.send("COMMIT", {"transaction": "never-begun"})
    peer.collect(target.quiet_s)
    known = {"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}
    strange = [frame.command for frame in peer.frames if frame.command not in known]
    assert not strange, f"the server sent {strange}"
    assert not peer.violation, f"the server's octets break the grammar: {peer.violation}"
    if target.version != "1.2":
        heads = [frame.head or b"" for frame in peer.frames]
        assert not any(b"\r" in head for head in heads), "a header line has a carriage return"


@case(
    "1.0/receipt-frame/empty-body",
    "1.1/receipt-frame/empty-body",
    "1.2/receipt-frame/empty-body",
    "1.1/body/others-must-not",
    "1.2/body/others-must-not",
    "1.1/body/only-send-message-error",
    "1.2/body/only-send-message-error",
)
def test_no_body_where_none_may_be(target: Target) -> None:
    """Provoke CONNECTED and RECEIPT; neither has a body."""
    peer = target.connect()
    peer.send("BEGIN", {"transaction": "t", "receipt": "r"})
    peer.expect_receipt("r")
    # The suite's decoder drops such a body, as receivers in the field do: look at the octets.
    events = target.recorder.events
    octets = "".join(event.text for event in events if event.direction == "<")
    if target.version == "1.2":
        octets = octets.replace("\\x0d\n", "\n")
    bodies = re.findall(r"(?m)(?:^|\^@)(?:CONNECTED|RECEIPT)\n(?:.+\n)*\n(?!\^@).*", octets)
    assert not bodies, f"a frame with a body: {bodies[0]!r}"


@case(
    "1.0/bnf/no-escaping",
    rests_on=("1.0/bnf/no-escaping", "1.0/receipt/receipt-id-equals-receipt"),
)
def test_backslash_is_an_ordinary_character(target: Target, peer: Peer) -> None:
    r"""Ask for the receipt a\cb\n; the receipt-id has the same six characters.

    So does a header of a SEND, though 1.0 does not say that MESSAGE has it.
    """
    if peer.barrier is None:
        peer.send_raw(b"BEGIN\ntransaction:t\nreceipt:a\\cb\\n\n\n\0")
        value = raw_value(peer.expect("RECEIPT"), "receipt-id", peer.version)
        assert value == b"a\\cb\\n", f"the receipt came back as {value!r}"
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send_raw(b"SEND\ndestination:%b\nh:a\\cb\\n\n\nx\0" % queue.encode())
    value = raw_value(peer.expect("MESSAGE"), "h", peer.version)
    target.should(value == b"a\\cb\\n", f"the header came back as {value!r}")


@case(
    "1.0/bnf/header-value-may-hold-colon",
    rests_on=("1.0/bnf/header-value-may-hold-colon", "1.0/receipt/receipt-id-equals-receipt"),
)
def test_colons_in_values(target: Target, peer: Peer) -> None:
    """Ask for the receipt a:b:c; the receipt-id has it.

    So does a header of a SEND, though 1.0 does not say that MESSAGE has it.
    """
    if peer.barrier is None:
        peer.send_raw(b"BEGIN\ntransaction:t\nreceipt:a:b:c\n\n\0")
        value = raw_value(peer.expect("RECEIPT"), "receipt-id", peer.version)
        assert value == b"a:b:c", f"the receipt came back as {value!r}"
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send_raw(b"SEND\ndestination:%b\nh:a:b:c\n\nx\0" % queue.encode())
    value = raw_value(peer.expect("MESSAGE"), "h", peer.version)
    target.should(value == b"a:b:c", f"the header came back as {value!r}")
