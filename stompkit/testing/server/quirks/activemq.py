"""Quirks of ActiveMQ (Classic)."""

from __future__ import annotations

import re
from typing import Final

from stompkit.frames import Frame, HeartBeatOffer, RemoteProtocolError, parse_heart_beat
from stompkit.server import MessageReference, RefusedError, Subscription
from stompkit.testing.server.quirks._answers import ECHO
from stompkit.testing.server.quirks._connection import Quirky
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._wire import changed

__all__ = ["ActiveMQ"]

#: Format of a message id that ActiveMQ accepts.
_ID: Final = re.compile(r".*[:-]\d+", re.DOTALL)
_DEAD_LETTERS: Final = "/queue/ActiveMQ.DLQ"
_NO_LENGTH: Final = f"{ECHO}no-length"
_PREFIXES: Final = (
    "/queue/",
    "/topic/",
    "/temp-queue/",
    "/temp-topic/",
    "/remote-temp-queue/",
    "/remote-temp-topic/",
    "queue://",
    "topic://",
    "temp-queue://",
    "temp-topic://",
)
_TRACE: Final = (
    "org.apache.activemq.transport.stomp.ProtocolException: {message}\n"
    "\tat org.apache.activemq.transport.stomp.ProtocolConverter.onStompCommand(Unknown Source)\n"
)


class ActiveMQ(Quirky):
    """Applies the active rules of ActiveMQ."""

    # NACK.

    def nack(self, frame: Frame) -> None:
        """Dead-letter persistent messages, and drop others."""
        if self.quirks.isdisjoint(("nack-dead-letters", "nack-names-one")):
            super().nack(frame)
            return
        entries = self.ledger.find(frame)
        if "nack-names-one" in self.quirks:
            entries = entries[-1:]
        goes_to_dead_letters = "nack-dead-letters" in self.quirks
        self.settle(frame, entries, accepted=goes_to_dead_letters)
        if goes_to_dead_letters:
            for entry in entries:
                self.__dead_letter(frame, entry)

    def __dead_letter(self, frame: Frame, entry: MessageReference) -> None:
        message = entry.message
        if message.headers.get("persistent") != "true" or not entry.home.is_queue:
            return
        origin = {"original-destination": message.headers["destination"]}
        moved = message.moved(_DEAD_LETTERS, origin)
        name = frame.headers.get("transaction")
        if name is None:
            self.host.send(moved)
        else:
            self.transactions[name].send(moved, 0)

    # Subscriptions.

    def subscribe(self, frame: Frame) -> None:
        """Create a subscription, whatever its id."""
        frame = self.__named(frame)
        if "prefetch-size" in self.quirks:
            size = frame.headers.get("activemq.prefetchSize", "")
            frame = changed(frame, "prefetch-count", "activemq.prefetchSize")
            if size.isascii() and size.isdigit():
                frame.headers["activemq.prefetchSize"] = size
        if "duplicate-id-accepted" in self.quirks:
            old = self.subscriptions.pop(self.key(frame), None)
            if old is not None:
                # The old subscription continues under a hidden name.
                self.subscriptions[f"{self.key(frame)}\n{old.serial}"] = old
        super().subscribe(frame)

    def include(self, key: str, subscription: Subscription) -> None:
        """Add a new subscription."""
        if "prefetch-size" in self.quirks and not self.is_browsing:
            size = self.subscribing.headers.get("activemq.prefetchSize", "1")
            if int(size) == 0:
                subscription.is_auto = False
                subscription.limit(0)
        super().include(key, subscription)

    def unsubscribe(self, frame: Frame) -> None:
        """End the latest subscription with the id."""
        super().unsubscribe(self.__named(frame))

    # SEND and MESSAGE.

    def send(self, frame: Frame) -> None:
        """Add a message to its destination."""
        frame = self.__named(frame)
        if "content-length-not-added" in self.quirks and "content-length" not in frame.headers:
            frame = changed(frame)
            frame.headers[_NO_LENGTH] = "true"
        super().send(frame)

    def __named(self, frame: Frame) -> Frame:
        name = frame.headers.get("destination")
        if "activemq-destinations" not in self.quirks or name is None:
            return frame
        return frame if name.startswith(_PREFIXES) else changed(frame, destination=f"/queue/{name}")

    def known(self, frame: Frame) -> Frame:
        """Translate the ids of an ACK or NACK to internal ones."""
        frame = super().known(frame)
        name = frame.headers.get("message-id", "")
        if self.version != "1.2" and "strange-ack-closes" in self.quirks:
            if not _ID.fullmatch(name):
                self.refuse(RemoteProtocolError("no message-id", code="unknown-acknowledgement"))
                raise RefusedError(f"{name[:40]!a} is no message-id", "unknown-acknowledgement")
        if "message-id-with-colons" not in self.quirks:
            return frame
        frame = changed(frame)
        for name in ("id", "message-id"):
            if name in frame.headers:
                frame.headers[name] = _id_here(frame.headers[name])
        return frame

    def outgoing(self, frame: Frame) -> Frame | None:
        """Return the frame to send instead of *frame*."""
        out = super().outgoing(frame)
        if out is None:
            return None
        if out.command == "ERROR" and "error-stack-trace" in self.quirks:
            message = out.headers.get("message", "")
            out.body = _TRACE.format(message=message).encode("utf-8", "surrogateescape")
        if out.command != "MESSAGE":
            return out
        if out.headers.pop(_NO_LENGTH.removeprefix(ECHO), None) is not None:
            out.headers.pop("content-length", None)
        if "message-id-with-colons" in self.quirks:
            for name in ("ack", "message-id"):
                if name in out.headers:
                    out.headers[name] = _id_there(out.headers[name])
        return out

    # Heart-beats.

    def agreement(self, header: str | None) -> Agreement:
        """Mirror the client's values."""
        if "heart-beat-mirrored" not in self.quirks:
            return super().agreement(header)
        can, wants = _lenient(header)
        return Agreement(f"{wants},{can}", max(0, wants) / 1000, max(0, can) / 1000)


def _id_there(name: str) -> str:
    return "ID:" + name.replace("-", ":")


def _id_here(name: str) -> str:
    return name.removeprefix("ID:").replace(":", "-")


def _lenient(header: str | None) -> HeartBeatOffer:
    """Return the two numbers; negative ones mean no heart-beats."""
    first, comma, second = (header or "0,0").strip().partition(",")
    words = [word.removeprefix("-") for word in (first, second)]
    can, wants = parse_heart_beat(f"{words[0]}{comma}{words[1]}")
    return (-can if first.startswith("-") else can, -wants if second.startswith("-") else wants)
