"""Differences between brokers that STOMP does not define, and the names of destinations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import quote

__all__ = [
    "BROKERS",
    "UNLIMITED",
    "Broker",
    "Return",
    "broker_of",
    "queue_destination",
    "topic_destination",
]

#: Credit used for a prefetch of 0, which means no limit in kombu.
UNLIMITED: Final = 1_000


class Return(Enum):
    """Method of returning unprocessed messages of a subscription to their queue."""

    BY_UNSUBSCRIBE = auto()
    """The broker requeues them when the subscription ends."""
    NACK_AFTERWARDS = auto()
    """NACK works after the subscription has ended, so that it does not receive them again."""
    BY_CLOSING = auto()
    """The broker loses track of deliveries that cross UNSUBSCRIBE until the session ends.
    Each consumer therefore has its own connection, which is closed.
    """


@dataclass(frozen=True)
class Broker:
    """A broker's handling of the frames that kombu needs."""

    name: str
    prefetch_header: str
    """Empty if the broker counts in bytes."""
    nack_requeues: bool
    """True if NACK requeues a message; otherwise a copy is sent and the message is acknowledged."""
    expires_by_clock: bool
    """True if the broker reads ``expires`` (a time), False for ``expiration`` (a duration)."""
    rest: str
    """Wildcard for all further levels; the last level of a pattern."""
    returns: Return


BROKERS: Final = {
    broker.name: broker
    for broker in (
        Broker("stompkit", "prefetch-count", True, False, "#", Return.NACK_AFTERWARDS),
        Broker("rabbitmq", "prefetch-count", True, False, "#", Return.BY_CLOSING),
        Broker("activemq", "activemq.prefetchSize", False, True, ">", Return.BY_UNSUBSCRIBE),
        Broker("artemis", "", False, True, "#", Return.BY_UNSUBSCRIBE),
        Broker("other", "prefetch-count", False, True, ">", Return.BY_UNSUBSCRIBE),
    )
}


def broker_of(server: str) -> Broker:
    """Return the broker that the CONNECTED header ``server`` names."""
    text = server.lower()
    # Artemis names ActiveMQ in its own name, so it is checked first.
    for name in ("stompkit", "rabbitmq", "artemis", "activemq"):
        if name in text:
            return BROKERS[name]
    return BROKERS["other"]


def queue_destination(prefix: str, queue: str) -> str:
    """Return the destination of a queue: ``/queue/`` and its percent-encoded name."""
    return prefix + quote(queue, safe=".-_:~")


def topic_destination(prefix: str, exchange: str, key: str, rest: str | None = None) -> str:
    """Return the topic of an exchange for a routing key, or for a binding's pattern with ``rest``.

    A pattern may match more here than in AMQP, where ``#`` can be in the middle.
    """
    levels = [_level(level) for level in exchange.split(".")]
    for word in key.split(".") if key else []:
        if rest is not None and word == "#":
            levels.append(rest)
            break
        levels.append("*" if rest is not None and word == "*" else _level(word))
    return prefix + ".".join(levels)


def _level(word: str) -> str:
    return quote(word, safe="-_~:") or "_"
