"""Subscriptions, and the headers of acknowledgements."""

from __future__ import annotations

from stompkit.conformance.clients.caller import IN, Caller, Message, shown
from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.peer import raw_value
from stompkit.frames import VERSIONS, escape

OTHER = "/queue/other"
ODD = r"/queue/Some one:a\b"


@client_case(
    "client/subscribe/destination",
    "SUBSCRIBE names the destination.",
    level="MUST",
    section="SUBSCRIBE",
    covers=of(VERSIONS, "subscribe/destination-required"),
)
def destination(client: Client) -> None:
    """Look at the destination of SUBSCRIBE; it is the one that the client was told."""
    caller = client.session()
    assert caller.subscribe is not None
    value = caller.subscribe.headers.get("destination")
    assert value == IN, f"destination is {value!r}, not {IN!r}"


@client_case(
    "client/subscribe/id",
    "From 1.1 on SUBSCRIBE has an id.",
    level="MUST",
    section="SUBSCRIBE / SUBSCRIBE id Header",
    versions=NEW,
    covers=of(NEW, "subscribe/id-required"),
)
def subscription_id(client: Client) -> None:
    """Look for the header id of SUBSCRIBE."""
    caller = client.session()
    assert caller.subscribe is not None
    assert caller.subscribe.headers.get("id"), "SUBSCRIBE has no id"


@client_case(
    "client/subscribe/ids-unique",
    "Subscriptions of one connection have different ids, by which their messages are told apart.",
    level="MUST",
    section="SUBSCRIBE / SUBSCRIBE id Header",
    since="1.1",
    covers=of(NEW, "subscribe/id-unique"),
)
def ids_unique(client: Client) -> None:
    """Have the client subscribe to another queue; the ids differ, and it gets both's messages."""
    caller = client.session()
    caller.deliver(f"subscribe {OTHER}".encode())
    other = caller.expect("SUBSCRIBE", {"destination": OTHER}).headers.get("id")
    assert caller.subscribe is not None
    first = caller.subscribe.headers.get("id")
    assert other is not None and other != first, f"the ids are {first!r} and {other!r}"
    caller.echo(b"other", {"destination": OTHER, "subscription": other})
    caller.echo(b"first")


@client_case(
    "client/subscribe/ack-mode",
    "The header ack of SUBSCRIBE says which mode the client wants.",
    level="FACT",
    section="SUBSCRIBE / SUBSCRIBE ack Header",
    covers=[
        "1.0/subscribe/ack-valid-values",
        *of(NEW, "subscribe/ack-controls-mode"),
        *of(NEW, "ack-mode/values"),
    ],
    rests_on=["1.0/subscribe/ack-valid-values", *of(NEW, "subscribe/ack-controls-mode")],
)
def ack_mode(client: Client) -> None:
    """Look at the header ack: client-individual, or client in 1.0, as the client was told."""
    caller = client.session()
    assert caller.subscribe is not None
    value = caller.subscribe.headers.get("ack")
    wanted = "client" if client.version == "1.0" else "client-individual"
    assert value == wanted, f"ack is {value!r}, not {wanted!r}"


@client_case(
    "client/subscribe/ack-mode",
    "1.0 has the modes auto and client only.",
    level="FACT",
    section="SUBSCRIBE",
    versions=["1.0"],
    covers=["1.0/subscribe/ack-valid-values"],
)
def old_ack_mode(client: Client) -> None:
    """Look at the header ack on 1.0; it is client, as the client was told."""
    caller = client.session()
    assert caller.subscribe is not None
    value = caller.subscribe.headers.get("ack")
    assert value == "client", f"ack is {value!r}, not 'client'"


@client_case(
    "client/subscribe/same-destination",
    "Two subscriptions to one destination have different ids as well.",
    level="MUST",
    section="SUBSCRIBE / SUBSCRIBE id Header",
    since="1.1",
    covers=of(NEW, "subscribe/id-unique"),
)
def same_destination(client: Client) -> None:
    """Have the client subscribe to its queue once more; the ids differ."""
    caller = client.session()
    caller.deliver(f"subscribe {IN}".encode())
    again = caller.expect("SUBSCRIBE", {"destination": IN}).headers.get("id")
    assert caller.subscribe is not None
    first = caller.subscribe.headers.get("id")
    assert again is not None and again != first, f"the ids are {first!r} and {again!r}"


@client_case(
    "client/subscribe/escapes",
    "A destination is a header as any other: escaped, and else as it was given.",
    level="MUST",
    section="Value Encoding",
    since="1.1",
    covers=of(
        NEW,
        "encoding/escape-outside-connect",
        "encoding/encode-reverse",
        "encoding/never-trim-pad",
    ),
)
def subscribe_escapes(client: Client) -> None:
    r"""Have the client subscribe to a queue with capitals, a blank, ``:`` and ``\`` in its name."""
    caller = client.session()
    caller.deliver(f"subscribe {ODD}".encode())
    frame = caller.expect("SUBSCRIBE")
    written = raw_value(frame, "destination", caller.version)
    assert written == escape(ODD, caller.version).encode(), f"destination is {shown(written)}"


@client_case(
    "client/unsubscribe/names-subscription",
    "UNSUBSCRIBE names the subscription: by its id; in 1.0 the destination will do.",
    level="MUST",
    section="UNSUBSCRIBE",
    versions=VERSIONS,
    covers=[
        "1.0/unsubscribe/destination-or-id-required",
        *of(NEW, "unsubscribe/id-required"),
        *of(NEW, "unsubscribe/id-matches-existing"),
    ],
)
def unsubscribe(client: Client) -> None:
    """Have the client unsubscribe; its frame has the id of SUBSCRIBE."""
    caller = client.session()
    assert caller.subscribe is not None
    caller.deliver(b"quit")
    headers = caller.expect("UNSUBSCRIBE").headers
    named = [caller.subscribe.headers.get(name) for name in ("id", "destination")]
    if client.version == "1.0":
        given = [headers.get("id"), headers.get("destination")]
        is_named = any(g is not None and g == n for g, n in zip(given, named, strict=True))
    else:
        is_named = named[0] is not None and headers.get("id") == named[0]
    assert is_named, f"UNSUBSCRIBE has {headers}, the subscription is {named[0]!r}"


@client_case(
    "client/unsubscribe/once",
    "UNSUBSCRIBE is about a subscription that there is, which it ends.",
    level="MUST",
    section="UNSUBSCRIBE",
    since="1.1",
    covers=of(NEW, "unsubscribe/id-matches-existing"),
)
def unsubscribe_once(client: Client) -> None:
    """Have the client unsubscribe and disconnect; no id comes in a second UNSUBSCRIBE."""
    caller = client.session()
    caller.deliver(b"quit")
    caller.expect_close()
    ids = [f.headers.get("id") for f in caller.frames if f.command == "UNSUBSCRIBE"]
    assert len(set(ids)) == len(ids), f"UNSUBSCRIBE names {ids}"


def _check(caller: Caller, command: str, message: Message) -> None:
    """Wait for an acknowledgement, and check that it identifies the message by version.

    The values must be written as in MESSAGE, including escapes.
    """
    wanted = {"message-id": message.message_id}
    if caller.version == "1.1" and message.subscription is not None:
        wanted["subscription"] = message.subscription
    elif caller.version == "1.2":
        wanted = {"id": message.ack}
    frame = caller.expect(command)
    for name, value in wanted.items():
        given = frame.headers.get(name)
        assert given == value, f"{command} has {name} {given!r}, not {value!r}"
        written = raw_value(frame, name, caller.version)
        assert written == escape(value, caller.version).encode(), (
            f"{command} has {name} as {shown(written)}"
        )


@client_case(
    "client/ack/names-message",
    "ACK names the message: by message-id in 1.0, by message-id and subscription in 1.1, and in"
    " 1.2 by an id that is the header ack of the MESSAGE.",
    level="MUST",
    section="ACK",
    versions=VERSIONS,
    covers=[
        "1.0/ack/message-id-required",
        "1.0/ack/message-id-matches",
        "1.1/ack/message-id-required",
        "1.1/ack/message-id-matches",
        "1.1/ack/subscription-required",
        "1.1/ack/subscription-matches",
        "1.1/ack-mode/client-must-ack",
        "1.2/ack/id-required",
        "1.2/ack/id-matches-ack-header",
        "1.2/ack-mode/client-must-ack",
        "1.2/overview/ack-by-own-header",
        "1.2/headers/ack-nack",
    ],
    rests_on=[
        "1.0/ack/message-id-required",
        "1.1/ack/message-id-required",
        "1.1/ack/subscription-required",
        "1.2/ack/id-required",
    ],
)
def ack(client: Client) -> None:
    """Deliver two messages, one after the other; each gets an ACK that names it."""
    caller = client.session()
    for body in (b"first", b"second"):
        message = caller.deliver(body)
        caller.expect_send(body)
        _check(caller, "ACK", message)


@client_case(
    "client/ack/names-subscription",
    "In 1.1 ACK and NACK name the subscription that the message has come by.",
    level="MUST",
    section="ACK",
    versions=["1.1"],
    covers=[
        "1.1/ack/subscription-required",
        "1.1/ack/subscription-matches",
        "1.1/nack/headers-like-ack",
    ],
)
def ack_subscription(client: Client) -> None:
    """Have the client subscribe to another queue; ACK and NACK name each message's subscription."""
    caller = client.session()
    _check(caller, "ACK", caller.deliver(f"subscribe {OTHER}".encode()))
    other = caller.expect("SUBSCRIBE", {"destination": OTHER}).headers.get("id", "")
    theirs = {"destination": OTHER, "subscription": other}
    _check(caller, "ACK", caller.deliver(b"x", theirs))
    _check(caller, "ACK", caller.deliver(b"y"))
    _check(caller, "NACK", caller.deliver(b"nack", theirs))


@client_case(
    "client/ack/each-message",
    "Of messages that come at once each one is acknowledged by its own name.",
    level="MUST",
    section="ACK",
    since="1.1",
    covers=of(NEW, "ack-mode/client-must-ack"),
)
def ack_each(client: Client) -> None:
    """Deliver three messages in one write; each of them gets an ACK."""
    caller = client.session()
    messages = [caller.message(b"message %d" % number) for number in range(3)]
    caller.send_raw(b"".join(message.octets for message in messages))
    frames = [caller.expect("ACK") for _ in messages]
    name, wanted = "id", [message.ack for message in messages]
    if client.version == "1.1":
        name, wanted = "message-id", [message.message_id for message in messages]
    given = [frame.headers.get(name, "") for frame in frames]
    assert sorted(given) == wanted, f"the ACKs name {given}, the messages are {wanted}"


@client_case(
    "client/nack/none",
    "1.0 has no NACK.",
    level="FACT",
    section="Augmented BNF",
    versions=["1.0"],
    covers=["1.0/bnf/client-command-set"],
)
def no_nack(client: Client) -> None:
    """Have the client refuse a message on 1.0; whatever it does, it sends no NACK."""
    caller = client.session()
    caller.deliver(b"nack")
    caller.collect(client.quiet_s)
    assert all(frame.command != "NACK" for frame in caller.frames), "NACK comes on 1.0"


@client_case(
    "client/nack/names-message",
    "NACK names the message as ACK does.",
    level="MUST",
    section="NACK",
    versions=NEW,
    covers=of(NEW, "nack/headers-like-ack"),
)
def nack(client: Client) -> None:
    """Deliver a message that the client is to refuse; it gets a NACK that names it."""
    caller = client.session()
    _check(caller, "NACK", caller.deliver(b"nack"))


@client_case(
    "client/nack/no-ack",
    "A message that is refused is not acknowledged besides.",
    level="FACT",
    section="NACK",
    since="1.1",
    covers=["1.2/ack-mode/client-nack-unprocessed"],
    rests_on=of(NEW, "nack/opposite-of-ack"),
)
def nack_alone(client: Client) -> None:
    """Deliver a message that the client is to refuse, and another; only the latter gets an ACK."""
    caller = client.session()
    _check(caller, "NACK", caller.deliver(b"nack"))
    _check(caller, "ACK", caller.deliver(b"hello"))


@client_case(
    "client/ack/escapes",
    "What an ACK names is escaped again as it was in MESSAGE; in 1.0 it never was.",
    level="MUST",
    section="ACK",
    versions=VERSIONS,
    covers=[
        "1.0/ack/message-id-matches",
        "1.0/bnf/header-value-may-hold-colon",
        "1.1/ack/message-id-matches",
        "1.1/encoding/encode-reverse",
        "1.2/ack/id-matches-ack-header",
        "1.2/encoding/encode-reverse",
    ],
)
def ack_escapes(client: Client) -> None:
    r"""Deliver messages with ``:``, ``\`` and zeros in message-id and ack; each ACK has the same.

    From 1.1 on one has blanks around both, which are part of a value there.
    """
    caller = client.session()
    names = [(r"ID:a\b:1", r"ID:a\b:2"), ("007", "008")]
    if client.version != "1.0":
        names.append((" 1 ", " 2 "))
    for message_id, ack in names:
        message = caller.deliver(b"hello", {"message-id": message_id, "ack": ack})
        caller.expect_send(b"hello")
        _check(caller, "ACK", message)
