"""Deviations of other brokers, each a rule that can be enabled and disabled.

``stompkit-test --quirk rabbitmq,-receipt-order`` makes the broker behave as RabbitMQ does, except
for one rule. A profile contains all rules of a broker; docs/reference/quirks.rst lists them.
"""

from stompkit.testing.server.quirks._catalogue import PROFILES, RULES
from stompkit.testing.server.quirks._profiles import factory_for, is_morbidq, parse_quirks
from stompkit.testing.server.quirks._rules.rule import Quirks, Rule

__all__ = ["PROFILES", "RULES", "Quirks", "Rule", "factory_for", "is_morbidq", "parse_quirks"]
