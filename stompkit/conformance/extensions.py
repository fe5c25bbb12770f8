"""Headers of extensions that several brokers support and STOMP does not define.

Each function requests a capability, independent of the product. If brokers spell it differently,
one frame has all spellings at once, since a broker ignores unknown headers.
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

#: For SEND: the message survives the end of the server.
PERSISTENT: Final[Mapping[str, str]] = {"persistent": "true"}
#: For SUBSCRIBE: browse the messages of a queue without consuming them.
BROWSING: Final[Mapping[str, str]] = {"browser": "true"}
#: For all frames that name a queue with priorities, which some brokers require.
PRIORITIES: Final[Mapping[str, str]] = {"x-max-priority": "9"}
#: For SEND: the priority of a message that comes last, and of one that comes first.
LOW: Final[Mapping[str, str]] = {"priority": "1"}
TOP: Final[Mapping[str, str]] = {"priority": "9"}


def new_name() -> str:
    """Return a word that is not yet used as a name."""
    return f"stompkit-{secrets.token_hex(5)}"


def durable_client(name: str) -> dict[str, str]:
    """Return headers for CONNECT: the owner of durable subscriptions."""
    return {"client-id": name}


def durable_subscription(name: str) -> dict[str, str]:
    """Return headers for SUBSCRIBE, and for the UNSUBSCRIBE that deletes the subscription."""
    return {
        "id": name,
        "activemq.subscriptionName": name,
        "durable-subscriber-name": name,
        "durable-subscription-name": name,
        "durable": "true",
        "auto-delete": "false",
    }


def lives(milliseconds: int) -> dict[str, str]:
    """Return headers for SEND: the lifetime of the message, at least 1 ms, by the suite's clock."""
    return {
        "expires": str(time.time_ns() // 1_000_000 + milliseconds),
        "expiration": str(milliseconds),
    }


def expired() -> dict[str, str]:
    """Return headers for SEND: an expired message, whatever the time at the server."""
    return {"expires": "1000", "expiration": "1"}


def dead_letter_queues(queue: str) -> tuple[str, ...]:
    """Return the default dead-letter queues of brokers for a queue."""
    return ("/queue/ActiveMQ.DLQ", "/dlq/" + queue.removeprefix("/queue/"))


def delayed(milliseconds: int) -> dict[str, str]:
    """Return headers for SEND: the delay of the delivery in milliseconds."""
    return {
        "AMQ_SCHEDULED_DELAY": str(milliseconds),
        "delay": str(milliseconds),
        "x-delay": str(milliseconds),
    }


def temporary_queue(name: str) -> str:
    """Return a reply destination that belongs to the client."""
    return f"/temp-queue/{name}"
