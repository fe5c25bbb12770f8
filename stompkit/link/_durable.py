"""Subscriptions to topics that brokers keep while nobody is connected."""

from __future__ import annotations

__all__ = ["durable_subscription"]


def durable_subscription(name: str) -> dict[str, str]:
    """The headers of SUBSCRIBE that make a subscription to a topic durable, in all spellings.

    RabbitMQ's and stompkit's brokers need nothing else. For ActiveMQ and Artemis the connection has
    to have a ``client-id``, which no other has at the same time::

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
