"""Clusters that break one rule about the equality of nodes, or about consistency after failover."""

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.clusters import NodeFault
from tests.conformance.proxy import make_harmless, refuse
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line, frame

STORAGE = "failover/storage/"


class SpeaksLess(NodeFault):
    """The other node accepts 1.2 only from clients that insist on it."""

    found_by = ("failover/nodes/same-versions",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Hide 1.2 from the node."""
        if not self.is_first and frame.get("accept-version") == "1.0,1.1,1.2":
            frame.put("accept-version", "1.0,1.1")
        yield frame


class KeepsClientsWaiting(NodeFault):
    """A node that does not serve accepts connections, and its clients wait."""

    found_by = ("failover/nodes/refused",)

    @staticmethod
    def wait_for_turn(line: Line) -> None:
        """Read, but send nothing."""
        line.wait()


class MayOnlyBeRead(NodeFault):
    """The other node refuses messages."""

    found_by = (
        "failover/nodes/served",
        "failover/nodes/subscription-resumed",
        f"{STORAGE}durable-subscription",
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make the broker refuse SEND."""
        if not self.is_first and frame.command == b"SEND":
            refuse(frame)
        yield frame


class ForgetsTopics(NodeFault):
    """The other node ignores subscriptions to topics."""

    found_by = ("failover/nodes/subscription-resumed",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make SUBSCRIBE have no effect."""
        if not self.is_first and frame.command == b"SUBSCRIBE" and frame.get("id") == "topic":
            make_harmless(frame)
        yield frame


class BeatsForOthers(NodeFault):
    """A proxy in front of the nodes sends heart-beats for a paused one."""

    found_by = ("failover/nodes/hanging",)

    def while_paused(self) -> None:
        """Send a heart-beat."""
        self.to_client(Raw(b"", body=b"\n"))


class LosesTheTenth(NodeFault):
    """One of many messages with receipts is lost."""

    found_by = (f"{STORAGE}receipted",)
    sent = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make the tenth SEND of a connection have no effect."""
        self.sent += frame.command == b"SEND"
        if self.sent == 10:
            make_harmless(frame)
        yield frame


class ChangesTheOrder(NodeFault):
    """Messages in queues are reordered: all but the first of a connection, in pairs."""

    found_by = (f"{STORAGE}order",)
    sent = 0
    held: Raw | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Hold every other SEND until the next one has passed."""
        is_held = frame.command == b"SEND" and "/queue/" in (frame.get("destination") or "")
        if not self.is_first or not is_held or frame.get("transaction") is not None:
            yield frame
            return
        self.sent += 1
        if self.sent % 2:
            yield frame
            yield from self.at_end()
        else:
            self.held = frame
            self.answer(frame)

    def answer(self, request: Raw) -> None:
        """Send the receipt that a frame requests, and remove the request."""
        receipt = request.get("receipt")
        if receipt is not None:
            request.drop("receipt")
            self.to_client(Raw.parse(frame("RECEIPT", {"receipt-id": receipt})))

    def at_end(self) -> Iterable[Raw]:
        """Yield the held frame."""
        if self.held is not None:
            yield self.held
        self.held = None


class AcknowledgesItself(NodeFault):
    """Delivered messages are acknowledged automatically."""

    found_by = (f"{STORAGE}unacknowledged",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make ACK have no effect: the message is already acknowledged."""
        if self.is_first and frame.command == b"ACK":
            make_harmless(frame)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Acknowledge delivered messages."""
        name = frame.get("ack")
        if self.is_first and frame.command == b"MESSAGE" and name is not None:
            self.to_broker(Raw(b"ACK", [f"id:{name}".encode()]))
        yield frame


class ForgetsAcks(NodeFault):
    """Acknowledgements are confirmed but not stored."""

    found_by = (f"{STORAGE}acknowledged",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make ACK have no effect."""
        if self.is_first and frame.command == b"ACK":
            make_harmless(frame)
        yield frame


class TellsNobody(NodeFault):
    """The old node misses the acknowledgements during its absence."""

    found_by = (f"{STORAGE}old-node",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make ACK have no effect."""
        if not self.is_first and frame.command == b"ACK":
            make_harmless(frame)
        yield frame


class AppliesHalf(NodeFault):
    """The second message of a transaction does not wait for its COMMIT."""

    found_by = (f"{STORAGE}transaction-open",)
    sent = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Remove the message from the transaction."""
        self.sent += frame.command == b"SEND"
        if frame.command == b"SEND" and self.sent == 2:
            frame.drop("transaction")
        yield frame


class CommitsWhatIsOpen(NodeFault):
    """An open transaction is committed when its node stops."""

    found_by = (f"{STORAGE}transaction-open",)

    def __init__(self, line: Line) -> None:
        """Start without transactions."""
        super().__init__(line)
        self.transactions: set[str] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Record open transactions."""
        name = frame.get("transaction")
        if frame.command == b"BEGIN" and name is not None:
            self.transactions.add(name)
        elif frame.command in (b"COMMIT", b"ABORT") and name is not None:
            self.transactions.discard(name)
        yield frame

    def at_end(self) -> Iterable[Raw]:
        """Commit the open transactions."""
        return [Raw(b"COMMIT", [f"transaction:{name}".encode()]) for name in self.transactions]


class LosesPartOfTransactions(NodeFault):
    """The third message of a transaction is lost."""

    found_by = (f"{STORAGE}transaction-committed",)
    sent = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make the third message have no effect."""
        self.sent += frame.command == b"SEND" and frame.get("transaction") is not None
        if frame.command == b"SEND" and self.sent == 3:
            make_harmless(frame)
        yield frame


class ForgetsDurableSubscriptions(NodeFault):
    """Durable subscriptions exist only on the node where they were created."""

    found_by = (f"{STORAGE}durable-subscription",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Make the subscription a different one by changing the client-id."""
        if not self.is_first and frame.command == b"CONNECT" and frame.get("client-id"):
            frame.put("client-id", f"another {frame.get('client-id')}")
        yield frame


class DeliversTwice(NodeFault):
    """The other node delivers every message twice."""

    found_by = tuple(
        f"{STORAGE}{name}" for name in ("receipted", "unacknowledged", "transaction-committed")
    )

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Repeat a message."""
        yield frame
        if not self.is_first and frame.command == b"MESSAGE":
            yield frame
