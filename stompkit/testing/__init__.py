"""A real STOMP broker for tests: launched for them, or one that is already running."""

from stompkit.testing._address import parse_address
from stompkit.testing._config import LaunchConfig
from stompkit.testing._errors import BrokerError, BrokerMissing, BrokerStartError
from stompkit.testing._facades import AsyncBroker, broker
from stompkit.testing._failover import FailoverPair
from stompkit.testing._frame_log import FrameLog, FrameNotSeen, SeenFrame, UnexpectedFrame
from stompkit.testing._launch import RunningBroker, given, launch

__all__ = [
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
    "given",
    "launch",
    "parse_address",
]
