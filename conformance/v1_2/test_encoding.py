r"""What 1.2 adds to lines and headers: CR LF, \r, and content-length on any frame."""

import re

from stompkit.conformance import Peer, Target, case, frame_octets, raw_value
from stompkit.conformance.scenarios import bodies, provoke


def send_crlf(peer: Peer, command: str, headers: dict[str, str], body: bytes = b"") -> None:
    """Send a frame whose lines end in CR LF."""
    peer.send_raw(frame_octets(command, headers, body, version="1.2", eol="\r\n"))


@case("1.2/overview/crlf-lines", "1.2/frame/eol-cr-optional")
def test_lines_may_end_in_crlf(target: Target) -> None:
    """Go through a session in CR LF lines; all is answered, and no value ends in CR."""
    queue = target.queue()
    peer = target.open()
    send_crlf(peer, "CONNECT", target.connect_headers())
    version = peer.expect("CONNECTED").headers.get("version", "1.2")
    assert version == "1.2", f"CONNECT offered 1.2, the target chose {version}"
    peer.switch("1.2")
    subscription = {"destination": queue, "id": "s1"}
    send_crlf(peer, "SUBSCRIBE", {**subscription, "ack": "client", "receipt": "subscribed"})
    peer.expect_receipt("subscribed")
    send_crlf(peer, "BEGIN", {"transaction": "t", "receipt": "begun"})
    peer.expect_receipt("begun")
    send_crlf(peer, "SEND", {"destination": queue, "transaction": "t", "h": "v"}, b"a\r\nb")
    send_crlf(peer, "COMMIT", {"transaction": "t", "receipt": "committed"})
    peer.expect_receipt("committed")
    message = peer.expect("MESSAGE", {"subscription": "s1"})
    assert message.body == b"a\r\nb", f"the body arrived as {message.body!r}"
    assert message.headers.get("h") == "v", f"the header arrived as {message.headers.get('h')!r}"
    for command in ("UNSUBSCRIBE", "DISCONNECT"):
        send_crlf(peer, command, {**subscription, "receipt": command})
        peer.expect_receipt(command)


@case("1.2/frame/eol-cr-optional", "1.2/frame/trailing-eols")
def test_crlf_between_frames(peer: Peer) -> None:
    """Follow frames with 1 and 50 CR LF, and with both kinds of line ends; all get RECEIPTs."""
    for number, gap in enumerate((b"\r\n", b"\r\n" * 50, b"\n\r\n\n", b"")):
        name = f"t{number}"
        octets = frame_octets("BEGIN", {"transaction": name, "receipt": name}, version="1.2")
        peer.send_raw(octets + gap)
    for number in range(4):
        peer.expect_receipt(f"t{number}")


@case("1.2/frame/eol-lf-required")
def test_lines_end_in_lf(target: Target, peer: Peer) -> None:
    """Provoke frames of all kinds; CR stands only before LF. Send a CR alone; record the answer."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue, "h": "a\rb"}, b"x")
    peer.expect("MESSAGE")
    peer.send("COMMIT", {"transaction": "unknown"})
    peer.collect(target.quiet_s)
    for frame in peer.frames:
        head = frame.head or b""
        assert not re.search(rb"\r(?!\n|\Z)", head), f"{frame.command} has a CR alone: {head!r}"
    other = target.connect()
    head = frame_octets("SEND", {"destination": target.sink()}, version="1.2")[:-2]
    other.send_raw(head + b"receipt:r\nh:a\rb\n\nx\0")
    target.note(f"a CR alone in a header is {other.outcome('r', target.quiet_s)}")


@case("1.2/encoding/decode-cr")
def test_carriage_return(target: Target, peer: Peer) -> None:
    r"""Send the header value a\rb; it comes back as a\rb, and the session goes on."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue, "h": "a\rb"}, b"x")
    got = raw_value(peer.expect("MESSAGE"), "h", peer.version)
    assert got == rb"a\rb", f"the value arrived as {got!r}"
    peer.call("BEGIN", {"transaction": "t"})


@case("1.2/content-length/any-frame")
def test_content_length_on_any_frame(target: Target, peer: Peer) -> None:
    """Put content-length:0 on frames of six kinds; all get their RECEIPT.

    No client may send a SUBSCRIBE with a body. Record if what looks like a frame in such a body,
    which content-length counts, is executed.
    """
    subscription = {"destination": target.queue(), "id": "s1"}
    for command, headers in (
        ("SUBSCRIBE", subscription),
        ("BEGIN", {"transaction": "t"}),
        ("SEND", {"destination": target.sink()}),
        ("COMMIT", {"transaction": "t"}),
        ("UNSUBSCRIBE", subscription),
        ("DISCONNECT", {}),
    ):
        peer.call(command, {**headers, "content-length": "0"})
    injecting, queue = target.connect(), target.queue()
    inner = b"\0" + frame_octets("SEND", {"destination": queue}, b"injected") + b"\n"
    provoke(target, injecting, "SUBSCRIBE", {"destination": queue, "id": "counted"}, inner)
    came = bodies(injecting.frames) + target.leftovers(queue)
    target.profile("a frame in the counted body of SUBSCRIBE", "executed" if came else "ignored")
