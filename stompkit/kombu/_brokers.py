"""In what brokers differ where STOMP leaves it open, and how destinations are named."""

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

#: What a prefetch of 0, which is none in kombu, comes to.
UNLIMITED: Final = 1_000


class Return(Enum):
    """How messages go back to their queue that a subscription was given and nobody wants."""

    BY_UNSUBSCRIBE = auto()
    """The broker takes them back when the subscription ends."""
    NACK_AFTERWARDS = auto()
    """They can be refused when the subscription has ended, so that it gets none of them again."""
    BY_CLOSING = auto()
    """They can't: a delivery that crosses UNSUBSCRIBE is lost to the session, and held until that
    ends. So each consumer has a connection of its own, which is closed."""


@dataclass(frozen=True)
class Broker:
    """What one broker makes of the frames that kombu needs."""

    name: str
    prefetch_header: str
    """Empty where the broker counts in octets."""
    nack_requeues: bool
    """Whether NACK puts a message back; where not, a copy is sent and the message acknowledged."""
    expires_by_clock: bool
    """Whether a message expires at a time (``expires``) or after a while (``expiration``)."""
    rest: str
    """The wildcard for all further levels, which is the last of a pattern."""
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
    """The broker that says so of itself in the header ``server`` of CONNECTED."""
    text = server.lower()
    # Artemis has the other one's name in its own.
    for name in ("stompkit", "rabbitmq", "artemis", "activemq"):
        if name in text:
            return BROKERS[name]
    return BROKERS["other"]


def queue_destination(prefix: str, queue: str) -> str:
    """Where the messages of a queue are: ``/queue/`` and its name, percent-encoded."""
    return prefix + quote(queue, safe=".-_:~")


def topic_destination(prefix: str, exchange: str, key: str, rest: str | None = None) -> str:
    """The topic of an exchange for a routing key; with ``rest`` the key is a binding's pattern.

    What a pattern covers here may be more than it does in AMQP, where ``#`` can be in the middle.
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
