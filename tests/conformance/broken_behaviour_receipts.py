"""Servers that break one rule about receipts that the behaviour chapter covers."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.conformance.broken_behaviour_acks import NEW, in_behaviour
from tests.conformance.proxy import Fault, make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: Number of the first SEND of a connection that is confirmed too early; few cases send as many.
_CONFIRMED_EARLY: Final = 15
#: Numbers of the SEND whose RECEIPT is delayed, and of the RECEIPT that is lost.
_LATE: Final = 25
_LOST: Final = 55


class Early(Fault):
    """Confirms some frames immediately, but processes them when the next one arrives."""

    def __init__(self, line: Line) -> None:
        """Start without pending frames."""
        super().__init__(line)
        self.put_off: list[Raw] = []

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        while self.put_off:
            yield self.put_off.pop()
        receipt = frame.get("receipt")
        if receipt is None or not self.is_put_off(frame):
            yield frame
            return
        frame.drop("receipt")
        self.put_off.append(frame)
        self.to_client(Raw(b"RECEIPT", [f"receipt-id:{receipt}".encode()]))

    def is_put_off(self, frame: Raw) -> bool:
        """Return True if a frame is confirmed early."""
        return False


class ConfirmsBeforeSending(Early):
    """Confirms SEND before processing it, from the fifteenth SEND of a connection on."""

    found_by = ("behaviour/receipt/send-survives-sender",)
    sent = 0

    def is_put_off(self, frame: Raw) -> bool:
        self.sent += frame.command == b"SEND"
        return frame.command == b"SEND" and self.sent >= _CONFIRMED_EARLY


class ConfirmsBeforeSubscribing(Early):
    """Confirms SUBSCRIBE to a topic before processing it."""

    found_by = ("behaviour/receipt/subscribe-in-force", "1.2/subscribe/id-scope-connection")

    def is_put_off(self, frame: Raw) -> bool:
        return frame.command == b"SUBSCRIBE" and is_of_topic(frame)


class ConfirmsBeforeUnsubscribing(Early):
    """Confirms UNSUBSCRIBE from a topic before processing it."""

    found_by = ("behaviour/receipt/unsubscribe-in-force",)

    def is_put_off(self, frame: Raw) -> bool:
        return frame.command == b"UNSUBSCRIBE" and is_of_topic(frame)


def is_of_topic(frame: Raw) -> bool:
    """Return True if a frame refers to a topic."""
    return (frame.get("destination") or "").startswith("/topic/")


@requests(
    "ACK",
    "behaviour/receipt/ack-covers-earlier",
    *in_behaviour(NEW, "receipt/disconnect-covers-earlier"),
)
def unconfirmed_acks_are_lost(ack: Raw) -> None:
    """Loses an ACK without a receipt."""
    if ack.get("receipt") is None:
        make_harmless(ack)


class OneComesLate(Fault):
    """Sends the RECEIPT of the 25th SEND of a connection after the next RECEIPT."""

    found_by = ("behaviour/receipt/disconnect-comes-last",)

    def __init__(self, line: Line) -> None:
        """Start without messages."""
        super().__init__(line)
        self.sent: list[str | None] = []
        self.late: list[Raw] = []

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SEND" and frame.get("receipt") is not None:
            self.sent.append(frame.get("receipt"))
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"RECEIPT" and frame.get("receipt-id") in self.sent[_LATE - 1 : _LATE]:
            self.late.append(frame)
            return
        yield frame
        while self.late and frame.command == b"RECEIPT":
            yield self.late.pop()


class OneGetsLost(Fault):
    """Loses the 55th RECEIPT of a connection."""

    found_by = ("behaviour/receipt/pipelined",)
    receipts = 0

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        self.receipts += frame.command == b"RECEIPT"
        if frame.command != b"RECEIPT" or self.receipts != _LOST:
            yield frame


class EachReceiptOnce(Fault):
    """Confirms each receipt id only once for each connection."""

    found_by = ("behaviour/receipt/same-id-again", "behaviour/receipt/same-id-twice")

    def __init__(self, line: Line) -> None:
        """Start without receipts."""
        super().__init__(line)
        self.answered: set[str | None] = set()

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        receipt = frame.get("receipt-id")
        if frame.command != b"RECEIPT" or receipt not in self.answered:
            yield frame
        if frame.command == b"RECEIPT":
            self.answered.add(receipt)


@requests("BEGIN SEND", *in_behaviour(NEW, "receipt/unusual-ids"))
def receipts_without_blanks(frame: Raw) -> None:
    """Strips blanks from receipt ids."""
    receipt = frame.get("receipt")
    if receipt is not None:
        frame.put("receipt", receipt.strip())


class WantsToBeWaitedFor(Fault):
    """Refuses UNSUBSCRIBE if SUBSCRIBE had no receipt."""

    found_by = ("behaviour/receipt/no-need-to-wait",)

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.hasty: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        name = frame.get("id")
        if frame.command == b"SUBSCRIBE" and frame.get("receipt") is None:
            self.hasty.add(name)
        if frame.command == b"UNSUBSCRIBE" and name in self.hasty:
            frame.put("id", "unknown")
        yield frame
