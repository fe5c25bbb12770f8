"""Status report of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stompkit.replica.applier import LACKING
from stompkit.replica.clock import seconds_of
from stompkit.replica.engine._core import Core
from stompkit.replica.engine._peers import Peers
from stompkit.replica.engine._snapshots import Snapshots
from stompkit.replica.engine._types import Peer, PeerStatus, Status
from stompkit.replica.identity import branch_of
from stompkit.replica.store import Reader
from stompkit.replica.vectors import count, dot_text, missing

__all__ = ["status_of"]

_MOST_PROBLEMS: Final = 100


def _peer_status(
    reader: Reader, own: Mapping[str, int], peer: Peer, ports: set[int], now: float
) -> PeerStatus:
    """Return the status of another node; ``own`` is this node's vector."""
    lacks = missing(peer.vector, own)
    oldest = now
    for origin, (first, _) in lacks.items():
        record = reader.changeset(origin, first)
        if record is not None:
            oldest = min(oldest, seconds_of(record.hlc))
    return PeerStatus(
        origin=peer.origin,
        vector=dict(peer.vector),
        behind=0 if peer.only_sends else count(lacks),
        behind_s=0.0 if peer.only_sends else max(now - oldest, 0.0),
        ahead=count(missing(own, peer.vector)),
        heard_at=peer.heard_at,
        ports=sorted(peer.ports | ports),
        direction=str(peer.facts.get("direction", "both")),
    )


def _namesakes(core: Core, peers: Peers) -> list[str]:
    """Return warnings for branches that more than one known node uses."""
    origins: dict[str, list[str]] = {}
    for origin in (core.origin, *(each.origin for each in peers.all())):
        origins.setdefault(branch_of(origin), []).append(origin)
    return [
        f"{len(found)} nodes are called {branch!r}: {', '.join(sorted(found))}. Give each another"
        " branch_id, or forget those that are gone: stompkit replica forget"
        for branch, found in sorted(origins.items())
        if len(found) > 1
    ]


def _lacking(columns: dict[str, list[str]]) -> list[str]:
    """Return warnings for columns that other nodes have and the tables here lack."""
    return [
        f"the table {table} has no column {', '.join(names)} here: the values of other nodes are "
        "kept until it has, and this node is started or `stompkit replica retry` is run"
        for table, names in sorted(columns.items())
        if names
    ]


def status_of(core: Core, peers: Peers, snapshots: Snapshots, refused: list[str]) -> Status:
    """Return the complete status."""
    now = core.wall()
    with core.store.reading() as reader:
        vector = reader.vector()
        tip = reader.meta("tip") or {"heads": []}
        held, held_bytes = reader.held_size()
        before = {origin: set(each.ports) for origin, each in reader.peers().items()}
        return Status(
            origin=core.origin,
            branch=core.node.branch,
            trunk=core.node.trunk,
            session=core.session,
            vector=vector,
            heads=list(tip["heads"]),
            channels=[
                (channel, port in core.connected)
                for port, channel in enumerate(core.settings.channels)
            ],
            peers=[
                _peer_status(reader, vector, each, before.get(each.origin, set()), now)
                for each in peers.all()
            ],
            held=held,
            held_bytes=held_bytes,
            quarantined=[
                (dot_text((each.origin, each.sequence)), each.problem)
                for each in reader.held()
                if each.is_quarantined
            ]
            if held
            else [],
            skipped=[
                (dot_text((origin, sequence)), problem)
                for origin, sequence, problem in reader.meta("skipped") or []
            ],
            conflicts=reader.conflict_count(),
            problems=[
                (each.table, each.key, each.problem)
                for each in reader.with_problems(limit=_MOST_PROBLEMS)
            ],
            digests={
                table: (f"{digest:032x}", rows)
                for table, (digest, rows) in reader.digests().items()
            },
            diverged=peers.diverged_now(),
            warnings=[
                *core.warnings.values(),
                *_namesakes(core, peers),
                *_lacking(reader.meta(LACKING) or {}),
                *refused,
                *filter(None, [snapshots.obstacle]),
            ],
            bootstrap="running" if snapshots.is_running else "",
            counts=dict(core.counts),
        )
