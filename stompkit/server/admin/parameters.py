"""Parameters of requests as structs, from which the API's description is generated."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

__all__ = [
    "Close",
    "ConnectionQuery",
    "ConnectionsQuery",
    "DestinationQuery",
    "DestinationsQuery",
    "Failover",
    "HandOver",
    "MessageIds",
    "MessagesQuery",
    "Move",
    "Named",
    "Nothing",
    "Publish",
    "Retry",
    "SubscriptionsQuery",
]

#: No client could name a destination with a NUL.
Name = Annotated[str, Meta(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
HostName = Annotated[str, Meta(max_length=1024, description='The virtual host; "" is the first')]
Offset = Annotated[int, Meta(ge=0, le=1_000_000_000)]
PageSize = Annotated[int, Meta(ge=1, le=1_000)]
PeekSize = Annotated[int, Meta(ge=1, le=100)]
BodySize = Annotated[int, Meta(ge=0, le=1024 * 1024)]
Most = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
HeaderName = Annotated[str, Meta(min_length=1, max_length=1024)]
HeaderValue = Annotated[str, Meta(max_length=16_384)]
Ids = Annotated[list[Name], Meta(min_length=1, max_length=10_000)]
SortKey = Literal[
    "name", "kind", "ready", "in_flight", "delayed", "octets", "consumers", "in", "out"
]
Order = Literal["asc", "desc"]


class Nothing(Struct):
    """A question without parameters."""


class DestinationsQuery(Struct, kw_only=True):
    """Selection of destinations; without ``host`` those of all virtual hosts."""

    host: HostName | None = None
    kind: Annotated[str, Meta(max_length=32)] | None = None
    contains: Annotated[str, Meta(max_length=4096)] | None = None
    sort: SortKey = "name"
    order: Order = "asc"
    offset: Offset = 0
    limit: PageSize = 100


class DestinationQuery(Struct, kw_only=True):
    """Selection of one destination."""

    name: Name
    host: HostName = ""


class MessagesQuery(Struct, kw_only=True):
    """Selection of messages of a queue; ``after`` is ``next`` of the page before."""

    name: Name
    host: HostName = ""
    after: Annotated[str, Meta(max_length=64)] | None = None
    limit: PeekSize = 20
    max_body_octets: BodySize = 4096


class ConnectionsQuery(Struct, kw_only=True):
    """Selection of connections."""

    contains: Annotated[str, Meta(max_length=4096)] | None = None
    offset: Offset = 0
    limit: PageSize = 1_000


class ConnectionQuery(Struct, kw_only=True):
    """Selection of one connection."""

    connection: Annotated[str, Meta(min_length=1, max_length=64)]


class SubscriptionsQuery(Struct, kw_only=True):
    """Selection of subscriptions."""

    host: HostName | None = None
    destination: Name | None = None
    connection: Annotated[str, Meta(max_length=64)] | None = None
    offset: Offset = 0
    limit: PageSize = 1_000


# Operations that change the broker. They reject unknown fields.


class Named(Struct, kw_only=True, forbid_unknown_fields=True):
    """A destination."""

    name: Name
    host: HostName = ""


class Move(Struct, kw_only=True, forbid_unknown_fields=True):
    """Messages from one queue to another: all that nobody has, or those that are meant."""

    from_: Name = field(name="from")
    to: Name
    host: HostName = ""
    limit: Most | None = None
    ids: Ids | None = None
    selector: Name | None = None


class Publish(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to send, with a body as text or as base64."""

    destination: Name
    host: HostName = ""
    headers: Annotated[list[tuple[HeaderName, HeaderValue]], Meta(max_length=100)] = []
    body: str = ""
    body_base64: str | None = None


class Retry(Struct, kw_only=True, forbid_unknown_fields=True):
    """Dead letters that go back to where they come from."""

    name: Name
    host: HostName = ""
    ids: Ids | None = None
    limit: Most | None = None


class MessageIds(Struct, kw_only=True, forbid_unknown_fields=True):
    """Messages of one queue."""

    name: Name
    ids: Ids
    host: HostName = ""


class HandOver(Struct, kw_only=True, forbid_unknown_fields=True):
    """A durable subscription and its new owner; null leaves it to its next user."""

    name: Name
    user: Name | None
    host: HostName = ""


class Failover(Struct, kw_only=True, forbid_unknown_fields=True):
    """The broker that is to become active; by default any that is passive."""

    to: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class Close(Struct, kw_only=True, forbid_unknown_fields=True):
    """A connection to close, with a reason that its client receives."""

    connection: Name
    reason: Annotated[str, Meta(max_length=200)] | None = None
