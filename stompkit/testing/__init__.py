"""A real STOMP broker for tests: launched for them, or one that is already running.

Each name is imported on first access: a launched broker needs none of them, and starts faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed

if TYPE_CHECKING:
    from stompkit.testing._facades import AsyncBroker, broker
    from stompkit.testing._failover import FailoverPair
    from stompkit.testing.frames.log import (
        FrameLog,
        FrameNotSeenError,
        SeenFrame,
        UnexpectedFrameError,
    )
    from stompkit.testing.launching.address import format_address, parse_address
    from stompkit.testing.launching.brokers import BROKERS
    from stompkit.testing.launching.config import LaunchConfig
    from stompkit.testing.launching.errors import BrokerError, BrokerMissingError, BrokerStartError
    from stompkit.testing.launching.launch import RunningBroker, given, launch
    from stompkit.testing.launching.place import Place
    from stompkit.testing.tunnel import Tunnel

__all__ = [
    "BROKERS",
    "AsyncBroker",
    "BrokerError",
    "BrokerMissingError",
    "BrokerStartError",
    "FailoverPair",
    "FrameLog",
    "FrameNotSeenError",
    "LaunchConfig",
    "Place",
    "RunningBroker",
    "SeenFrame",
    "Tunnel",
    "UnexpectedFrameError",
    "broker",
    "format_address",
    "given",
    "launch",
    "parse_address",
]

#: Module of this package that defines each name.
_MODULES = {
    "AsyncBroker": "_facades",
    "BROKERS": "launching.brokers",
    "BrokerError": "launching.errors",
    "BrokerMissingError": "launching.errors",
    "BrokerStartError": "launching.errors",
    "FailoverPair": "_failover",
    "FrameLog": "frames.log",
    "FrameNotSeenError": "frames.log",
    "LaunchConfig": "launching.config",
    "Place": "launching.place",
    "RunningBroker": "launching.launch",
    "SeenFrame": "frames.log",
    "Tunnel": "tunnel",
    "UnexpectedFrameError": "frames.log",
    "broker": "_facades",
    "format_address": "launching.address",
    "given": "launching.launch",
    "launch": "launching.launch",
    "parse_address": "launching.address",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    BrokerMissing="BrokerMissingError",
    FrameNotSeen="FrameNotSeenError",
    UnexpectedFrame="UnexpectedFrameError",
)
