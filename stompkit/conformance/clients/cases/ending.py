"""The end of a session, in order or by an error."""

from __future__ import annotations

from stompkit.conformance.clients.caller import Caller
from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.verdict import FailedError

DISCONNECT = "DISCONNECT"
#: Timeout for a client that waits for the RECEIPT of its DISCONNECT, in multiples of the answer
#: timeout.
_PATIENT = 5


@client_case(
    "client/disconnect/ends",
    "A client that has disconnected closes the connection.",
    level="SHOULD",
    section=DISCONNECT,
)
def ends(client: Client) -> None:
    """Have the client disconnect, and answer that; the connection ends, and the program well."""
    caller = client.session()
    caller.deliver(b"quit")
    caller.expect_close()
    client.expect_end()


@client_case(
    "client/disconnect/polite",
    "A client ought to send DISCONNECT before it closes the connection.",
    level="SHOULD",
    section="Client Commands / DISCONNECT",
    covers=["1.0/disconnect/polite"],
)
def polite(client: Client) -> None:
    """Have the client disconnect; DISCONNECT comes before the end of the connection."""
    caller = client.session()
    caller.deliver(b"quit")
    caller.expect("DISCONNECT")


@client_case(
    "client/disconnect/waits-for-receipt",
    "For a graceful end a client sends DISCONNECT with a receipt, and closes when that has come.",
    level="SHOULD",
    section=DISCONNECT,
    since="1.1",
    covers=of(NEW, "disconnect/with-receipt"),
)
def waits_for_receipt(client: Client) -> None:
    """Have the client disconnect, and answer late; it closes after that RECEIPT, not another.

    Before it come others: one that is not requested, and some whose ids begin alike.
    """
    caller = client.session()
    caller.withholds.add("DISCONNECT")
    caller.deliver(b"quit")
    disconnect = caller.expect("DISCONNECT")
    assert "receipt" in disconnect.headers, "DISCONNECT asks for no receipt"
    for id in ("never-asked-for", *_alike(disconnect.headers["receipt"], caller)):
        caller.send("RECEIPT", {"receipt-id": id})
    caller.collect(client.quiet_s)
    assert not caller.is_closed_by_target, "the client did not wait for the RECEIPT"
    caller.receipt(disconnect)
    caller.expect_close()


def _alike(receipt: str, caller: Caller) -> list[str]:
    """Return a longer value, and one that starts the same, if no frame has requested it."""
    requested = {frame.headers.get("receipt") for frame in caller.frames}
    starts = (receipt[:end] for end in range(len(receipt) - 1, 0, -1))
    return [f"{receipt}0", *[start for start in starts if start not in requested][:1]]


@client_case(
    "client/disconnect/nothing-after",
    "After DISCONNECT a client sends no other frame.",
    level="MUST",
    section=DISCONNECT,
    since="1.1",
    covers=of(NEW, "disconnect/no-frames-after"),
)
def nothing_after(client: Client) -> None:
    """Have the client disconnect; no frame comes between DISCONNECT and the end."""
    caller = client.session()
    caller.deliver(b"quit")
    caller.expect_close()
    commands = [frame.command for frame in caller.frames]
    if "DISCONNECT" not in commands:
        return  # another case
    after = commands[commands.index("DISCONNECT") + 1 :]
    assert not after, f"{after[0]} comes after DISCONNECT"


@client_case(
    "client/disconnect/late-message",
    "A message that was on its way when the client disconnected gets no ACK any more.",
    level="MUST",
    section=DISCONNECT,
    since="1.1",
    covers=of(NEW, "disconnect/no-frames-after"),
)
def late_message(client: Client) -> None:
    """Deliver a message between DISCONNECT and its RECEIPT; no frame comes, and the end does."""
    caller = client.session()
    caller.withholds.add("DISCONNECT")
    caller.deliver(b"quit")
    disconnect = caller.expect("DISCONNECT")
    caller.deliver(b"too late")
    caller.receipt(disconnect)
    caller.expect_close()
    after = caller.frames[caller.frames.index(disconnect) + 1 :]
    assert not after, f"{after[0].command} comes after DISCONNECT"


@client_case(
    "client/disconnect/no-receipt",
    "A client whose DISCONNECT is not answered ends nevertheless.",
    level="SHOULD",
    section="Connection Lingering",
    covers=of(NEW, "lingering/last-frame-may-be-lost"),
)
def no_receipt(client: Client) -> None:
    """Have the client disconnect, and leave it without an answer; it closes after some time."""
    caller = client.session()
    caller.withholds.add("DISCONNECT")
    caller.deliver(b"quit")
    caller.expect("DISCONNECT")
    caller.expect_close(_PATIENT * client.timeout_s)


@client_case(
    "client/disconnect/closed-instead",
    "A client that finds the connection closed instead of an answer to DISCONNECT ends, too.",
    level="SHOULD",
    section="Connection Lingering",
    covers=of(NEW, "lingering/last-frame-may-be-lost"),
)
def closed_instead(client: Client) -> None:
    """Have the client disconnect, and close instead of an answer; it closes as well."""
    caller = client.session()
    caller.withholds.add("DISCONNECT")
    caller.deliver(b"quit")
    caller.expect("DISCONNECT")
    caller.finish_sending()
    caller.expect_close()


@client_case(
    "client/error/ends",
    "After ERROR the server closes the connection; the client notices both.",
    level="SHOULD",
    section="Server Frames / ERROR",
    covers=["1.0/error/content-length-octets"],
)
def error(client: Client) -> None:
    """Send ERROR with NUL in its body, and close; the client closes, and reports a failure."""
    caller = client.session()
    body = b"The broker is going down.\n\0--\n"
    headers = {"message": "shutting down", "content-length": str(len(body))}
    caller.send("ERROR", headers, body)
    client.shut(0)
    caller.finish_sending()
    caller.expect_close()
    client.expect_end(well=False)


@client_case(
    "client/connection/closed",
    "A client notices that the server has closed the connection.",
    level="SHOULD",
    section="Connection Lingering",
)
def closed(client: Client) -> None:
    """Close the connection; the client closes as well, and reports a failure."""
    caller = client.session()
    caller.echo(b"hello")
    caller.settle()
    client.shut(0)
    caller.finish_sending()
    caller.expect_close()
    client.expect_end(well=False)


@client_case(
    "client/connection/reset",
    "A client notices that the connection was cut off.",
    level="SHOULD",
    section="Connection Lingering",
)
def reset(client: Client) -> None:
    """Reset the connection; the client reports a failure."""
    client.needs_program()
    caller = client.session()
    caller.echo(b"hello")
    caller.settle()
    client.shut(0)
    caller.reset()
    client.expect_end(well=False)


@client_case(
    "client/connection/truncated",
    "A message that breaks off with the connection is none.",
    level="FACT",
    section="STOMP Frames",
    covers=["1.0/frame/null-ends-frame", *of(NEW, "frame/null-terminator")],
)
def truncated(client: Client) -> None:
    """Send all of a message but its end, and close; the client does not take it."""
    caller = client.session()
    with caller.holding():
        caller.send_raw(caller.message(b"hello there", length=False).octets[:-6])
        client.shut(0)
        caller.finish_sending()
    caller.expect_close()
    if any(frame.command == "SEND" for frame in caller.frames):
        raise FailedError("the client took a message that was not whole")
    client.expect_end(well=False)
