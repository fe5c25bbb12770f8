"""Durable topic subscriptions."""

from __future__ import annotations

__all__ = ["durable_subscription"]


def durable_subscription(name: str) -> dict[str, str]:
    """Return the SUBSCRIBE headers of a durable topic subscription, as each broker spells them.

    RabbitMQ and stompkit brokers need nothing else. ActiveMQ and Artemis also need a ``client-id``
    that no other connection uses at the same time::

        Link(hosts, connect_headers={"client-id": name})
    """
    return {
        "id": name,
        "activemq.subscriptionName": name,
        "durable-subscriber-name": name,
        "durable-subscription-name": name,
        "durable": "true",
        "auto-delete": "false",
    }
