"""Output of a replica's status, for ``stompkit replica status`` and ``peers``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stompkit._commands.shared.text import aligned, duration
from stompkit._commands.shared.values import shown_key
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.replica.engine import PeerStatus, Status
from stompkit.replica.vectors import dot_text

__all__ = ["as_json", "peer_lines", "print_lines", "status_lines"]

#: Maximum number of items to list; the rest is counted.
_MOST = 10


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        print(line)


def as_json(document: object) -> str:
    """Return data as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode()


def status_lines(status: Status, *, now: float, faults: Sequence[str] = ()) -> list[str]:
    """Return the stored status of a replica as lines of text; ``now`` is in seconds since 1970.

    ``faults`` are listed at the end.
    """
    facts = list(_facts(status))
    lines = [f"{status.origin}  trunk {status.trunk}"]
    lines += (f"  {line}" for line in aligned(facts))
    if status.peers:
        lines += ["", *peer_lines(status, now=now)]
    if faults:
        lines += ["", *(f"! {shown(fault)}" for fault in faults)]
    return lines


def _facts(status: Status) -> Iterator[tuple[str, str]]:
    if status.channels:
        # Only the process that runs the replica knows if they are connected.
        yield "channels", "  ".join(shown(channel) for channel, _ in status.channels)
    total = amount(sum(status.vector.values()), "changeset")
    yield "vector", f"{total}{': ' if status.vector else ''}{vector_text(status.vector)}"
    yield "heads", "  ".join(head[:12] for head in status.heads) or "none"
    if status.held:
        waiting = amount(status.held, "changeset")
        yield "held back", f"{waiting}, {amount(status.held_bytes, 'octet')}"
    yield from _listed("quarantine", (f"{dot}  {shown(why)}" for dot, why in status.quarantined))
    yield from _listed("skipped", (f"{dot}  {shown(why)}" for dot, why in status.skipped))
    if status.conflicts:
        yield "conflicts", f"{amount(status.conflicts, 'row')}: `stompkit replica conflicts`"
    yield from _listed("problems", map(_problem, status.problems))
    rows = (f"{shown(table)}: {count:,}" for table, (_, count) in sorted(status.digests.items()))
    yield from _listed("rows", rows)
    counts = {name: count for name, count in sorted(status.counts.items()) if count}
    if counts:
        yield "counts", "  ".join(f"{name} {count:,}" for name, count in counts.items())


def _problem(problem: tuple[str, Mapping[str, Any], str]) -> str:
    table, key, reason = problem
    return f"{shown(table)} {shown_key(key)}  {shown(reason)}"


def _listed(name: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield a line for each text, and the number of omitted ones."""
    listed = list(texts)
    for number, text in enumerate(listed[:_MOST]):
        yield "" if number else name, text
    if len(listed) > _MOST:
        yield "", f"and {len(listed) - _MOST:,} more"


def vector_text(vector: Mapping[str, int]) -> str:
    """Return a vector in one line: the last changeset of each origin."""
    return "  ".join(dot_text(dot) for dot in sorted(vector.items()))


def peer_lines(status: Status, *, now: float) -> list[str]:
    """Return a table of the other nodes, with a header line."""
    if not status.peers:
        return ["no other node was ever heard of"]
    rows: list[tuple[str, ...]] = [("peer", "lacks", "for", "has more", "heard", "by")]
    rows += (_peer(peer, status, now) for peer in status.peers)
    return aligned(rows, right=(1, 3))


def _peer(peer: PeerStatus, status: Status, now: float) -> tuple[str, ...]:
    channels = (status.channels[port][0] for port in peer.ports if port < len(status.channels))
    received = f"{duration(now - peer.heard_at)} ago" if peer.heard_at else "never"
    mark = {"send": " (sends only)", "receive": " (receives only)"}.get(peer.direction, "")
    return (
        f"{peer.origin}{mark}",
        f"{peer.behind:,}",
        duration(peer.behind_s) if peer.behind else "",
        f"{peer.ahead:,}",
        received,
        "  ".join(map(shown, channels)) or ("" if peer.ports else "relay"),
    )
