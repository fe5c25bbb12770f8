"""Quirks of RabbitMQ."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import ClassVar, Final

from stompkit.frames import Frame, RemoteProtocolError, parse_heart_beat, refusal
from stompkit.server import Broker, MessageReference, Outlet, RefusedError
from stompkit.testing.server.quirks._connection import Quirky
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._rabbitmq_queues import DeclaredQueues
from stompkit.testing.server.quirks._wire import changed

__all__ = ["RabbitMQ"]

_ID: Final = re.compile(r"([TQ])_(.*)@@.+@@\d+", re.DOTALL)
_OF_ACKS: Final = (
    "ack-across-subscriptions",
    "spent-ack-closes",
    "late-ack-refused",
    "message-id-per-delivery",
)
_NO_LIMIT: Final = str(999_999_999)
_DEFAULT_HOST: Final = "/"
_SIMPLE: Final = ("/queue/", "/topic/")


class RabbitMQ(Quirky):
    """Applies the active rules of RabbitMQ."""

    #: All declared queues; each broker has a separate table.
    queues: ClassVar[DeclaredQueues] = DeclaredQueues()

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with nothing received."""
        super().__init__(broker, outlet, now)
        self.__session_name = broker.new_session()
        self.__deliveries = 0
        #: Deliveries that wait for ACK in their order, with the ids that clients got, and the
        #: original headers of these MESSAGE frames.
        self.__order: dict[MessageReference, str] = {}
        self.__ids: dict[str, dict[str, str]] = {}
        self.__last: MessageReference | None = None
        self.__prefetch: str | None = None
        self.frees_in_transactions = "transaction-holds-prefetch" not in self.quirks
        #: Receipts of SEND that are delayed, and those of open transactions.
        self.__late: set[str] = set()
        self.__of_transactions: defaultdict[str, list[str]] = defaultdict(list)

    # CONNECT.

    def connect(self, frame: Frame) -> None:
        """Log the client in, if the virtual host exists."""
        host = frame.headers.get("host", _DEFAULT_HOST)
        hosts = self.broker.config.hosts or (_DEFAULT_HOST,)
        if "host-is-vhost" in self.quirks and host not in hosts:
            raise RefusedError(f"virtual host {host[:100]!a} access denied", "unknown-host")
        super().connect(frame)

    def connect_again(self, frame: Frame) -> None:
        """Process a repeated CONNECT of a client that is logged in."""
        if "second-connect-closes" not in self.quirks:
            super().connect_again(frame)
            return
        self.refuse(RemoteProtocolError("connected already", code="unexpected-frame"))

    def is_forgiven(self, code: str) -> bool:
        """Return True if the connection continues after an error."""
        if code == "no-common-version" and "version-error-stays-open" in self.quirks:
            return True
        return super().is_forgiven(code)

    def agreement(self, header: str | None) -> Agreement:
        """Return the client's values, in whole seconds."""
        if "heart-beat-whole-seconds" not in self.quirks:
            return super().agreement(header)
        can, wants = (max(1, ms // 1000) if ms else 0 for ms in parse_heart_beat(header))
        return Agreement(f"{wants * 1000},{can * 1000}", wants, can)

    # SEND.

    def send(self, frame: Frame) -> None:
        """Add a message to its destination."""
        if "message-id" in frame.headers and "message-id-on-send-refused" in self.quirks:
            raise RefusedError("'message-id' is not allowed on 'SEND'", "bad-header")
        receipt, transaction = frame.headers.get("receipt"), frame.headers.get("transaction")
        if receipt is not None:
            if transaction is not None and "transaction-receipts-late" in self.quirks:
                self.__of_transactions[transaction].append(receipt)
            elif "receipt-order" in self.quirks:
                self.__late.add(receipt)
        frame = self.__named(frame)
        if self.__declare(frame):
            super().send(frame)

    def __declare(self, frame: Frame) -> bool:
        """Declare a queue if necessary; return True if this connection may use it as it is."""
        if "queue-properties" not in self.quirks:
            return True
        problem = self.queues.claim(self, frame)
        if problem is not None:
            self.__die(frame, problem)
        return problem is None

    def __die(self, frame: Frame, message: str) -> None:
        """End like a misused AMQP channel: ERROR, then RECEIPT, then close."""
        error = refusal(message, "amqp-error").reply
        assert error is not None  # a refusal has one
        self.post(error)
        if frame.command != "SEND":
            self.__answer(frame)
        self.refuse(RemoteProtocolError(message, code="amqp-error"))

    def release(self) -> None:
        """Release everything, including the connection's exclusive queues."""
        super().release()
        for name in self.queues.give_up(self):
            destination = self.host.destinations.get(name)
            if destination is not None:
                self.host.discard(destination)

    def __named(self, frame: Frame) -> Frame:
        name = frame.headers["destination"]
        if "rabbitmq-destinations" not in self.quirks:
            return frame
        for prefix in _SIMPLE:
            if name.startswith(prefix) and "/" in name.removeprefix(prefix):
                raise RefusedError(
                    f"{name[:100]!a} is not a valid destination", "unknown-destination"
                )
        return frame if "/" in name else changed(frame, destination=f"/queue/{name}")

    # Transactions.

    def begin(self, frame: Frame) -> None:
        """Begin a transaction."""
        self.__of_transactions.pop(frame.headers["transaction"], None)
        super().begin(frame)

    def commit(self, frame: Frame) -> None:
        """Commit a transaction; the receipts of its frames follow that of COMMIT."""
        super().commit(frame)
        for entry in [each for each in self.__order if not each.key]:
            self.__forget(entry)
        for receipt in self.__of_transactions.pop(frame.headers["transaction"], ()):
            self.__post_later(Frame("RECEIPT", {"receipt-id": receipt}))

    # Subscriptions.

    def required(self, command: str) -> Sequence[Sequence[str]] | None:
        """Return the required headers of a command."""
        if command == "NACK" and self.version == "1.0" and "nack-on-1.0" in self.quirks:
            return (("message-id",),)
        if command == "SUBSCRIBE" and "id-not-needed" in self.quirks:
            return (("destination",),)
        if command == "UNSUBSCRIBE" and "id-not-needed" in self.quirks:
            return (("id", "destination"),)
        is_named = "message-id-per-delivery" in self.quirks
        if command in ("ACK", "NACK") and self.version == "1.1" and is_named:
            return (("message-id",),)
        return super().required(command)

    def subscribe(self, frame: Frame) -> None:
        """Subscribe; a repeated id ends the connection."""
        frame = self.__named(frame)
        if "duplicate-id-closes" in self.quirks and self.key(frame) in self.subscriptions:
            self.__die(frame, "Duplicated subscription identifier")
            return
        if not self.__declare(frame):
            return
        if "prefetch-count" in self.quirks:
            self.__prefetch = frame.headers.get("prefetch-count", self.__prefetch)
            frame = changed(frame, "activemq.prefetchSize", "prefetch-count")
            frame.headers["prefetch-count"] = self.__prefetch or _NO_LIMIT
        super().subscribe(frame)

    def unsubscribe(self, frame: Frame) -> None:
        """End a subscription."""
        super().unsubscribe(self.__named(frame) if "destination" in frame.headers else frame)

    # ACK and NACK.

    def known(self, frame: Frame) -> Frame:
        """Translate the ids of an ACK or NACK to internal ones."""
        frame = super().known(frame)
        if "message-id-per-delivery" not in self.quirks:
            return frame
        header = "id" if self.version == "1.2" else "message-id"
        name = frame.headers[header]
        match = _ID.fullmatch(name)
        if match is None:
            raise RefusedError(
                f"{frame.command} must include a valid {header} header", "bad-header"
            )
        kind, subscription = match.groups()
        key = f"{'id' if kind == 'T' else 'destination'} {subscription}"
        if "late-ack-refused" in self.quirks and key not in self.subscriptions:
            raise RefusedError(
                f"message {name[:100]!a} has no subscription", "unknown-subscription"
            )
        found = self.__ids.get(name)
        if found is None:
            # Not a valid id: its message is no longer pending.
            return changed(frame, **{header: ""})
        if self.version == "1.2":
            return changed(frame, id=found["ack"])
        frame = changed(frame, "subscription", message_id=found["message-id"])
        if "subscription" in found:
            frame.headers["subscription"] = found["subscription"]
        return frame

    def ack(self, frame: Frame) -> None:
        """Acknowledge all deliveries up to a message."""
        if self.quirks.isdisjoint(_OF_ACKS):
            super().ack(frame)
        else:
            self.__settle(frame, accepted=True)

    def nack(self, frame: Frame) -> None:
        """Requeue or drop all deliveries up to a message."""
        if self.quirks.isdisjoint(_OF_ACKS):
            super().nack(frame)
        else:
            self.__settle(frame, accepted=False)

    def __settle(self, frame: Frame, *, accepted: bool) -> None:
        try:
            entries = self.ledger.find(frame)
        except RefusedError:
            if "spent-ack-closes" not in self.quirks:
                raise
            self.__answer(frame)
            self.refuse(refusal("precondition_failed", "unknown-acknowledgement"))
            return
        subscription = entries[-1].subscription if entries else None
        if "late-ack-refused" in self.quirks and entries:
            if subscription not in self.subscriptions.values():
                raise RefusedError("the message has no subscription", "unknown-subscription")
        is_cumulative = subscription is not None and subscription.mode.value == "client"
        if is_cumulative and "ack-across-subscriptions" in self.quirks:
            named = entries[-1]
            order = list(self.__order)
            older = order[: order.index(named) + 1]
            # Without a key it is no longer pending.
            entries = [entry for entry in older if entry.key and entry.holder is None]
        self.settle(frame, entries, accepted=accepted)
        if "transaction" not in frame.headers:
            for entry in entries:
                self.__forget(entry)

    def delivered(self, entry: MessageReference) -> None:
        """Record the order of deliveries that wait for ACK."""
        super().delivered(entry)
        if not self.quirks.isdisjoint(_OF_ACKS):
            self.__forget(entry)
            self.__order[entry] = ""
            self.__last = entry

    def __forget(self, entry: MessageReference) -> None:
        self.__ids.pop(self.__order.pop(entry, ""), None)

    # Outgoing frames.

    def outgoing(self, frame: Frame) -> Frame | None:
        """Return the frame to send instead of *frame*; delayed receipts are held back."""
        out = super().outgoing(frame)
        if out is None or out.command != "RECEIPT":
            return self.__with_id(out) if out is not None and out.command == "MESSAGE" else out
        receipt = out.headers["receipt-id"]
        if any(receipt in receipts for receipts in self.__of_transactions.values()):
            return None
        if receipt in self.__late:
            self.__late.remove(receipt)
            self.__post_later(out)
            return None
        return out

    def __with_id(self, frame: Frame) -> Frame:
        if "message-id-per-delivery" not in self.quirks:
            return frame
        headers = frame.headers
        name = headers.get("subscription")
        tag = f"Q_{headers['destination']}" if name is None else f"T_{name}"
        self.__deliveries += 1
        given = f"{tag}@@session-{self.__session_name}@@{self.__deliveries}"
        entry, self.__last = self.__last, None
        if entry is not None:
            self.__order[entry] = given
            self.__ids[given] = headers
        out = changed(frame, message_id=given)
        if "ack" in out.headers:
            out.headers["ack"] = given
        return out

    def __answer(self, frame: Frame) -> None:
        if "receipt" in frame.headers:
            self.post(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))

    def __post_later(self, frame: Frame) -> None:
        self.broker.later(0.0, lambda: self.write(frame))
