"""How a bridge is doing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BridgeStatus", "RouteStatus", "State"]

State = Literal["starting", "running", "waiting", "stopped", "ended"]


@dataclass(kw_only=True)
class RouteStatus:
    """How one direction of a route is doing, since the process was started."""

    name: str
    source: str
    to: str
    destinations: list[str]
    state: State = "starting"
    """``waiting`` is for another attempt; ``stopped`` until somebody has done something."""
    kept: str = ""
    """Who keeps messages that can't be forwarded: source, buffer, or nobody."""
    source_connected: bool = False
    to_connected: bool = False
    received: int = 0
    forwarded: int = 0
    """Messages that the destination has confirmed."""
    known: int = 0
    """Messages that came again and had been forwarded, so that they were only acknowledged."""
    looped: int = 0
    """Messages of topics that have been at the destination, or at too many sites."""
    refused: int = 0
    """Messages that went to the dead letters."""
    under_way: int = 0
    """Messages that wait for the destination's receipt."""
    buffered: int = 0
    """Messages in the buffer that the destination has not confirmed."""
    problem: str = ""


@dataclass(kw_only=True)
class BridgeStatus:
    """How a bridge is doing."""

    name: str
    pid: int
    started_s: float
    """Seconds since 1970."""
    updated_s: float
    routes: list[RouteStatus] = field(default_factory=list)
