"""How brokers differ in what a bridge says to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DIALECTS", "Dialect", "dialect_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """What a bridge has to know of a kind of broker."""

    name: str
    durable: bool = True
    """Whether a topic can keep what comes while nobody is connected."""
    rest: str = ">"
    """The wildcard for all further levels of a name."""
    queue_patterns: bool = True
    """Whether a subscription can be to several queues."""
    selectors: bool = True
    expires: bool = True
    """Whether it takes ``expires``, a time; else ``expiration``, milliseconds from now on."""
    stripped: frozenset[str] = frozenset()
    """Headers that it adds of its own to messages."""


#: All that can be named in settings.
DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (
        Dialect(name="stompkit"),
        Dialect(name="activemq", stripped=frozenset({"timestamp", "originalDestination"})),
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

#: How the header ``server`` of CONNECTED begins, in small letters.
_SERVERS: Final = (
    ("stompkit", "stompkit"),
    ("apache-activemq-artemis", "artemis"),
    ("activemq-artemis", "artemis"),
    ("activemq", "activemq"),
    ("rabbitmq", "rabbitmq"),
)


def dialect_of(named: str, connected: Mapping[str, str]) -> Dialect:
    """The dialect that settings name, or with ``auto`` that of who has answered CONNECT."""
    if named != "auto":
        return DIALECTS[named]
    server = connected.get("server", "").lower()
    found = (name for start, name in _SERVERS if server.startswith(start))
    return DIALECTS[next(found, "plain")]
