"""Clusters that break one rule about what is the same at all nodes, or whole after a fail-over."""

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.clusters import NodeFault
from tests.conformance.proxy import make_harmless, refuse
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line, frame

STORAGE = "failover/storage/"


class SpeaksLess(NodeFault):
    """The other node has not been brought up to 1.2, unless a client insists on that."""

    found_by = ("failover/nodes/same-versions",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Hide 1.2 from the node."""
        if not self.is_first and frame.get("accept-version") == "1.0,1.1,1.2":
            frame.put("accept-version", "1.0,1.1")
        yield frame


class KeepsClientsWaiting(NodeFault):
    """A node that does not serve takes connections, and clients wait for it."""

    found_by = ("failover/nodes/refused",)

    @staticmethod
    def wait_for_turn(line: Line) -> None:
        """Read, and say nothing."""
        line.wait()


class MayOnlyBeRead(NodeFault):
    """The other node takes no messages."""

    found_by = (
        "failover/nodes/served",
        "failover/nodes/subscription-resumed",
        f"{STORAGE}durable-subscription",
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have SEND answered by ERROR."""
        if not self.is_first and frame.command == b"SEND":
            refuse(frame)
        yield frame


class ForgetsTopics(NodeFault):
    """The other node takes subscriptions to topics for nothing."""

    found_by = ("failover/nodes/subscription-resumed",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have SUBSCRIBE do nothing."""
        if not self.is_first and frame.command == b"SUBSCRIBE" and frame.get("id") == "topic":
            make_harmless(frame)
        yield frame


class BeatsForOthers(NodeFault):
    """Something in front of the nodes sends heart-beats for one that stands still."""

    found_by = ("failover/nodes/hanging",)

    def while_paused(self) -> None:
        """Send one."""
        self.to_client(Raw(b"", body=b"\n"))


class LosesTheTenth(NodeFault):
    """Of many messages with receipts, one is lost."""

    found_by = (f"{STORAGE}receipted",)
    sent = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have the tenth SEND of a connection do nothing."""
        self.sent += frame.command == b"SEND"
        if self.sent == 10:
            make_harmless(frame)
        yield frame


class ChangesTheOrder(NodeFault):
    """Messages in queues overtake each other: all but the first of a connection, in pairs."""

    found_by = (f"{STORAGE}order",)
    sent = 0
    held: Raw | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Hold every other SEND until the next has passed."""
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
        """Send the receipt that a frame asks for, which the broker need not send then."""
        receipt = request.get("receipt")
        if receipt is not None:
            request.drop("receipt")
            self.to_client(Raw.parse(frame("RECEIPT", {"receipt-id": receipt})))

    def at_end(self) -> Iterable[Raw]:
        """What is held."""
        if self.held is not None:
            yield self.held
        self.held = None


class AcknowledgesItself(NodeFault):
    """What was delivered counts as acknowledged."""

    found_by = (f"{STORAGE}unacknowledged",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have ACK do nothing: it has been done."""
        if self.is_first and frame.command == b"ACK":
            make_harmless(frame)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Acknowledge what is delivered."""
        name = frame.get("ack")
        if self.is_first and frame.command == b"MESSAGE" and name is not None:
            self.to_broker(Raw(b"ACK", [f"id:{name}".encode()]))
        yield frame


class ForgetsAcks(NodeFault):
    """Acknowledgements are not written down before they get their receipts."""

    found_by = (f"{STORAGE}acknowledged",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have ACK do nothing."""
        if self.is_first and frame.command == b"ACK":
            make_harmless(frame)
        yield frame


class TellsNobody(NodeFault):
    """The old node is not told what was acknowledged while it was away."""

    found_by = (f"{STORAGE}old-node",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have ACK do nothing."""
        if not self.is_first and frame.command == b"ACK":
            make_harmless(frame)
        yield frame


class AppliesHalf(NodeFault):
    """The second message of a transaction does not wait for its COMMIT."""

    found_by = (f"{STORAGE}transaction-open",)
    sent = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Take it out of the transaction."""
        self.sent += frame.command == b"SEND"
        if frame.command == b"SEND" and self.sent == 2:
            frame.drop("transaction")
        yield frame


class CommitsWhatIsOpen(NodeFault):
    """A transaction that is open when its node ends is committed."""

    found_by = (f"{STORAGE}transaction-open",)

    def __init__(self, line: Line) -> None:
        """Begin without any."""
        super().__init__(line)
        self.transactions: set[str] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Take note of what is open."""
        name = frame.get("transaction")
        if frame.command == b"BEGIN" and name is not None:
            self.transactions.add(name)
        elif frame.command in (b"COMMIT", b"ABORT") and name is not None:
            self.transactions.discard(name)
        yield frame

    def at_end(self) -> Iterable[Raw]:
        """Commit it."""
        return [Raw(b"COMMIT", [f"transaction:{name}".encode()]) for name in self.transactions]


class LosesPartOfTransactions(NodeFault):
    """The third message of a transaction is lost."""

    found_by = (f"{STORAGE}transaction-committed",)
    sent = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have it do nothing."""
        self.sent += frame.command == b"SEND" and frame.get("transaction") is not None
        if frame.command == b"SEND" and self.sent == 3:
            make_harmless(frame)
        yield frame


class ForgetsDurableSubscriptions(NodeFault):
    """Durable subscriptions are known at the node that they were made at, and not at others."""

    found_by = (f"{STORAGE}durable-subscription",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        """Have the subscription be a plain one."""
        if not self.is_first and frame.command == b"CONNECT" and frame.get("client-id"):
            frame.put("client-id", f"another {frame.get('client-id')}")
        yield frame


class DeliversTwice(NodeFault):
    """The other node delivers everything twice."""

    found_by = tuple(
        f"{STORAGE}{name}" for name in ("receipted", "unacknowledged", "transaction-committed")
    )

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        """Repeat a message."""
        yield frame
        if not self.is_first and frame.command == b"MESSAGE":
            yield frame
