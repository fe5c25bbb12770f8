"""Quirks of CoilMQ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from socket import getfqdn
from typing import Final
from urllib.parse import quote, unquote

from stompkit.frames import Frame, Version, parse_heart_beat
from stompkit.server import Broker, MessageReference, Outlet, RefusedError, Settlement, Subscription
from stompkit.testing.server.quirks._answers import ECHO
from stompkit.testing.server.quirks._coilmq_decoder import FRAMING, CoilMQDecoder
from stompkit.testing.server.quirks._connection import Quirky
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._wire import changed

__all__ = ["CoilMQ"]

_LEAST_MS: Final = 100
#: Separator of id and destination in the internal ids of subscriptions.
_BETWEEN: Final = "\x01"
_NO_ID: Final = "0"
_KINDS: Final = ("/queue/", "/topic/")


@cache
def _host() -> str:
    return getfqdn()


class CoilMQ(Quirky):
    """Applies the active rules of CoilMQ."""

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with nothing received."""
        super().__init__(broker, outlet, now)
        if not self.quirks.isdisjoint(FRAMING):
            self.loose.decoder = CoilMQDecoder(self.quirks, broker.config.limits_before_login)
        #: The version negotiated by the first CONNECT.
        self.__version: Version | None = None
        #: Receipts of frames in open transactions.
        self.__receipts: dict[str, list[str]] = {}

    def take(self, frame: Frame) -> None:
        """Process a frame with all its effects."""
        super().take(frame)
        self.__note(frame)
        if "message-before-receipt" in self.quirks:
            self.broker.flush()

    # CONNECT.

    def connect(self, frame: Frame) -> None:
        """Log the client in."""
        if "host-is-fqdn" in self.quirks and self.negotiated(frame) == "1.2":
            host = frame.headers.get("host")
            if host is None:
                raise RefusedError('"host" header is required', "unknown-host")
            if host != _host():
                raise RefusedError(
                    "Virtual hosting is not supported or host is unknown", "unknown-host"
                )
        super().connect(frame)

    def negotiated(self, frame: Frame) -> Version:
        """Return the negotiated version."""
        if "accept-version-without-spaces" in self.quirks:
            words = frame.headers.get("accept-version")
            if words is None and frame.command == "STOMP":
                raise RefusedError("No 'accept-version' specified for STOMP", "no-common-version")
            if words is not None and " " in words:
                raise RefusedError("Malformed 'accept-version'", "no-common-version")
        if self.__version is None or "host-is-fqdn" not in self.quirks:
            self.__version = super().negotiated(frame)
        return self.__version

    def is_forgiven(self, code: str) -> bool:
        """Return True if the connection continues after an error."""
        is_too_early = code == "early-frame" and "early-frame-closes" in self.quirks
        return not is_too_early and super().is_forgiven(code)

    def is_silent(self, code: str) -> bool:
        """Return True if the connection is closed without an ERROR."""
        is_too_early = code == "early-frame" and "early-frame-closes" in self.quirks
        return (is_too_early and self.__version is not None) or super().is_silent(code)

    def agreement(self, header: str | None) -> Agreement:
        """Answer the client's values, or slightly higher ones."""
        if "heart-beat-least-100ms" not in self.quirks:
            return super().agreement(header)
        if header is None or self.loose.version == "1.0":
            return Agreement()
        can, wants = parse_heart_beat(header)
        wants = max(_LEAST_MS, wants)
        can = max(wants, can) if can else _LEAST_MS
        return Agreement(f"{wants},{can}", wants / 1000)

    # Frames.

    def required(self, command: str) -> Sequence[Sequence[str]] | None:
        """Return the required headers of a command."""
        if "acks-by-subscription" in self.quirks and command == "ACK" and self.version == "1.2":
            return (("message-id",), ("id",))
        if "subscriptions-by-id-and-destination" in self.quirks and command == "UNSUBSCRIBE":
            return (("destination",),) if self.version == "1.0" else (("destination",), ("id",))
        return super().required(command)

    def send(self, frame: Frame) -> None:
        """Add a message to its destination, or to a transaction."""
        if "message-id" in frame.headers and "message-id-of-client" in self.quirks:
            frame = changed(frame)
            frame.headers[f"{ECHO}message-id"] = frame.headers["message-id"]
        super().send(self.__inner(frame))

    def __note(self, frame: Frame) -> None:
        """Record a receipt that COMMIT repeats."""
        name, receipt = frame.headers.get("transaction"), frame.headers.get("receipt")
        if "receipt-twice" not in self.quirks or name is None:
            return
        if frame.command == "BEGIN":
            self.__receipts[name] = []
        elif frame.command in ("SEND", "ACK", "NACK") and receipt is not None:
            self.__receipts.setdefault(name, []).append(receipt)

    def commit(self, frame: Frame) -> None:
        """Commit a transaction, and repeat its receipts."""
        super().commit(frame)
        for receipt in self.__receipts.pop(frame.headers["transaction"], ()):
            if "message-before-receipt" in self.quirks:
                self.broker.flush()
            self.post(Frame("RECEIPT", {"receipt-id": receipt}))

    # Subscriptions.

    def subscribe(self, frame: Frame) -> None:
        """Subscribe."""
        if frame.headers.get("ack") == "client-individual" and (
            "client-individual-is-auto" in self.quirks
        ):
            frame = changed(frame, ack="auto")
        frame = self.__inner(self.__named(frame))
        if "subscriptions-by-id-and-destination" in self.quirks and (
            self.key(frame) in self.subscriptions
        ):
            return
        if "one-in-flight" in self.quirks:
            frame = changed(frame, "prefetch-count", "activemq.prefetchSize")
        super().subscribe(frame)

    def include(self, key: str, subscription: Subscription) -> None:
        """Add a new subscription; this changes the others."""
        if "one-in-flight" in self.quirks:
            subscription.limit(1)
        super().include(key, subscription)
        if "ack-mode-of-connection" in self.quirks and not self.is_browsing:
            is_auto = subscription.mode.value == "auto"
            is_topic = self.subscribing.headers.get("destination", "").startswith("/topic/")
            for each in self.subscriptions.values():
                # The subscription does not yet show that it is for a topic.
                to_topic = is_topic if each is subscription else _is_to_topic(each)
                each.is_auto = is_auto or to_topic
                self.broker.feed(each)

    def unsubscribe(self, frame: Frame) -> None:
        """End a subscription, if it exists."""
        frame = self.__inner(self.__named(frame)) if "destination" in frame.headers else frame
        if "subscriptions-by-id-and-destination" in self.quirks and (
            self.key(frame) not in self.subscriptions
        ):
            return
        super().unsubscribe(frame)

    def __named(self, frame: Frame) -> Frame:
        if "subscriptions-by-id-and-destination" not in self.quirks:
            return frame
        own = frame.headers.get("id", _NO_ID)
        return changed(frame, id=f"{own}{_BETWEEN}{frame.headers['destination']}")

    # ACK and NACK.

    def ack(self, frame: Frame) -> None:
        """Acknowledge the message that the subscription waits for."""
        if "acks-by-subscription" not in self.quirks:
            super().ack(frame)
            return
        name = "subscription" if self.version == "1.1" else "id"
        own = frame.headers.get(name, _NO_ID)
        waiting = [entry for entry in self.ledger if _id_of(entry) == own and entry.holder is None]
        if not waiting:
            return
        message = waiting[0].message
        if frame.headers["message-id"] != message.headers.get(f"{ECHO}message-id", message.id):
            raise RefusedError(
                "'Frame' object has no attribute 'destination'", "bad-acknowledgement"
            )
        self.settle(frame, waiting[:1], accepted=True)

    def nack(self, frame: Frame) -> None:
        """Ignore the frame."""
        if "nack-refused" in self.quirks:
            raise RefusedError("Nack implementation incomplete", "nack-refused")
        super().nack(frame)

    def release(self) -> None:
        """Release everything; unacknowledged messages go to the end of their queue."""
        if "requeued-last" in self.quirks:
            last = [entry for entry in self.ledger if entry.home.is_queue and not entry.home.owner]
            for entry in last:
                message = entry.message
                self.broker.settle(Settlement([entry], accepted=True, requeue=True))
                self.host.send(message)
        super().release()

    # Destinations.

    def __inner(self, frame: Frame) -> Frame:
        """Return a frame with a destination that means the same to a broker with wildcards."""
        if "coilmq-destinations" not in self.quirks:
            return frame
        name = frame.headers["destination"]
        kind = "/queue/" if name.startswith("/queue/") else "/topic/"
        rest = name.removeprefix("/queue/")
        return changed(frame, destination=kind + quote(rest, safe="/", errors="surrogateescape"))

    @staticmethod
    def __outer(name: str) -> str:
        kind = next((kind for kind in _KINDS if name.startswith(kind)), "")
        rest = unquote(name.removeprefix(kind), errors="surrogateescape")
        return rest if kind == "/topic/" else kind + rest

    # Outgoing frames.

    @property
    def escapes(self) -> Version:
        """The version whose escapes are used for writing."""
        return "1.0" if "no-escapes" in self.quirks else super().escapes

    def outgoing(self, frame: Frame) -> Frame | None:
        """Return the frame to send instead of *frame*."""
        out = super().outgoing(frame)
        if out is None:
            return None
        if out.command == "CONNECTED" and self.version == "1.0":
            if "no-version-on-1.0" in self.quirks:
                out = changed(out, "version")
        if out.command == "MESSAGE":
            if "coilmq-destinations" in self.quirks:
                out = changed(out, destination=self.__outer(out.headers["destination"]))
            if "subscriptions-by-id-and-destination" in self.quirks:
                own = out.headers["subscription"].partition(_BETWEEN)[0]
                out = changed(out, subscription=own)
            if "acks-by-subscription" in self.quirks:
                out = changed(out, "ack")
        if "content-length-always" in self.quirks:
            out = changed(out, content_length=str(len(out.body)))
        return out


def _is_to_topic(subscription: Subscription) -> bool:
    return not any(home.is_queue for home in subscription.homes)


def _id_of(entry: MessageReference) -> str:
    subscription = entry.subscription
    assert subscription is not None  # entries in PendingAcks have a subscription
    return (subscription.id or _NO_ID).partition(_BETWEEN)[0]
