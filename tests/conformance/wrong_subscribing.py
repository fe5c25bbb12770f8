"""Clients with faults in subscriptions, acknowledgements and transactions."""

from __future__ import annotations

from tests.conformance.minimal_client import IN
from tests.conformance.minimal_frames import Headers
from tests.conformance.wrong_clients import Fault


class SubscribesElsewhere(Fault):
    """Subscribes to another destination than required."""

    found_by = ("client/subscribe/destination",)

    def subscribe(self, destination: str) -> None:
        """Change the destination."""
        super().subscribe(f"{destination}s" if destination == IN else destination)


class SubscribesWithoutId(Fault):
    """Omits the id of SUBSCRIBE."""

    found_by = (
        "client/1.[12]/subscribe/id",
        "client/subscribe/ids-unique",
        "client/1.?/unsubscribe/names-subscription",
    )

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Omit the id."""
        if command == "SUBSCRIBE":
            headers = [pair for pair in headers if pair[0] != "id"]
        return super().ask(command, headers, body)


class RepeatsIds(Fault):
    """Gives all subscriptions the same id."""

    found_by = ("client/subscribe/ids-unique",)

    def subscription_id(self) -> str:
        """Return the same id every time."""
        return "the-only-one"


class SubscribesAnotherWay(Fault):
    """Subscribes in the mode auto instead of the required one."""

    found_by = ("client/subscribe/ack-mode",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Change the mode."""
        if command == "SUBSCRIBE":
            headers = [(name, "auto" if name == "ack" else value) for name, value in headers]
        return super().ask(command, headers, body)


class UnsubscribesAnother(Fault):
    """Unsubscribes with an unknown id."""

    found_by = ("client/1.?/unsubscribe/names-subscription",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Change the id."""
        if command == "UNSUBSCRIBE":
            headers = [("id", "another")]
        return super().ask(command, headers, body)


class AcknowledgesTheFirst(Fault):
    """Acknowledges the first message every time."""

    found_by = ("client/1.?/ack/escapes", "client/1.?/ack/names-message")
    first: Headers | None = None

    def names(self, headers: dict[str, str]) -> Headers:
        """Return the names of the first message."""
        self.first = self.first or super().names(headers)
        return self.first


class AcknowledgesByOldName(Fault):
    """Acknowledges by message-id alone in all versions."""

    found_by = (
        "client/1.[12]/ack/names-message",
        "client/1.[12]/nack/names-message",
        "client/1.[12]/ack/escapes",
        "client/header/case",
        "client/1.2/frame/crlf",
    )

    def names(self, headers: dict[str, str]) -> Headers:
        """Return the headers of 1.0."""
        return [("message-id", headers["message-id"])]


class RefusesAnother(Fault):
    """Names another message in NACK."""

    found_by = ("client/1.[12]/nack/names-message",)

    def acknowledge(self, command: str, headers: dict[str, str]) -> None:
        """Change the names."""
        if command == "NACK":
            headers = {**headers, "message-id": "another", "ack": "another"}
        super().acknowledge(command, headers)


class AcknowledgesUnescaped(Fault):
    """Does not escape the ids in acknowledgements."""

    found_by = ("client/1.[12]/ack/escapes",)

    def line(self, command: str, name: str, value: str) -> str:
        """Return the line without escapes."""
        return f"{name}:{value}" if command == "ACK" else super().line(command, name, value)


class AcknowledgesEscaped(Fault):
    """Escapes acknowledgements on 1.0, too."""

    found_by = ("client/1.0/ack/escapes",)

    def line(self, command: str, name: str, value: str) -> str:
        """Escape by the rules of later versions."""
        if command == "ACK" and self.version == "1.0":
            value = value.replace("\\", "\\\\").replace(":", "\\c")
        return super().line(command, name, value)


class SendsBesideTransactions(Fault):
    """Sends messages outside the transaction that they belong to."""

    found_by = ("client/transaction/*",)

    def reply(self, body: bytes, headers: Headers | None = None) -> None:
        """Omit the transaction."""
        super().reply(body, [pair for pair in headers or [] if pair[0] != "transaction"])


class AbortsAnother(Fault):
    """Names another transaction in ABORT."""

    found_by = ("client/transaction/abort",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Change the name."""
        changed = [("transaction", "another")]
        return super().ask(command, changed if command == "ABORT" else headers, body)


class RepeatsTransactions(Fault):
    """Gives all transactions the same name."""

    found_by = ("client/transaction/ids-unique",)

    def transaction_name(self) -> str:
        """Return the same name every time."""
        return "the-only-one"
