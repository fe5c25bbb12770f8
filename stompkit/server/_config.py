"""The settings of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from stompkit.frames import AFTER_LOGIN, BEFORE_LOGIN, HeartBeatOffer, Limits, Tolerance

__all__ = ["BrokerConfig"]


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything about a broker that can be set; the defaults suit one machine on loopback."""

    heart_beat_ms: HeartBeatOffer = (1_000, 1_000)
    """What CONNECTED offers: how often the broker can send a beat, and how often it wants one."""
    limits: Limits = AFTER_LOGIN
    """Sizes of the frames taken from a client that has logged in."""
    limits_before_login: Limits = BEFORE_LOGIN
    """Sizes of the CONNECT frame."""
    tolerance: Tolerance = field(default=Tolerance.RAW_COLON | Tolerance.BODY)
    """What is let pass in frames from clients. Raw colons in header values are what most client
    libraries older than 1.2 send; a body that a frame may not have is dropped."""
    login_timeout_s: float = 10.0
    """Seconds a client has to send CONNECT. RabbitMQ gives 10, ActiveMQ 30."""
    drain_timeout_s: float = 10.0
    """Seconds that a client whose transport is full has to read what is left for it when the
    connection ends; past them the connection is cut."""
    linger_s: float = 1.0
    """Seconds that the socket stays half open after the last frame, so that a client can read it
    before its own unread octets reset the connection (1.2, "Connection Lingering")."""
    max_connections: int = 10_000
    """Clients at a time; one more gets an ERROR and is closed."""
    max_subscriptions: int = 1_000
    """Subscriptions of one connection."""
    max_destinations: int = 100_000
    """Queues and topics that exist at a time. One without messages and subscribers is removed."""
    max_destination_bytes: int = 1_024
    """Length of a destination's name, in octets of UTF-8."""
    max_queue_messages: int = 1_000_000
    """Messages in one queue, delivered but unacknowledged ones included; a SEND past it is
    refused."""
    max_queue_bytes: int = 256 * 1024 * 1024
    """Octets of headers and bodies in one queue; a SEND past it is refused."""
    max_topic_backlog: int = 100_000
    """Messages held for a topic subscriber that does not read fast enough; the oldest is dropped
    when one more comes, and nobody else is delayed."""
    max_topic_backlog_bytes: int = 16 * 1024 * 1024
    """Octets of these messages."""
    prefetch: int = 100
    """Unacknowledged messages of a subscription in the modes client and client-individual, where
    its ``prefetch-count`` header says nothing else."""
    max_prefetch: int = 10_000
    """The most that a ``prefetch-count`` header can ask for."""
    max_deliveries: int = 6
    """Deliveries after which a NACK moves a message of ``/queue/N`` to ``/dlq/N``."""
    max_transactions: int = 100
    """Open transactions of one connection."""
    max_transaction_frames: int = 10_000
    """Frames in one transaction."""
    max_transaction_bytes: int = 64 * 1024 * 1024
    """Octets of the messages in one transaction."""
    write_batch_bytes: int = 64 * 1024
    """Octets given to a connection's transport at a time, before the transport is asked whether
    it has room for more."""
    max_reply_backlog_bytes: int = 1024 * 1024
    """Octets of receipts that may wait for a client that does not read; past it the broker stops
    reading from that client until they are gone."""
