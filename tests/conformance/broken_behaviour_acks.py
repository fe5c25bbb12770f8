"""Servers that break one rule about acknowledgement, as the behaviour chapter goes into it."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.broken_ack_modes import Ledger
from tests.conformance.proxy import make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: More than any case leaves unacknowledged.
_LARGE_WINDOW = 10_000


def in_behaviour(versions: str, *names: str) -> tuple[str, ...]:
    """Ids of trials of the chapter that several versions have."""
    return tuple(f"behaviour/{version}/{name}" for version in versions.split() for name in names)


ALL = "1.0 1.1 1.2"
NEW = "1.1 1.2"


def rename(ledger: Ledger, frame: Raw, message: Raw) -> None:
    """Have an ACK or NACK that names a message name this one."""
    name = "id" if ledger.version == "1.2" else "message-id"
    if frame.get(name) is not None:
        frame.put(name, ledger.name(message) or "")


# How far an ACK reaches.


class CumulativeOnce(Ledger):
    """Takes only the first ACK of a subscription for a cumulative one."""

    found_by = in_behaviour(NEW, "ack/cumulative-again")

    def __init__(self, line: Line) -> None:
        """Begin without subscriptions."""
        super().__init__(line)
        #: Those whose first ACK has not come.
        self.fresh: set[str | None] = set()

    def subscribes(self, frame: Raw) -> None:
        if frame.get("ack") == "client":
            frame.put("ack", "client-individual")
            self.fresh.add(frame.get("id"))
            # What an earlier one of that name has left is nothing that this one got.
            left = [each for each in self.unsettled if each.get("subscription") == frame.get("id")]
            for each in left:
                self.unsettled.remove(each)

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        subscription = message.get("subscription")
        if subscription not in self.fresh:
            return ()
        self.fresh.remove(subscription)
        return [each for each in self.before(message) if each.get("subscription") == subscription]


class AckForAllReceived(Ledger):
    """Takes an ACK in the mode client for one of the last message that was delivered."""

    found_by = (
        "behaviour/ack/cumulative-order-of-delivery",
        *in_behaviour(NEW, "ack/cumulative-again"),
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        names = [self.name(each) for each in self.unsettled if self.mode(each) == "client"]
        wanted = frame.get("id" if self.version == "1.2" else "message-id")
        if frame.command == b"ACK" and wanted in names:
            rename(self, frame, self.unsettled[-1])
        yield from super().from_client(frame)


class AckForFormerSubscription(Ledger):
    """Takes a cumulative ACK for one of an earlier subscription with the same id, too."""

    found_by = ("behaviour/ack/cumulative-reused-id",)

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        if self.mode(message) != "client":
            return ()
        subscription = message.get("subscription")
        return [each for each in self.before(message) if each.get("subscription") == subscription]


class OldestFirst(Ledger):
    """Takes any ACK in the mode client-individual for one of the oldest message."""

    found_by = in_behaviour(NEW, "ack/any-order", "ack/repeated", "redelivery/rest-after-reset")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        waiting = self.unsettled
        if frame.command == b"ACK" and waiting and self.mode(waiting[0]) == "client-individual":
            rename(self, frame, waiting[0])
        yield from super().from_client(frame)


class AckOfNothing(Ledger):
    """Takes an ACK or NACK of what does not wait for an ACK of the oldest message that does."""

    found_by = (
        *in_behaviour(ALL, "ack/unknown"),
        *in_behaviour(NEW, "ack/repeated"),
        "behaviour/nack/unknown",
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in (b"ACK", b"NACK") and self.unsettled:
            name = "id" if self.version == "1.2" else "message-id"
            if all(self.name(each) != frame.get(name) for each in self.unsettled):
                frame.command = b"ACK"
                rename(self, frame, self.unsettled[0])
        yield from super().from_client(frame)


class AnybodyAcknowledges(Ledger):
    """Takes an ACK for one of another connection's message, and drops that when it comes back."""

    found_by = in_behaviour(NEW, "ack/foreign", "ack/former-connection")

    def __init__(self, line: Line) -> None:
        """Begin with nothing received, here or elsewhere."""
        super().__init__(line)
        self.dropped: set[str | None] = set()
        self.has_received = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"ACK" and not self.has_received:
            wanted = frame.get("id" if self.version == "1.2" else "message-id")
            for each in self.connections:
                for message in each.unsettled:
                    if each.name(message) == wanted:
                        self.dropped.add(message.get("message-id"))
                        make_harmless(frame)
        yield from super().from_client(frame)

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        dropped = {name for each in self.connections for name in each.dropped}
        if frame.command != b"MESSAGE" or frame.get("message-id") not in dropped:
            self.has_received |= frame.command == b"MESSAGE"
            yield from super().from_server(frame)


class AckAfterUnsubscribeIgnored(Ledger):
    """Answers an ACK after UNSUBSCRIBE, and does nothing else."""

    found_by = in_behaviour(NEW, "ack/after-unsubscribe")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"UNSUBSCRIBE":
            self.modes.pop(frame.get("id"), None)
        if frame.command == b"ACK" and not self.modes:
            make_harmless(frame)
        yield from super().from_client(frame)


@requests("ACK", "behaviour/1.2/ack/id-alone-counts")
def message_id_counts(ack: Raw) -> None:
    """Goes by the message-id of an ACK, where there is one, and not by its id."""
    if ack.get("id") is not None and ack.get("message-id") is not None:
        ack.put("id", ack.get("message-id") or "")


@requests("ACK", "behaviour/1.2/ack/ack-header-is-no-id")
def ack_header_counts(ack: Raw) -> None:
    """Takes the header ack of an ACK for its id."""
    if ack.get("id") is None and ack.get("ack") is not None:
        ack.put("id", ack.get("ack") or "")


@requests("SUBSCRIBE", "behaviour/ack/auto-is-final")
def auto_waits(subscribe: Raw) -> None:
    """Takes the mode auto for client, and holds nothing back."""
    if subscribe.get("ack") == "auto":
        subscribe.put("ack", "client")
        subscribe.put("prefetch-count", str(_LARGE_WINDOW))


# NACK.


class NackBringsBack(Ledger):
    """Delivers a message again that was acknowledged, once it is refused."""

    found_by = ("behaviour/nack/after-ack",)

    def __init__(self, line: Line) -> None:
        """Begin with nothing acknowledged."""
        super().__init__(line)
        self.acknowledged: list[Raw] = []

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        wanted = frame.get("id" if self.version == "1.2" else "message-id")
        if frame.command == b"ACK":
            self.acknowledged += [each for each in self.unsettled if self.name(each) == wanted]
        if frame.command == b"NACK":
            for each in self.acknowledged:
                if self.name(each) == wanted:
                    lines = [f"destination:{each.get('destination')}".encode()]
                    yield Raw(b"SEND", lines, each.body)
                    make_harmless(frame)
        yield from super().from_client(frame)


@requests("NACK", *in_behaviour(NEW, "nack/in-transaction"), "behaviour/transaction/nack-unknown")
def nacks_at_once(nack: Raw) -> None:
    """Leaves NACK out of transactions."""
    nack.drop("transaction")
