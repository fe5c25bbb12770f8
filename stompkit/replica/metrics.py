"""Health check and Prometheus metrics of a replica.

Only the metrics need the extra ``metrics``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from stompkit._common.metrics import counter, gauge
from stompkit.replica.engine import PeerStatus, Status

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["OTHER", "ReplicaMetrics", "health", "prometheus_replica"]

#: Label for the peers beyond the maximum number of labelled ones.
OTHER: Final = "other"

_PREFIX: Final = "stompkit_replica"
_UP: Final = "Whether the replica's status could be told."

_log: Final = logging.getLogger(__name__)


# Health.


def health(
    status: Status, *, max_lag_s: float | None = None, needs_broker: bool = True
) -> list[str]:
    """Return the problems that need attention, as sentences; empty if the replica is healthy.

    ``max_lag_s`` is the maximum time for which another node may lack changesets of this one; by
    default unlimited, since nodes may be offline. With ``needs_broker``, a missing connection is a
    problem. Conflicts are no problem: each has a winner.
    """
    found = list(status.warnings)
    if needs_broker:
        found += (
            f"there is no connection to the broker of channel {channel}"
            for channel, is_connected in status.channels
            if not is_connected
        )
    if status.bootstrap:
        found.append(f"bootstrap: {status.bootstrap}")
    if status.quarantined:
        found.append(f"{_amount(len(status.quarantined), 'changeset')} in quarantine")
    if status.problems:
        found.append(f"{_amount(len(status.problems), 'row')} refused by the tables or a rule")
    found += (
        f"{peer} has the same changesets and other rows in {', '.join(tables)}"
        for peer, tables in sorted(status.diverged.items())
    )
    if max_lag_s is not None:
        found += (
            f"{peer.origin} has lacked changesets for {peer.behind_s:.0f} s"
            for peer in status.peers
            if peer.behind and peer.behind_s > max_lag_s
        )
    return found


def _amount(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# Prometheus.

#: Counters of :attr:`Status.counts`, with the help text of their metrics.
_COUNTS: Final = {
    "applied": "Changesets of other nodes that were applied.",
    "duplicates": "Changesets that came again.",
    "dropped": "Changesets that came too early when too many were held already.",
    "refused": "Messages and changesets that were not taken.",
    "sent": "Frames that were sent.",
    "received": "Frames that were received.",
    "requests": "Requests to other nodes for what is missing.",
    "timeouts": "Requests that were not answered in time.",
    "served": "Changesets that were sent to nodes that have asked for them.",
    "bootstraps": "Snapshots of all rows that were begun to be taken from other nodes.",
    "renewed": "Times that this node got another identity.",
}

#: Gauges, with their help text.
_GAUGES: Final[dict[str, tuple[str, Callable[[Status], float]]]] = {
    "peers": ("Other nodes that are known.", lambda status: len(status.peers)),
    "held": ("Changesets that wait for others before them.", lambda status: status.held),
    "held_bytes": ("Octets of changesets that wait.", lambda status: status.held_bytes),
    "quarantined": (
        "Changesets that cannot be applied.",
        lambda status: len(status.quarantined),
    ),
    "skipped": (
        "Changesets that somebody has had left out here.",
        lambda status: len(status.skipped),
    ),
    "conflicts": ("Rows with losers of a conflict.", lambda status: status.conflicts),
    "problems": (
        "Rows that the tables refuse, or for which a rule has failed.",
        lambda status: len(status.problems),
    ),
    "divergence": (
        "Tables with other rows than at a node with the same changesets.",
        lambda status: len({table for tables in status.diverged.values() for table in tables}),
    ),
    "changesets": (
        "Changesets that were ever applied here, own ones included.",
        lambda status: sum(status.vector.values()),
    ),
}

#: Gauges by peer.
_OF_PEERS: Final[dict[str, tuple[str, Callable[[PeerStatus], float]]]] = {
    "peer_lag_changesets": (
        "Changesets that a peer lacks, as far as is known.",
        lambda peer: peer.behind,
    ),
    "peer_lag_seconds": (
        "Age of the oldest changeset that a peer lacks, as far as is known.",
        lambda peer: peer.behind_s if peer.behind else 0.0,
    ),
    "peer_ahead_changesets": (
        "Changesets that a peer has and this node lacks.",
        lambda peer: peer.ahead,
    ),
}


def prometheus_replica(
    status: Callable[[], Status],
    registry: CollectorRegistry | None = None,
    *,
    max_peers: int = 200,
    max_lag_s: float | None = None,
) -> ReplicaMetrics:
    """Register metrics of a replica in ``registry``, or in the default one.

    ``status`` is the replica's method.

    ``stompkit_replica_up``
        1, or 0 if the status is unavailable because its database is; then this is the only metric.
    ``stompkit_replica_healthy``
        1 if :func:`health` finds no problem, otherwise 0.
    ``stompkit_replica_info{origin,branch,trunk}``
        1.
    ``stompkit_replica_connected{channel}``
        1 if the channel's broker is connected, otherwise 0.
    ``stompkit_replica_peer_lag_changesets{peer}``, ``stompkit_replica_peer_lag_seconds{peer}``
        changesets of this node that a peer lacks: their number, and the age of the oldest.
    ``stompkit_replica_peer_ahead_changesets{peer}``
        number of changesets that a peer has and this node lacks.
    ``stompkit_replica_held``, ``_held_bytes``, ``_quarantined``, ``_skipped``
        changesets held for their predecessors, changesets that cannot be applied, and skipped ones.
    ``stompkit_replica_conflicts``, ``_problems``
        rows with lost versions, and rows that the tables refuse or for which a rule has failed.
    ``stompkit_replica_divergence``
        tables whose rows differ from a node with the same changesets: always 0 without a defect.
    ``stompkit_replica_peers``, ``_changesets``
        number of known nodes, and of changesets ever applied here.
    ``stompkit_replica_applied_total``, ``_sent_total``, ``_received_total``, ...
        activity counters of this process.

    Each scrape reads the status. Up to ``max_peers`` are labelled by name; the worst value of the
    rest is labelled ``other``. Raises ``ValueError`` if the registry has these metrics already, and
    ``ModuleNotFoundError`` without prometheus_client.
    """
    return ReplicaMetrics(status, registry, max_peers, max_lag_s)


class ReplicaMetrics:
    """A Prometheus collector; the handle of :func:`prometheus_replica`."""

    def __init__(
        self,
        status: Callable[[], Status],
        registry: CollectorRegistry | None,
        max_peers: int,
        max_lag_s: float | None,
    ) -> None:
        """Register the metrics; raises ``ValueError``."""
        from prometheus_client import REGISTRY

        if max_peers < 0:
            raise ValueError(f"max_peers is a number of peers, not {max_peers}")
        self._status = status
        self._max_peers = max_peers
        self._max_lag_s = max_lag_s
        self._registry = REGISTRY if registry is None else registry
        self._registry.register(self)

    def close(self) -> None:
        """Unregister the metrics."""
        self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values: the registry uses them to reject duplicates."""
        return self._metrics(None)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        try:
            status = self._status()
        except Exception as error:
            # The monitoring system needs to know just that; a database error may contain its
            # address.
            _log.warning("the replica's status cannot be told: %s", type(error).__name__)
            return iter([_gauge("up", _UP, 0)])
        return self._metrics(status)

    def _metrics(self, status: Status | None) -> Iterator[Metric]:
        """Yield all metrics; without a status, only their descriptions."""
        yield _gauge("up", _UP, None if status is None else 1)
        is_healthy = None if status is None else not health(status, max_lag_s=self._max_lag_s)
        yield _gauge("healthy", "Whether nothing needs to be looked at.", is_healthy)
        info: list[tuple[tuple[str, ...], float]] = []
        connected: dict[tuple[str], float] = {}
        if status is not None:
            info.append(((status.origin, status.branch, status.trunk), 1))
            for channel, is_connected in status.channels:
                # Channels on two brokers can have the same name; they share one value.
                connected[(channel,)] = connected.get((channel,), 1) * is_connected
        labels = ("origin", "branch", "trunk")
        yield gauge(f"{_PREFIX}_info", "Who the replica is.", info, labels)
        text = "Whether a channel's broker is connected."
        yield gauge(f"{_PREFIX}_connected", text, connected.items(), ("channel",))
        for name, (what, value) in _GAUGES.items():
            yield _gauge(name, what, None if status is None else value(status))
        for name, (what, peer_value) in _OF_PEERS.items():
            yield gauge(f"{_PREFIX}_{name}", what, self._by_peer(status, peer_value), ("peer",))
        for name, what in _COUNTS.items():
            count = None if status is None else status.counts.get(name, 0)
            yield counter(f"{_PREFIX}_{name}", what, count)

    def _by_peer(
        self, status: Status | None, value: Callable[[PeerStatus], float]
    ) -> list[tuple[tuple[str], float]]:
        peers = [] if status is None else sorted(status.peers, key=lambda peer: peer.origin)
        found = [((peer.origin,), value(peer)) for peer in peers[: self._max_peers]]
        rest = [value(peer) for peer in peers[self._max_peers :]]
        return [*found, ((OTHER,), max(rest))] if rest else found


def _gauge(name: str, text: str, value: float | None) -> Metric:
    return gauge(f"{_PREFIX}_{name}", text, value)
