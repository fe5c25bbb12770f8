"""Servers that break one rule about messages, subscriptions or transactions."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from tests.conformance.proxy import ALL, NEW, Fault, answers, in_versions, requests
from tests.conformance.raw import Raw


def instead(frame: Raw, command: bytes) -> Raw:
    """Replace a frame with this command by one whose only effect is the RECEIPT."""
    if frame.command != command:
        return frame
    harmless = Raw(b"BEGIN", [f"transaction:{id(frame)}".encode()])
    receipt = frame.get("receipt")
    if receipt is not None:
        harmless.put("receipt", receipt)
    return harmless


# SEND and MESSAGE.


@requests(
    "SEND",
    *in_versions(ALL, "send/destination-required"),
    *in_versions(NEW, "send/unprocessable-error", "send/unprocessable-close"),
)
def send_needs_no_destination(frame: Raw) -> None:
    """Accepts SEND without destination."""
    if frame.get("destination") is None:
        frame.put("destination", "/topic/default")


@answers(
    "MESSAGE",
    "1.0/message/destination-header",
    *in_versions(NEW, "message/destination"),
    *in_versions(ALL, "message/message-id-unique"),
)
def no_message_id(message: Raw) -> None:
    """Sends MESSAGE without message-id."""
    message.drop("message-id")


@answers("MESSAGE", *in_versions(ALL, "message/message-id-unique"))
def message_ids_repeat(message: Raw) -> None:
    """Gives all messages the same message-id."""
    message.put("message-id", "1")


@answers("MESSAGE", "1.0/message/destination-header", *in_versions(NEW, "message/destination"))
def no_destination(message: Raw) -> None:
    """Sends MESSAGE without destination."""
    message.drop("destination")


@answers(
    "MESSAGE",
    "1.0/subscribe/subscription-header-should",
    *in_versions(
        NEW, "message/subscription", "subscribe/id-scope-connection", "encoding/decode-colon"
    ),
)
def no_subscription(message: Raw) -> None:
    """Sends MESSAGE without subscription."""
    message.drop("subscription")


@answers("MESSAGE", "1.2/message/destination-same-as-send")
def destination_decoded(message: Raw) -> None:
    """Decodes destinations like URLs."""
    message.put("destination", unquote(message.get("destination") or ""))


@answers(
    "MESSAGE",
    *in_versions(NEW, "send/user-headers-pass-through"),
    "1.2/headers/user-headers-part-of-message",
)
def no_user_headers(message: Raw) -> None:
    """Drops unknown headers."""
    message.lines = [line for line in message.lines if not line.startswith(b"x-")]


@answers(
    "MESSAGE",
    "1.0/message/content-length-recommended",
    *in_versions(NEW, "message/content-length-should"),
)
def no_content_length(message: Raw) -> None:
    """Sends content-length only where it is required."""
    if b"\0" not in message.body:
        message.drop("content-length")


@answers("MESSAGE", *in_versions(NEW, "message/content-type-should", "encoding/utf8-headers"))
def always_text(message: Raw) -> None:
    """Declares every body to be text."""
    message.put("content-type", "text/plain")


class EveryoneHears(Fault):
    """Sends messages to clients that have not subscribed."""

    found_by = in_versions(ALL, "message/conveys")

    has_subscribed = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.has_subscribed |= frame.command == b"SUBSCRIBE"
        if frame.command == b"SEND" and not self.has_subscribed:
            lines = [b"destination:d", b"message-id:1", b"subscription:s"]
            self.line.send(Raw(b"MESSAGE", lines, frame.body).octets())
        yield frame


# SUBSCRIBE, ACK and NACK.


@requests("SUBSCRIBE", *in_versions(NEW, "subscribe/id-required"))
def subscribe_needs_no_id(frame: Raw) -> None:
    """Accepts SUBSCRIBE without id."""
    if frame.get("id") is None:
        frame.put("id", "default")


class UnsubscribeIgnored(Fault):
    """Confirms UNSUBSCRIBE with an id, but ignores it."""

    found_by = (*in_versions(NEW, "unsubscribe/removes"), "1.0/unsubscribe/stops-delivery")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        yield frame if frame.get("id") is None else instead(frame, b"UNSUBSCRIBE")


@requests("SUBSCRIBE", *in_versions(NEW, "ack-mode/individual-not-cumulative"))
def individual_is_cumulative(frame: Raw) -> None:
    """Acknowledges all earlier messages in the mode client-individual."""
    if frame.get("ack") == "client-individual":
        frame.put("ack", "client")


@requests("SUBSCRIBE", *in_versions(NEW, "ack-mode/client-cumulative"))
def client_is_individual(frame: Raw) -> None:
    """Acknowledges one message only in the mode client."""
    if frame.get("ack") == "client":
        frame.put("ack", "client-individual")


@requests(
    "SUBSCRIBE",
    *in_versions(NEW, "ack-mode/client-unacked-on-failure"),
    "1.0/subscribe/ack-client-until-acked",
    "1.2/message/ack-header",
)
def client_is_auto(frame: Raw) -> None:
    """Does not wait for ACK in the mode client."""
    if frame.get("ack") == "client":
        frame.put("ack", "auto")


@requests("SUBSCRIBE", *in_versions(NEW, "ack-mode/default-auto"), "1.0/subscribe/ack-default-auto")
def client_is_the_default(frame: Raw) -> None:
    """Waits for ACK in the default mode."""
    if frame.get("ack") is None:
        frame.put("ack", "client")


class AckIgnored(Fault):
    """Confirms ACK, but ignores it."""

    found_by = (
        *in_versions(
            NEW, "ack/acknowledges", "ack-mode/client-cumulative", "ack/transaction-part-of"
        ),
        "1.0/ack/acknowledges-consumption",
        "1.0/ack/transaction-makes-ack-transactional",
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        yield instead(frame, b"ACK")


@requests("NACK", *in_versions(NEW, "nack/opposite-of-ack"))
def no_nack(frame: Raw) -> None:
    """Refuses NACK as unknown."""
    frame.command = b"NUCK"


@requests("NACK", *in_versions(NEW, "nack/transaction-optional"))
def no_nack_in_transactions(frame: Raw) -> None:
    """Refuses NACK in a transaction."""
    if frame.get("transaction") is not None:
        frame.command = b"NUCK"


# Transactions.


@requests(
    "SEND",
    *in_versions(ALL, "commit/commits", "abort/rolls-back"),
    *in_versions(NEW, "begin/id-binds", "begin/implicit-abort-disconnect"),
    "1.0/begin/id-binds-frames",
)
def sends_at_once(frame: Raw) -> None:
    """Sends messages of a transaction immediately."""
    frame.drop("transaction")


@requests(
    "ACK",
    *in_versions(ALL, "begin/covers-ack"),
    *in_versions(NEW, "ack/transaction-part-of"),
    "1.0/ack/transaction-makes-ack-transactional",
)
def acks_at_once(frame: Raw) -> None:
    """Acknowledges before the transaction ends."""
    frame.drop("transaction")


@requests(
    "ABORT",
    *in_versions(ALL, "abort/rolls-back"),
    *in_versions(NEW, "begin/id-binds", "ack/transaction-part-of"),
    "1.0/begin/id-binds-frames",
    "1.0/ack/transaction-makes-ack-transactional",
)
def abort_commits(frame: Raw) -> None:
    """Treats ABORT as COMMIT."""
    frame.command = b"COMMIT"


class DisconnectCommits(Fault):
    """Commits open transactions on DISCONNECT."""

    found_by = in_versions(NEW, "begin/implicit-abort-disconnect")
    transaction: str | None = None

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"BEGIN":
            self.transaction = frame.get("transaction")
        if frame.command == b"DISCONNECT" and self.transaction is not None:
            yield Raw(b"COMMIT", [f"transaction:{self.transaction}".encode()])
        yield frame


class TransactionsEverywhere(Fault):
    """Accepts COMMIT and ABORT of an unknown transaction."""

    found_by = in_versions(
        NEW, "commit/names-transaction", "abort/names-transaction", "receipt-frame/after-success"
    )

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.get("transaction") == "unknown" and frame.command != b"SEND":
            yield Raw(b"BEGIN", [b"transaction:unknown"])
        yield frame
