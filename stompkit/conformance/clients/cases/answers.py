"""Frames at unusual times, and receipts."""

from __future__ import annotations

from collections import Counter

from stompkit.conformance.clients.case import NEW, client_case, of
from stompkit.conformance.clients.client import Client
from stompkit.conformance.verdict import UnsupportedError
from stompkit.frames import VERSIONS

RECEIPT = "Standard Headers / Header receipt"


@client_case(
    "client/message/before-receipt",
    "Messages may come as soon as the server knows of the subscription, before any RECEIPT.",
    level="FACT",
    section="SUBSCRIBE",
    covers=["1.1/receipt/any-frame-but-connect", "1.2/receipt/any-frame-but-connect"],
    rests_on=of(VERSIONS, "subscribe/delivered-as-message"),
)
def before_receipt(client: Client) -> None:
    """Deliver a message between SUBSCRIBE and its RECEIPT, if it asks for one."""
    caller = client.accept()
    caller.withholds.add("SUBSCRIBE")
    caller.expect_connect()
    caller.welcome(client.choose(caller))
    subscribe = caller.expect("SUBSCRIBE")
    caller.deliver(b"early")
    caller.receipt(subscribe)
    caller.expect_send(b"early")
    caller.echo(b"later")


@client_case(
    "client/message/unknown-subscription",
    "A message for a subscription that the client does not know does it no harm.",
    level="SHOULD",
    section="Server Frames / MESSAGE",
    since="1.1",
)
def unknown_subscription(client: Client) -> None:
    """Deliver such a message, then another one; the latter is dealt with as ever."""
    caller = client.session()
    caller.deliver(b"lost", {"subscription": "nobody-knows", "destination": "/queue/elsewhere"})
    caller.deliver(b"hello")
    frame = caller.expect("SEND")
    if frame.body == b"lost":
        frame = caller.expect("SEND")
    assert frame.body == b"hello", f"the client sent {frame.body!r}"


@client_case(
    "client/message/by-subscription",
    "It is the id of the subscription that says which one a message has come by.",
    level="FACT",
    section="SUBSCRIBE / SUBSCRIBE id Header",
    since="1.1",
    covers=of(NEW, "subscribe/id-relates-frames"),
)
def by_subscription(client: Client) -> None:
    """Deliver a message whose destination is called otherwise; it is dealt with as ever."""
    caller = client.session()
    caller.echo(b"hello", {"destination": "/queue/in.of.another.name"})
    caller.expect("ACK")


@client_case(
    "client/message/after-unsubscribe",
    "Messages that were on their way when the client unsubscribed do it no harm.",
    level="SHOULD",
    section="UNSUBSCRIBE",
)
def after_unsubscribe(client: Client) -> None:
    """Deliver a message after UNSUBSCRIBE; the client disconnects and ends as ever."""
    caller = client.session()
    caller.withholds.add("UNSUBSCRIBE")
    caller.deliver(b"quit")
    unsubscribe = caller.expect("UNSUBSCRIBE")
    caller.deliver(b"too late")
    caller.receipt(unsubscribe)
    caller.expect("DISCONNECT")
    caller.expect_close()
    client.expect_end()


@client_case(
    "client/receipt/unexpected",
    "A RECEIPT that the client has not asked for does it no harm.",
    level="SHOULD",
    section="Server Frames / RECEIPT",
)
def unexpected(client: Client) -> None:
    """Send such a RECEIPT, with a header that nobody knows; the session goes on as ever."""
    caller = client.session()
    caller.send("RECEIPT", {"receipt-id": "never-asked-for", "extra": "1"})
    caller.echo(b"hello")


@client_case(
    "client/receipt/unique",
    "A receipt that is asked for twice cannot tell which frame it is for.",
    level="SHOULD",
    section=RECEIPT,
    covers=["1.0/receipt/any-client-frame-but-connect", "1.0/receipt/arbitrary-value"],
)
def unique(client: Client) -> None:
    """Have the client send several frames; the receipts that they ask for differ."""
    caller = client.session()
    for number in range(3):
        caller.echo(b"message %d" % number)
        # The receipt must arrive before the client closes: otherwise the connection would be reset.
        caller.settle()
    caller.deliver(b"quit")
    caller.expect("DISCONNECT")
    asked = Counter(f.headers["receipt"] for f in caller.frames if "receipt" in f.headers)
    if len(asked) == 0:
        raise UnsupportedError("the client asks for no receipts")
    twice = [receipt for receipt, number in asked.items() if number > 1]
    assert not twice, f"receipt {twice[0]!r} is asked for more than once"
