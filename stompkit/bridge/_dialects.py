"""Broker dialects: differences between brokers that affect a bridge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DIALECTS", "Dialect", "dialect_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """Properties of one kind of broker that a bridge depends on."""

    name: str
    durable: bool = True
    """True if a topic can keep messages for a disconnected durable subscriber."""
    rest: str = ">"
    """The wildcard for all further levels of a name."""
    queue_patterns: bool = True
    """True if a subscription can match several queues."""
    selectors: bool = True
    expires: bool = True
    """True if the broker reads ``expires`` (a time); False for ``expiration`` (milliseconds)."""
    keeps_ids: bool = False
    """True if a redelivered message has the same ``message-id``, and no other message has."""
    stripped: frozenset[str] = frozenset()
    """Headers that the broker itself adds to messages."""


#: All dialects that settings can name.
DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (
        Dialect(name="stompkit", keeps_ids=True),
        Dialect(
            name="activemq",
            keeps_ids=True,
            stripped=frozenset({"timestamp", "originalDestination"}),
        ),
        Dialect(name="artemis", rest="#", stripped=frozenset({"timestamp"})),
        Dialect(
            name="rabbitmq",
            rest="#",
            queue_patterns=False,
            selectors=False,
            expires=False,
            stripped=frozenset({"x-death", "x-first-death-exchange", "x-first-death-queue"}),
        ),
        Dialect(name="plain", durable=False, queue_patterns=False),
    )
}

#: Prefixes of the CONNECTED header ``server``, in lower case.
_SERVERS: Final = (
    ("stompkit", "stompkit"),
    ("apache-activemq-artemis", "artemis"),
    ("activemq-artemis", "artemis"),
    ("activemq", "activemq"),
    ("rabbitmq", "rabbitmq"),
)


def dialect_of(named: str, connected: Mapping[str, str]) -> Dialect:
    """Return the dialect of that name; ``auto`` detects it from the CONNECTED headers."""
    if named != "auto":
        return DIALECTS[named]
    server = connected.get("server", "").lower()
    found = (name for start, name in _SERVERS if server.startswith(start))
    return DIALECTS[next(found, "plain")]
