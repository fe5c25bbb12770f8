"""The start of a session."""

from __future__ import annotations

import re

from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.verdict import FailedError, UnsupportedError

#: The credentials of the client program, which must arrive unchanged.
LOGIN = "guest"
PASSCODE = r"gu:e\st"

CONNECT = "CONNECT or STOMP Frame"
_VERSIONS = re.compile(r"\d+\.\d+(,\d+\.\d+)*")


@client_case(
    "client/connect/first-frame",
    "The first thing that a client says is CONNECT (from 1.1 on it may be STOMP).",
    level="FACT",
    section="Connecting",
    covers=["1.0/connect/login-passcode", *of(NEW, "connect/client-initiates")],
)
def first_frame(client: Client) -> None:
    """Take the connection; the first frame is CONNECT or STOMP, and nothing is wrong with it."""
    caller = client.accept()
    caller.expect_connect()
    assert not caller.violation, f"before anything else it sends {caller.violation}"


@client_case(
    "client/connect/uses-connect",
    "Clients ought to go on using CONNECT, which servers of 1.0 know, too.",
    level="SHOULD",
    section=CONNECT,
    covers=of(NEW, "connect/client-uses-connect"),
)
def uses_connect(client: Client) -> None:
    """Take the connection; the command is CONNECT, not STOMP."""
    command = client.accept().expect_connect().command
    assert command == "CONNECT", f"the session begins with {command}"


@client_case(
    "client/connect/host",
    "From 1.1 on CONNECT has a header host, which ought to be the name that was connected to.",
    level="MUST",
    section=CONNECT,
    since="1.1",
    covers=of(NEW, "connect/host-required", "connect/host-value"),
    rests_on=of(NEW, "connect/host-required"),
)
def host(client: Client) -> None:
    """Look for the header host; the program was told to use the host that it connects to."""
    caller = client.accept()
    connect = caller.expect_connect()
    client.choose(caller)
    value = connect.headers.get("host")
    assert value is not None, "CONNECT has no header host"
    if client.host is not None:
        client.should(value == client.host, f"host is {value!r}, not {client.host!r}")


@client_case(
    "client/connect/login",
    "CONNECT has the login and the passcode that the client was told to use.",
    level="SHOULD",
    section=CONNECT,
    covers=[
        "1.0/connect/login-passcode",
        *of(NEW, "connect/login-optional", "connect/passcode-optional"),
    ],
)
def login(client: Client) -> None:
    """Look for the headers login and passcode."""
    headers = client.accept().expect_connect().headers
    assert headers.get("login") == LOGIN, f"login is {headers.get('login')!r}, not {LOGIN!r}"
    assert "passcode" in headers, "CONNECT has no header passcode"


@client_case(
    "client/connect/unescaped",
    "The headers of CONNECT are not escaped, so that servers of 1.0 understand them.",
    level="FACT",
    section="Value Encoding",
    covers=[
        "1.0/bnf/no-escaping",
        "1.0/bnf/header-value-may-hold-colon",
        *of(NEW, "encoding/no-escape-in-connect"),
    ],
)
def connect_unescaped(client: Client) -> None:
    """Look at the passcode, which has a colon and a backslash in it; both come as they are."""
    passcode = client.accept().expect_connect().headers.get("passcode")
    assert passcode == PASSCODE, f"the passcode {PASSCODE} comes as {passcode}"


@client_case(
    "client/connect/waits-for-connected",
    "A client sends nothing else before CONNECTED has told it the version to write by.",
    level="SHOULD",
    section="Connecting",
    covers=["1.0/commands/allowed-after-connect"],
)
def waits_for_connected(client: Client) -> None:
    """Leave CONNECT unanswered for a while; no frame follows it. Then answer it, and one does."""
    caller = client.accept()
    caller.expect_connect()
    early = caller.collect(client.quiet_s)
    assert not early, f"{early[0].command} comes before CONNECTED was sent"
    caller.welcome(client.choose(caller))
    caller.expect("SUBSCRIBE")


@client_case(
    "client/connect/no-receipt",
    "Any frame but CONNECT may ask for a receipt.",
    level="FACT",
    section="Standard Headers / Header receipt",
    covers=[
        "1.0/receipt/any-client-frame-but-connect",
        *of(NEW, "receipt/any-frame-but-connect"),
    ],
)
def no_receipt(client: Client) -> None:
    """Look at CONNECT; it has no header receipt."""
    headers = client.accept().expect_connect().headers
    assert "receipt" not in headers, f"CONNECT asks for the receipt {headers['receipt']!r}"


@client_case(
    "client/connected/bare",
    "CONNECTED need not have a session or a server.",
    level="FACT",
    section="CONNECTED Frame",
    since="1.1",
    rests_on=of(NEW, "connected/session-may", "connected/server-may"),
)
def connected_bare(client: Client) -> None:
    """Send CONNECTED with version and heart-beat only; the session begins."""
    caller = client.accept()
    caller.expect_connect()
    caller.welcome(client.choose(caller), names_session=False)
    caller.expect("SUBSCRIBE")
    caller.echo(b"hello")


@client_case(
    "client/connected/no-headers",
    "A frame need not have headers: CONNECTED of 1.0 may have none at all.",
    level="SHOULD",
    section="Augmented BNF",
    versions=["1.0"],
    covers=["1.0/bnf/header-count-any"],
)
def connected_without_headers(client: Client) -> None:
    """Send CONNECTED without a header; the session begins, on 1.0."""
    caller = client.accept()
    caller.expect_connect()
    version = client.choose(caller)
    caller.welcome(version, heart_beat=None, names_version=False, names_session=False)
    caller.expect("SUBSCRIBE")
    caller.echo(b"hello")


@client_case(
    "client/connected/in-pieces",
    "CONNECTED may arrive in pieces, as any frame.",
    level="FACT",
    section="STOMP Frames",
    covers=of(NEW, "frame/reliable-stream"),
    rests_on=["1.0/frame/null-ends-frame", *of(NEW, "frame/reliable-stream")],
)
def connected_in_pieces(client: Client) -> None:
    """Send CONNECTED in pieces of one octet; the session begins."""
    caller = client.accept()
    caller.expect_connect()
    version = client.choose(caller)
    answers = {"accept-version": f"version:{version}", "heart-beat": "heart-beat:0,0"}
    asked = [line for name, line in answers.items() if name in caller.opening.headers]
    lines = ["CONNECTED", "session:conformance", *asked]
    caller.trickle("\n".join([*lines, "", "\0"]).encode())
    caller.switch(version)
    caller.expect("SUBSCRIBE")
    caller.echo(b"hello")


@client_case(
    "client/connected/unescaped",
    "The headers of CONNECTED are not escaped: a backslash in them is a backslash.",
    level="FACT",
    section="Value Encoding",
    since="1.1",
    covers=of(NEW, "encoding/no-escape-in-connect"),
)
def connected_unescaped(client: Client) -> None:
    """Send CONNECTED with values that would be no escape sequences; the session begins."""
    caller = client.session(lines=[r"server:C:\temp\1.0", "x-path:\\"])
    caller.echo(b"hello")


@client_case(
    "client/negotiation/accept-version-format",
    "accept-version ought to be a list of versions with commas between them, the lowest first.",
    level="SHOULD",
    section="Protocol Negotiation",
    covers=of(
        NEW,
        "connect/accept-version-required",
        "negotiation/accept-version-required",
        "negotiation/accept-version-format",
    ),
)
def accept_version_format(client: Client) -> None:
    """Look at accept-version; a client without one speaks 1.0 only."""
    value = client.accept().expect_connect().headers.get("accept-version")
    if value is None:
        raise UnsupportedError("the client does not offer STOMP 1.1")
    assert _VERSIONS.fullmatch(value), f"accept-version is {value!r}"
    numbers = [tuple(map(int, each.split("."))) for each in value.split(",")]
    assert numbers == sorted(set(numbers)), f"accept-version is {value!r}, not the lowest first"


@client_case(
    "client/negotiation/no-version",
    "CONNECTED without a version comes from a server of 1.0, and 1.0 is what is spoken then.",
    level="FACT",
    section="Protocol Negotiation",
    versions=["1.0"],
    covers=["1.0/bnf/no-escaping", "1.0/ack/message-id-required"],
)
def no_version(client: Client) -> None:
    """Send CONNECTED without version; the client reads headers as 1.0 does, and ACKs so."""
    caller = client.accept()
    caller.expect_connect()
    caller.welcome(client.choose(caller), heart_beat=None, names_version=False)
    caller.expect("SUBSCRIBE")
    caller.expect_read(rb"x-a:a\cb", r"x-a=a\cb")
    message = caller.deliver(b"hello")
    caller.expect_send(b"hello")
    caller.expect("ACK", {"message-id": message.message_id})


@client_case(
    "client/negotiation/not-offered",
    "What a client does about a version that it has not offered is left open.",
    level="MAY",
    section="Protocol Negotiation",
    since="1.1",
)
def not_offered(client: Client) -> None:
    """Choose the version 9.9 in CONNECTED; record whether the client goes on."""
    caller = client.accept()
    caller.expect_connect()
    caller.welcome(client.choose(caller), names_version=False, lines=["version:9.9"])
    try:
        caller.expect("SUBSCRIBE")
    except FailedError:
        if not caller.is_closed_by_target:
            raise
        client.profile("CONNECTED with a version that was not offered", "ends the session")
    else:
        client.profile("CONNECTED with a version that was not offered", "goes on")


@client_case(
    "client/connect/refused",
    "An ERROR in answer to CONNECT is the end of the session that has not begun.",
    level="SHOULD",
    section="Protocol Negotiation",
)
def refused(client: Client) -> None:
    """Answer CONNECT by ERROR and close; the client closes as well, and reports a failure."""
    caller = client.accept()
    caller.expect_connect()
    caller.send(
        "ERROR",
        {"version": "1.0,1.1,1.2", "message": "access refused", "content-type": "text/plain"},
        b"no such user\n",
    )
    client.shut(0)
    caller.finish_sending()
    caller.expect_close()
    late = [frame.command for frame in caller.inbox]
    assert not late, f"{late[0]} comes in a session that was refused"
    client.expect_end(well=False)
