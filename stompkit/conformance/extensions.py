"""Headers by which extensions are asked for that several brokers have and STOMP does not.

What is asked for is a capability, whatever the product: where brokers spell it differently, one
frame carries all spellings at once, since a broker ignores headers that it does not know.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Final

__all__ = [
    "BROWSING",
    "LOW",
    "PERSISTENT",
    "PRIORITIES",
    "TOP",
    "dead_letter_queues",
    "delayed",
    "durable_client",
    "durable_subscription",
    "expired",
    "lives",
    "new_name",
    "temporary_queue",
]

#: For SEND: the message is to survive the end of the server.
PERSISTENT: Final[Mapping[str, str]] = {"persistent": "true"}
#: For SUBSCRIBE: look at the messages of a queue without taking them out of it.
BROWSING: Final[Mapping[str, str]] = {"browser": "true"}
#: For all frames that name a queue with priorities, of which some brokers have to be told.
PRIORITIES: Final[Mapping[str, str]] = {"x-max-priority": "9"}
#: For SEND: the priority of what is to come last, and first.
LOW: Final[Mapping[str, str]] = {"priority": "1"}
TOP: Final[Mapping[str, str]] = {"priority": "9"}


def new_name() -> str:
    """A word that nobody has used as the name of something."""
    return f"stompkit-{secrets.token_hex(5)}"


def durable_client(name: str) -> dict[str, str]:
    """For CONNECT: who the owner of durable subscriptions is."""
    return {"client-id": name}


def durable_subscription(name: str) -> dict[str, str]:
    """For SUBSCRIBE, and for the UNSUBSCRIBE that ends the subscription for good."""
    return {
        "id": name,
        "activemq.subscriptionName": name,
        "durable-subscriber-name": name,
        "durable-subscription-name": name,
        "durable": "true",
        "auto-delete": "false",
    }


def lives(milliseconds: int) -> dict[str, str]:
    """For SEND: how long the message is of use, at least 1 ms; by the suite's clock."""
    return {
        "expires": str(time.time_ns() // 1_000_000 + milliseconds),
        "expiration": str(milliseconds),
    }


def expired() -> dict[str, str]:
    """For SEND: the message is of no use any more, whatever the time is at the server."""
    return {"expires": "1000", "expiration": "1"}


def dead_letter_queues(queue: str) -> tuple[str, ...]:
    """Where brokers put, without having been told to, what they can't deliver from a queue."""
    return ("/queue/ActiveMQ.DLQ", "/dlq/" + queue.removeprefix("/queue/"))


def delayed(milliseconds: int) -> dict[str, str]:
    """For SEND: how long the message is to be kept back."""
    return {
        "AMQ_SCHEDULED_DELAY": str(milliseconds),
        "delay": str(milliseconds),
        "x-delay": str(milliseconds),
    }


def temporary_queue(name: str) -> str:
    """A destination for replies that is the client's own."""
    return f"/temp-queue/{name}"
