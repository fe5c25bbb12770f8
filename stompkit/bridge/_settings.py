"""Settings of a bridge: its sites, and its routes, each split into legs between two sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stompkit._common.metrics import Address
from stompkit.bridge._names import is_queue
from stompkit.client.blocking import BrokerUrl

__all__ = ["BridgeSettings", "Leg", "Site"]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A broker, or several alternative brokers for failover."""

    name: str
    """Name in hop lists; the same in all bridges that messages may pass."""
    url: BrokerUrl
    dialect: str = "auto"
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """Prefixes of names in the site's spelling, by the usual prefixes."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One direction of a route: destinations of one kind at a source site, and their target."""

    name: str
    source: Site
    to: Site
    destinations: tuple[str, ...]
    """All queues, or all topics, in the usual spelling; they may be patterns."""
    template: str = "{destination}"
    window: int = 100
    """Maximum number of messages in flight: received, and not acknowledged to the source."""
    buffer: Path | None = None
    """Directory of a spool; without it, the source keeps messages that cannot be forwarded."""
    selector: str = ""
    refused: str = ""
    """Dead-letter destination at the source for refused messages; if empty, the route stops."""
    durable: bool = True
    """True if topics use durable subscriptions, which keep messages while the bridge is offline."""
    persistent: bool = True
    """True if messages without a ``persistent`` header are sent as persistent."""
    max_hops: int = 8

    @property
    def moves(self) -> bool:
        """True if each message goes to only one reader, so that none may be dropped."""
        return is_queue(self.destinations[0])


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """Complete settings of a bridge."""

    name: str
    """Base name of durable subscriptions."""
    legs: tuple[Leg, ...]
    status: Path | None = None
    """Path of the status file."""
    metrics: Address | None = None
