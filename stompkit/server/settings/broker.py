"""The settings of a broker, in general and for single destinations."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field, structs

from stompkit.frames import AFTER_LOGIN, BEFORE_LOGIN, HeartBeatOffer, Limits, Tolerance

__all__ = ["BrokerConfig", "DestinationConfig", "Policy"]

Count = Annotated[int, Meta(ge=1)]
Octets = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]

Storage = Literal["persistent", "memory"]
NackPolicy = Literal["requeue", "dead-letter", "discard", "requeue-then-dead-letter"]
WhenFull = Literal["reject", "drop-oldest", "block"]
SlowReader = Literal["drop-oldest", "drop-newest", "disconnect"]
Expired = Literal["discard", "dead-letter"]
Create = Literal["any", "authenticated", "config"]
Dialect = Literal["stompkit", "plain", "activemq", "artemis", "rabbitmq"]
Flow = Literal["prefetch", "one-in-flight"]

#: Departures that brokers of each dialect accept: a ``content-length`` in a frame without a body,
#: and the padding of 1.0 headers shown in the examples of its specification.
_TOLERANCES: dict[str, Tolerance] = {
    "activemq": Tolerance.BODY | Tolerance.PADDING,
    "artemis": Tolerance.BODY,
    "rabbitmq": Tolerance.BODY,
}


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a single destination, with the defaults of all others."""

    storage: Storage = "persistent"
    """Storage of the messages of a queue: ``persistent`` in the store, if the broker has one, and
    ``memory`` in the process only. Topics and temporary destinations are always in memory."""
    max_queue_messages: Count = 10_000_000
    """Messages in one queue, delivered but unacknowledged ones included."""
    max_queue_bytes: Octets = 64 * 1024 * 1024 * 1024
    """Bytes of headers and bodies in one queue."""
    max_memory_queue_bytes: Octets = 256 * 1024 * 1024
    """Bytes of headers and bodies in one queue in memory, even if ``max_queue_bytes`` is larger."""
    when_full: WhenFull = "reject"
    """Effect of a SEND to a full queue: ``reject`` answers it with ERROR; ``drop-oldest``
    drops messages from the front of the queue; ``block`` stops reading from the sender until
    there is room, and rejects a SEND in a transaction."""
    nack: NackPolicy = "requeue-then-dead-letter"
    """Effect of NACK on a message: ``requeue``, ``dead-letter`` or ``discard`` it, or ``requeue``
    it until it has been delivered ``max_deliveries`` times and dead-letter it then. A NACK with the
    header ``requeue:false`` always dead-letters the message, except with ``discard``."""
    max_deliveries: Count = 6
    """Deliveries after which NACK, or ``ack_timeout_s``, dead-letters a message. The loss of a
    consumer does not, because its messages may be unprocessed in its buffer."""
    dead_letters: bool = True
    """``true`` sends rejected messages to ``/dlq/NAME``; ``false`` drops them."""
    ack_timeout_s: Seconds = 0.0
    """Time in which a consumer has to acknowledge a message; 0: unlimited. After it, the message is
    redelivered to another consumer, or dead-lettered if ``nack`` dead-letters. A change applies to
    messages delivered after it."""
    expired: Expired = "discard"
    """Treatment of messages that have expired."""
    message_ttl_s: Seconds = 0.0
    """Time to live of messages without an expiry header; 0: unlimited. Dead letters do not expire
    unless it is set for them. For a fan-out destination, it applies to the copies in its children,
    unless a child has a shorter time."""
    priority: bool = False
    """``true`` if messages of a queue with a higher ``priority`` header (0 to 9, 4 where there is
    none) overtake others."""
    exclusive: bool = False
    """``true`` if only the oldest consumer of a queue gets messages, and the others stand by."""
    prefetch: Count = 100
    """Unacknowledged messages of a subscription in the modes client and client-individual, unless
    it has a ``prefetch-count`` header."""
    slow_reader: SlowReader = "drop-oldest"
    """Treatment of a topic subscriber that exceeds ``max_topic_backlog``. Other subscribers are not
    delayed."""
    max_topic_backlog: Count = 100_000
    """Messages held for a topic subscriber that does not read fast enough."""
    max_topic_backlog_bytes: Octets = 16 * 1024 * 1024
    """Bytes of these messages."""


class DestinationConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the destinations with one name, or with names that match a pattern.

    All but the first two override the setting of the same name in ``[broker]``. Where several
    match, each setting is taken from the last one that has it. A setting that destinations of
    this kind ignore is an error.
    """

    name: str
    """A destination, as ``/queue/orders``, or a pattern, as ``/queue/orders.>``."""
    children: tuple[str, ...] = ()
    """The queues that get a copy of what is sent to a fan-out destination, ``/fanout/NAME``."""
    storage: Storage | None = None
    max_queue_messages: Count | None = None
    max_queue_bytes: Octets | None = None
    max_memory_queue_bytes: Octets | None = None
    when_full: WhenFull | None = None
    nack: NackPolicy | None = None
    max_deliveries: Count | None = None
    dead_letters: bool | None = None
    ack_timeout_s: Seconds | None = None
    expired: Expired | None = None
    message_ttl_s: Seconds | None = None
    priority: bool | None = None
    exclusive: bool | None = None
    prefetch: Count | None = None
    slow_reader: SlowReader | None = None
    max_topic_backlog: Count | None = None
    max_topic_backlog_bytes: Octets | None = None

    def overrides(self) -> dict[str, object]:
        """Return the settings that are set, by name."""
        return {
            name: value
            for name in Policy.__struct_fields__
            if (value := getattr(self, name)) is not None
        }


class BrokerConfig(Policy, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the broker; the defaults suit one machine on the loopback interface."""

    heart_beat_ms: HeartBeatOffer = (1_000, 1_000)
    """Heart-beat intervals offered in CONNECTED: sent by the broker, and expected from clients."""
    limits: Limits = AFTER_LOGIN
    """Sizes of the frames taken from a client that has logged in."""
    limits_before_login: Limits = BEFORE_LOGIN
    """Sizes of the CONNECT frame."""
    tolerance: Tolerance = field(default=Tolerance.RAW_COLON | Tolerance.BODY)
    """Deviations that are accepted in frames from clients. Raw colons in header values are what
    most client libraries older than 1.2 send; a body that a frame may not have is dropped."""
    eol_after_frames: bool = True
    """``true`` if a line feed follows the NUL of each frame that the broker sends, as ActiveMQ and
    RabbitMQ do. Some clients wait for it: without it PHP's ``stomp`` extension loses messages.
    A change applies to connections that are made after it."""
    login_timeout_s: Seconds = 10.0
    """Seconds a client has to send CONNECT and be let in. RabbitMQ gives 10, ActiveMQ 30."""
    drain_timeout_s: Seconds = 10.0
    """Time for a slow client to read the remaining output at the end of a connection; then the
    connection is aborted."""
    linger_s: Seconds = 1.0
    """Seconds that the socket stays half open after the last frame (1.2, "Connection Lingering").
    A client can then read the frame before its own unread bytes reset the connection."""
    max_connections: Count = 10_000
    """Concurrent client connections; another client gets an ERROR and is disconnected."""
    max_connections_per_address: Count = 10_000
    """Concurrent client connections from one address."""
    max_connections_per_user: Count = 10_000
    """Concurrent client connections of one user. Clients without a login are not counted."""
    max_subscriptions: Count = 1_000
    """Subscriptions of one connection."""
    max_destinations: Count = 100_000
    """Queues and topics that exist at a time. One without messages and subscribers is removed."""
    max_destinations_per_user: Count | None = None
    """Of these, those that one user has made, or that were made for it: temporary ones, and the
    dead letters of its queues and durable subscriptions. Where it is not said, half of them.
    Clients without a login are not counted."""
    max_destination_bytes: Count = 1_024
    """Length of a destination's name, in bytes of UTF-8."""
    max_connection_backlog: Count = 500_000
    """Messages of topics held for all subscriptions of one connection, a copy for each. Above this
    limit, ``slow_reader`` applies, as for one subscription."""
    max_prefetch: Count = 10_000
    """Maximum value of a ``prefetch-count`` header."""
    max_unacknowledged: Count = 100_000
    """Unacknowledged messages of a connection, including those of ended subscriptions. At the
    limit, it receives no more messages and cannot subscribe until it has acknowledged some."""
    max_unacknowledged_bytes: Octets = 128 * 1024 * 1024
    """Bytes of these messages; one more is delivered as long as they are below it."""
    max_transactions: Count = 100
    """Open transactions of one connection."""
    max_transaction_frames: Count = 10_000
    """Frames in one transaction."""
    max_transaction_bytes: Octets = 64 * 1024 * 1024
    """Bytes of the messages in all open transactions of one connection."""
    transaction_timeout_s: Seconds = 600.0
    """Time after which an open transaction is aborted with an ERROR; 0: unlimited."""
    max_delayed: Count = 100_000
    """Delayed messages of one queue."""
    max_delay_s: Seconds = 365 * 24 * 3600.0
    """Maximum delay of a message."""
    max_durable_subscriptions: Count = 10_000
    """Durable subscriptions that exist at a time."""
    max_durable_subscriptions_per_user: Count | None = None
    """Of these, those that belong to one user; where it is not said, half of them."""
    durable_expiry_s: Seconds = 7 * 24 * 3600.0
    """Time after which an unused durable subscription is removed with its messages; 0: never."""
    window_messages: Count = 1_000
    """Messages of one persistent queue held in memory ahead of its consumers; the rest of its
    backlog is in the store only. Selectors and browsers of a queue see no further."""
    window_bytes: Octets = 4 * 1024 * 1024
    """Bytes of these messages."""
    max_uncommitted_bytes: Octets = 8 * 1024 * 1024
    """Bytes not yet committed to the store. Above this limit, the broker stops reading from senders
    until the store has caught up."""
    flow: Flow = "prefetch"
    """``one-in-flight`` gives each connection ``max_in_flight`` unacknowledged messages across
    all its queues, in turn; topics are not limited."""
    max_in_flight: Count = 1
    """Unacknowledged messages of one connection where ``flow`` is ``one-in-flight``."""
    create: Create = "any"
    """Clients that can create a destination by using it: ``any`` client, any that has been
    ``authenticated``, or none, so that only those of the ``config`` exist."""
    dialect: Dialect = "stompkit"
    """Broker whose destination names are accepted as well; with ``plain``, a name without prefix is
    a queue."""
    hosts: tuple[str, ...] = ()
    """Virtual hosts, each with separate destinations; CONNECT has to name one of them. If the list
    is empty, every name is accepted, and all clients share the same destinations."""
    require_heart_beat: bool = False
    """``true`` rejects clients that do not send heart-beats."""
    destinations: tuple[DestinationConfig, ...] = ()
    """Settings of single destinations: the ``[[destination]]`` tables of the file."""
    write_batch_bytes: Octets = 64 * 1024
    """Bytes written to a connection's transport at a time, before its buffer is checked."""
    max_reply_backlog_bytes: Octets = 1024 * 1024
    """Bytes of receipts queued for a client that does not read. Above this limit, the broker stops
    reading from that client until they are sent."""

    @property
    def effective_tolerance(self) -> Tolerance:
        """The accepted departures, including those that brokers of the dialect accept."""
        return self.tolerance | _TOLERANCES.get(self.dialect, Tolerance.NONE)

    def policy(self, overrides: dict[str, object]) -> Policy:
        """Return the policy of one destination: these settings with its overrides."""
        own = {name: getattr(self, name) for name in Policy.__struct_fields__}
        return Policy(**(own | overrides))

    @property
    def destinations_per_user(self) -> int:
        """Maximum number of destinations of one user; by default half of the total."""
        return self.max_destinations_per_user or max(1, self.max_destinations // 2)

    @property
    def durables_per_user(self) -> int:
        """Maximum number of durable subscriptions of one user; by default half of the total."""
        return self.max_durable_subscriptions_per_user or max(
            1, self.max_durable_subscriptions // 2
        )

    def changed(self, **changes: object) -> BrokerConfig:
        """Return these settings with some of them replaced."""
        return structs.replace(self, **changes)
