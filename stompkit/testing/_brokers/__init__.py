"""How each known broker is launched."""

from __future__ import annotations

from typing import Final

from stompkit.testing._brokers._launcher import Launcher, Prepared
from stompkit.testing._brokers.activemq import ActiveMQ
from stompkit.testing._brokers.coilmq import CoilMQ
from stompkit.testing._brokers.rabbitmq import RabbitMQ
from stompkit.testing._brokers.stompkit import Stompkit

__all__ = ["LAUNCHERS", "Launcher", "Prepared"]

LAUNCHERS: Final[dict[str, Launcher]] = {
    "stompkit": Stompkit(),
    "coilmq": CoilMQ(),
    "activemq": ActiveMQ(),
    "rabbitmq": RabbitMQ(),
}
