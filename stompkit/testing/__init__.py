"""A real STOMP broker for tests: launched for them, or one that is already running."""

from stompkit.testing._facades import AsyncBroker, broker
from stompkit.testing._failover import FailoverPair
from stompkit.testing._frames.log import FrameLog, FrameNotSeen, SeenFrame, UnexpectedFrame
from stompkit.testing._launching.address import format_address, parse_address
from stompkit.testing._launching.brokers import BROKERS
from stompkit.testing._launching.config import LaunchConfig
from stompkit.testing._launching.errors import BrokerError, BrokerMissing, BrokerStartError
from stompkit.testing._launching.launch import RunningBroker, given, launch

__all__ = [
    "BROKERS",
    "AsyncBroker",
    "BrokerError",
    "BrokerMissing",
    "BrokerStartError",
    "FailoverPair",
    "FrameLog",
    "FrameNotSeen",
    "LaunchConfig",
    "RunningBroker",
    "SeenFrame",
    "UnexpectedFrame",
    "broker",
    "format_address",
    "given",
    "launch",
    "parse_address",
]
