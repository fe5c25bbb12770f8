"""Bodies, and the headers of SEND that describe them."""

from __future__ import annotations

from stompkit.conformance.clients.caller import OUT, shown
from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.verdict import FailedError
from stompkit.frames import VERSIONS

#: Larger than any buffer between client and server.
LARGE_BYTES = 1024 * 1024


@client_case(
    "client/body/nul",
    "A body may have NUL octets in it, where content-length says how long it is.",
    level="MUST",
    section="Standard Headers / Header content-length",
    since="1.1",
    covers=of(
        NEW, "content-length/must-read", "content-length/must-with-nulls", "overview/binary-bodies"
    ),
    rests_on=of(NEW, "content-length/must-with-nulls", "content-length/must-read"),
)
def nul(client: Client) -> None:
    r"""Have bodies with NUL in the middle and at the ends sent back; each comes with its length."""
    caller = client.session()
    for body in (b"a\0b", b"\0", b"\0\nMESSAGE\n\n\0\0"):
        caller.deliver(body)
        frame = caller.expect("SEND")
        if "content-length" not in frame.headers:
            raise FailedError("SEND with NUL in its body has no content-length")
        if frame.body != body:
            raise FailedError(f"the client sent {shown(frame.body)}, not {shown(body)}")


@client_case(
    "client/body/nul",
    "In 1.0 as well content-length says how long a body is, whatever is in it.",
    level="SHOULD",
    section="MESSAGE",
    versions=["1.0"],
    covers=["1.0/message/content-length-octets", "1.0/send/content-length-is-byte-count"],
)
def old_nul(client: Client) -> None:
    """Have a body with NUL in the middle sent back on 1.0."""
    client.session().echo(b"a\0b")


@client_case(
    "client/body/binary",
    "A body may be made of any octets.",
    level="FACT",
    section="Overview / Protocol Overview",
    covers=of(NEW, "overview/binary-bodies", "content-type/absent-is-blob"),
    rests_on=["1.0/frame/null-ends-frame", *of(NEW, "overview/binary-bodies", "bnf/frame")],
)
def binary(client: Client) -> None:
    """Have a body of all octets but NUL sent back, without a content-type."""
    client.session().echo(bytes(range(1, 256)))


@client_case(
    "client/body/without-length",
    "A body without content-length ends at the first NUL.",
    level="FACT",
    section="STOMP Frames",
    covers=[
        "1.0/message/null-ends-without-content-length",
        *of(NEW, "frame/null-terminator", "bnf/frame"),
    ],
)
def without_length(client: Client) -> None:
    """Deliver two messages without content-length; both are sent back."""
    caller = client.session()
    for body in (b"first\nline", b"second"):
        caller.echo(body, length=False)


@client_case(
    "client/body/length-before",
    "The content-length of a message counts for its body only, not for messages after it.",
    level="FACT",
    section="STOMP Frames",
    covers=["1.0/message/null-ends-without-content-length", *of(NEW, "frame/null-terminator")],
)
def length_before(client: Client) -> None:
    """Deliver a message with content-length, then shorter and longer ones without it."""
    caller = client.session()
    caller.echo(b"twelve bytes")
    for body in (b"short", b"long" * 9):
        caller.echo(body, length=False)


@client_case(
    "client/body/binary-without-length",
    "A body without content-type is binary, also where there is no content-length.",
    level="SHOULD",
    section="Standard Headers / Header content-type",
    since="1.1",
    covers=of(NEW, "content-type/absent-is-blob"),
)
def binary_without_length(client: Client) -> None:
    """Have a body of all octets but NUL sent back that has neither header."""
    client.session().echo(bytes(range(1, 256)), length=False)


@client_case(
    "client/body/empty",
    "A message may have no body.",
    level="FACT",
    section="STOMP Frames",
    covers=["1.0/bnf/body-optional", *of(NEW, "bnf/frame")],
)
def empty(client: Client) -> None:
    """Deliver messages without a body, with content-length 0 and without; none is lost."""
    caller = client.session()
    caller.echo(b"")
    caller.echo(b"", length=False)
    caller.echo(b"after them")


@client_case(
    "client/body/unchanged",
    "A body is what it is, be it a line end or something that a language takes for nothing.",
    level="FACT",
    section="STOMP Frames",
    covers=["1.0/frame/null-ends-frame", *of(NEW, "frame/blank-line")],
)
def unchanged(client: Client) -> None:
    """Have line ends, blanks, ``0``, escapes, markup and a byte order mark sent back."""
    caller = client.session()
    for body in (b"\n", b"\n\nline\n\n", b" ", b"0", b"\r\n", "\ufeffhello".encode()):
        caller.echo(body)
    for body in (rb"a\nb\\c\cd", b"<&amp;>", b"007"):
        caller.echo(body)


@client_case(
    "client/body/charset",
    "A text whose content-type names a charset is sent on in that.",
    level="SHOULD",
    section="Standard Headers / Header content-type",
    since="1.1",
    covers=of(NEW, "content-type/charset-for-other-encodings"),
)
def charset(client: Client) -> None:
    """Have a text in ISO 8859-1 sent back; its octets and its content-type are the same."""
    wanted = "text/plain;charset=iso-8859-1"
    body = "Gr\u00fc\u00dfe".encode("latin-1")
    frame = client.session().echo(body, {"content-type": wanted})
    value = frame.headers.get("content-type")
    client.should(value in (None, wanted), f"content-type is {value!r}, not {wanted!r}")


@client_case(
    "client/body/large",
    "A client takes large messages; how large is left open.",
    level="SHOULD",
    section="Size Limits",
    covers=of(NEW, "conformance/limits-may"),
)
def large(client: Client) -> None:
    """Have a body of 1 MiB sent back."""
    caller = client.session()
    block = bytes(range(256)) * (LARGE_BYTES // 256)
    caller.echo(block)


@client_case(
    "client/send/destination",
    "SEND names the destination.",
    level="MUST",
    section="SEND",
    covers=of(VERSIONS, "send/destination-required"),
)
def destination(client: Client) -> None:
    """Look at the destination of SEND; it is the one that the client was told."""
    value = client.session().echo(b"hello").headers.get("destination")
    assert value == OUT, f"destination is {value!r}, not {OUT!r}"


@client_case(
    "client/send/length-in-octets",
    "content-length is the number of octets of the body, not of characters.",
    level="FACT",
    section="Standard Headers / Header content-length",
    covers=["1.0/send/content-length-is-byte-count", *of(NEW, "content-length/is-octet-count")],
)
def length_in_octets(client: Client) -> None:
    """Have a text that is not ASCII sent back; a content-length, if there is one, is right."""
    text = "Gr\u00fc\u00dfe, \u4e16\u754c \U0001f680".encode()
    caller = client.session()
    caller.deliver(text, {"content-type": "text/plain;charset=utf-8"})
    frame = caller.expect("SEND")
    length = frame.headers.get("content-length", str(len(text)))
    assert length == str(len(text)), f"content-length is {length} for {len(text)} octets"
    assert frame.body == text, f"the client sent {shown(frame.body)}, not {shown(text)}"


@client_case(
    "client/send/content-length",
    "A SEND with a body ought to say its length.",
    level="SHOULD",
    section="SEND",
    covers=[
        "1.0/send/content-length-recommended",
        *of(NEW, "send/content-length-should"),
        "1.1/content-length/should-with-body",
        "1.2/content-length/should-with-body",
    ],
)
def content_length(client: Client) -> None:
    """Look for the header content-length of SEND."""
    headers = client.session().echo(b"hello").headers
    assert "content-length" in headers, "SEND has no content-length"


@client_case(
    "client/send/content-type",
    "A SEND with a body ought to say what it is.",
    level="SHOULD",
    section="SEND",
    since="1.1",
    covers=of(NEW, "send/content-type-should", "content-type/should-with-body"),
)
def content_type(client: Client) -> None:
    """Have a message of some content-type sent back; SEND has the same."""
    wanted = "application/json;charset=utf-8"
    headers = client.session().echo(b"{}", {"content-type": wanted}).headers
    if "content-type" not in headers:
        raise FailedError("SEND has no content-type")
    value = headers["content-type"]
    assert value == wanted, f"content-type is {value!r}, not {wanted!r}"
