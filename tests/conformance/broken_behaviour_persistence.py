"""Servers that break one rule about durable subscriptions, or about the expiry of messages."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.conformance.proxy import Fault, make_harmless, requests
from tests.conformance.raw import Raw

#: Headers with the name of a durable subscription.
NAMES = ("activemq.subscriptionName", "durable-subscriber-name", "durable-subscription-name")

#: Maximum delay of a message on its way to the fault, in seconds.
LATE_S = 60.0


def is_durable(frame: Raw) -> bool:
    """Return True if a frame refers to a durable subscription."""
    return frame.get("durable") == "true"


class ForgetsTheSecond(Fault):
    """Loses the second message for a disconnected durable subscriber."""

    found_by = ("behaviour/durable/in-order", "behaviour/durable/independent")
    #: The topic of this connection's durable subscription, and the number of its messages since the
    #: client disconnected.
    topic: str | None = None
    missed: int | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination = frame.get("destination")
        if frame.command == b"SUBSCRIBE" and is_durable(frame):
            self.topic = destination
            for each in self.connections:
                if each.topic == destination:
                    each.missed = None
        elif frame.command == b"DISCONNECT" and self.topic is not None:
            self.missed = 0
        elif frame.command == b"SEND":
            for each in self.connections:
                if each.topic == destination and each.missed is not None:
                    each.missed += 1
                    if each.missed == 2:
                        make_harmless(frame)
        yield frame


class ForgetsAcknowledgements(Fault):
    """Confirms the ACK of a durable subscription's message, but redelivers the message."""

    found_by = ("behaviour/durable/acknowledged",)
    is_durable = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SUBSCRIBE":
            self.is_durable = is_durable(frame)
        if frame.command == b"ACK" and self.is_durable:
            make_harmless(frame)
        yield frame


@requests("UNSUBSCRIBE", "behaviour/durable/unsubscribe")
def never_ends(frame: Raw) -> None:
    """Keeps the durable subscription after UNSUBSCRIBE, whatever its headers."""
    frame.drop("durable", "auto-delete", *NAMES)


@requests("SUBSCRIBE", "behaviour/durable/independent")
def one_for_all(frame: Raw) -> None:
    """Shares one durable subscription of a topic among all clients."""
    if is_durable(frame):
        frame.drop(*NAMES)
        frame.put("x-queue-name", frame.get("destination") or "")


@requests("SEND", "behaviour/expiry/in-time")
def ten_minutes_are_too_long(frame: Raw) -> None:
    """Treats a message that lives for ten minutes as expired."""
    if int(frame.get("expiration") or 0) > 60_000:
        frame.put("expires", "1000")


@requests("SEND", "behaviour/expiry/waiting")
def looks_once(frame: Raw) -> None:
    """Checks the expiry of a message only on arrival."""
    # A message that is late because the machine is busy had not expired when it was sent.
    if int(frame.get("expires") or 0) > (time.time() - LATE_S) * 1_000:
        frame.drop("expires", "expiration")
