"""What a bridge does: its sites, and its routes, each cut into legs from one site to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stompkit.bridge._names import is_queue
from stompkit.link import BrokerUrl
from stompkit.metrics import Address

__all__ = ["BridgeSettings", "Leg", "Site"]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A broker, or several of which each takes the place of another."""

    name: str
    """What hop lists call it; the same in all bridges that messages may pass."""
    url: BrokerUrl
    dialect: str = "auto"
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """How the site spells the beginnings of names, by the usual ones."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One direction of a route: destinations of one kind of a site, and where they go."""

    name: str
    source: Site
    to: Site
    destinations: tuple[str, ...]
    """All queues, or all topics, in the usual spelling; they may be patterns."""
    template: str = "{destination}"
    window: int = 100
    """The most messages under way: come from the source, and not acknowledged there."""
    buffer: Path | None = None
    """The directory of a spool; without one the source keeps what can't be forwarded."""
    selector: str = ""
    refused: str = ""
    """Where at the source goes what the destination refuses; empty: the route stops."""
    durable: bool = True
    """Whether topics are to keep what comes while the bridge is away."""
    persistent: bool = True
    """Whether messages that don't say so are to be kept on disk."""
    max_hops: int = 8

    @property
    def moves(self) -> bool:
        """Whether its messages are for one reader each, so that none may be dropped."""
        return is_queue(self.destinations[0])


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """All that a bridge does."""

    name: str
    """What durable subscriptions are named after."""
    legs: tuple[Leg, ...]
    status: Path | None = None
    """The file that says how it is."""
    metrics: Address | None = None
