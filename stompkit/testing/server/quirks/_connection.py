"""The base of all profiles: a connection that passes each frame to methods to override."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from stompkit.frames import (
    COMMANDS,
    VERSIONS,
    Frame,
    RemoteProtocolError,
    Role,
    Tolerance,
    Version,
    parse_heart_beat,
    unescape,
)
from stompkit.server import (
    Broker,
    Connection,
    Handler,
    MessageReference,
    Outlet,
    PendingAcks,
    RefusedError,
    Settlement,
    Subscription,
)
from stompkit.testing.server.quirks._answers import ECHO, Answering
from stompkit.testing.server.quirks._heart_beats import Agreement
from stompkit.testing.server.quirks._session import LooseSession
from stompkit.testing.server.quirks._wire import changed

__all__ = ["Quirky"]

#: Number of consecutive checks without data after which a client counts as dead.
_CHECKS: Final = 2


def _hand_on(connection: Connection, frame: Frame) -> None:
    assert isinstance(connection, Quirky)  # only Quirky has this handler
    connection.take(frame)


class _ToldLedger(PendingAcks):
    """A PendingAcks that reports each delivery before the MESSAGE frame is sent."""

    def __init__(self, version: Version, delivered: Callable[[MessageReference], None]) -> None:
        """Start empty."""
        super().__init__(version)
        self._delivered = delivered

    def add(self, entry: MessageReference, subscription: Subscription) -> str:
        """Add a delivery."""
        lines = super().add(entry, subscription)
        self._delivered(entry)
        return lines


class Quirky(Answering):
    """Behaves as a strict connection, except for the active rules.

    An incoming frame goes through the method named after its command, and an outgoing one through
    :meth:`outgoing`; profiles override these and call ``super()``. All profiles are bases of one
    class, so private names of a profile start with two underscores.
    """

    handlers: ClassVar[Mapping[str, Handler]] = dict.fromkeys(COMMANDS, _hand_on)

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with nothing received."""
        super().__init__(broker, outlet, now)
        config = broker.config
        tolerance = config.effective_tolerance
        if "crlf-anywhere" in self.quirks:
            tolerance |= Tolerance.CRLF
        if "undefined-escape-kept" in self.quirks:
            tolerance |= Tolerance.UNKNOWN_ESCAPE
        self.loose = LooseSession(
            now,
            self._accepted,
            limits=config.limits,
            limits_before_login=config.limits_before_login,
            tolerance=tolerance,
        )
        self.loose.is_silent = "malformed-closes-silently" in self.quirks
        self.session = self.loose
        #: True after a DISCONNECT.
        self.is_leaving = False
        #: The SUBSCRIBE frame that is being processed.
        self.subscribing = Frame("SUBSCRIBE")

    # Incoming frames.

    def take(self, frame: Frame) -> None:
        """Process a frame; raises :class:`RefusedError` if it is rejected."""
        if self.is_leaving:
            # Without the rule, only pending calls of the store delay the end.
            if "disconnect-stays-open" in self.quirks:
                self.refuse(RemoteProtocolError("after DISCONNECT", code="unexpected-frame"))
            return
        if frame.command in ("CONNECT", "STOMP"):
            if "unescapes-connect" in self.quirks:
                frame = self._unescaped(frame)
            if self.is_logged_in:
                self.connect_again(frame)
            else:
                self.connect(frame)
            return
        if not self.is_logged_in:
            raise RefusedError(
                f"the first frame must be CONNECT, not {frame.command}", "early-frame"
            )
        if "unescapes-1.0" in self.quirks and self.version == "1.0":
            frame = self._unescaped(frame)
        self.check(frame)
        if frame.command in ("ACK", "NACK"):
            frame = self.known(frame)
        do: Callable[[Frame], None] = getattr(self, frame.command.lower())
        do(frame)

    def _unescaped(self, frame: Frame) -> Frame:
        keep = "undefined-escape-kept" in self.quirks
        try:
            headers = {
                unescape(name, "1.2", keep_unknown=keep): unescape(value, "1.2", keep_unknown=keep)
                for name, value in frame.headers.items()
            }
        except ValueError as error:
            raise RefusedError(f"undefined escape sequence {error}", "bad-escape") from None
        return Frame(frame.command, headers, frame.body)

    def check(self, frame: Frame) -> None:
        """Raise :class:`RefusedError` for a frame that is invalid in the version."""
        command = frame.command
        required = self.required(command)
        if required is None or COMMANDS[command].sender is Role.SERVER:
            raise RefusedError(f"STOMP {self.version} takes no {command} frame", "unknown-command")
        for names in required:
            if not any(name in frame.headers for name in names):
                raise RefusedError(
                    f"{command} needs the header {' or '.join(names)}", "missing-header"
                )

    def required(self, command: str) -> Sequence[Sequence[str]] | None:
        """Return the required headers, as groups of alternatives; ``None``: unknown command."""
        return COMMANDS[command].required.get(self.version)

    def plain(self, frame: Frame) -> None:
        """Process a frame as a strict connection does."""
        Connection.handlers[frame.command](self, frame)

    def connect(self, frame: Frame) -> None:
        """Negotiate version and heart-beats, and log the client in."""
        self.loose.version = self.negotiated(frame)
        try:
            agreement = self.agreement(frame.headers.get("heart-beat"))
        except ValueError as error:
            raise RefusedError(str(error), "bad-heart-beat") from None
        checks = _CHECKS if "silent-client-two-checks" in self.quirks else 0
        self.loose.agreement = replace(agreement, checks=checks)
        self.plain(frame)

    def negotiated(self, frame: Frame) -> Version:
        """Return the negotiated version; raises RefusedError if there is none in common."""
        words = frame.headers.get("accept-version", "1.0").split(",")
        if "spaces-hide-versions" not in self.quirks:
            words = [word.strip() for word in words]
        for version in reversed(VERSIONS):
            if version in words:
                return version
        raise RefusedError("supported protocol versions are 1.0 1.1 1.2", "no-common-version")

    def agreement(self, header: str | None) -> Agreement:
        """Return the heart-beats negotiated from CONNECT; raises ValueError for invalid numbers."""
        offer, version = self.broker.config.heart_beat_ms, self.loose.version
        if version == "1.0":
            return Agreement()
        theirs = parse_heart_beat(header)
        send_ms = max(offer[0], theirs[1]) if offer[0] and theirs[1] else 0
        receive_ms = max(theirs[0], offer[1]) if theirs[0] and offer[1] else 0
        return Agreement(f"{offer[0]},{offer[1]}", send_ms / 1000, receive_ms / 1000)

    def _accepted(self) -> None:
        self.ledger = _ToldLedger(self.version, self.delivered)

    def connect_again(self, frame: Frame) -> None:
        """Process a repeated CONNECT of a client that is logged in."""
        if "second-connect-answered" not in self.quirks:
            raise RefusedError("the client is connected already", "unexpected-frame")
        headers = {"version": self.version, "session": self.broker.new_session()}
        self.post(Frame("CONNECTED", headers))

    def send(self, frame: Frame) -> None:
        """Add a message to its destination, or to a transaction."""
        echoed = {
            ECHO + name: frame.headers[name]
            for name in ("receipt", "transaction")
            if name in frame.headers and f"{name}-header-echoed" in self.quirks
        }
        self.plain(changed(frame, **echoed) if echoed else frame)

    def subscribe(self, frame: Frame) -> None:
        """Subscribe."""
        for header in ("selector", "browser"):
            if f"{header}-ignored" in self.quirks:
                frame = changed(frame, header)
        known = ("auto", "client", "client-individual")
        if frame.headers.get("ack", "auto") not in known:
            if "unknown-ack-mode-is-auto" in self.quirks:
                frame = changed(frame, ack="auto")
            elif "unknown-ack-mode-is-client" in self.quirks:
                frame = changed(frame, ack="client")
        self.subscribing = frame
        self.plain(frame)

    @property
    def is_browsing(self) -> bool:
        """True if the SUBSCRIBE that is being processed only browses."""
        return self.subscribing.headers.get("browser", "").lower() == "true"

    def unsubscribe(self, frame: Frame) -> None:
        """End a subscription."""
        subscription = self.subscriptions.get(self.key(frame))
        self.plain(frame)
        if subscription is not None and "unsubscribe-gives-back" in self.quirks:
            back = [
                entry
                for entry in subscription.unsettled.values()
                if entry.home.is_queue and entry.holder is None
            ]
            for entry in back:
                self.ledger.discard(entry)
            self.broker.give_back(back)

    def ack(self, frame: Frame) -> None:
        """Acknowledge deliveries as consumed."""
        self.plain(frame)

    def nack(self, frame: Frame) -> None:
        """Reject deliveries."""
        self.plain(frame)

    def begin(self, frame: Frame) -> None:
        """Begin a transaction."""
        if "begin-restarts" in self.quirks:
            transaction = self.transactions.pop(frame.headers["transaction"], None)
            if transaction is not None:
                self.end_transaction(transaction)
        self.plain(frame)

    def commit(self, frame: Frame) -> None:
        """Commit a transaction."""
        self.plain(frame)

    def abort(self, frame: Frame) -> None:
        """Abort a transaction."""
        self.plain(frame)

    def disconnect(self, frame: Frame) -> None:
        """End the session."""
        self.is_leaving = True
        if "disconnect-stays-open" in self.quirks:
            self.release()
        else:
            self.plain(frame)

    # Shared helpers.

    @staticmethod
    def key(frame: Frame) -> str:
        """Return the key of the subscription that a SUBSCRIBE or UNSUBSCRIBE names."""
        name = "id" if "id" in frame.headers else "destination"
        return f"{name} {frame.headers[name]}"

    def known(self, frame: Frame) -> Frame:
        """Translate the ids of an ACK or NACK to those before :meth:`outgoing`."""
        return frame

    def delivered(self, entry: MessageReference) -> None:
        """Handle a message that waits for ACK from now on; its MESSAGE frame comes next."""

    def settle(self, frame: Frame, entries: list[MessageReference], *, accepted: bool) -> None:
        """Settle entries as an ACK or NACK says, in its transaction if it has one."""
        requeue = frame.headers.get("requeue", "true").lower() != "false"
        settlement = Settlement(entries, accepted=accepted, requeue=requeue)
        name = frame.headers.get("transaction")
        if name is None:
            self.broker.settle(settlement)
        elif name in self.transactions:
            self.transactions[name].settle(settlement)
        else:
            raise RefusedError(f"there is no transaction {name[:100]!a}", "unknown-transaction")
