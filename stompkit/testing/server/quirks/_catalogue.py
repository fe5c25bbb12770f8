"""All rules, and the rules of each profile."""

from __future__ import annotations

from typing import Final

from stompkit.testing.server.quirks._rules import (
    activemq,
    artemis,
    coilmq,
    morbidq,
    rabbitmq,
    several,
    spring_simple,
)
from stompkit.testing.server.quirks._rules.rule import Rule

__all__ = ["OPPOSITES", "PROFILES", "RULES"]

RULES: Final[dict[str, Rule]] = {
    rule.id: rule
    for rule in (
        *morbidq.RULES,
        *several.RULES,
        *activemq.RULES,
        *artemis.RULES,
        *rabbitmq.RULES,
        *coilmq.RULES,
        *spring_simple.RULES,
    )
}

#: Former rules whose behaviour is now stompkit's default, with the opposite rule.
OPPOSITES: Final[dict[str, str]] = {"frames-end-with-eol": "frames-end-with-nul"}


def _ids(rules: tuple[Rule, ...], *shared: str) -> tuple[str, ...]:
    return (*(rule.id for rule in rules), *shared)


PROFILES: Final[dict[str, tuple[str, ...]]] = {
    "morbidq": _ids(morbidq.RULES),
    "activemq": _ids(
        activemq.RULES,
        "error-stays-open",
        "timeouts-close-silently",
        "silent-client-two-checks",
        "spaces-hide-versions",
        "version-error-without-versions",
        "unescapes-connect",
        "unescapes-1.0",
        "unknown-ack-mode-is-auto",
        "unsubscribe-gives-back",
    ),
    "artemis": _ids(
        artemis.RULES,
        "spaces-hide-versions",
        "second-connect-answered",
        "browser-ignored",
        "unsubscribe-gives-back",
        "redelivered-always",
        "receipt-header-echoed",
        "transaction-header-echoed",
    ),
    "rabbitmq": _ids(
        rabbitmq.RULES,
        "error-stays-open",
        "failed-connect-stays-open",
        "malformed-closes-silently",
        "timeouts-close-silently",
        "silent-client-two-checks",
        "error-without-receipt-id",
        "spaces-hide-versions",
        "unescapes-connect",
        "unescapes-1.0",
        "escapes-1.0",
        "crlf-anywhere",
        "selector-ignored",
        "browser-ignored",
        "redelivered-always",
        "receipt-header-echoed",
        "transaction-header-echoed",
        "begin-restarts",
    ),
    "coilmq": _ids(
        coilmq.RULES,
        "error-stays-open",
        "failed-connect-stays-open",
        "malformed-closes-silently",
        "error-without-receipt-id",
        "version-error-without-versions",
        "second-connect-answered",
        "unknown-ack-mode-is-auto",
        "selector-ignored",
        "browser-ignored",
        "redelivered-never",
        "receipt-header-echoed",
        "begin-restarts",
        "disconnect-stays-open",
        "frames-end-with-nul",
    ),
    "spring-simple": _ids(
        spring_simple.RULES,
        "error-without-receipt-id",
        "spaces-hide-versions",
        "unescapes-1.0",
        "escapes-1.0",
        "crlf-anywhere",
        "selector-ignored",
        "browser-ignored",
        "receipt-header-echoed",
        "transaction-header-echoed",
        "disconnect-stays-open",
        "frames-end-with-nul",
    ),
}
