"""Servers that break one rule about redelivery, order or windows."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.broken_ack_modes import Ledger
from tests.conformance.broken_behaviour_acks import ALL, NEW, in_behaviour
from tests.conformance.proxy import Fault
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

# Redelivery.


class LeavingSettles(Ledger):
    """Acknowledges all pending messages on DISCONNECT."""

    found_by = in_behaviour(ALL, "redelivery/after-disconnect")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"DISCONNECT":
            for each in self.unsettled:
                if self.mode(each) == "client":
                    yield self.settling(each, Raw(b"ACK"))
        yield from super().from_client(frame)


class UnsubscribingSettles(Ledger):
    """Acknowledges all pending messages of a subscription on UNSUBSCRIBE."""

    found_by = (
        *in_behaviour(NEW, "redelivery/after-unsubscribe"),
        "behaviour/ack/cumulative-reused-id",
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"UNSUBSCRIBE":
            for each in self.unsettled:
                if each.get("subscription") == frame.get("id") and self.mode(each) == "client":
                    yield self.settling(each, Raw(b"ACK"))
        yield from super().from_client(frame)


class WaitingInVain(Ledger):
    """Does not redeliver returned messages to subscribers in the mode client."""

    found_by = in_behaviour(NEW, "redelivery/to-waiting-subscriber")

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        is_back = frame.command == b"MESSAGE" and frame.get("redelivered") == "true"
        if not is_back or self.mode(frame) != "client":
            yield frame


class TwoConsumersTwoCopies(Fault):
    """Duplicates a message that is sent to a queue with more than one consumer."""

    found_by = ("behaviour/order/shared-queue", "behaviour/redelivery/consumer-dies")
    destination: str | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination = frame.get("destination")
        if frame.command == b"SUBSCRIBE":
            self.destination = destination
        if frame.command == b"SEND" and (destination or "").startswith("/queue/"):
            consumers = [each for each in self.connections if each.destination == destination]
            if len(consumers) > 1:
                copy = Raw(frame.command, list(frame.lines), frame.body)
                copy.drop("receipt")
                yield copy
        yield frame


class Overtaking(Fault):
    """Swaps the fifth and the sixth of consecutive messages."""

    found_by = ("behaviour/order/per-sender",)

    def __init__(self, line: Line) -> None:
        """Start without messages."""
        super().__init__(line)
        self.in_a_row = 0
        self.late: list[Raw] = []

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        is_one = frame.command == b"SEND" and not (frame.get("receipt") or frame.get("transaction"))
        self.in_a_row = self.in_a_row + 1 if is_one else 0
        if self.in_a_row == 5:
            self.late.append(frame)
            return
        yield frame
        while self.late:
            yield self.late.pop()


# Windows.


class WindowStays(Fault):
    """Delivers as many messages as the prefetch window allows, but none after acknowledgements."""

    found_by = (
        *in_behaviour(NEW, "prefetch/next-after-ack"),
        "behaviour/prefetch/cumulative-refill",
        "behaviour/prefetch/others-go-on",
    )

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.room: dict[str | None, int] = {}

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        window = frame.get("prefetch-count")
        if frame.command == b"SUBSCRIBE" and window is not None:
            self.room[frame.get("id")] = int(window)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        subscription = frame.get("subscription")
        if frame.command == b"MESSAGE" and subscription in self.room:
            self.room[subscription] -= 1
        if self.room.get(subscription, 0) >= 0:
            yield frame


class FirstComeOnlyServed(Fault):
    """Does not deliver messages beyond the window of the first subscriber to others."""

    found_by = ("behaviour/prefetch/others-go-on",)
    destination: str | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SUBSCRIBE" and frame.get("prefetch-count") is not None:
            self.destination = frame.get("destination")
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        same = [each for each in self.connections if each.destination == self.destination]
        if frame.command != b"MESSAGE" or self.destination is None or same[0] is self:
            yield frame
