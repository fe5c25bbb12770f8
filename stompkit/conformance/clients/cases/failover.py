"""Clients that fail over to another server."""

from __future__ import annotations

from stompkit.conformance.clients.case import client_case
from stompkit.conformance.clients.client import Client

NONE = "none: what users expect of a client that has several addresses"


@client_case(
    "client/failover/connection-lost",
    "A client that has lost its server goes on with another, and subscribes again.",
    level="SHOULD",
    section=NONE,
    nodes=2,
)
def connection_lost(client: Client) -> None:
    """Reset the connection, and take no other there; the client goes on at the second address."""
    first = client.session()
    first.echo(b"first")
    first.settle()
    client.shut(0)
    first.reset()
    second = client.session(node=1)
    second.deliver(b"second")
    frame = second.expect("SEND")
    if frame.body == b"first":
        # The client cannot know that the message had arrived.
        frame = second.expect("SEND")
    assert frame.body == b"second", f"the client sent {frame.body!r}"
    second.expect("ACK")


@client_case(
    "client/failover/refused",
    "A client that cannot connect to a server tries another.",
    level="SHOULD",
    section=NONE,
    nodes=2,
    refusing=1,
)
def connection_refused(client: Client) -> None:
    """Refuse connections at the first address; the client connects to the second."""
    client.session(node=1).echo(b"hello")
