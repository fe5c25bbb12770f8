"""Servers that break one rule about subscriptions."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import ALL, NEW, Fault, in_versions, make_harmless, refuse, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

_MOST_SUBSCRIPTIONS = 10

# SUBSCRIBE.


@requests(
    "SUBSCRIBE",
    *in_versions(ALL, "subscribe/destination-required"),
    *in_versions(NEW, "subscribe/failure-error", "subscribe/failure-close"),
)
def subscribe_needs_no_destination(subscribe: Raw) -> None:
    """Accepts SUBSCRIBE without destination."""
    if subscribe.get("destination") is None:
        subscribe.put("destination", "/topic/default")


@requests("SUBSCRIBE", "1.0/subscribe/body-ignored")
def no_body_on_subscribe(subscribe: Raw) -> None:
    """Refuses SUBSCRIBE with a body."""
    if subscribe.body:
        refuse(subscribe)


@requests("SUBSCRIBE", "1.0/subscribe/selector-may")
def selects_nothing(subscribe: Raw) -> None:
    """Treats every selector as one that matches no message."""
    if subscribe.get("selector") is not None:
        subscribe.put("selector", "1 = 2")


class FewSubscriptions(Fault):
    """Refuses the eleventh subscription of a connection."""

    found_by = in_versions(NEW, "subscribe/multiple-open")
    subscriptions = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.subscriptions += frame.command == b"SUBSCRIBE"
        self.subscriptions -= frame.command == b"UNSUBSCRIBE"
        if frame.command == b"SUBSCRIBE" and self.subscriptions > _MOST_SUBSCRIPTIONS:
            refuse(frame)
        yield frame


class DeafToStrangers(Fault):
    """Loses a plain message without a receipt if only other connections have subscribed."""

    found_by = (
        "1.0/subscribe/registers",
        "1.0/send/delivers-to-destination",
        *in_versions(NEW, "subscribe/registers", "send/delivers"),
    )

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.subscribed: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        destination = frame.get("destination")
        if frame.command == b"SUBSCRIBE":
            self.subscribed.add(destination)
        if not (self._is_lost(frame) and self._is_for_others(destination)):
            yield frame

    def _is_lost(self, frame: Raw) -> bool:
        names = {line.partition(b":")[0] for line in frame.lines}
        return frame.command == b"SEND" and names <= {b"destination", b"content-length"}

    def _is_for_others(self, destination: str | None) -> bool:
        listeners = [each for each in self.connections if destination in each.subscribed]
        return self not in listeners and not all(each.is_over for each in listeners)


# UNSUBSCRIBE.


class UnsubscribeNeedsNothing(Fault):
    """Accepts UNSUBSCRIBE without id or, on 1.0, destination."""

    found_by = (
        "1.0/unsubscribe/destination-or-id-required",
        *in_versions(NEW, "unsubscribe/id-required"),
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        needed = ("id", "destination") if self.version == "1.0" else ("id",)
        if frame.command == b"UNSUBSCRIBE" and not any(frame.get(name) for name in needed):
            make_harmless(frame)
        yield frame


class UnsubscribesByIdOnly(Fault):
    """Confirms UNSUBSCRIBE by destination on 1.0, but ignores it."""

    found_by = ("1.0/unsubscribe/by-destination",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        is_by_destination = frame.get("id") is None and frame.get("destination") is not None
        if self.version == "1.0" and frame.command == b"UNSUBSCRIBE" and is_by_destination:
            make_harmless(frame)
        yield frame


class UnsubscribesAll(Fault):
    """Ends all subscriptions of the connection on UNSUBSCRIBE of one."""

    found_by = ("1.0/subscribe/id-may", *in_versions(NEW, "subscribe/id-relates-frames"))

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        self.ids: set[str] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        name = frame.get("id")
        if frame.command == b"SUBSCRIBE" and name is not None:
            self.ids.add(name)
        if frame.command == b"UNSUBSCRIBE" and name in self.ids:
            for each in self.ids - {name}:
                yield Raw(b"UNSUBSCRIBE", [f"id:{each}".encode()])
            self.ids.clear()
        yield frame
