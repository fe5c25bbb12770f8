"""Frame boundaries, independent of the pieces in which frames come."""

from __future__ import annotations

from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.frames import VERSIONS

FRAMES = "STOMP Frames"
_MANY = 20
#: Number of bytes after the cut in the last message, which is within its headers.
_CUT = 40


@client_case(
    "client/frame/grammar",
    "All that a client sends keeps to the grammar of the version.",
    level="FACT",
    section="Augmented BNF",
    versions=VERSIONS,
    covers=[
        *of(("1.0",), "frame/command-first-line", "frame/header-key-value-newline"),
        *of(("1.0",), "frame/blank-line-ends-headers", "frame/null-ends-frame"),
        *of(("1.0",), "bnf/client-command-set", "bnf/commands-uppercase", "bnf/frame-stream"),
        *of(("1.0",), "bnf/header-name-chars", "bnf/command-line-lf", "bnf/ascii-headers"),
        *of(NEW, "overview/frame-based", "frame/command-line", "frame/header-format"),
        *of(NEW, "frame/blank-line", "frame/null-terminator", "frame/zero-headers-allowed"),
        *of(NEW, "bnf/frame", "bnf/stream", "bnf/client-commands", "client-frames/list"),
        *of(NEW, "body/others-must-not", "body/only-send-message-error"),
        *of(NEW, "content-length/null-still-needed"),
        "1.2/frame/eol-lf-required",
    ],
    rests_on=[
        *of(("1.0",), "bnf/header-count-any", "bnf/client-command-set", "bnf/ascii-headers"),
        *of(NEW, "bnf/frame", "bnf/client-commands", "bnf/header-name-chars"),
        *of(NEW, "bnf/header-value-chars", "body/others-must-not"),
    ],
)
def grammar(client: Client) -> None:
    """Have the client use all its commands; read what it sends by the strict grammar."""
    caller = client.session()
    caller.echo(b"hello", {"x-a": "1"})
    if client.version != "1.0":
        caller.deliver(b"nack")
        caller.expect("NACK")
    for body, command in ((b"commit", "COMMIT"), (b"abort", "ABORT"), (b"quit", "DISCONNECT")):
        caller.deliver(body)
        caller.expect(command)
    caller.expect_close()
    assert not caller.violation, f"the client sends {caller.violation}"


@client_case(
    "client/frame/line-ends-between",
    "Any number of line ends may stand between frames.",
    level="FACT",
    section=FRAMES,
    covers=["1.0/bnf/trailing-lf-after-null", *of(NEW, "frame/trailing-eols", "bnf/stream")],
)
def line_ends_between(client: Client) -> None:
    """Send line ends before, between and after messages, in one write and in several."""
    caller = client.session()
    first, second, third = (caller.message(body) for body in (b"first", b"second", b"third"))
    # The client must have read all earlier data, or these bytes would arrive with it.
    caller.expect_nothing(client.quiet_s, "SEND")
    caller.send_raw(b"\n\n\n" + first.octets + b"\n\n" + second.octets + b"\n")
    caller.expect_send(b"first")
    caller.expect_send(b"second")
    caller.trickle(b"\n\n")
    caller.send_raw(third.octets)
    caller.expect_send(b"third")


@client_case(
    "client/frame/crlf",
    "In 1.2 lines may end in CR LF.",
    level="FACT",
    section=FRAMES,
    versions=["1.2"],
    covers=["1.2/overview/crlf-lines", "1.2/frame/eol-cr-optional"],
)
def crlf(client: Client) -> None:
    """Deliver messages whose lines end so, with such line ends between them."""
    caller = client.session()
    message = caller.message(b"describe", {"x-a": "1"}, eol="\r\n")
    caller.send_raw(message.octets + b"\r\n\r\n")
    caller.expect_send(b"x-a=1")
    caller.expect("ACK", {"id": message.ack})
    caller.send_raw(b"\r\n" + caller.message(b"\r\nbody", eol="\r\n").octets)
    caller.expect_send(b"\r\nbody")


@client_case(
    "client/frame/mixed-line-ends",
    "In 1.2 each line of a frame may end in LF or in CR LF, whatever the others do.",
    level="FACT",
    section=FRAMES,
    versions=["1.2"],
    covers=["1.2/frame/eol-cr-optional"],
)
def mixed_line_ends(client: Client) -> None:
    """Deliver messages in which some lines end in CR LF: the first ones, or the last ones."""
    caller = client.session()
    first, second = (caller.message(b"describe", lines=[b"x-a:1"]) for _ in range(2))
    command, rest = first.octets.split(b"\n", 1)
    caller.send_raw(command + b"\r\n" + rest)
    caller.expect_send(b"x-a=1")
    caller.expect("ACK", {"id": first.ack})
    command, line, rest = second.octets.split(b"\n", 2)
    caller.send_raw(command + b"\n" + line + b"\r\n" + rest.replace(b"\n", b"\r\n"))
    caller.expect_send(b"x-a=1")
    caller.expect("ACK", {"id": second.ack})


@client_case(
    "client/frame/octet-by-octet",
    "TCP is a stream of octets: where it is cut into pieces means nothing.",
    level="FACT",
    section=FRAMES,
    covers=of(NEW, "frame/reliable-stream"),
    rests_on=["1.0/frame/null-ends-frame", *of(NEW, "frame/reliable-stream")],
)
def octet_by_octet(client: Client) -> None:
    """Send messages in pieces of one octet, cutting characters and escapes."""
    caller = client.session()
    text = "Gr\u00fc\u00dfe"
    value = "a" if client.version == "1.0" else text + r"\c\\"
    caller.trickle(caller.message(text.encode(), lines=[f"x-a:{value}".encode()]).octets)
    caller.expect_send(text.encode())
    caller.trickle(caller.message(b"0\0\n" * 3).octets + b"\n")
    caller.expect_send(b"0\0\n" * 3)


@client_case(
    "client/frame/many-at-once",
    "One piece may hold many frames, and the last of them not whole.",
    level="FACT",
    section=FRAMES,
    covers=["1.0/bnf/frame-stream", *of(NEW, "frame/reliable-stream", "bnf/stream")],
)
def many_at_once(client: Client) -> None:
    """Send twenty messages in one write, with half of another, and then the rest of that."""
    caller = client.session()
    bodies = [b"message %d" % number for number in range(_MANY)]
    octets = b"".join(caller.message(body).octets for body in [*bodies, b"the last one"])
    with caller.holding():
        caller.send_raw(octets[:-_CUT])
        caller.expect_send(bodies[0])
        caller.send_raw(octets[-_CUT:])
    for body in [*bodies[1:], b"the last one"]:
        caller.expect_send(body)
