"""Servers that break one rule about receipts."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, in_versions, refuse, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

_CROWD = 25


@requests(
    "UNSUBSCRIBE",
    "1.0/receipt/any-client-frame-but-connect",
    *in_versions(NEW, "receipt/any-frame-but-connect", "unsubscribe/removes"),
    "1.0/unsubscribe/stops-delivery",
    "1.0/unsubscribe/by-destination",
    "1.0/subscribe/id-may",
    *in_versions(NEW, "subscribe/id-relates-frames"),
    *in_versions(NEW, "negotiation/missing-means-1.0"),
    "1.2/overview/crlf-lines",
    "1.2/content-length/any-frame",
)
def no_receipt_for_unsubscribe(unsubscribe: Raw) -> None:
    """Refuses UNSUBSCRIBE with a receipt."""
    if unsubscribe.get("receipt") is not None:
        refuse(unsubscribe)


class ReceiptBeforeMessage(Fault):
    """Confirms SEND without listeners immediately, but processes it when the next frame arrives."""

    found_by = ("1.2/receipt-frame/means-processed",)
    waiting: Raw | None = None

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.subscribed: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        yield from self.at_end()
        if frame.command == b"SUBSCRIBE":
            self.subscribed.add(frame.get("destination"))
        if not self._can_wait(frame):
            yield frame
            return
        self.to_client(Raw(b"RECEIPT", [f"receipt-id:{frame.get('receipt')}".encode()]))
        frame.drop("receipt")
        self.waiting = frame

    def at_end(self) -> Iterable[Raw]:
        if self.waiting is not None:
            yield self.waiting
            self.waiting = None

    def _can_wait(self, frame: Raw) -> bool:
        """Return True if a frame is valid, so that its RECEIPT is known in advance."""
        names = {line.partition(b":")[0] for line in frame.lines}
        is_plain = names == {b"destination", b"content-length", b"receipt"}
        is_sound = is_plain and frame.get("content-length") == str(len(frame.body))
        return frame.command == b"SEND" and is_sound and not self._is_heard(frame)

    def _is_heard(self, frame: Raw) -> bool:
        destination = frame.get("destination")
        return any(not each.is_over and destination in each.subscribed for each in self.connections)


class LosesOneOfMany(Fault):
    """Loses one of 25 consecutive messages without receipts."""

    found_by = (
        "1.2/receipt-frame/cumulative-received",
        *in_versions(NEW, "disconnect/receipt-covers-previous"),
    )
    in_a_row = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        is_plain = frame.command == b"SEND" and frame.get("receipt") is None
        self.in_a_row = self.in_a_row + 1 if is_plain else 0
        if self.in_a_row != _CROWD:
            yield frame
