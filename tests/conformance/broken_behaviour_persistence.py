"""Servers that break one rule about durable subscriptions, or about the time of messages."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.conformance.proxy import Fault, make_harmless, requests
from tests.conformance.raw import Raw

#: The headers of a durable subscription that name it.
NAMES = ("activemq.subscriptionName", "durable-subscriber-name", "durable-subscription-name")

#: What a message may take at most on its way to the fault, in seconds.
LATE_S = 60.0


def is_durable(frame: Raw) -> bool:
    """Whether a frame speaks of a durable subscription."""
    return frame.get("durable") == "true"


class ForgetsTheSecond(Fault):
    """Forgets the second message for a durable subscriber that is away."""

    found_by = ("behaviour/durable/in-order", "behaviour/durable/independent")
    #: The topic of this connection's durable subscription, and how many messages of it have come
    #: since the client has left.
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
    """Answers the ACK of a durable subscription's message, and delivers the message again."""

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
    """Goes on collecting after UNSUBSCRIBE, whatever that says."""
    frame.drop("durable", "auto-delete", *NAMES)


@requests("SUBSCRIBE", "behaviour/durable/independent")
def one_for_all(frame: Raw) -> None:
    """Has one durable subscription of a topic, for all clients together."""
    if is_durable(frame):
        frame.drop(*NAMES)
        frame.put("x-queue-name", frame.get("destination") or "")


@requests("SEND", "behaviour/expiry/in-time")
def ten_minutes_are_too_long(frame: Raw) -> None:
    """Takes a message that has ten minutes for one that has none."""
    if int(frame.get("expiration") or 0) > 60_000:
        frame.put("expires", "1000")


@requests("SEND", "behaviour/expiry/waiting")
def looks_once(frame: Raw) -> None:
    """Looks at the time of a message only when it arrives."""
    # What has come late, since the machine is busy, was not too late when it was sent.
    if int(frame.get("expires") or 0) > (time.time() - LATE_S) * 1_000:
        frame.drop("expires", "expiration")
