"""Clients with faults at the beginning of a session."""

from __future__ import annotations

from tests.conformance.minimal_client import IN
from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class BeginsWithNul(Fault):
    """Sends a NUL byte before anything else."""

    found_by = ("client/connect/first-frame", "client/1.?/frame/grammar")

    def log_in(self, host: str) -> None:
        """Send a NUL first."""
        self.write(b"\0")
        super().log_in(host)


class Stomps(Fault):
    """Begins with STOMP."""

    found_by = ("client/connect/uses-connect",)

    def send(self, command: str, headers: Headers, body: bytes = b"") -> None:
        """Replace the command."""
        super().send("STOMP" if command == "CONNECT" else command, headers, body)

    def line(self, command: str, name: str, value: str) -> str:
        """Encode headers as for CONNECT."""
        return super().line("CONNECT" if command == "STOMP" else command, name, value)


class NamesNoHost(Fault):
    """Sends no virtual host."""

    found_by = ("client/connect/host",)

    def connect_headers(self, host: str) -> Headers:
        """Omit the header."""
        return [pair for pair in super().connect_headers(host) if pair[0] != "host"]


class NamesAnotherHost(Fault):
    """Sends another virtual host than the host of the connection."""

    found_by = ("client/connect/host",)

    def connect_headers(self, host: str) -> Headers:
        """Change the header."""
        return super().connect_headers("elsewhere")


class KeepsItsLogin(Fault):
    """Sends no login."""

    found_by = ("client/connect/login",)

    def connect_headers(self, host: str) -> Headers:
        """Omit the headers."""
        return [pair for pair in super().connect_headers(host) if pair[0] != "login"]


class EscapesConnect(Fault):
    """Escapes the headers of CONNECT."""

    found_by = ("client/connect/unescaped",)

    def connect_headers(self, host: str) -> Headers:
        """Escape the headers by the rules of 1.2."""
        self.version = "1.2"
        escaped = [(name, self.escape(value)) for name, value in super().connect_headers(host)]
        self.version = "1.0"
        return escaped


class DoesNotWait(Fault):
    """Subscribes before CONNECTED."""

    found_by = ("client/connect/waits-for-connected", "client/connect/refused")

    def log_in(self, host: str) -> None:
        """Send both frames together."""
        self.send("CONNECT", self.connect_headers(host))
        self.subscriptions.append(self.subscription_id())
        names = [("destination", IN), ("id", self.subscriptions[0])]
        self.send("SUBSCRIBE", [*names, ("ack", "client-individual")])
        command, headers, _ = self.frame()
        if command != "CONNECTED":
            raise Lost(command)
        self.agree(headers)

    def subscribe(self, destination: str) -> None:
        """Subscribe to all destinations but the first."""
        if destination != IN:
            super().subscribe(destination)


class UnescapesConnected(Fault):
    """Unescapes the headers of CONNECTED."""

    found_by = ("client/connected/unescaped",)

    def reads_escapes(self, command: str) -> bool:
        """Return True for CONNECTED as well, before the version is known."""
        return command == "CONNECTED" or super().reads_escapes(command)


class NewestFirst(Fault):
    """Lists its versions in the wrong order."""

    found_by = ("client/negotiation/accept-version-format",)
    versions = "1.2,1.1,1.0"


class TakesNoVersionForNewest(Fault):
    """Uses 1.2 if CONNECTED has no version."""

    found_by = ("client/1.0/negotiation/no-version",)

    def agree(self, connected: dict[str, str]) -> None:
        """Insert the newest version."""
        super().agree({"version": "1.2", **connected})


class DoesNotHearRefusal(Fault):
    """Continues after an ERROR in reply to CONNECT."""

    found_by = ("client/connect/refused",)

    def log_in(self, host: str) -> None:
        """Ignore the reply."""
        self.send("CONNECT", self.connect_headers(host))
        command, headers, _ = self.frame()
        self.agree(headers if command == "CONNECTED" else {})
