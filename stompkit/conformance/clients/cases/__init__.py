"""The cases about clients, by subject."""

from stompkit.conformance.clients.case import ClientCase, gather
from stompkit.conformance.clients.cases import (
    answers,
    bodies,
    connecting,
    ending,
    failover,
    framing,
    headers,
    heartbeats,
    subscribing,
    transactions,
)

__all__ = ["all_cases"]


def all_cases() -> list[ClientCase]:
    """Return all cases, in the order of a session."""
    return gather(
        [
            connecting,
            subscribing,
            headers,
            bodies,
            framing,
            answers,
            transactions,
            heartbeats,
            ending,
            failover,
        ]
    )
