"""The octets of header names and values, as 1.0 has them."""

from stompkit.conformance import Peer, Target, case
from stompkit.frames import Frame


def frames_of_all_kinds(target: Target, peer: Peer) -> list[Frame]:
    """All that the server sends for SUBSCRIBE, SEND and a COMMIT that has to fail."""
    queue = target.queue()
    target.subscribe(peer, queue)
    peer.send("SEND", {"destination": queue}, b"x")
    peer.expect("MESSAGE")
    peer.send("COMMIT", {"transaction": "unknown"})
    peer.collect(target.quiet_s)
    return peer.frames


def header_lines(frame: Frame) -> list[tuple[bytes, bytes]]:
    """Names and values as they came, escapes and all."""
    lines = (frame.head or b"").split(b"\n")[1:]
    return [(name, value) for name, _, value in (line.partition(b":") for line in lines)]


@case("1.0/bnf/ascii-headers")
def test_server_headers_are_ascii(target: Target, peer: Peer) -> None:
    """Provoke CONNECTED, RECEIPT, MESSAGE and ERROR; their heads are ASCII."""
    for frame in frames_of_all_kinds(target, peer):
        head = frame.head or b""
        assert head.isascii(), f"{frame.command} has octets above 127: {head!r}"


@case("1.0/bnf/header-name-chars", "1.1/bnf/header-name-chars", "1.2/bnf/header-name-chars")
def test_header_names_are_not_empty(target: Target, peer: Peer) -> None:
    """Provoke frames of all kinds; none has an empty header name. Send one; record the answer."""
    for frame in frames_of_all_kinds(target, peer):
        names = [name for name, _ in header_lines(frame)]
        assert b"" not in names, f"{frame.command} has a header with an empty name"
    other = target.connect()
    other.send("SEND", {"destination": target.sink(), "receipt": "r", "": "v"}, b"x")
    target.note(f"a header with an empty name is {other.outcome('r', target.quiet_s)}")


@case("1.0/bnf/header-value-non-empty")
def test_header_values_are_not_empty(target: Target, peer: Peer) -> None:
    """Provoke frames of all kinds; no header value is empty. Send one; record the answer."""
    for frame in frames_of_all_kinds(target, peer):
        empty = [name.decode() for name, value in header_lines(frame) if not value.strip(b"\r")]
        assert not empty, f"{frame.command} has headers without a value: {empty}"
    other = target.connect()
    other.send("SEND", {"destination": target.sink(), "receipt": "r", "e": ""}, b"x")
    target.note(f"a header with an empty value is {other.outcome('r', target.quiet_s)}")
