"""Servers that break one rule about sessions, frames, receipts or errors."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import ALL, NEW, Fault, answers, in_versions, requests
from tests.conformance.raw import Raw

# Connecting and disconnecting.


class SpeaksFirst(Fault):
    """Sends a line end before CONNECT."""

    greeting = b"\n"
    found_by = in_versions(NEW, "connect/client-initiates")


@answers("CONNECTED", *in_versions(ALL, "connected/session-unique"))
def sessions_repeat(frame: Raw) -> None:
    """Gives each session the same id."""
    frame.put("session", "1")


@answers("CONNECTED", "1.0/connected/session-header")
def no_session_header(frame: Raw) -> None:
    """Omits the session header, which 1.0 requires."""
    frame.drop("session")


@requests("STOMP", *in_versions(NEW, "connect/stomp-command"))
def no_stomp_command(frame: Raw) -> None:
    """Does not accept STOMP instead of CONNECT."""
    frame.command = b"STAMP"


@answers("CONNECTED", *in_versions(NEW, "heartbeat/two-integers", "connected/session-may"))
def heart_beat_in_words(frame: Raw) -> None:
    """Sends a heart-beat header without numbers."""
    frame.put("heart-beat", "often,seldom")


@answers("CONNECTED", *in_versions(NEW, "connected/server-name-required"))
def nameless_server(frame: Raw) -> None:
    """Sends a server header without a name."""
    frame.put("server", "/1.0")


@requests("", *in_versions(NEW, "negotiation/highest-common"))
def lowest_version(frame: Raw) -> None:
    """Chooses the lowest offered version."""
    offered = frame.get("accept-version")
    if offered:
        frame.put("accept-version", offered.split(",")[0])


@requests("", *in_versions(NEW, "negotiation/no-common-error"), "1.2/negotiation/no-common-close")
def any_version(frame: Raw) -> None:
    """Accepts clients that offer only unknown versions."""
    if frame.get("accept-version") == "9.8,9.9":
        frame.put("accept-version", "1.2")


class OpenAfterDisconnect(Fault):
    """Does not close after DISCONNECT."""

    found_by = ("1.0/disconnect/graceful",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.keeps_open |= frame.command == b"DISCONNECT"
        yield frame


@requests(
    "DISCONNECT",
    *in_versions(NEW, "disconnect/receipt-answered", "disconnect/receipt-covers-previous"),
    "1.2/disconnect/early-close-warning",
)
def no_receipt_for_disconnect(frame: Raw) -> None:
    """Closes after DISCONNECT without the requested RECEIPT."""
    frame.drop("receipt")


# Framing.


@requests("", *in_versions(NEW, "frame/case-sensitive"))
def lower_case(frame: Raw) -> None:
    """Accepts commands and header names in any case."""
    frame.command = frame.command.upper()
    frame.lines = [line.replace(b"Destination:", b"destination:") for line in frame.lines]


class FewLineEnds(Fault):
    """Closes after more than ten line ends after a frame."""

    found_by = (
        *in_versions(NEW, "frame/trailing-eols"),
        *("1.0/bnf/trailing-lf-after-null", "1.2/frame/eol-cr-optional"),
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if not frame.command and len(frame.body) > 10:
            self.line.close()
        yield frame


@answers("", *in_versions("1.0 1.1", "server-frames/closed-set"))
def crlf_in_answers(frame: Raw) -> None:
    """Ends its lines in CR LF, which only 1.2 permits."""
    frame.eol = b"\r\n"


class NoCrLf(Fault):
    """Does not accept CR LF."""

    found_by = ("1.2/overview/crlf-lines",)

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.eol == b"\r\n":
            self.line.close()
        yield frame


@answers("RECEIPT", *in_versions(ALL, "receipt-frame/empty-body"))
def body_on_receipt(frame: Raw) -> None:
    """Sends RECEIPT with a body."""
    frame.body = b"thank you"


@requests(
    "",
    *in_versions(NEW, "content-length/must-read", "message/content-type-should"),
    *in_versions(NEW, "content-length/must-with-nulls"),
    *in_versions(ALL, "send/body-is-message"),
    "1.0/message/content-length-octets",
    "1.0/message/null-ends-without-content-length",
)
def body_ends_at_nul(frame: Raw) -> None:
    """Ignores content-length."""
    frame.put_body(frame.body.partition(b"\0")[0])


@answers(
    "MESSAGE",
    *in_versions(NEW, "content-length/is-octet-count", "message/content-type-should"),
    *in_versions(ALL, "send/body-is-message"),
    "1.0/send/content-length-is-byte-count",
    "1.0/message/content-length-octets",
)
def counts_characters(frame: Raw) -> None:
    """Counts characters instead of bytes in the content-length of MESSAGE."""
    frame.put("content-length", str(len(frame.body.decode("utf-8", "ignore"))))


@requests(
    "", *in_versions(NEW, "content-length/null-still-needed"), "1.0/send/null-after-content-length"
)
def body_too_long(frame: Raw) -> None:
    """Accepts a body that is longer than its content-length."""
    frame.put_body(frame.body)


# RECEIPT and ERROR.


class ReceiptsTwice(Fault):
    """Sends every RECEIPT of a SEND twice."""

    found_by = (
        *in_versions(NEW, "receipt/server-acknowledges"),
        "1.0/receipt/server-sends-receipt",
    )
    sent: str | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"SEND":
            self.sent = frame.get("receipt") or self.sent
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        if frame.command == b"RECEIPT" and frame.get("receipt-id") == self.sent:
            yield frame


@requests(
    "SEND", *in_versions(NEW, "receipt/server-acknowledges"), "1.0/receipt/server-sends-receipt"
)
def receipts_unasked(frame: Raw) -> None:
    """Sends unrequested RECEIPT frames."""
    if frame.get("receipt") is None:
        frame.put("receipt", "unasked")


@answers("RECEIPT", *in_versions(ALL, "receipt/arbitrary-value"))
def receipts_cut_short(frame: Raw) -> None:
    """Truncates receipt ids."""
    frame.lines = [line[:100] for line in frame.lines]


class ReceiptBeforeWork(Fault):
    """Sends the RECEIPT of COMMIT and ABORT before processing them."""

    found_by = in_versions(
        NEW, "receipt-frame/after-success", "commit/names-transaction", "abort/names-transaction"
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        receipt = frame.get("receipt")
        if frame.command in (b"COMMIT", b"ABORT") and receipt is not None:
            frame.drop("receipt")
            self.line.send(Raw(b"RECEIPT", [f"receipt-id:{receipt}".encode()]).octets())
        yield frame


class OpenAfterError(Fault):
    """Does not close after ERROR."""

    found_by = (
        *in_versions(NEW, "send/unprocessable-close", "subscribe/failure-close"),
        "1.2/error/must-close",
        "1.2/negotiation/no-common-close",
    )

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        self.keeps_open |= frame.command == b"ERROR"
        yield frame


@answers("ERROR", *in_versions(ALL, "error/message-header"))
def error_says_nothing(error: Raw) -> None:
    """Sends ERROR without a message header."""
    error.drop("message")


@answers("ERROR", *in_versions(NEW, "error/identify-frame"))
def error_of_no_frame(error: Raw) -> None:
    """Does not name the wrong frame in ERROR."""
    error.drop("receipt-id")


@answers(
    "ERROR",
    "1.0/error/content-length-recommended",
    *in_versions(NEW, "error/content-type-should", "error/content-length-should"),
)
def error_of_no_type(error: Raw) -> None:
    """Sends ERROR with a body, but without its type or length."""
    error.drop("content-type", "content-length")
    error.body = b"more"
