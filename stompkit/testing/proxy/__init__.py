"""A proxy between clients and a broker that injects faults on request, and can log frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.frames.matching import Direction

if TYPE_CHECKING:
    from stompkit.testing.proxy.faults import Fault, FaultNotSeenError
    from stompkit.testing.proxy.proxy import Proxy
    from stompkit.testing.proxy.script import FaultScript, FaultScriptError

__all__ = [
    "Direction",
    "Fault",
    "FaultNotSeenError",
    "FaultScript",
    "FaultScriptError",
    "FrameLog",
    "Proxy",
]

#: Module of this package that defines each name.
_MODULES = {
    "Fault": "faults",
    "FaultNotSeenError": "faults",
    "FaultScript": "script",
    "FaultScriptError": "script",
    "Proxy": "proxy",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    FaultNotSeen="FaultNotSeenError",
)
