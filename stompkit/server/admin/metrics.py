"""The metrics page, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from stompkit._common.metrics import counter, gauge
from stompkit.server.admin.context import Context
from stompkit.server.admin.statistics import in_flight
from stompkit.server.admin.views import kind_of, overview, places, text_of
from stompkit.server.domain.destinations import Destination, Totals
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.login.login_limiter import Outcome

__all__ = ["CONTENT_TYPE", "metrics_page"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
#: The label of all destinations without labels of their own.
_OTHER: Final = "other"
_LABELS: Final = ("host", "destination", "kind")

_COUNTERS: Final = {
    "received": "Messages that a destination has received.",
    "delivered": "Deliveries to consumers, including redeliveries.",
    "settled": "Messages that consumers have acknowledged, or received in the mode auto.",
    "dropped": "Messages that were dropped because there was no room for them.",
    "dead_lettered": "Messages that have become dead letters.",
    "expired": "Messages that have expired before they were consumed.",
}
_GAUGES: Final = {
    "messages_ready": "Messages that wait to be delivered.",
    "messages_in_flight": "Messages that wait to be acknowledged.",
    "messages_delayed": "Messages that wait for the end of their delay.",
    "messages_bytes": "Bytes of the messages in a queue.",
    "consumers": "Subscriptions that receive messages.",
    "paused": "Whether an operator has stopped deliveries.",
}


def metrics_page(context: Context) -> bytes:
    """Return all current metrics."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_BrokerCollector(context))
    return generate_latest(registry)


class _Row:
    """Metrics of one destination, or of several together."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.gauges = dict.fromkeys(_GAUGES, 0)

    def add(self, destination: Destination) -> None:
        self.totals = self.totals.plus(destination.totals)
        gauges = self.gauges
        gauges["messages_ready"] += destination.ready
        gauges["messages_in_flight"] += in_flight(destination)
        gauges["messages_delayed"] += destination.delayed
        gauges["messages_bytes"] += destination.octets if isinstance(destination, Queue) else 0
        gauges["consumers"] += destination.consumers
        gauges["paused"] += destination.is_paused


class _BrokerCollector(Collector):
    """Collects the broker's metrics on each request."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the broker, then those of its destinations."""
        yield from self._whole()
        rows = self._rows()
        for name, text in _COUNTERS.items():
            counts = [(labels, getattr(row.totals, name)) for labels, row in rows.items()]
            yield counter(f"stompkit_messages_{name}", text, counts, _LABELS)
        for name, text in _GAUGES.items():
            values = [(labels, row.gauges[name]) for labels, row in rows.items()]
            yield gauge(f"stompkit_{name}", text, values, _LABELS)

    def _whole(self) -> Iterator[Metric]:
        context = self._context
        now = overview(context)
        yield InfoMetricFamily(
            "stompkit",
            "The broker.",
            value={"version": now.version, "compiled": str(now.is_compiled).lower()},
        )
        yield _gauge(
            "ready", "Whether clients can work with the broker.", context.trouble() is None
        )
        yield from self._lease()
        yield _gauge("start_time_seconds", "When the broker was started.", context.started_at)
        yield _gauge("connections", "Clients that are connected.", now.connections)
        yield _gauge("subscriptions", "Subscriptions of all clients.", now.subscriptions)
        hosts = context.broker.hosts.values()
        found = sum(len(each.destinations) for each in hosts)
        yield _gauge("destinations", "Destinations that exist.", found)
        durables = sum(len(each.durables) for each in hosts)
        yield _gauge("durable_subscriptions", "Durable subscriptions that exist.", durables)
        timers = len(context.reactor.getDelayedCalls())
        yield _gauge("timers", "Calls that the broker has scheduled.", timers)
        failed = now.store.failure is not None
        yield _gauge("store_failed", "Whether the last write to the store has failed.", failed)
        yield self._logins()
        yield self._certificates()
        if now.store.octets is not None:
            yield _gauge("store_bytes", "Bytes of the store on disk.", now.store.octets)

    def _lease(self) -> Iterator[Metric]:
        activation = self._context.activation
        found = activation.lease
        is_active = activation.is_active if found is None else found.own_epoch > 0
        text = "Whether this broker works on its store, and no other broker does."
        yield _gauge("active", text, is_active)
        if found is not None:
            yield _gauge("lease_epoch", "Number of times that the lease was acquired.", found.epoch)
            yield _gauge(
                "lease_age_seconds", "Seconds since the lease was read or renewed.", found.age_s
            )

    def _logins(self) -> Metric:
        text = "Logins of clients, and tokens at the admin interface, by their outcome."
        logins = self._context.logins()
        counts = [
            ((by, outcome.value), logins.get(by, {}).get(outcome, 0))
            for by in ("admin", "client")
            for outcome in Outcome
        ]
        return counter("stompkit_logins", text, counts, ("by", "outcome"))

    def _certificates(self) -> Metric:
        text = "When the certificate of a TLS endpoint expires."
        dates = list(self._context.certificates.current().items())
        return gauge(
            "stompkit_certificate_expiry_timestamp_seconds", text, dates, ("listener", "file")
        )

    def _rows(self) -> dict[tuple[str, str, str], _Row]:
        """Return destinations by their labels; those beyond the limit, or removed, are summed."""
        most = self._context.settings.admin.max_metric_destinations
        rows: dict[tuple[str, str, str], _Row] = {}
        for host in self._context.broker.hosts.values():
            other = rows.setdefault((host.name, _OTHER, _OTHER), _Row())
            other.totals = other.totals.plus(host.past)
        for destination in places(self._context.broker):
            labels = destination.host.name, text_of(destination.name), kind_of(destination)
            # Each host already has one row for the others.
            if len(rows) >= most + len(self._context.broker.hosts):
                labels = destination.host.name, _OTHER, _OTHER
            rows.setdefault(labels, _Row()).add(destination)
        return rows


def _gauge(name: str, text: str, value: float) -> Metric:
    return gauge(f"stompkit_{name}", text, value)
