"""Servers that break one rule about the messages that an ACK or a NACK covers."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, in_versions, make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line


class Ledger(Fault):
    """Records the unacknowledged messages of a connection; subclasses may settle others as well."""

    def __init__(self, line: Line) -> None:
        """Start without messages."""
        super().__init__(line)
        self.modes: dict[str | None, str | None] = {}
        self.unsettled: list[Raw] = []
        #: Names of messages that were settled together with another.
        self.settled: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SUBSCRIBE":
            self.modes[frame.get("id")] = frame.get("ack")
            self.subscribes(frame)
        if frame.command in (b"ACK", b"NACK"):
            wanted = frame.get("id" if self.version == "1.2" else "message-id")
            message = next((each for each in self.unsettled if self.name(each) == wanted), None)
            if message is not None:
                for each in list(self.also(frame.command, message)):
                    self.unsettled.remove(each)
                    self.settled.add(self.name(each))
                    yield self.settling(each, frame)
                self.unsettled.remove(message)
            elif wanted in self.settled:
                make_harmless(frame)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"MESSAGE":
            self.unsettled.append(frame)
        yield frame

    def subscribes(self, frame: Raw) -> None:
        """Examine a SUBSCRIBE, and optionally change it."""

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        """Return further messages that this server settles on an ACK or NACK of this one."""
        return ()

    def name(self, message: Raw) -> str | None:
        """Return the name of a message in an ACK or NACK."""
        return message.get("ack" if self.version == "1.2" else "message-id")

    def mode(self, message: Raw) -> str | None:
        """Return the acknowledgement mode of a message's subscription."""
        return self.modes.get(message.get("subscription"))

    def before(self, message: Raw) -> list[Raw]:
        """Return the earlier unacknowledged messages of all subscriptions."""
        return self.unsettled[: self.unsettled.index(message)]

    def settling(self, message: Raw, frame: Raw) -> Raw:
        """Return a frame that settles a message in the same way as *frame* does another."""
        copy = Raw(frame.command, list(frame.lines))
        copy.drop("receipt", "id", "message-id", "subscription")
        if self.version == "1.2":
            copy.put("id", self.name(message) or "")
        else:
            copy.put("message-id", self.name(message) or "")
            copy.put("subscription", message.get("subscription") or "")
        return copy


class AckForAllSubscriptions(Ledger):
    """Applies a cumulative ACK to earlier messages of other subscriptions, too."""

    found_by = in_versions(NEW, "ack-mode/cumulative-per-subscription")

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        if self.mode(message) == "client":
            subscription = message.get("subscription")
            return [
                each for each in self.before(message) if each.get("subscription") != subscription
            ]
        return ()


class AckForTheNext(Ledger):
    """Acknowledges the following message, too, on an ACK in the mode client-individual."""

    found_by = in_versions(NEW, "ack-mode/individual-like-client")

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        if command == b"ACK" and self.mode(message) == "client-individual":
            place = self.unsettled.index(message)
            return self.unsettled[place + 1 : place + 2]
        return ()


class NackForAllBefore(Ledger):
    """Applies a NACK in the mode client-individual to all earlier messages."""

    found_by = in_versions(NEW, "nack/individual-single")

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        if command == b"NACK" and self.mode(message) == "client-individual":
            return self.before(message)
        return ()


class NackForOne(Ledger):
    """Applies a NACK in the mode client to a single message."""

    found_by = in_versions(NEW, "nack/client-cumulative")

    def subscribes(self, frame: Raw) -> None:
        if frame.get("ack") == "client":
            frame.put("ack", "client-individual")

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        if command == b"ACK" and self.mode(message) == "client":
            subscription = message.get("subscription")
            return [
                each for each in self.before(message) if each.get("subscription") == subscription
            ]
        return ()


@requests("NACK", *in_versions(NEW, "nack/headers-like-ack"))
def nack_of_nothing(frame: Raw) -> None:
    """Accepts a NACK that names no message."""
    if frame.get("id") is None and frame.get("message-id") is None:
        make_harmless(frame)
