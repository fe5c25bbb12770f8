"""ERROR frames."""

import time

from stompkit.conformance import FailedError, Outcome, Peer, Target, UnsupportedError, case
from stompkit.frames import Frame


def provoked(peer: Peer) -> Frame:
    """The ERROR for a SEND without destination, which had the receipt r9.

    Raises UnsupportedError where there is none: send/unprocessable-error is about that.
    """
    peer.send("SEND", {"receipt": "r9"}, b"x")
    outcome = peer.outcome("r9", 0.0)
    if outcome not in (Outcome.ERROR, Outcome.ERROR_AND_CLOSE):
        raise UnsupportedError(f"SEND without destination is {outcome}")
    return next(frame for frame in peer.frames if frame.command == "ERROR")


@case("1.2/error/must-close")
def test_error_closes(target: Target) -> None:
    """After an ERROR of any of four kinds the server closes the connection."""
    drawn = 0
    bad = {
        "SEND without destination": ("SEND", {}),
        "SUBSCRIBE without id": ("SUBSCRIBE", {"destination": target.queue()}),
        "COMMIT of an unknown transaction": ("COMMIT", {"transaction": "unknown"}),
        "UNSUBSCRIBE of an unknown id": ("UNSUBSCRIBE", {"id": "unknown"}),
    }
    for what, (command, headers) in bad.items():
        peer = target.connect()
        peer.send(command, headers)
        frames = peer.collect(target.quiet_s)
        if all(frame.command != "ERROR" for frame in frames):
            continue
        drawn += 1
        if not peer.is_closed_by_target:
            try:
                peer.expect_close()
            except FailedError:
                raise FailedError(f"{what}: ERROR, but the connection stays open") from None
    if not drawn:
        raise UnsupportedError(f"the target sends no ERROR for any of these: {', '.join(bad)}")


@case("1.0/error/message-header", "1.1/error/message-header", "1.2/error/message-header")
def test_error_has_a_message(peer: Peer) -> None:
    """Provoke an ERROR; it has a message header that is not empty."""
    assert provoked(peer).headers.get("message"), "ERROR has no message header"


@case(
    "1.1/error/identify-frame",
    "1.2/error/identify-frame",
    "1.1/error/receipt-id",
    "1.2/error/receipt-id",
    "1.2/headers/error-identify",
)
def test_error_names_the_frame(peer: Peer) -> None:
    """Provoke an ERROR by a frame with a receipt; receipt-id has its value."""
    receipt = provoked(peer).headers.get("receipt-id")
    assert receipt == "r9", f"receipt-id is {receipt}"


@case(
    "1.0/error/content-length-recommended",
    "1.1/error/content-length-should",
    "1.2/error/content-length-should",
)
def test_error_has_content_length(peer: Peer) -> None:
    """Provoke an ERROR; if it has a body it has content-length."""
    error = provoked(peer)
    assert not error.body or "content-length" in error.headers, "ERROR has no content-length"


@case("1.0/error/content-length-octets", "1.0/error/null-terminated")
def test_error_length_is_right(peer: Peer) -> None:
    """Provoke an ERROR; its content-length, if any, is the number of octets, and NUL follows."""
    error = provoked(peer)
    length = error.headers.get("content-length", str(len(error.body)))
    assert length == str(len(error.body)), f"{length} for {len(error.body)} octets"
    assert not peer.violation, f"the server's octets break the grammar: {peer.violation}"


@case("1.1/error/content-type-should", "1.2/error/content-type-should")
def test_error_has_content_type(peer: Peer) -> None:
    """Provoke an ERROR; if it has a body it has content-type."""
    error = provoked(peer)
    assert not error.body or "content-type" in error.headers, "ERROR has no content-type"


@case(
    "1.0/error/body-detail",
    "1.1/error/body-may",
    "1.2/error/body-may",
    "1.0/error/may-send",
    "1.1/error/may-send",
    "1.2/error/may-send",
    "1.2/headers/error",
)
def test_error_body(target: Target, peer: Peer) -> None:
    """Provoke an ERROR; record its headers and the size of its body."""
    error = provoked(peer)
    target.note(f"headers {sorted(error.headers)}, body of {len(error.body)} octets")


@case("1.1/lingering/short", "1.2/lingering/short")
def test_end_after_an_error(target: Target, peer: Peer) -> None:
    """Provoke an ERROR and go on listening; record how soon the connection ends."""
    provoked(peer)
    began = time.monotonic()
    peer.collect(2.0)
    if peer.is_closed_by_target:
        target.note(f"the connection ended {time.monotonic() - began:.1f} s after the ERROR")
    else:
        target.note("the connection lasts for more than 2 s after the ERROR")


@case("1.1/client-frames/unknown-may-error", "1.2/client-frames/unknown-may-error", level="SHOULD")
def test_unknown_command(target: Target, peer: Peer) -> None:
    """Send a command that does not exist; record the answer. It should not get a RECEIPT.

    A client MAY send such a frame, and no sentence says that a server may not take it.
    """
    peer.send_raw(b"FOO\nreceipt:r\n\n\0")
    commands = [frame.command for frame in peer.collect(target.quiet_s)]
    closed = "closed" if peer.is_closed_by_target else "open"
    target.note(f"answered with {commands or 'nothing'}, connection {closed}")
    assert "RECEIPT" not in commands, "an unknown command got a RECEIPT"


@case("1.0/bnf/client-command-set", "1.1/bnf/client-commands", "1.2/bnf/client-commands")
def test_server_commands_from_a_client(target: Target) -> None:
    """Send MESSAGE and an abbreviation, SUB; record the answers."""
    for octets in (
        b"MESSAGE\ndestination:%b\nmessage-id:1\n\nx\0",
        b"SUB\ndestination:%b\nid:1\n\n\0",
    ):
        peer = target.connect()
        peer.send_raw(octets % target.queue().encode())
        commands = [frame.command for frame in peer.collect(target.quiet_s)]
        closed = "closed" if peer.is_closed_by_target else "open"
        target.note(f"{octets.split()[0].decode()}: {commands or 'no answer'}, connection {closed}")
