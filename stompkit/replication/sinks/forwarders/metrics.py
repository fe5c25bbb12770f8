"""Counters of changes, for statsd and Prometheus."""

from __future__ import annotations

import re
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection
from datetime import UTC
from typing import Final
from urllib.parse import urlsplit

import prometheus_client
import statsd

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.sinks.forwarders._choice import choose

__all__ = ["OTHER", "PrometheusMetrics", "StatsdCounters", "prometheus_sub", "statsd_sub"]

#: Common name of tables beyond the maximum number of names.
OTHER: Final = "other"
#: Histogram buckets: number of rows of a changeset.
_BUCKETS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]")
_STATSD_PORT: Final = 8125


class _Names:
    """Names of tables, with a maximum number of distinct names."""

    def __init__(self, tables: Collection[str] | None, max_tables: int) -> None:
        if max_tables < 0:
            raise ValueError(f"max_tables is a number of tables, not {max_tables}")
        self._name_of = choose(tables)
        self._most = max_tables
        self._known: set[str] = set()

    def tally(self, changeset: Changeset) -> Tally[tuple[str, str]]:
        """Return the number of changes by table and action."""
        return Tally(
            (name, change.action)
            for change in changeset.changes
            if (name := self._name(change)) is not None
        )

    def _name(self, change: RowChange) -> str | None:
        name = self._name_of(change)
        if name is None or name in self._known:
            return name
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(name)
        return name


# statsd.


def statsd_sub(
    statsd_dsn: str,
    tables: Collection[str] | None,
    prefix: str = "stompkit.replication",
    rate: float = 1,
    *,
    max_tables: int = 1000,
) -> StatsdCounters:
    """Count row changes as ``PREFIX.TABLE.ACTION`` in statsd, by UDP.

    ``statsd_dsn`` is ``statsd://HOST:PORT`` or ``HOST:PORT``, the port by default 8125. ``rate`` is
    the share of the counts that are sent, above 0 and up to 1. Characters with a meaning in statsd
    are replaced by underscores in names. At most ``max_tables`` tables have their own names, the
    rest is ``other``.

    Raises ``ValueError`` for invalid arguments, and ``OSError`` for a host without an address. A
    missing server is never an error.
    """
    counters = StatsdCounters(statsd_dsn, tables, prefix, rate, max_tables)
    CHANGESET.connect(counters, weak=False)
    return counters


class StatsdCounters:
    """Counts changes in statsd; the handle of :func:`statsd_sub`."""

    def __init__(
        self,
        statsd_dsn: str,
        tables: Collection[str] | None,
        prefix: str,
        rate: float,
        max_tables: int,
    ) -> None:
        """Open the socket; raises ``ValueError`` and ``OSError``."""
        if not 0 < rate <= 1:
            raise ValueError(f"rate is above 0 and up to 1, not {rate}")
        self._names = _Names(tables, max_tables)
        self._rate = rate
        host, port = _address(statsd_dsn)
        self.client = statsd.StatsClient(
            host, port, prefix=_UNFIT.sub("_", prefix) or None, ipv6=":" in host
        )
        """The client, for the caller's own counts."""

    def __call__(self, changeset: Changeset) -> None:
        """Count the changes of a changeset, in as few datagrams as possible."""
        tally = self._names.tally(changeset)
        if not tally:
            return
        with self.client.pipeline() as pipeline:
            for (table, action), count in tally.items():
                pipeline.incr(f"{_UNFIT.sub('_', table)}.{action}", count, self._rate)

    def close(self) -> None:
        """Stop counting, and close the socket."""
        CHANGESET.disconnect(self)
        self.client.close()


def _address(dsn: str) -> tuple[str, int]:
    parts = urlsplit(dsn if "://" in dsn else f"statsd://{dsn}")
    if parts.scheme not in ("statsd", "udp") or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"{dsn!r} is not statsd://HOST:PORT")
    return parts.hostname, parts.port or _STATSD_PORT


# Prometheus.


def prometheus_sub(
    tables: Collection[str] | None = None,
    registry: prometheus_client.CollectorRegistry | None = None,
    *,
    max_tables: int = 200,
    clock: Callable[[], float] = time.time,
) -> PrometheusMetrics:
    """Keep metrics of the changes in this process, in ``registry`` or the default one.

    ``stompkit_replication_changes_total{table,action}``
        row changes, truncations and schema changes.
    ``stompkit_replication_changesets_total``
        changesets with a change of ``tables``.
    ``stompkit_replication_changeset_changes``
        histogram of the number of changes of ``tables`` in these.
    ``stompkit_replication_lag_seconds``
        time from the source's timestamp of the newest changeset until its arrival here. It is
        unchanged if the source gives no timestamp.

    At most ``max_tables`` tables have their own names, the rest is ``other``. ``clock`` returns
    seconds since 1970. Raises ``ValueError`` if ``tables`` is not a list, tuple or set, and if the
    registry has these metrics already.
    """
    metrics = PrometheusMetrics(tables, registry, max_tables, clock)
    CHANGESET.connect(metrics, weak=False)
    return metrics


class PrometheusMetrics:
    """Counts changes for Prometheus; the handle of :func:`prometheus_sub`."""

    def __init__(
        self,
        tables: Collection[str] | None,
        registry: prometheus_client.CollectorRegistry | None,
        max_tables: int,
        clock: Callable[[], float],
    ) -> None:
        """Register the metrics; raises ``ValueError``."""
        self._names = _Names(tables, max_tables)
        self._clock = clock
        self._registry = prometheus_client.REGISTRY if registry is None else registry
        prefix = "stompkit_replication"
        self._changes = prometheus_client.Counter(
            f"{prefix}_changes", "Changes of rows.", ("table", "action"), registry=self._registry
        )
        self._changesets = prometheus_client.Counter(
            f"{prefix}_changesets", "Changesets with such changes.", registry=self._registry
        )
        self._sizes = prometheus_client.Histogram(
            f"{prefix}_changeset_changes",
            "Changes in one changeset.",
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._lag = prometheus_client.Gauge(
            f"{prefix}_lag_seconds",
            "Time from the commit at the source until the changeset was here.",
            registry=self._registry,
        )

    def __call__(self, changeset: Changeset) -> None:
        """Count a changeset."""
        when = changeset.source.time
        if when is not None:
            # A time without a zone is UTC: this process may be in another zone.
            aware = when if when.tzinfo else when.replace(tzinfo=UTC)
            self._lag.set(max(0.0, self._clock() - aware.timestamp()))
        tally = self._names.tally(changeset)
        if not tally:
            return
        for (table, action), count in tally.items():
            self._changes.labels(table, action).inc(count)
        self._changesets.inc()
        self._sizes.observe(tally.total())

    def close(self) -> None:
        """Stop counting, and remove the metrics from the registry."""
        CHANGESET.disconnect(self)
        for each in (self._changes, self._changesets, self._sizes, self._lag):
            self._registry.unregister(each)
