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
    """Octets of headers and bodies in one queue."""
    max_memory_queue_bytes: Octets = 256 * 1024 * 1024
    """The same for a queue that is in memory, whatever ``max_queue_bytes`` allows."""
    when_full: WhenFull = "reject"
    """Effect of a SEND to a full queue: ``reject`` answers it with ERROR; ``drop-oldest``
    drops messages from the front of the queue; ``block`` reads no more from its sender until
    there is room, or refuses it if it is part of a transaction."""
    nack: NackPolicy = "requeue-then-dead-letter"
    """Effect of NACK on a message: ``requeue``, ``dead-letter`` or ``discard`` it, or ``requeue``
    it until it has been delivered ``max_deliveries`` times and dead-letter it then. A header
    ``requeue:false`` of the NACK dead-letters it whatever is set, unless that is ``discard``."""
    max_deliveries: Count = 6
    """Deliveries after which NACK, or ``ack_timeout_s``, dead-letters a message. The loss of a
    consumer does not: what it had was often only waiting in its buffer."""
    dead_letters: bool = True
    """``true`` sends rejected messages to ``/dlq/NAME``; ``false`` drops them."""
    ack_timeout_s: Seconds = 0.0
    """Seconds that a consumer has for the acknowledgement of a message before it is given to
    another; 0 for any time it likes. Where ``nack`` says that messages are dead-lettered, those
    are, too. What was delivered before a change of this keeps the time that it was given."""
    expired: Expired = "discard"
    """Treatment of messages that have expired."""
    message_ttl_s: Seconds = 0.0
    """Seconds that a message lives that doesn't say so itself; 0 for ever. Dead letters live for
    ever, unless this is set for them. Set for a fan-out destination, it holds for the copies in
    its children; where a table of a child sets a shorter time, that holds."""
    priority: bool = False
    """``true`` if messages of a queue with a higher ``priority`` header (0 to 9, 4 where there is
    none) overtake others."""
    exclusive: bool = False
    """``true`` if only the oldest consumer of a queue gets messages, and the others stand by."""
    prefetch: Count = 100
    """Unacknowledged messages of a subscription in the modes client and client-individual, where
    its ``prefetch-count`` header says nothing else."""
    slow_reader: SlowReader = "drop-oldest"
    """Treatment when a subscriber of a topic has ``max_topic_backlog`` messages waiting and
    one more comes. Nobody else is delayed."""
    max_topic_backlog: Count = 100_000
    """Messages held for a topic subscriber that does not read fast enough."""
    max_topic_backlog_bytes: Octets = 16 * 1024 * 1024
    """Octets of these messages."""


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
    """Everything about a broker that can be set; the defaults suit one machine on loopback."""

    heart_beat_ms: HeartBeatOffer = (1_000, 1_000)
    """Heart-beats that CONNECTED offers: how often the broker can send a beat, and how often it
    wants one."""
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
    """Seconds that a client whose transport is full has to read what is left for it when the
    connection ends; past them the connection is cut."""
    linger_s: Seconds = 1.0
    """Seconds that the socket stays half open after the last frame, so that a client can read it
    before its own unread octets reset the connection (1.2, "Connection Lingering")."""
    max_connections: Count = 10_000
    """Clients at a time; one more gets an ERROR and is closed."""
    max_connections_per_address: Count = 10_000
    """Clients at a time from one address."""
    max_connections_per_user: Count = 10_000
    """Clients at a time with the login of one user. Clients without a login are not counted."""
    max_subscriptions: Count = 1_000
    """Subscriptions of one connection."""
    max_destinations: Count = 100_000
    """Queues and topics that exist at a time. One without messages and subscribers is removed."""
    max_destinations_per_user: Count | None = None
    """Of these, those that one user has made, or that were made for it: temporary ones, and the
    dead letters of its queues and durable subscriptions. Where it is not said, half of them.
    Clients without a login are not counted."""
    max_destination_bytes: Count = 1_024
    """Length of a destination's name, in octets of UTF-8."""
    max_connection_backlog: Count = 500_000
    """Messages of topics held for all subscriptions of one connection, a copy for each. Past it
    ``slow_reader`` decides, as it does for one subscription."""
    max_prefetch: Count = 10_000
    """The most that a ``prefetch-count`` header can ask for."""
    max_unacknowledged: Count = 100_000
    """Messages that a connection has not acknowledged. It gets no more of them, and can't
    subscribe to anything else, until it has acknowledged some; those of ended subscriptions
    count, too."""
    max_unacknowledged_bytes: Octets = 128 * 1024 * 1024
    """Octets of these messages; one more is delivered as long as they are below it."""
    max_transactions: Count = 100
    """Open transactions of one connection."""
    max_transaction_frames: Count = 10_000
    """Frames in one transaction."""
    max_transaction_bytes: Octets = 64 * 1024 * 1024
    """Octets of the messages in all open transactions of one connection."""
    transaction_timeout_s: Seconds = 600.0
    """Seconds after which an open transaction is aborted, with an ERROR; 0 for never."""
    max_delayed: Count = 100_000
    """Messages of one queue that wait for their time."""
    max_delay_s: Seconds = 365 * 24 * 3600.0
    """The longest delay that a message can ask for."""
    max_durable_subscriptions: Count = 10_000
    """Durable subscriptions that exist at a time."""
    max_durable_subscriptions_per_user: Count | None = None
    """Of these, those that belong to one user; where it is not said, half of them."""
    durable_expiry_s: Seconds = 7 * 24 * 3600.0
    """Seconds after which a durable subscription that nobody uses is removed with its messages;
    0 for never."""
    window_messages: Count = 1_000
    """Messages of one persistent queue held in memory ahead of its consumers; the rest of its
    backlog is in the store only. Selectors and browsers of a queue see no further."""
    window_bytes: Octets = 4 * 1024 * 1024
    """Octets of these messages."""
    max_uncommitted_bytes: Octets = 8 * 1024 * 1024
    """Octets on their way into the store; past them the broker stops reading from senders until
    the store has caught up."""
    flow: Flow = "prefetch"
    """``one-in-flight`` gives each connection ``max_in_flight`` unacknowledged messages across
    all its queues, which take turns; topics don't count."""
    max_in_flight: Count = 1
    """Unacknowledged messages of one connection where ``flow`` is ``one-in-flight``."""
    create: Create = "any"
    """Clients that can create a destination by using it: ``any`` client, any that has been
    ``authenticated``, or none, so that only those of the ``config`` exist."""
    dialect: Dialect = "stompkit"
    """Brokers whose spellings of destinations are understood beside our own; ``plain`` takes a name
    without prefix for a queue."""
    hosts: tuple[str, ...] = ()
    """Virtual hosts, each with destinations of its own; CONNECT has to name one of them. With
    none listed, any name will do, and all clients share one set of destinations."""
    require_heart_beat: bool = False
    """``true`` refuses clients that send no heart-beats."""
    destinations: tuple[DestinationConfig, ...] = ()
    """Settings of single destinations: the ``[[destination]]`` tables of the file."""
    write_batch_bytes: Octets = 64 * 1024
    """Octets given to a connection's transport at a time, before the transport is asked whether
    it has room for more."""
    max_reply_backlog_bytes: Octets = 1024 * 1024
    """Octets of receipts that may wait for a client that does not read; past it the broker stops
    reading from that client until they are gone."""

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
