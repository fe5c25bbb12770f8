"""Servers that break one rule about acknowledgement."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, in_versions, refuse, requests
from tests.conformance.raw import Raw

_MOST_UNACKNOWLEDGED = 250


class AckOfTheLast(Fault):
    """Applies an ACK that names no message to the last message."""

    found_by = (*in_versions("1.0 1.1", "ack/message-id-required"), "1.2/ack/id-required")
    last: Raw | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        named, names = ("ack", "id") if self.version == "1.2" else ("message-id", "message-id")
        if frame.command == b"ACK" and frame.get(names) is None and self.last is not None:
            frame.put(names, self.last.get(named) or "")
            frame.put("subscription", self.last.get("subscription") or "")
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"MESSAGE":
            self.last = frame
        yield frame


class AckNeedsNoSubscription(AckOfTheLast):
    """Accepts an ACK of 1.1 that names no subscription."""

    found_by = ("1.1/ack/subscription-required",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        is_vague = frame.command == b"ACK" and frame.get("subscription") is None
        if self.version == "1.1" and is_vague and self.last is not None:
            frame.put("subscription", self.last.get("subscription") or "")
        yield frame


class AutoNeedsAck(Fault):
    """Stops after 250 unacknowledged messages, whatever the mode."""

    found_by = in_versions(NEW, "ack-mode/auto-no-ack-needed")
    unacknowledged = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in (b"ACK", b"NACK"):
            self.unacknowledged = 0
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        self.unacknowledged += frame.command == b"MESSAGE"
        if frame.command != b"MESSAGE" or self.unacknowledged <= _MOST_UNACKNOWLEDGED:
            yield frame


@requests(
    "SUBSCRIBE",
    "1.0/subscribe/ack-valid-values",
    *in_versions(NEW, "ack-mode/values", "ack-mode/auto-no-ack-needed"),
)
def auto_not_by_name(subscribe: Raw) -> None:
    """Refuses the explicit mode auto, although it is the default."""
    if subscribe.get("ack") == "auto":
        refuse(subscribe)
