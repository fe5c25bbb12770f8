"""Quirks of ActiveMQ Artemis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stompkit.frames import Frame, Version, parse_heart_beat, refusal
from stompkit.server import (
    Broker,
    MessageReference,
    Outlet,
    RefusedError,
    Settlement,
    Subscription,
)
from stompkit.testing.server.quirks._connection import Quirky
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._wire import changed, whole

__all__ = ["Artemis"]

_LEAST_MS: Final = 500
_TTL_S: Final = 60.0
_DEFAULT_WINDOW: Final = 10_240
_PREFETCH: Final = ("consumer-window-size", "activemq.prefetchSize")
_NO_LIMIT: Final = 2**31 - 1
_KINDS: Final = ("/queue/", "/topic/")


class Artemis(Quirky):
    """Applies the active rules of Artemis."""

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with nothing received."""
        super().__init__(broker, outlet, now)
        #: Window in bytes requested by the SUBSCRIBE that is being processed; -1 for no limit.
        self.__asked: int | None = None
        #: Window in bytes of each subscription, and the bytes that are unacknowledged.
        self.__windows: dict[Subscription, int] = {}
        self.__used: dict[Subscription, int] = {}
        self.__hides_ack = False
        #: True if incoming frames are ignored.
        self.__is_deaf = False
        self.loose.wedging = frozenset(
            {"bad-content-length"} if "bad-content-length-wedges" in self.quirks else ()
        )
        #: Transactions that were begun by a SEND, and not yet by BEGIN.
        self.__begun: set[str] = set()

    # Incoming frames.

    def take(self, frame: Frame) -> None:
        """Process a frame; raises :class:`RefusedError` if it is rejected."""
        if not self.is_logged_in and frame.command not in ("CONNECT", "STOMP"):
            self.__is_deaf |= "early-frame-wedges" in self.quirks
        if self.__is_deaf:
            return
        if self.version != "1.2" and "header-last-wins-before-1.2" in self.quirks:
            frame = Frame(frame.command, frame.headers | dict(frame.repeated), frame.body)
        try:
            super().take(frame)
        except RefusedError as refused:
            is_unknown = frame.command == "NACK" and refused.code == "unknown-command"
            if is_unknown and "nack-on-1.0-closes" in self.quirks:
                self.refuse(refusal(refused.message, refused.code))
            elif frame.command == "SUBSCRIBE" and (
                "subscribe-error-without-receipt-id" in self.quirks
            ):
                self.fail(refused.message, refused.code)
            else:
                raise

    def negotiated(self, frame: Frame) -> Version:
        """Return the negotiated version."""
        version = super().negotiated(frame)
        if frame.command == "STOMP" and version == "1.0" and "stomp-needs-1.1" in self.quirks:
            raise RefusedError("STOMP 1.0 takes no STOMP frame", "unknown-command")
        return version

    # Transactions.

    def send(self, frame: Frame) -> None:
        """Add a message to its destination, or to a transaction."""
        name = frame.headers.get("transaction")
        if name is not None and name not in self.transactions:
            if "unknown-transaction-begins" in self.quirks:
                self.plain(Frame("BEGIN", {"transaction": name}))
                self.__begun.add(name)
        super().send(frame)

    def begin(self, frame: Frame) -> None:
        """Begin a transaction, unless a SEND has done so."""
        name = frame.headers["transaction"]
        if name in self.__begun and name in self.transactions:
            self.__begun.remove(name)
        else:
            self.__begun.discard(name)
            super().begin(frame)

    # ACK and NACK.

    def known(self, frame: Frame) -> Frame:
        """Translate the ids of an ACK or NACK to internal ones."""
        frame = super().known(frame)
        if "message-id-per-consumer" not in self.quirks:
            return frame
        header = "id" if self.version == "1.2" else "message-id"
        for entry in self.ledger:
            subscription = entry.subscription
            assert subscription is not None  # it has been delivered to one
            if frame.headers[header] == _id_there(subscription, entry.message.id):
                name = entry.key if header == "id" else entry.message.id
                return changed(frame, **{header: name})
        # It may be an internal id, which no client knows.
        return changed(frame, **{header: ""})

    def ack(self, frame: Frame) -> None:
        """Acknowledge deliveries."""
        super().ack(self.__at_once(frame))
        self.__open_windows()

    def nack(self, frame: Frame) -> None:
        """Treat the deliveries as consumed."""
        frame = self.__at_once(frame)
        if "nack-is-ack" in self.quirks:
            super().ack(Frame("ACK", frame.headers))
        else:
            super().nack(frame)
        self.__open_windows()

    def __at_once(self, frame: Frame) -> Frame:
        known = "ack-in-transaction-at-once" not in self.quirks
        return frame if known else changed(frame, "transaction")

    # Subscriptions.

    def subscribe(self, frame: Frame) -> None:
        """Subscribe."""
        if "id" not in frame.headers and "subscription-named-after-destination" in self.quirks:
            frame = changed(frame, id=_subscription_name(frame))
        if "prefetch-in-bytes" in self.quirks:
            self.__asked = self.__window(frame)
            frame = changed(frame, *_PREFETCH, "prefetch-count")
        super().subscribe(frame)

    def required(self, command: str) -> Sequence[Sequence[str]] | None:
        """Return the required headers of a command."""
        if command == "SUBSCRIBE" and "subscription-named-after-destination" in self.quirks:
            return (("destination",),)
        return super().required(command)

    def unsubscribe(self, frame: Frame) -> None:
        """End a subscription."""
        if "id" not in frame.headers and "subscription-named-after-destination" in self.quirks:
            frame = changed(frame, id=_subscription_name(frame))
        subscription = self.subscriptions.get(self.key(frame))
        back = [] if subscription is None else list(subscription.unsettled.values())
        super().unsubscribe(frame)
        if "given-back-unmarked" in self.quirks:
            for entry in back:
                if not entry.key:
                    entry.deliveries -= 1

    # The window.

    @staticmethod
    def __window(frame: Frame) -> int | None:
        value = next((frame.headers[name] for name in _PREFETCH if name in frame.headers), None)
        if value is None:
            return None
        if not (value.isascii() and value.removeprefix("-").isdigit()):
            raise RefusedError(f"window {value[:40]!a} is not a number of octets", "bad-header")
        return -1 if value.startswith("-") else whole(value)

    def include(self, key: str, subscription: Subscription) -> None:
        """Add a new subscription and its window."""
        if "prefetch-in-bytes" in self.quirks and not self.is_browsing:
            window = self.__asked
            if window is None:
                window = -1 if subscription.is_auto else _DEFAULT_WINDOW
            if window >= 0:
                # Messages in auto mode are acknowledged below.
                subscription.is_auto = False
                # A window of 0 would allow no message: it is treated as 1.
                self.__windows[subscription] = max(1, window)
                self.__used[subscription] = 0
                subscription.limit(1)
            else:
                subscription.limit(_NO_LIMIT)
        super().include(key, subscription)

    def delivered(self, entry: MessageReference) -> None:
        """Add a message to the window."""
        super().delivered(entry)
        subscription = entry.subscription
        assert subscription is not None  # it has just been delivered to one
        if subscription not in self.__windows:
            return
        self.__used[subscription] += entry.message.size
        if subscription.mode.value == "auto":
            self.__hides_ack = True
            self.broker.later(0.0, lambda: self.__forget(entry, subscription))
        self.__adjust(subscription)

    def __forget(self, entry: MessageReference, subscription: Subscription) -> None:
        """Acknowledge a message of an auto subscription, without space in the window."""
        # The message may have been requeued meanwhile, and delivered to another subscription.
        if entry.key and entry.subscription is subscription:
            self.broker.settle(Settlement([entry], accepted=True, requeue=True))
            self.__adjust(subscription)

    def __open_windows(self) -> None:
        for subscription in self.__windows:
            if subscription.mode.value != "auto":
                unsettled = subscription.unsettled.values()
                self.__used[subscription] = sum(entry.message.size for entry in unsettled)
            self.__adjust(subscription)

    def __adjust(self, subscription: Subscription) -> None:
        is_open = self.__used[subscription] < self.__windows[subscription]
        subscription.limit(len(subscription.unsettled) + is_open)

    def commit(self, frame: Frame) -> None:
        """Commit a transaction."""
        super().commit(frame)
        self.__open_windows()

    def outgoing(self, frame: Frame) -> Frame | None:
        """Return the frame to send instead of *frame*."""
        out = super().outgoing(frame)
        if out is not None and out.command == "MESSAGE" and self.__hides_ack:
            self.__hides_ack = False
            out = changed(out, "ack")
        if out is not None and out.command == "MESSAGE":
            out = self.__with_id(out)
        return out

    def __with_id(self, frame: Frame) -> Frame:
        subscription = self.subscriptions.get(f"id {frame.headers.get('subscription')}")
        if "message-id-per-consumer" not in self.quirks or subscription is None:
            return frame
        name = _id_there(subscription, frame.headers["message-id"])
        shown = {"message_id": name} | ({"ack": name} if "ack" in frame.headers else {})
        return changed(frame, **shown)

    # Heart-beats.

    def agreement(self, header: str | None) -> Agreement:
        """Answer the client's values, and check the client in any case."""
        agreed = super().agreement(header)
        if "heart-beat-least-500ms" in self.quirks:
            can, wants = parse_heart_beat(header)
            send_ms = max(_LEAST_MS, wants) if wants else 0
            receive_ms = max(_LEAST_MS, can) if can else 0
            answer = f"{send_ms},{receive_ms or round(_TTL_S * 500)}"
            is_told = header is not None and self.loose.version != "1.0"
            agreed = Agreement()
            if is_told:
                agreed = Agreement(answer, send_ms / 1000, receive_ms / 1000)
        if not agreed.receive_s and "silence-of-60s" in self.quirks:
            agreed = replace(agreed, receive_s=_TTL_S / 2, tolerance=2.0)
        return agreed


def _id_there(subscription: Subscription, message_id: str) -> str:
    """Return the message id that a client gets."""
    return f"{subscription.serial},{message_id}"


def _subscription_name(frame: Frame) -> str:
    """Return the generated id of a subscription without one."""
    name = frame.headers["destination"]
    for kind in _KINDS:
        name = name.removeprefix(kind)
    return f"subscription/{name}"
