"""Servers that break one rule about acknowledgement that the behaviour chapter covers."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.broken_ack_modes import Ledger
from tests.conformance.proxy import make_harmless, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: More messages than any case leaves unacknowledged.
_LARGE_WINDOW = 10_000


def in_behaviour(versions: str, *names: str) -> tuple[str, ...]:
    """Return the ids of trials of the chapter that several versions have."""
    return tuple(f"behaviour/{version}/{name}" for version in versions.split() for name in names)


ALL = "1.0 1.1 1.2"
NEW = "1.1 1.2"


def rename(ledger: Ledger, frame: Raw, message: Raw) -> None:
    """Make an ACK or NACK name this message instead of another."""
    name = "id" if ledger.version == "1.2" else "message-id"
    if frame.get(name) is not None:
        frame.put(name, ledger.name(message) or "")


# Messages covered by an ACK.


class CumulativeOnce(Ledger):
    """Treats only the first ACK of a subscription as cumulative."""

    found_by = in_behaviour(NEW, "ack/cumulative-again")

    def __init__(self, line: Line) -> None:
        """Start without subscriptions."""
        super().__init__(line)
        #: Subscriptions without an ACK so far.
        self.fresh: set[str | None] = set()

    def subscribes(self, frame: Raw) -> None:
        if frame.get("ack") == "client":
            frame.put("ack", "client-individual")
            self.fresh.add(frame.get("id"))
            # Messages of an earlier subscription with this id do not belong to the new one.
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
    """Treats an ACK in the mode client as one of the last delivered message."""

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
    """Applies a cumulative ACK to messages of an earlier subscription with the same id, too."""

    found_by = ("behaviour/ack/cumulative-reused-id",)

    def also(self, command: bytes, message: Raw) -> Iterable[Raw]:
        if self.mode(message) != "client":
            return ()
        subscription = message.get("subscription")
        return [each for each in self.before(message) if each.get("subscription") == subscription]


class OldestFirst(Ledger):
    """Treats any ACK in the mode client-individual as one of the oldest message."""

    found_by = in_behaviour(NEW, "ack/any-order", "ack/repeated", "redelivery/rest-after-reset")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        waiting = self.unsettled
        if frame.command == b"ACK" and waiting and self.mode(waiting[0]) == "client-individual":
            rename(self, frame, waiting[0])
        yield from super().from_client(frame)


class AckOfNothing(Ledger):
    """Treats an ACK or NACK of an unknown message as an ACK of the oldest unacknowledged one."""

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
    """Accepts an ACK of another connection's message, and drops that message on redelivery."""

    found_by = in_behaviour(NEW, "ack/foreign", "ack/former-connection")

    def __init__(self, line: Line) -> None:
        """Start without messages, on this connection and on others."""
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
    """Confirms an ACK after UNSUBSCRIBE, but ignores it."""

    found_by = in_behaviour(NEW, "ack/after-unsubscribe")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"UNSUBSCRIBE":
            self.modes.pop(frame.get("id"), None)
        if frame.command == b"ACK" and not self.modes:
            make_harmless(frame)
        yield from super().from_client(frame)


@requests("ACK", "behaviour/1.2/ack/id-alone-counts")
def message_id_counts(ack: Raw) -> None:
    """Uses the message-id of an ACK, if there is one, instead of its id."""
    if ack.get("id") is not None and ack.get("message-id") is not None:
        ack.put("id", ack.get("message-id") or "")


@requests("ACK", "behaviour/1.2/ack/ack-header-is-no-id")
def ack_header_counts(ack: Raw) -> None:
    """Uses the header ack of an ACK as its id."""
    if ack.get("id") is None and ack.get("ack") is not None:
        ack.put("id", ack.get("ack") or "")


@requests("SUBSCRIBE", "behaviour/ack/auto-is-final")
def auto_waits(subscribe: Raw) -> None:
    """Treats the mode auto as client, with an unlimited window."""
    if subscribe.get("ack") == "auto":
        subscribe.put("ack", "client")
        subscribe.put("prefetch-count", str(_LARGE_WINDOW))


# NACK.


class NackBringsBack(Ledger):
    """Redelivers a message that was acknowledged and then refused."""

    found_by = ("behaviour/nack/after-ack",)

    def __init__(self, line: Line) -> None:
        """Start without acknowledged messages."""
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
    """Executes a NACK immediately instead of in its transaction."""
    nack.drop("transaction")
