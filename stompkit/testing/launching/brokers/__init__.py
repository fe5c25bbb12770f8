"""Launchers of the known brokers, and of any other by its command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from stompkit.testing.launching.brokers.activemq import ActiveMQ
from stompkit.testing.launching.brokers.artemis import Artemis
from stompkit.testing.launching.brokers.coilmq import CoilMQ
from stompkit.testing.launching.brokers.command import PREFIX, Command
from stompkit.testing.launching.brokers.launcher import Access, Launcher, Prepared
from stompkit.testing.launching.brokers.morbidq import MorbidQ
from stompkit.testing.launching.brokers.rabbitmq import RabbitMQ
from stompkit.testing.launching.brokers.stompkit import Stompkit
from stompkit.testing.launching.errors import BrokerError

__all__ = [
    "BROKERS",
    "LAUNCHERS",
    "Access",
    "Launcher",
    "Prepared",
    "kind_of",
    "launcher_for",
    "short_name",
]

LAUNCHERS: Final[dict[str, Launcher]] = {
    "stompkit": Stompkit(),
    "coilmq": CoilMQ(),
    "activemq": ActiveMQ(),
    "artemis": Artemis(),
    "rabbitmq": RabbitMQ(),
    "morbidq": MorbidQ(Stompkit()),
}
#: Names of the known brokers; any other broker is launched by its command.
BROKERS: Final = tuple(LAUNCHERS)
#: Launchers of the brokers that exist in several versions.
_VERSIONED: Final[dict[str, Callable[[str], Launcher]]] = {
    "activemq": ActiveMQ,
    "artemis": Artemis,
    "rabbitmq": RabbitMQ,
}
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*")


def launcher_for(name: str) -> Launcher:
    """Return the launcher of a known broker, or of one given as ``command:...``.

    A known broker may have a version: ``rabbitmq:4``.

    Raises BrokerError for an unknown name, an invalid version or an invalid command.
    """
    if name.startswith(PREFIX):
        return Command(name.removeprefix(PREFIX))
    kind, colon, version = name.partition(":")
    launcher = LAUNCHERS.get(kind)
    if launcher is None:
        known = ", ".join(LAUNCHERS)
        raise BrokerError(
            f"no broker is called {name!r}; known: {known}, and any other by its command, as in "
            f"'{PREFIX}/opt/mq/bin/mq --port {{port}}'"
        )
    if not colon:
        return launcher
    if kind not in _VERSIONED:
        having = ", ".join(_VERSIONED)
        raise BrokerError(f"{name!r}: only {having} can be launched in a version of your choice")
    if not _VERSION.fullmatch(version):
        raise BrokerError(f"{name!r}: {version!r} is no version; expected numbers, as in {kind}:4")
    return _VERSIONED[kind](version)


def kind_of(name: str) -> str:
    """Return the name of a broker without its version; a command is unchanged."""
    return name if name.startswith(PREFIX) else name.partition(":")[0]


def short_name(name: str) -> str:
    """Return the name of a broker for messages: for a command, its program.

    Raises BrokerError for an invalid command.
    """
    if name.startswith(PREFIX):
        return Command(name.removeprefix(PREFIX)).name
    return name
