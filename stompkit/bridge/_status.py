"""Status of a bridge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BridgeStatus", "RouteStatus", "State"]

State = Literal["starting", "running", "waiting", "stopped", "ended"]


@dataclass(kw_only=True)
class RouteStatus:
    """Status of one direction of a route since the process started."""

    name: str
    source: str
    to: str
    destinations: list[str]
    state: State = "starting"
    """``waiting``: until the next attempt; ``stopped``: until an operator intervenes."""
    kept: str = ""
    """Keeper of messages that cannot be forwarded: source, buffer or nobody."""
    source_connected: bool = False
    to_connected: bool = False
    received: int = 0
    forwarded: int = 0
    """Messages that the destination has confirmed."""
    known: int = 0
    """Redelivered messages that were already forwarded, so that they were only acknowledged."""
    looped: int = 0
    """Messages of topics that have been at the destination, or have passed too many sites."""
    refused: int = 0
    """Messages sent to the dead letters."""
    under_way: int = 0
    """Messages that wait for the destination's receipt."""
    buffered: int = 0
    """Messages in the buffer that the destination has not confirmed."""
    problem: str = ""


@dataclass(kw_only=True)
class BridgeStatus:
    """Status of a bridge."""

    name: str
    pid: int
    started_s: float
    """Seconds since 1970."""
    updated_s: float
    routes: list[RouteStatus] = field(default_factory=list)
