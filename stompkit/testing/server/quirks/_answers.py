"""Outgoing frames and error handling of a connection with quirks."""

from __future__ import annotations

from typing import ClassVar, Final

from stompkit.frames import VERSIONS, Frame, RemoteProtocolError, Version, refusal
from stompkit.server import Broker, Connection, Outlet
from stompkit.testing.server.quirks._rules.rule import Quirks
from stompkit.testing.server.quirks._wire import changed, decoded, encoded

__all__ = ["ECHO", "Answering"]

#: Prefix of headers that must leave a queue unchanged, although the broker does not forward headers
#: of that name.
ECHO: Final = "stompkit-echo-"
#: Codes of errors that end a connection even if other errors do not.
_FATAL: Final = frozenset(
    {
        "bad-heart-beat",
        "heart-beat-required",
        "heart-beat-timeout",
        "login-timeout",
        "no-common-version",
        "not-authenticated",
        "reset",
        "shutting-down",
        "slow-reader",
        "too-many-connections",
        "transaction-timeout",
        "unknown-host",
        "wrong-protocol",
    }
)
_OF_CONNECT: Final = frozenset({"bad-heart-beat", "not-authenticated", "unknown-host"})
_TIMEOUTS: Final = frozenset({"heart-beat-timeout", "login-timeout"})


class Answering(Connection):
    """Passes each outgoing frame through :meth:`outgoing`, and may continue after errors."""

    quirks: ClassVar[Quirks] = Quirks(())

    def __init__(self, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with nothing received."""
        super().__init__(broker, outlet, now)
        self._is_refused = False

    def emit(self, *pieces: bytes) -> None:
        """Write a frame of the strict connection, changed by the active rules."""
        self.post(decoded(b"".join(pieces), self.version))

    def post(self, frame: Frame) -> None:
        """Write a frame, changed by the active rules, or drop it."""
        out = self.outgoing(frame)
        if out is not None:
            self.write(out)

    def write(self, frame: Frame) -> None:
        """Write a frame unchanged, unless the connection has been refused."""
        if frame.command == "ERROR" and frame.body:
            if "content-length-not-added" not in self.quirks:
                frame = changed(frame, content_length=str(len(frame.body)))
        if not self._is_refused:
            end = b"\0\n" if self.has_eol else b"\0"
            super().emit(encoded(frame, self.escapes, end))

    @property
    def escapes(self) -> Version:
        """The version whose escapes are used for writing."""
        return "1.2" if "escapes-1.0" in self.quirks and self.version == "1.0" else self.version

    def outgoing(self, frame: Frame) -> Frame | None:
        """Return the frame to send instead of *frame*; ``None`` for nothing."""
        if frame.command == "MESSAGE":
            return self._message(frame)
        if frame.command == "ERROR":
            if frame.headers.get("stompkit-code") == "no-common-version":
                has_versions = "version-error-without-versions" not in self.quirks
            else:
                has_versions = "error-with-versions" in self.quirks
            frame = changed(frame, "stompkit-code")
            if has_versions:
                frame.headers["version"] = ",".join(VERSIONS)
            if "error-without-receipt-id" in self.quirks:
                frame = changed(frame, "receipt-id")
        return frame

    def _message(self, frame: Frame) -> Frame:
        headers: dict[str, str] = {}
        for name, value in frame.headers.items():
            if name != "delivery-count":
                headers[name.removeprefix(ECHO)] = value
        if "redelivered-always" in self.quirks:
            headers.setdefault("redelivered", "false")
        elif "redelivered-never" in self.quirks:
            headers.pop("redelivered", None)
        return Frame("MESSAGE", headers, frame.body)

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Send ERROR, and close unless a rule forbids it."""
        error = refusal(message, code, receipt=receipt)
        if self.is_silent(code):
            self.refuse(RemoteProtocolError(message, code=code))
        elif self.is_forgiven(code) and error.reply is not None:
            self.post(error.reply)
        else:
            self.refuse(error)

    def refuse(self, error: RemoteProtocolError) -> None:
        """Send the ERROR frame of the error, if it has one, and close; write nothing afterwards."""
        super().refuse(error)
        self._is_refused = True

    def is_forgiven(self, code: str) -> bool:
        """Return True if the connection continues after an error."""
        if code in _OF_CONNECT and "failed-connect-stays-open" in self.quirks:
            return True
        stays = "error-stays-open" in self.quirks or (
            self.version != "1.2" and "error-stays-open-before-1.2" in self.quirks
        )
        return stays and code not in _FATAL

    def is_silent(self, code: str) -> bool:
        """Return True if the connection is closed without an ERROR."""
        if code == "bad-escape":
            return "malformed-closes-silently" in self.quirks
        return code in _TIMEOUTS and "timeouts-close-silently" in self.quirks
