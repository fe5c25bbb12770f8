"""A real STOMP broker for tests: launched for them, or one that is already running."""

from stompkit.testing._address import parse_address
from stompkit.testing._config import LaunchConfig
from stompkit.testing._errors import BrokerError, BrokerMissing, BrokerStartError
from stompkit.testing._launch import RunningBroker, given, launch

__all__ = [
    "BrokerError",
    "BrokerMissing",
    "BrokerStartError",
    "LaunchConfig",
    "RunningBroker",
    "given",
    "launch",
    "parse_address",
]
