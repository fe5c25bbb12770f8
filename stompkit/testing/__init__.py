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
    from stompkit.testing._frames.log import (
        FrameLog,
        FrameNotSeenError,
        SeenFrame,
        UnexpectedFrameError,
    )
    from stompkit.testing._launching.address import format_address, parse_address
    from stompkit.testing._launching.brokers import BROKERS
    from stompkit.testing._launching.config import LaunchConfig
    from stompkit.testing._launching.errors import BrokerError, BrokerMissingError, BrokerStartError
    from stompkit.testing._launching.launch import RunningBroker, given, launch
    from stompkit.testing._launching.place import Place
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
    "BROKERS": "_launching.brokers",
    "BrokerError": "_launching.errors",
    "BrokerMissingError": "_launching.errors",
    "BrokerStartError": "_launching.errors",
    "FailoverPair": "_failover",
    "FrameLog": "_frames.log",
    "FrameNotSeenError": "_frames.log",
    "LaunchConfig": "_launching.config",
    "Place": "_launching.place",
    "RunningBroker": "_launching.launch",
    "SeenFrame": "_frames.log",
    "Tunnel": "tunnel",
    "UnexpectedFrameError": "_frames.log",
    "broker": "_facades",
    "format_address": "_launching.address",
    "given": "_launching.launch",
    "launch": "_launching.launch",
    "parse_address": "_launching.address",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    BrokerMissing="BrokerMissingError",
    FrameNotSeen="FrameNotSeenError",
    UnexpectedFrame="UnexpectedFrameError",
)
