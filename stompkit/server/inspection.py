"""Read-only view of a broker's destinations and connections, for tools and tests."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from stompkit.server.domain.broker import Broker
from stompkit.server.domain.destinations import Destination
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.domain.session.base import sessions_of

__all__ = ["ConnectionState", "DestinationState", "connections", "destinations"]


class DestinationState(NamedTuple):
    """One destination, or durable subscription, of one virtual host.

    ``kind`` is the first level of the name: ``queue``, ``topic``, ``fanout``, ``temp-queue``,
    ``temp-topic``, ``dlq``, or ``durable`` for a durable subscription. ``ready`` messages wait for
    delivery, ``delayed`` ones for their due time, and ``in_flight`` ones for acknowledgement.
    """

    name: str
    kind: str
    host: str
    ready: int
    in_flight: int
    delayed: int
    consumers: int


class ConnectionState(NamedTuple):
    """One client. ``version`` is ``None`` before login."""

    peer: str
    version: str | None
    user: str
    host: str
    subscriptions: int
    in_flight: int


def destinations(broker: Broker) -> list[DestinationState]:
    """Return all destinations in order of creation; runs in time linear in messages in flight."""
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
    """Return all clients, in no order; a closing client is included until its stream has ended."""
    return [
        ConnectionState(
            each.peer,
            each.protocol if each.is_logged_in else None,
            each.user.name,
            each.host.name,
            len(each.subscriptions),
            len(each.ledger),
        )
        for each in sessions_of(broker)
    ]
