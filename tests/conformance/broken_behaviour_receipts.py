"""Servers that break one rule about receipts, as the behaviour chapter goes into it."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.conformance.broken_behaviour_acks import NEW, in_behaviour
from tests.conformance.proxy import Fault, make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: Which SEND of a connection is the first that is confirmed too early: few cases have so many.
_CONFIRMED_EARLY: Final = 15
#: Which SEND has its RECEIPT held back, and which RECEIPT is lost; the same holds.
_LATE: Final = 25
_LOST: Final = 55


class Early(Fault):
    """Answers some frames at once, and works on them when the next one comes."""

    def __init__(self, line: Line) -> None:
        """Begin with nothing to work on."""
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
        """Whether a frame is one of these."""
        return False


class ConfirmsBeforeSending(Early):
    """Answers SEND before it has looked at it, from the fifteenth of a connection on."""

    found_by = ("behaviour/receipt/send-survives-sender",)
    sent = 0

    def is_put_off(self, frame: Raw) -> bool:
        self.sent += frame.command == b"SEND"
        return frame.command == b"SEND" and self.sent >= _CONFIRMED_EARLY


class ConfirmsBeforeSubscribing(Early):
    """Answers SUBSCRIBE to a topic before it has looked at it."""

    found_by = ("behaviour/receipt/subscribe-in-force", "1.2/subscribe/id-scope-connection")

    def is_put_off(self, frame: Raw) -> bool:
        return frame.command == b"SUBSCRIBE" and is_of_topic(frame)


class ConfirmsBeforeUnsubscribing(Early):
    """Answers UNSUBSCRIBE from a topic before it has looked at it."""

    found_by = ("behaviour/receipt/unsubscribe-in-force",)

    def is_put_off(self, frame: Raw) -> bool:
        return frame.command == b"UNSUBSCRIBE" and is_of_topic(frame)


def is_of_topic(frame: Raw) -> bool:
    """Whether a frame is about a topic."""
    return (frame.get("destination") or "").startswith("/topic/")


@requests(
    "ACK",
    "behaviour/receipt/ack-covers-earlier",
    *in_behaviour(NEW, "receipt/disconnect-covers-earlier"),
)
def unconfirmed_acks_are_lost(ack: Raw) -> None:
    """Loses an ACK that asks for no receipt."""
    if ack.get("receipt") is None:
        make_harmless(ack)


class OneComesLate(Fault):
    """Sends the RECEIPT of the 25th SEND of a connection after the next RECEIPT."""

    found_by = ("behaviour/receipt/disconnect-comes-last",)

    def __init__(self, line: Line) -> None:
        """Begin with nothing sent."""
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
    """Answers a receipt once for each connection, however often it is asked for."""

    found_by = ("behaviour/receipt/same-id-again", "behaviour/receipt/same-id-twice")

    def __init__(self, line: Line) -> None:
        """Begin with none answered."""
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
    """Takes blanks off the ends of a receipt."""
    receipt = frame.get("receipt")
    if receipt is not None:
        frame.put("receipt", receipt.strip())


class WantsToBeWaitedFor(Fault):
    """Refuses UNSUBSCRIBE where SUBSCRIBE has not asked for a receipt."""

    found_by = ("behaviour/receipt/no-need-to-wait",)

    def __init__(self, line: Line) -> None:
        """Begin without subscriptions."""
        super().__init__(line)
        self.hasty: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        name = frame.get("id")
        if frame.command == b"SUBSCRIBE" and frame.get("receipt") is None:
            self.hasty.add(name)
        if frame.command == b"UNSUBSCRIBE" and name in self.hasty:
            frame.put("id", "unknown")
        yield frame
