"""How each known broker is launched, and any other."""

from __future__ import annotations

from typing import Final

from stompkit.testing._launching.brokers._launcher import Launcher, Prepared
from stompkit.testing._launching.brokers.activemq import ActiveMQ
from stompkit.testing._launching.brokers.coilmq import CoilMQ
from stompkit.testing._launching.brokers.command import PREFIX, Command
from stompkit.testing._launching.brokers.morbidq import MorbidQ
from stompkit.testing._launching.brokers.rabbitmq import RabbitMQ
from stompkit.testing._launching.brokers.stompkit import Stompkit
from stompkit.testing._launching.errors import BrokerError

__all__ = ["BROKERS", "LAUNCHERS", "Launcher", "Prepared", "launcher_for", "short_name"]

LAUNCHERS: Final[dict[str, Launcher]] = {
    "stompkit": Stompkit(),
    "coilmq": CoilMQ(),
    "activemq": ActiveMQ(),
    "rabbitmq": RabbitMQ(),
    "morbidq": MorbidQ(Stompkit()),
}
#: Their names; any other broker is launched by its command.
BROKERS: Final = tuple(LAUNCHERS)


def launcher_for(name: str) -> Launcher:
    """The launcher of a known broker, or of one that is given as ``command:...``.

    Raises BrokerError for a name that is neither, and for a command that makes no sense.
    """
    if name.startswith(PREFIX):
        return Command(name.removeprefix(PREFIX))
    launcher = LAUNCHERS.get(name)
    if launcher is None:
        known = ", ".join(LAUNCHERS)
        raise BrokerError(
            f"no broker is called {name!r}; known: {known}, and any other by its command, as in "
            f"'{PREFIX}/opt/mq/bin/mq --port {{port}}'"
        )
    return launcher


def short_name(name: str) -> str:
    """What to call a broker in messages and names of files: a command by its program.

    Raises BrokerError for a command that makes no sense.
    """
    if name.startswith(PREFIX):
        return Command(name.removeprefix(PREFIX)).name
    return name
