"""Servers that break one rule about transactions that the behaviour chapter covers."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.conformance.broken_behaviour_acks import NEW, in_behaviour
from tests.conformance.proxy import Fault, make_harmless, refuse
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: Maximum number of messages in a small transaction.
_MOST_SENDS: Final = 100


class Transactions(Fault):
    """Records the frames of each open transaction."""

    def __init__(self, line: Line) -> None:
        """Start without transactions."""
        super().__init__(line)
        self.open: dict[str | None, list[Raw]] = {}

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        name = frame.get("transaction")
        if frame.command == b"BEGIN":
            self.open[name] = []
            yield from self.begins(frame)
        elif frame.command in (b"COMMIT", b"ABORT"):
            frames = self.open.pop(name, [])
            yield from (
                self.commits(frame, frames)
                if frame.command == b"COMMIT"
                else self.aborts(frame, frames)
            )
        elif name in self.open:
            self.open[name].append(Raw(frame.command, list(frame.lines), frame.body))
            yield from self.adds(frame)
        else:
            yield from self.others(frame)

    def begins(self, frame: Raw) -> Iterable[Raw]:
        """Yield the frames that the broker gets for BEGIN."""
        yield frame

    def adds(self, frame: Raw) -> Iterable[Raw]:
        """Yield the frames that the broker gets for a frame of an open transaction."""
        yield frame

    def commits(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        """Yield the frames that the broker gets for COMMIT of a transaction with *frames*."""
        yield frame

    def aborts(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        """Yield the frames that the broker gets for ABORT of a transaction with *frames*."""
        yield frame

    def others(self, frame: Raw) -> Iterable[Raw]:
        """Yield the frames that the broker gets for any other frame."""
        yield frame


def outside(frame: Raw) -> Raw:
    """Return a copy of a frame without its transaction and receipt."""
    copy = Raw(frame.command, list(frame.lines), frame.body)
    copy.drop("transaction", "receipt")
    return copy


class OneTransactionApart(Transactions):
    """Keeps messages of one open transaction only, and sends those of others immediately."""

    found_by = ("behaviour/transaction/isolation", "behaviour/transaction/interleaved")

    def adds(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SEND" and frame.get("transaction") != next(iter(self.open)):
            frame.drop("transaction")
        yield frame


class CommitsBackwards(Transactions):
    """Sends the messages of a transaction in reverse order."""

    found_by = (
        "behaviour/transaction/order",
        "behaviour/transaction/interleaved",
    )

    def adds(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SEND":
            # Sent at COMMIT instead.
            if frame.get("receipt") is None:
                return
            make_harmless(frame)
        yield frame

    def commits(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        for each in reversed(frames):
            if each.command == b"SEND":
                each.drop("receipt")
                yield each
        yield frame


class AbortsInPart(Transactions):
    """On ABORT, drops only the messages to the first destination."""

    found_by = ("behaviour/transaction/abort-everywhere",)

    def aborts(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        yield frame
        sent = [each for each in frames if each.command == b"SEND"]
        for each in sent:
            if each.get("destination") != sent[0].get("destination"):
                yield outside(each)


class CommitsForAll(Transactions):
    """Applies COMMIT to the transactions of this name on all connections."""

    found_by = ("behaviour/transaction/two-connections",)

    def commits(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        name = frame.get("transaction")
        for each in self.connections:
            if each is not self and not each.is_over and name in each.open:
                del each.open[name]
                each.to_broker(Raw(b"COMMIT", [f"transaction:{name}".encode()]))
        yield frame


class AbortOnlyPauses(Transactions):
    """Adds aborted frames to the next transaction of the same name."""

    found_by = ("behaviour/transaction/name-again",)

    def __init__(self, line: Line) -> None:
        """Start without aborted frames."""
        super().__init__(line)
        self.aborted: dict[str | None, list[Raw]] = {}

    def begins(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        for each in self.aborted.pop(frame.get("transaction"), []):
            each.drop("receipt")
            yield each

    def aborts(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        self.aborted[frame.get("transaction")] = frames
        yield frame


class BeginsByItself(Transactions):
    """Begins a transaction at the first message or acknowledgement that names it."""

    found_by = (
        *in_behaviour(NEW, "transaction/send-unknown", "transaction/ack-unknown"),
        "behaviour/transaction/send-after-end",
        "behaviour/transaction/nack-unknown",
    )

    def others(self, frame: Raw) -> Iterable[Raw]:
        name = frame.get("transaction")
        if name is not None:
            self.open[name] = []
            yield Raw(b"BEGIN", [f"transaction:{name}".encode()])
        yield frame


class SmallTransactions(Transactions):
    """Refuses the 101st message of a transaction."""

    found_by = ("behaviour/transaction/large",)

    def adds(self, frame: Raw) -> Iterable[Raw]:
        if len(self.open[frame.get("transaction")]) > _MOST_SENDS:
            refuse(frame)
        yield frame


class ErrorsCommit(Transactions):
    """On an error in a transaction, commits it before closing the connection."""

    found_by = ("behaviour/transaction/error-within",)
    has_received = False

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        self.has_received |= frame.command == b"MESSAGE"
        yield frame

    def adds(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"ACK" and not self.has_received:
            yield Raw(b"COMMIT", [f"transaction:{frame.get('transaction')}".encode()])
        yield frame


class AbortKeepsAcks(Transactions):
    """On ABORT, discards the messages but executes the acknowledgements."""

    found_by = (
        *in_behaviour(NEW, "transaction/ack-after-abort"),
        "behaviour/transaction/ack-cumulative",
        "behaviour/transaction/move-undone",
    )

    def aborts(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        yield frame
        for each in frames:
            if each.command == b"ACK":
                yield outside(each)


class DisconnectKeepsAcks(Transactions):
    """On DISCONNECT, discards the messages but executes the acknowledgements."""

    found_by = in_behaviour(NEW, "transaction/ack-and-disconnect")

    def others(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"DISCONNECT":
            for name, frames in self.open.items():
                yield Raw(b"ABORT", [f"transaction:{name}".encode()])
                for each in frames:
                    if each.command == b"ACK":
                        yield outside(each)
        yield frame


class CommitsMessagesOnly(Transactions):
    """On COMMIT, drops the acknowledgements of a transaction that also has messages."""

    found_by = in_behaviour(NEW, "transaction/move")

    def adds(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"ACK":
            make_harmless(frame)
        yield frame

    def commits(self, frame: Raw, frames: list[Raw]) -> Iterable[Raw]:
        if all(each.command == b"ACK" for each in frames):
            for each in frames:
                each.drop("receipt")
                yield each
        yield frame
