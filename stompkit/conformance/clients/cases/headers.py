"""Headers: escapes, and values that must arrive unchanged."""

from __future__ import annotations

from contextlib import suppress

from stompkit.conformance.clients.caller import Caller
from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.verdict import FailedError, UnsupportedError

ENCODING = "Value Encoding"


@client_case(
    "client/escape/left-alone",
    "1.0 has no escapes: backslashes and colons in values stand for themselves.",
    level="FACT",
    section="Augmented BNF",
    versions=["1.0"],
    covers=["1.0/bnf/no-escaping", "1.0/bnf/header-value-may-hold-colon"],
)
def left_alone(client: Client) -> None:
    """Have the client read and write a value with both on 1.0; it stays as it is."""
    client.session().expect_kept(rb"x-a:1\c2\n3\\4:5", r"x-a=1\c2\n3\\4:5")


@client_case(
    "client/escape/reads",
    r"\c in a header stands for a colon, \n for a line feed, in 1.2 \r for a carriage return.",
    level="MUST",
    section=ENCODING,
    versions=NEW,
    covers=[*of(NEW, "encoding/decode-newline", "encoding/decode-colon"), "1.2/encoding/decode-cr"],
)
def reads(client: Client) -> None:
    """Deliver a header with the sequences, also at its ends; the client sees their meaning."""
    caller = client.session()
    if client.version == "1.2":
        caller.expect_read(rb"x-a:1\c2\n3\r4", "x-a=1:2\n3\r4")
    else:
        caller.expect_read(rb"x-a:1\c2\n3", "x-a=1:2\n3")
    caller.expect_read(rb"x-a:\n1\n", "x-a=\n1\n")


@client_case(
    "client/escape/reads-backslash",
    r"\\ in a header stands for a backslash, and what follows it for itself.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/decode-backslash"),
)
def reads_backslash(client: Client) -> None:
    r"""Deliver a header with ``\\n`` and ``\\c``; each is a backslash and a letter."""
    caller = client.session()
    caller.expect_read(rb"x-a:1\\n2\\c3", r"x-a=1\n2\c3")


@client_case(
    "client/escape/writes",
    "What cannot stand in a header is escaped in it.",
    level="MUST",
    section=ENCODING,
    versions=NEW,
    covers=of(
        NEW,
        "encoding/escape-outside-connect",
        "encoding/encode-reverse",
        "bnf/header-value-chars",
        "bnf/raw-colon-in-value",
        "send/user-headers-may",
    ),
    rests_on=of(NEW, "encoding/escape-outside-connect", "encoding/encode-reverse"),
)
def writes(client: Client) -> None:
    """Have the client send a header with a colon and line ends; look at the line that comes."""
    caller = client.session()
    if client.version == "1.2":
        caller.expect_written("x-a=1:2\n3\r4", rb"x-a:1\c2\n3\r4")
    else:
        caller.expect_written("x-a=1:2\n3", rb"x-a:1\c2\n3")


@client_case(
    "client/escape/writes-backslash",
    "A backslash is escaped as well, or what follows it would mean something else.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/encode-reverse"),
)
def writes_backslash(client: Client) -> None:
    r"""Have the client send a header with a backslash and ``n`` in it; two backslashes come."""
    client.session().expect_written(r"x-a=1\n2", rb"x-a:1\\n2")


@client_case(
    "client/escape/names",
    "Names of headers are escaped as their values are.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/escape-outside-connect", "bnf/header-name-chars"),
)
def names(client: Client) -> None:
    """Have the client read and write a header with a colon and a backslash in its name."""
    client.session().expect_kept(rb"x-\c\\a:1", r"x-:\a=1")


@client_case(
    "client/escape/undefined",
    r"A sequence that is not defined, such as \t, is a fatal error.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/undefined-escape-fatal"),
)
def undefined(client: Client) -> None:
    """Deliver a message with such a sequence; the client does not take it, but ends the session."""
    _refused(client, rb"x-a:1\t2")


@client_case(
    "client/escape/carriage-return",
    r"\r is defined in 1.2; in 1.1 it is a fatal error as any other that is not.",
    level="MUST",
    section=ENCODING,
    versions=["1.1"],
    covers=["1.1/encoding/undefined-escape-fatal"],
)
def undefined_carriage_return(client: Client) -> None:
    """Deliver a message with it on 1.1; the client does not take it, but ends the session."""
    _refused(client, rb"x-a:1\r2")


@client_case(
    "client/escape/capitals",
    r"The sequences are in small letters: \N is not defined.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/undefined-escape-fatal"),
)
def undefined_capitals(client: Client) -> None:
    """Deliver a message with it; the client does not take it, but ends the session."""
    _refused(client, rb"x-a:1\N2")


@client_case(
    "client/escape/unfinished",
    "A backslash that nothing follows is no sequence that is defined.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/undefined-escape-fatal"),
)
def unfinished(client: Client) -> None:
    """Deliver a message with one at the end of a value; the client ends the session."""
    _refused(client, b"x-a:1\\")


def _refused(client: Client, line: bytes) -> None:
    """Deliver a message with an invalid header line; it must end the session."""
    caller = client.session()
    caller.deliver(b"hello", lines=[line])
    try:
        caller.expect("SEND")
    except FailedError:
        if not caller.is_closed_by_target:
            raise FailedError("the client neither takes the message nor ends the session") from None
    else:
        raise FailedError("the client took the message")


@client_case(
    "client/header/utf8",
    "Headers are UTF-8.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/utf8-headers", "utf8/must-support", "overview/default-encoding-utf8"),
    rests_on=of(NEW, "encoding/utf8-headers", "utf8/must-support"),
)
def utf8(client: Client) -> None:
    """Have the client read and write characters of one to four octets, and an accent of its own."""
    text = "Gr\u00fc\u00dfe, \u4e16\u754c \U0001f680 e\u0301"
    client.session().expect_kept(f"x-a:{text}".encode(), f"x-a={text}")


@client_case(
    "client/header/spaces",
    "Spaces are part of a header: none is taken away or added.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/never-trim-pad"),
)
def spaces(client: Client) -> None:
    """Have the client read and write a value with spaces around it."""
    client.session().expect_kept(b"x-a:  two  ", "x-a=  two  ")


@client_case(
    "client/header/empty",
    "The value of a header may be empty.",
    level="FACT",
    section="Augmented BNF",
    since="1.1",
    covers=of(NEW, "bnf/empty-value"),
)
def empty(client: Client) -> None:
    """Have the client read and write a header without a value."""
    client.session().expect_kept(b"x-a:", "x-a=")


@client_case(
    "client/header/repeated",
    "Of repeated headers the first is the one that counts.",
    level="SHOULD",
    section="Repeated Header Entries",
    since="1.1",
    covers=of(NEW, "repeated/first-wins-client", "repeated/later-ignored"),
)
def repeated(client: Client) -> None:
    """Deliver a header twice; the client sees the first value."""
    client.session().expect_read(b"x-a:first\nx-a:second", "x-a=first")


@client_case(
    "client/header/unknown",
    "A client takes frames with headers that it has never heard of.",
    level="FACT",
    section="Frames and Headers",
    covers=["1.0/bnf/header-count-any", "1.2/headers/user-headers-may"],
    rests_on=["1.0/bnf/header-count-any", *of(NEW, "message/server-headers-may")],
)
def unknown(client: Client) -> None:
    """Add some headers to CONNECTED and to MESSAGE; the session goes on as ever."""
    caller = client.session(lines=["client-limits:none", "user-name:somebody"])
    lines = [b"persistent:true", b"priority:4", *(b"extra-%d:%d" % (n, n) for n in range(6))]
    caller.echo(b"hello", lines=lines)
    caller.expect("ACK")


@client_case(
    "client/header/case",
    "Names of headers are case sensitive.",
    level="FACT",
    section="STOMP Frames",
    covers=of(NEW, "frame/case-sensitive"),
)
def case_sensitive(client: Client) -> None:
    """Deliver a message that has ``Content-Length`` and others besides; they mean nothing."""
    caller = client.session()
    lines = [b"Content-Length:1", b"Message-Id:wrong", b"Subscription:wrong", b"Ack:wrong"]
    message = caller.deliver(b"hello", lines=lines)
    caller.expect_send(b"hello")
    if client.version == "1.2":
        caller.expect("ACK", {"id": message.ack})
    else:
        caller.expect("ACK", {"message-id": message.message_id})


@client_case(
    "client/header/letter-case",
    "Names and values of headers keep their capitals.",
    level="FACT",
    section="STOMP Frames",
    since="1.1",
    covers=of(NEW, "frame/case-sensitive"),
    rests_on=of(NEW, "frame/case-sensitive", "send/user-headers-may"),
)
def letter_case(client: Client) -> None:
    """Have the client read and write a header with capitals in its name and value."""
    client.session().expect_kept(b"x-Mixed-Case:Some Value", "x-Mixed-Case=Some Value")


@client_case(
    "client/header/values",
    "A value is read and written character by character, whatever it looks like.",
    level="FACT",
    section="STOMP Frames",
    since="1.1",
    covers=["1.2/headers/user-headers-may"],
    rests_on=of(NEW, "bnf/header-value-chars"),
)
def values(client: Client) -> None:
    """Have the client read and write numbers, quotes, percent signs and markup."""
    caller = client.session()
    for value in ("007", "1.50", '"quoted"', "100%41%20", "a+b", "<&amp;>", "null"):
        caller.expect_kept(f"x-a:{value}".encode(), f"x-a={value}")


@client_case(
    "client/header/long",
    "A long value of a header is read and written whole.",
    level="FACT",
    section="STOMP Frames",
    since="1.1",
    covers=["1.2/headers/user-headers-may"],
    rests_on=of(NEW, "bnf/header-value-chars"),
)
def long_value(client: Client) -> None:
    """Have the client read and write a value of 3,000 characters, unless it refuses that."""
    value = "0123456789" * 300
    caller = client.session()
    try:
        caller.expect_kept(f"x-a:{value}".encode(), f"x-a={value}")
    except FailedError:
        if _has_refused(caller):
            raise UnsupportedError("the client refuses a value of 3,000 characters") from None
        raise


@client_case(
    "client/header/many",
    "A message may have many headers, and none of them is lost.",
    level="FACT",
    section="STOMP Frames",
    since="1.1",
    covers=["1.2/headers/user-headers-may", "1.2/headers/user-headers-part-of-message"],
    rests_on=of(NEW, "bnf/frame"),
)
def many(client: Client) -> None:
    """Have a message with forty headers sent back, unless the client refuses so many."""
    caller = client.session()
    sent = {f"x-{number}": str(number) for number in range(40)}
    try:
        frame = caller.echo(b"hello", sent)
    except FailedError:
        if _has_refused(caller):
            raise UnsupportedError("the client refuses a message with forty headers") from None
        raise
    lost = [name for name, value in sent.items() if frame.headers.get(name) != value]
    assert not lost, f"{len(lost)} of forty headers are lost, the first of them {lost[0]}"


def _has_refused(caller: Caller) -> bool:
    """Return True if the client has ended the session instead of answering, as limits allow."""
    return caller.is_closed_by_target and not any(f.command == "SEND" for f in caller.frames)


@client_case(
    "client/header/blanks-in-names",
    "Blanks are part of the names of headers, too.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/never-trim-pad"),
    rests_on=of(NEW, "encoding/never-trim-pad", "bnf/header-name-chars"),
)
def blanks_in_names(client: Client) -> None:
    """Have the client read and write a header with blanks inside its name and behind it."""
    client.session().expect_kept(b"x-two words :1", "x-two words =1")


@client_case(
    "client/header/blanks-inside",
    "Tabs and several blanks inside a value stay as they are.",
    level="MUST",
    section=ENCODING,
    since="1.1",
    covers=of(NEW, "encoding/never-trim-pad"),
    rests_on=of(NEW, "encoding/never-trim-pad", "bnf/header-value-chars"),
)
def blanks_inside(client: Client) -> None:
    """Have the client read and write a value with a tab and three blanks inside."""
    client.session().expect_kept(b"x-a:1\t2   3", "x-a=1\t2   3")


@client_case(
    "client/header/carriage-return",
    "In 1.1 lines end in LF, and a carriage return is an octet like any other.",
    level="FACT",
    section="STOMP Frames",
    versions=["1.1"],
    covers=["1.1/frame/eol-lf-only"],
)
def carriage_return(client: Client) -> None:
    """Have the client read and write a value with a carriage return in the middle."""
    client.session().expect_kept(b"x-a:1\r2", "x-a=1\r2")


@client_case(
    "client/header/carriage-return-last",
    "In 1.1 a carriage return before the line feed is the end of the value, not of the line.",
    level="FACT",
    section="STOMP Frames",
    versions=["1.1"],
    covers=["1.1/frame/eol-lf-only"],
)
def carriage_return_last(client: Client) -> None:
    """Deliver a value that ends in a carriage return; the client sees it."""
    client.session().expect_read(b"x-a:1\r", "x-a=1\r")


@client_case(
    "client/header/line-end",
    "1.0 has no way to write a line end in a header: what follows it must not become another.",
    level="FACT",
    section="Augmented BNF",
    versions=["1.0"],
    covers=["1.0/bnf/no-escaping", "1.0/frame/header-key-value-newline"],
)
def line_end(client: Client) -> None:
    """Have the client send a value with a line end on 1.0; no header comes from behind it."""
    caller = client.session()
    caller.deliver(b"header x-a=1\nx-b:2")
    caller.deliver(b"hello")
    with suppress(FailedError):  # it may end the session instead
        while caller.expect("SEND").body != b"hello":
            pass
    made = [frame for frame in caller.frames if "x-b" in frame.headers]
    assert not made, "a line end in a value has made another header"
