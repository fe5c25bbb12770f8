"""What a broker has and who is there, for tools and for tests; it only looks."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from stompkit.server.domain.broker import Broker
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.queues.durables import DurableQueue

__all__ = ["ConnectionState", "DestinationState", "connections", "destinations"]


class DestinationState(NamedTuple):
    """One destination, or durable subscription, of one virtual host.

    ``kind`` is the first level of the name: ``queue``, ``topic``, ``fanout``, ``temp-queue``,
    ``temp-topic``, ``dlq``, or ``durable`` for a durable subscription. ``ready`` messages wait to
    be delivered, ``delayed`` ones for their time, and ``in_flight`` ones to be acknowledged.
    """

    name: str
    kind: str
    host: str
    ready: int
    in_flight: int
    delayed: int
    consumers: int


class ConnectionState(NamedTuple):
    """One client. ``version`` is ``None`` for one that has not logged in."""

    peer: str
    version: str | None
    user: str
    host: str
    subscriptions: int
    in_flight: int


def destinations(broker: Broker) -> list[DestinationState]:
    """All destinations, in the order in which they were made; takes time by what is in flight."""
    in_flight = Counter(entry.home for each in broker.connections for entry in each.ledger)
    found: list[Destination] = []
    for host in broker.hosts.values():
        found += [*host.destinations.values(), *host.durables.values()]
    return [
        DestinationState(
            each.name,
            "durable" if isinstance(each, DurableQueue) else each.name.split("/", 2)[1],
            each.host.name,
            each.ready,
            in_flight[each],
            each.delayed,
            each.consumers,
        )
        for each in found
    ]


def connections(broker: Broker) -> list[ConnectionState]:
    """All clients, in no order; one that is being closed is there until its stream has ended."""
    return [
        ConnectionState(
            each.peer,
            each.version if each.is_logged_in else None,
            each.user.name,
            each.host.name,
            len(each.subscriptions),
            len(each.ledger),
        )
        for each in broker.connections
    ]
