"""Formatting of the lease of brokers that share a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stompkit._common.text import shown

__all__ = ["lease_lines"]


def lease_lines(lease: dict[str, Any]) -> Iterator[str]:
    """Yield lines about the owner of a lease, and about all brokers that share it."""
    owner, failure = lease["owner"], lease["failure"]
    if owner is None and failure is not None:
        yield "the owner of the lease is not known: the database does not answer"
    elif owner is None:
        yield f"no broker has the lease, epoch {lease['epoch']}"
    else:
        yield (
            f"{shown(owner)} has the lease, epoch {lease['epoch']}, for {lease['held_s']:.0f} s,"
            f" renewed {_renewed_s(lease):.0f} s ago"
        )
    # What the database said last becomes older while it does not answer.
    older_s = 0.0 if failure is None else float(lease["age_s"] or 0.0)
    width = max((len(shown(each["name"])) for each in lease["brokers"]), default=0)
    for each in lease["brokers"]:
        role = f"{each['role']:<8}"
        seen_s = max(each["seen_s"], 0) + older_s
        yield f"{shown(each['name']):<{width}}  {role} seen {seen_s:.0f} s ago"
    if failure is not None:
        yield f"warning: {lease['name']} cannot read the lease: {shown(failure)}"


def _renewed_s(lease: dict[str, Any]) -> float:
    """Return the seconds since the owner has renewed the lease; older brokers do not report it."""
    renewed_s = float(lease.get("renewed_s", lease["lease_s"] - lease["remaining_s"]))
    return max(0.0, renewed_s + float(lease["age_s"] or 0.0))
