"""Octets, escapes and spaces in headers, as 1.1 and 1.2 have them."""

import re

from stompkit.conformance import FailedError, Peer, Target, case, frame_octets, raw_value
from stompkit.conformance.scenarios import takes
from stompkit.frames import Frame

WORDS = "\u00e9 \u20ac \U0001f600"  # characters of two, three and four octets


def begun_send(destination: str, peer: Peer) -> bytes:
    """The first two lines of a SEND; more header lines, sent as they are, can follow."""
    return frame_octets("SEND", {"destination": destination}, version=peer.version)[:-2]


def exchanged(target: Target, sender: Peer, receiver: Peer, lines: bytes) -> Frame:
    """The MESSAGE that comes of a SEND with these header lines, sent as they are."""
    queue = target.queue()
    target.subscribe(receiver, queue)
    sender.send_raw(begun_send(queue, sender) + lines + b"\n\nx\0")
    return receiver.expect("MESSAGE")


def session_1_0(target: Target) -> Peer:
    """A session on 1.0, where headers have no escapes."""
    peer = target.open()
    peer.send("CONNECT", target.connect_headers("1.0"))
    peer.expect("CONNECTED")
    peer.switch("1.0")
    return peer


def is_plain_on_1_0(target: Target) -> bool:
    r"""Whether the target, as it should, leaves a\b alone between sessions on 1.0."""
    if "1.0" not in target.versions:
        return False
    peer = session_1_0(target)
    try:
        return raw_value(exchanged(target, peer, peer, rb"h:a\b"), "h", "1.0") == rb"a\b"
    except FailedError:
        return False


@case(
    "1.1/encoding/utf8-headers",
    "1.2/encoding/utf8-headers",
    "1.1/overview/default-encoding-utf8",
    "1.2/overview/default-encoding-utf8",
)
def test_headers_are_utf8(target: Target, peer: Peer) -> None:
    """Send a header with accents and an emoji, and a body in UTF-16; all octets come back."""
    queue = target.queue()
    target.subscribe(peer, queue)
    body = WORDS.encode("utf-16")
    utf16 = {"content-type": "text/plain;charset=utf-16"}
    peer.send("SEND", {"destination": queue, "cl\u00e9": WORDS, **utf16}, body)
    message = peer.expect("MESSAGE")
    value = raw_value(message, "cl\u00e9", target.version)
    assert value == WORDS.encode(), f"{WORDS.encode()!r} arrived as {value!r}"
    assert message.body == body, "the body was changed"
    kind = message.headers.get("content-type")
    assert kind == utf16["content-type"], f"the content-type arrived as {kind}"


@case("1.1/utf8/must-support", "1.2/utf8/must-support")
def test_utf8_everywhere(target: Target, peer: Peer) -> None:
    """Use characters of two to four octets in destination, id, receipt and names; all work.

    A target may restrict the names of its destinations.
    """
    queue = target.queue() + WORDS.replace(" ", "")
    if not takes(peer, "SUBSCRIBE", {"destination": queue, "id": f"s {WORDS}"}):
        target.note(f"{queue} is refused as a destination")
        peer, queue = target.connect(), target.queue()
        target.subscribe(peer, queue, id=f"s {WORDS}")
    peer.send("SEND", {"destination": queue, "receipt": f"r {WORDS}", f"n{WORDS}": "v"}, b"x")
    peer.expect_receipt(f"r {WORDS}")
    message = peer.expect("MESSAGE")
    subscription = message.headers.get("subscription")
    assert subscription == f"s {WORDS}", f"the subscription arrived as {subscription!r}"
    assert message.headers.get(f"n{WORDS}") == "v", "the header name was changed"
    if message.headers.get("destination") != queue:
        target.note(f"{queue} is delivered as {message.headers.get('destination')}")


@case(
    "1.1/encoding/escape-outside-connect",
    "1.2/encoding/escape-outside-connect",
    "1.1/encoding/encode-reverse",
    "1.2/encoding/encode-reverse",
)
def test_headers_are_escaped(target: Target, peer: Peer) -> None:
    """Send all escapes there are; they come back. So does a backslash that came from 1.0."""
    value = rb"a\cb\nc\\d" + (rb"\re" if target.version == "1.2" else b"")
    message = exchanged(target, peer, peer, b"h:%b\n%b:v" % (value, value))
    got = raw_value(message, "h", target.version)
    assert got == value, f"the value {value!r} arrived as {got!r}"
    assert raw_value(message, value.decode(), target.version) == b"v", "the header name was changed"
    if is_plain_on_1_0(target):
        message = exchanged(target, session_1_0(target), target.connect(), rb"h:a\b")
        got = raw_value(message, "h", target.version)
        assert got == rb"a\\b", f"a backslash that came from 1.0 arrived as {got!r}"


@case("1.1/encoding/decode-newline", "1.2/encoding/decode-newline")
def test_newline(target: Target, peer: Peer) -> None:
    r"""Send the header values a\nb and \na\n; they come back so, with no line feed as it is."""
    message = exchanged(target, peer, peer, rb"h:a\nb" + b"\n" + rb"ends:\na\n")
    for name, value in (("h", rb"a\nb"), ("ends", rb"\na\n")):
        got = raw_value(message, name, target.version)
        assert got == value, f"the value {value!r} arrived as {got!r}"


@case("1.1/encoding/decode-colon", "1.2/encoding/decode-colon")
def test_colon(target: Target, peer: Peer) -> None:
    r"""Use the id x\cy and the receipt a\cb; subscription and receipt-id have them again."""
    queue = target.queue()
    target.subscribe(peer, queue, id="x:y")
    peer.send("SEND", {"destination": queue, "receipt": "a:b"}, b"x")
    subscription = raw_value(peer.expect("MESSAGE"), "subscription", target.version)
    assert subscription == rb"x\cy", f"the subscription arrived as {subscription!r}"
    receipt = raw_value(peer.expect("RECEIPT"), "receipt-id", target.version)
    assert receipt == rb"a\cb", f"the receipt-id is {receipt!r}"


@case("1.1/encoding/decode-backslash", "1.2/encoding/decode-backslash")
def test_backslash(target: Target, peer: Peer) -> None:
    r"""Send the header value a\\nb; it comes back, and a session on 1.0 sees a\nb.

    A server that decodes nothing can be told from others only by a session without escapes. On 1.0
    a value has no other form than its own.
    """
    got = raw_value(exchanged(target, peer, peer, rb"h:a\\nb"), "h", target.version)
    assert got == rb"a\\nb", f"the value arrived as {got!r}"
    if is_plain_on_1_0(target):
        message = exchanged(target, target.connect(), session_1_0(target), rb"h:a\\nb")
        got = raw_value(message, "h", "1.0")
        assert got == rb"a\nb", f"a session on 1.0 sees {got!r}"


@case("1.1/encoding/undefined-escape-fatal", "1.2/encoding/undefined-escape-fatal")
def test_undefined_escapes(target: Target) -> None:
    r"""Send a\tb (on 1.1 also a\rb); the frame is refused and the connection closed."""
    for escape in (rb"\t", rb"\r") if target.version == "1.1" else (rb"\t",):
        peer = target.connect()
        peer.send_raw(begun_send(target.queue(), peer) + b"receipt:r\nh:a%bb\n\nx\0" % escape)
        try:
            peer.expect_refusal("r")
            peer.expect_close()
        except FailedError as error:
            raise FailedError(f"{escape.decode()}: {error}") from None


@case("1.1/encoding/never-trim-pad", "1.2/encoding/never-trim-pad")
def test_spaces_are_kept(target: Target, peer: Peer) -> None:
    """Send spaces around a name, a value and a receipt; all come back, and no others."""
    message = exchanged(target, peer, peer, b"h:  v  \n n :v")
    value = raw_value(message, "h", target.version)
    assert value == b"  v  ", f"the value '  v  ' arrived as {value.decode()!r}"
    assert raw_value(message, " n ", target.version) == b"v", (
        "the spaces around the name ' n ' are lost"
    )
    peer.send("BEGIN", {"transaction": "t", "receipt": " r "})
    receipt = raw_value(peer.expect("RECEIPT"), "receipt-id", target.version)
    assert receipt == b" r ", f"the receipt ' r ' came back as {receipt.decode()!r}"


@case("1.1/encoding/no-escape-in-connect", "1.2/encoding/no-escape-in-connect")
def test_connect_is_not_escaped(target: Target) -> None:
    r"""Send CONNECT with the headers x:a:b and y:a\tb; CONNECTED comes, without escapes.

    A backslash in CONNECT is disputed: only the sentence about frames that are escaped leaves it
    out, that about undefined escape sequences does not. A colon is not: it has no other form there.
    """
    for name, value in (("x", "a:b"), ("y", r"a\tb")):
        peer = target.open()
        peer.send("CONNECT", {**target.connect_headers(), name: value})
        try:
            head = peer.expect("CONNECTED").head or b""
        except FailedError as error:
            if name == "x":
                raise FailedError(f"CONNECT with {name}:{value}: {error}") from None
            target.should(False, f"CONNECT with {name}:{value}: {error}")
            continue
        assert not re.search(rb"\\[cnr\\]", head), f"CONNECTED has escapes: {head!r}"


@case("1.1/bnf/header-value-chars", "1.2/bnf/header-value-chars")
def test_values_hold_no_raw_colon(target: Target, peer: Peer) -> None:
    """Provoke RECEIPT, MESSAGE and ERROR with colons; no value has a colon or CR as it is."""
    queue = target.queue()
    target.subscribe(peer, queue, ack="client", id="s:1")
    peer.send("SEND", {"destination": queue, "receipt": "r:1", "h": "a:b"}, b"x")
    peer.expect("MESSAGE")
    peer.expect_receipt("r:1")
    peer.send("COMMIT", {"transaction": "a:b", "receipt": "r:2"})
    peer.collect(target.quiet_s)
    for frame in peer.frames:
        for line in (frame.head or b"").split(b"\n")[1:]:
            is_clean = line.count(b":") == 1 and b"\r" not in line.removesuffix(b"\r")
            assert is_clean or frame.command == "CONNECTED", (
                f"{frame.command} has a colon or a CR that is not escaped: {line!r}"
            )


@case("1.1/bnf/empty-value", "1.2/bnf/empty-value")
def test_empty_value(target: Target, peer: Peer) -> None:
    """Send a header with an empty value; it comes back empty."""
    got = raw_value(exchanged(target, peer, peer, b"e:"), "e", target.version)
    assert got == b"", f"the value arrived as {got!r}"


@case("1.1/bnf/raw-colon-in-value", "1.2/bnf/raw-colon-in-value")
def test_raw_colon(target: Target, peer: Peer) -> None:
    """Send the header h:a:b, which the grammar does not have; record what becomes of it."""
    peer.send_raw(begun_send(target.sink(), peer) + b"receipt:r\nh:a:b\n\nx\0")
    target.note(f"a colon that is not escaped is {peer.outcome('r', target.quiet_s)}")
