"""Responses as structs, from which the API's description is generated."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

__all__ = [
    "BrokerShape",
    "Closed",
    "Complaint",
    "ConnectionDetail",
    "ConnectionList",
    "ConnectionShape",
    "Deleted",
    "DeletedMessages",
    "DestinationDetail",
    "DestinationList",
    "DestinationRates",
    "DestinationShape",
    "DestinationTotals",
    "DurableList",
    "DurableShape",
    "HandedOver",
    "Health",
    "History",
    "LeaseShape",
    "MessageList",
    "MessageShape",
    "Moved",
    "Overview",
    "Paused",
    "Published",
    "Purged",
    "Rates",
    "RatesHistory",
    "Ready",
    "Refusal",
    "Retried",
    "StoreShape",
    "SubscriptionList",
    "SubscriptionShape",
    "Totals",
]


class Complaint(Struct, kw_only=True):
    """Error: a code for programs, a sentence for people."""

    code: str
    message: str


class Refusal(Struct, kw_only=True):
    """An answer with a status of 400 or more."""

    error: Complaint


# The whole broker.


class Rates(Struct, kw_only=True):
    """Messages in a second, over the last one or so."""

    received: float
    delivered: float
    settled: float
    dead_lettered: float


class Totals(Struct, kw_only=True):
    """Messages since the broker was started."""

    received: int
    delivered: int
    settled: int
    dead_lettered: int


class RatesHistory(Struct, kw_only=True):
    """The broker's rates in the last minutes, oldest first, one for each interval."""

    interval_s: float
    rates: list[Rates]


class StoreShape(Struct, kw_only=True):
    """Message store; ``octets`` is its size on the disk, if that is known."""

    kind: Literal["lmdb", "sqlalchemy", "none"]
    octets: int | None
    failure: str | None


class BrokerShape(Struct, kw_only=True):
    """A broker that shares the store, and the seconds since it has last reported."""

    name: str
    role: str
    seen_s: float


class LeaseShape(Struct, kw_only=True):
    """The lease of the store, as the broker ``name`` saw it ``age_s`` seconds ago.

    Times are since its last change and renewal (``null`` without owner), and until it expires.
    """

    name: str
    is_active: bool
    epoch: int
    owner: str | None
    successor: str | None
    lease_s: float
    held_s: float
    renewed_s: float | None
    remaining_s: float
    age_s: float | None
    failure: str | None
    brokers: list[BrokerShape]


class Overview(Struct, kw_only=True):
    """A broker at a glance; ``lease`` or ``stands_by_for`` is ``null`` if there is none."""

    version: str
    is_compiled: bool
    pid: int
    started: str
    uptime_s: float
    connections: int
    subscriptions: int
    destinations: int
    ready: int
    in_flight: int
    delayed: int
    rates: Rates
    totals: Totals
    store: StoreShape
    lease: LeaseShape | None
    stands_by_for: str | None
    memory_octets: int | None
    descriptors: int | None


class Health(Struct, kw_only=True):
    """The process lives."""

    status: Literal["alive"]


class Ready(Struct, kw_only=True):
    """Readiness: true if clients can use the broker, else with the reason."""

    is_ready: bool
    reason: str | None


# Destinations.


class DestinationRates(Struct, kw_only=True):
    """Messages in a second: those that came, and deliveries."""

    in_: float = field(name="in")
    out: float


class DestinationTotals(Struct, kw_only=True):
    """Messages since the destination was made."""

    in_: int = field(name="in")
    out: int
    dropped: int
    dead_lettered: int
    expired: int


class DestinationShape(Struct, kw_only=True):
    """A destination, or the queue of a durable subscription (``kind`` is ``durable``).

    ``rates`` is ``null`` in the first second, and where there are more destinations than are
    followed.
    """

    host: str
    name: str
    kind: str
    ready: int
    in_flight: int
    delayed: int
    octets: int
    consumers: int
    is_paused: bool
    rates: DestinationRates | None
    totals: DestinationTotals


class DestinationList(Struct, kw_only=True):
    """A page of destinations, out of ``total``."""

    total: int
    destinations: list[DestinationShape]


class History(Struct, kw_only=True):
    """The last minutes, oldest first, one value for each interval."""

    interval_s: float
    ready: list[int]
    in_: list[float] = field(name="in")
    out: list[float]


class SubscriptionShape(Struct, kw_only=True):
    """A subscription of a connection; ``destination`` may be a pattern."""

    connection: str
    id: str | None
    host: str
    destination: str
    ack: Literal["auto", "client", "client-individual"]
    prefetch: int
    in_flight: int
    selector: str | None


class DestinationDetail(DestinationShape, kw_only=True):
    """A destination with its settings, its last minutes and its consumers."""

    policy: dict[str, str | int | float | bool | None]
    history: History | None
    subscriptions: list[SubscriptionShape]


# Messages.


class MessageShape(Struct, kw_only=True):
    """A message where it stands; a body that is no UTF-8 is in ``body_base64``.

    ``deliveries`` is how often it has been delivered; ``expires`` and ``due`` are times.
    ``received`` is the time of its arrival, to about a second; it is null if the message is older
    than the process of the broker.
    """

    id: str
    place: int
    headers: list[tuple[str, str]]
    body: str | None
    body_base64: str | None
    body_octets: int
    is_truncated: bool
    deliveries: int
    expires: str | None
    due: str | None
    received: str | None
    state: Literal["ready", "in-flight", "delayed", "expired"]


class MessageList(Struct, kw_only=True):
    """A page of messages, and where the next one begins, if there may be one."""

    messages: list[MessageShape]
    next: str | None


# Connections, subscriptions and durable subscriptions.


class ConnectionShape(Struct, kw_only=True):
    """A client; ``version`` is that of the protocol, once it has logged in.

    ``peer`` is the address that counts for limits, ``address`` the one with its port. ``session``
    is the id that the client received in CONNECTED. ``is_blocked`` is true while a full queue
    keeps the client from sending.
    """

    id: str
    peer: str
    address: str
    version: str | None
    user: str
    client_id: str | None
    session: str | None
    host: str
    subscriptions: int
    in_flight: int
    transactions: int
    is_blocked: bool
    connected: str
    state: Literal["connecting", "connected", "closing"]


class ConnectionDetail(ConnectionShape, kw_only=True):
    """A client with its groups, heart-beats and subscriptions.

    ``heart_beat_ms`` are the intervals in milliseconds to and from the client; 0 is never.
    """

    groups: list[str]
    heart_beat_ms: tuple[int, int] | None
    subscription_details: list[SubscriptionShape]


class ConnectionList(Struct, kw_only=True):
    """A page of connections, out of ``total``."""

    total: int
    connections: list[ConnectionShape]


class SubscriptionList(Struct, kw_only=True):
    """A page of subscriptions, out of ``total``."""

    total: int
    subscriptions: list[SubscriptionShape]


class DurableShape(Struct, kw_only=True):
    """A durable subscription; ``name`` is that of the queue in which it collects.

    ``owner`` is the user to whom it belongs; it is null until a user with a name uses it.
    """

    host: str
    name: str
    destination: str
    client_id: str
    selector: str | None
    owner: str | None
    ready: int
    is_connected: bool


class DurableList(Struct, kw_only=True):
    """All durable subscriptions."""

    durables: list[DurableShape]


# Results of operations that change the broker.


class Purged(Struct, kw_only=True):
    """Number of messages that were deleted."""

    purged: int


class Moved(Struct, kw_only=True):
    """Number of messages moved; ``reason`` if the other queue had no room for more."""

    moved: int
    reason: str | None


class Retried(Struct, kw_only=True):
    """Number of messages sent back; ``left`` are those whose queue is full, gone or unknown."""

    retried: int
    left: int


class DeletedMessages(Struct, kw_only=True):
    """Number of messages that were deleted."""

    deleted: int


class Published(Struct, kw_only=True):
    """Id of the published message."""

    id: str


class Paused(Struct, kw_only=True):
    """State of deliveries: true if they are paused."""

    is_paused: bool


class Deleted(Struct, kw_only=True):
    """It is gone."""

    deleted: bool


class HandedOver(Struct, kw_only=True):
    """Owner of the durable subscription; null if it is left to its next user."""

    owner: str | None


class Closed(Struct, kw_only=True):
    """It is being closed."""

    closed: bool
