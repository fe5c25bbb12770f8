"""Events of a broker that shares its store with others by a lease."""

from __future__ import annotations

from stompkit.server.log.event import log_event

__all__ = [
    "failover_asked",
    "lease_acquired",
    "lease_failed",
    "lease_handed_over",
    "lease_joined",
    "lease_lost",
    "lease_waits",
    "name_taken",
    "takeover_failed",
]


@log_event("info", "the active broker is asked to hand over to {successor}[ by {peer}]")
def failover_asked(*, successor: str, peer: str = "") -> None:
    """An operator has asked for a planned failover."""


@log_event("info", "{name} takes part in the lease of {store}")
def lease_joined(*, name: str, store: str) -> None:
    """The broker competes for the lease, and is passive until it acquires it."""


@log_event("info", "{name} has the lease, epoch {epoch}: taking over")
def lease_acquired(*, name: str, epoch: int) -> None:
    """The broker opens the store, and is active then."""


@log_event("error", "{name} is not active any more: {reason} (epoch {epoch})")
def lease_lost(*, name: str, epoch: int, reason: str) -> None:
    """The broker ends all sessions, since another one may have taken over."""


@log_event("info", "{name} hands the lease over to {successor}")
def lease_handed_over(*, name: str, successor: str) -> None:
    """An operator has asked the broker to hand over; it ends all sessions in good order."""


@log_event("error", "{name} cannot take over: {error}")
def takeover_failed(*, name: str, error: str) -> None:
    """The broker has the lease, but cannot open the store; it releases the lease."""


@log_event("warning", "cannot read or renew the lease: {error}")
def lease_failed(*, error: str) -> None:
    """The database does not answer any more; logged once until it answers again."""


@log_event("warning", "waiting for the database of the lease: {error}")
def lease_waits(*, error: str) -> None:
    """The broker has started, and the database does not answer yet; logged once."""


@log_event(
    "error",
    "another broker is also called {name}: give each a different name in [high_availability]",
)
def name_taken(*, name: str) -> None:
    """Two running brokers of one store have the same name."""
