"""A broker with quirks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime

from stompkit.server import BrokerConfig, BrokerFactory
from stompkit.server.interfaces import StoreError
from stompkit.testing.server.quirks._catalogue import OPPOSITES, PROFILES, RULES
from stompkit.testing.server.quirks._rabbitmq_queues import DeclaredQueues
from stompkit.testing.server.quirks._rules.rule import Quirks, parse
from stompkit.testing.server.quirks.activemq import ActiveMQ
from stompkit.testing.server.quirks.artemis import Artemis
from stompkit.testing.server.quirks.coilmq import CoilMQ
from stompkit.testing.server.quirks.morbidq import MorbidQFactory
from stompkit.testing.server.quirks.rabbitmq import RabbitMQ
from stompkit.testing.server.quirks.spring_simple import SpringSimple

__all__ = ["factory_for", "is_morbidq", "parse_quirks"]

_UNLIMITED: Final = 999_999_999
_OF_MORBIDQ: Final = frozenset(PROFILES["morbidq"])
#: Changes of the broker's settings, by rule.
_SETTINGS: Final[dict[str, dict[str, object]]] = {
    "activemq-destinations": {"dialect": "activemq"},
    "artemis-destinations": {"dialect": "artemis"},
    "frames-end-with-nul": {"eol_after_frames": False},
    "rabbitmq-destinations": {"dialect": "rabbitmq"},
    "nack-requeues": {"nack": "requeue", "dead_letters": False},
    "prefetch-size": {"prefetch": 1_000, "max_prefetch": _UNLIMITED},
    "prefetch-count": {"prefetch": _UNLIMITED, "max_prefetch": _UNLIMITED},
}


class _AnyQuirks(SpringSimple, CoilMQ, ActiveMQ, Artemis, RabbitMQ):
    """A connection with any rules; profiles that ignore or refuse a frame come first."""


class _QuirkyFactory(BrokerFactory):
    """Creates connections with quirks."""

    def __init__(
        self, quirks: Quirks, config: BrokerConfig, clock: IReactorTime, **rest: Any
    ) -> None:
        """Create a broker; the arguments are those of :class:`BrokerFactory`."""
        self._queues = DeclaredQueues()
        own = {"quirks": quirks, "queues": self._queues}
        super().__init__(
            config, clock, connection=type("QuirkyConnection", (_AnyQuirks,), own), **rest
        )

    def reset(self, done: Callable[[StoreError | None], None] | None = None) -> None:
        """Reset all state."""
        self._queues.clear()
        super().reset(done)


def parse_quirks(text: str) -> Quirks:
    """Parse a comma-separated list of profiles and rules; ``-RULE`` removes a rule.

    Raises ValueError with the valid names for an unknown one, and for mutually exclusive rules. The
    rules of MorbidQ, a separate broker, exclude all others.
    """
    quirks = parse(text, RULES, PROFILES, OPPOSITES)
    others = [rule for rule in quirks if rule not in _OF_MORBIDQ]
    if others and is_morbidq(quirks):
        raise ValueError(f"the rules of morbidq cannot be had together with others: {others[0]}")
    return quirks


def is_morbidq(quirks: Quirks) -> bool:
    """Return True if they are MorbidQ's rules, whose clients have a separate protocol."""
    return not quirks.isdisjoint(_OF_MORBIDQ)


def factory_for(
    quirks: Quirks, config: BrokerConfig | None, clock: IReactorTime, **rest: Any
) -> BrokerFactory:
    """Create a broker with quirks; ``rest`` is passed to :class:`BrokerFactory`."""
    config = BrokerConfig() if config is None else config
    if is_morbidq(quirks):
        config = config.changed(eol_after_frames="Q9" in quirks)
        return MorbidQFactory(quirks, config, clock, **rest)
    changes: dict[str, object] = {}
    for rule in quirks:
        changes |= _SETTINGS.get(rule, {})
    return _QuirkyFactory(quirks, config.changed(**changes), clock, **rest)
