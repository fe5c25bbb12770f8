"""Quirks of the simple broker of Spring's WebSocket support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from stompkit.frames import VERSIONS, Frame, refusal
from stompkit.testing.server.quirks._connection import Quirky
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._wire import changed

__all__ = ["SpringSimple"]

_INNER: Final = "/topic/"


class SpringSimple(Quirky):
    """Applies the active rules of the simple broker."""

    # CONNECT and DISCONNECT.

    def connect(self, frame: Frame) -> None:
        """Log the client in, if it offers a known version."""
        if "version-needed" in self.quirks:
            words = frame.headers.get("accept-version", "").split(",")
            if not any(version in words for version in VERSIONS):
                return
        super().connect(frame)

    def agreement(self, header: str | None) -> Agreement:
        """Disable heart-beats."""
        agreed = super().agreement(header)
        return Agreement("0,0") if "no-heart-beats" in self.quirks else agreed

    def disconnect(self, frame: Frame) -> None:
        """End the session."""
        if "disconnect-answered-by-error" in self.quirks and "receipt" not in frame.headers:
            self.refuse(refusal("Session closed.", "session-closed"))
            return
        super().disconnect(frame)

    # Destinations.

    def required(self, command: str) -> Sequence[Sequence[str]] | None:
        """Return the required headers: none if a frame without them is ignored."""
        if command in ("SEND", "SUBSCRIBE", "UNSUBSCRIBE") and (
            "missing-headers-ignored" in self.quirks
        ):
            return ()
        if command in ("ACK", "NACK") and "acks-ignored" in self.quirks:
            return ()
        return super().required(command)

    def __is_whole(self, frame: Frame, *names: str) -> bool:
        return "missing-headers-ignored" not in self.quirks or all(
            name in frame.headers for name in names
        )

    def send(self, frame: Frame) -> None:
        """Send a message to the current subscribers."""
        if not self.__is_whole(frame, "destination"):
            return
        super().send(self.__inner(frame))

    def plain(self, frame: Frame) -> None:
        """Process a frame as a strict connection does, except in transactions."""
        if frame.command == "SEND" and "no-transactions" in self.quirks:
            frame = changed(frame, "transaction")
        super().plain(frame)

    def subscribe(self, frame: Frame) -> None:
        """Subscribe."""
        if not self.__is_whole(frame, "destination", "id"):
            return
        if "duplicate-id-ignored" in self.quirks and self.key(frame) in self.subscriptions:
            return
        if "acks-ignored" in self.quirks:
            frame = changed(frame, ack="auto")
        super().subscribe(self.__inner(frame))

    def unsubscribe(self, frame: Frame) -> None:
        """End a subscription, if it exists."""
        if not self.__is_whole(frame, "id"):
            return
        if (
            "unknown-unsubscribe-ignored" in self.quirks
            and self.key(frame) not in self.subscriptions
        ):
            return
        super().unsubscribe(self.__inner(frame) if "destination" in frame.headers else frame)

    def __inner(self, frame: Frame) -> Frame:
        if "everything-is-a-topic" not in self.quirks:
            return frame
        name = quote(frame.headers["destination"], safe="/", errors="surrogateescape")
        return changed(frame, destination=_INNER + name)

    # Ignored frames.

    def ack(self, frame: Frame) -> None:
        """Do nothing."""
        if "acks-ignored" not in self.quirks:
            super().ack(frame)

    def nack(self, frame: Frame) -> None:
        """Do nothing."""
        if "acks-ignored" not in self.quirks:
            super().nack(frame)

    def begin(self, frame: Frame) -> None:
        """Do nothing."""
        if "no-transactions" not in self.quirks:
            super().begin(frame)

    def commit(self, frame: Frame) -> None:
        """Do nothing."""
        if "no-transactions" not in self.quirks:
            super().commit(frame)

    def abort(self, frame: Frame) -> None:
        """Do nothing."""
        if "no-transactions" not in self.quirks:
            super().abort(frame)

    # Outgoing frames.

    def outgoing(self, frame: Frame) -> Frame | None:
        """Return the frame to send instead of *frame*."""
        out = super().outgoing(frame)
        if out is None:
            return None
        if out.command == "CONNECTED" and "connected-without-session" in self.quirks:
            return changed(out, "session", "server")
        if out.command == "RECEIPT" and "no-receipts" in self.quirks:
            return out if self.is_leaving else None
        if out.command == "ERROR" and "error-without-body" in self.quirks:
            return Frame("ERROR", changed(out, "content-type").headers)
        if out.command == "MESSAGE" and "everything-is-a-topic" in self.quirks:
            name = out.headers["destination"].removeprefix(_INNER)
            return changed(out, destination=unquote(name, errors="surrogateescape"))
        return out
