"""Prometheus metrics of a bridge, for ``stompkit bridge --metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from stompkit._common.metrics import counter, gauge
from stompkit.bridge import BridgeStatus, RouteStatus

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["BridgeMetrics"]

_PREFIX: Final = "stompkit_bridge"
_LABELS: Final = ("route",)
_COUNTS: Final = {
    "received": "Messages that have come from the source.",
    "forwarded": "Messages that the destination has confirmed.",
    "known": "Messages that came again and had been forwarded.",
    "looped": "Messages of topics that were stopped by their hops.",
    "refused": "Messages that went to the dead letters.",
}
_GAUGES: Final[dict[str, tuple[str, Callable[[RouteStatus], float]]]] = {
    "under_way": ("Messages that wait for a receipt.", lambda route: route.under_way),
    "buffered": ("Messages in the buffer.", lambda route: route.buffered),
    "source_connected": ("Whether the source is there.", lambda route: route.source_connected),
    "to_connected": ("Whether the destination is there.", lambda route: route.to_connected),
    "running": ("Whether the route runs.", lambda route: route.state == "running"),
    "stopped": ("Whether it has stopped by itself.", lambda route: route.state == "stopped"),
}


class BridgeMetrics:
    """A Prometheus collector of ``stompkit_bridge_...`` metrics, all with the label ``route``."""

    def __init__(self, status: Callable[[], BridgeStatus]) -> None:
        """Read the status at each scrape."""
        self._status: Final = status

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        routes = self._status().routes
        for name, text in _COUNTS.items():
            counts = [((route.name,), getattr(route, name)) for route in routes]
            yield counter(f"{_PREFIX}_{name}", text, counts, _LABELS)
        for name, (text, value) in _GAUGES.items():
            values = [((route.name,), float(value(route))) for route in routes]
            yield gauge(f"{_PREFIX}_{name}", text, values, _LABELS)
