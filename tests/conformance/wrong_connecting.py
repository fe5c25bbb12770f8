"""Clients that begin a session in a wrong way."""

from __future__ import annotations

from tests.conformance.minimal_client import IN
from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class BeginsWithNul(Fault):
    """Sends a NUL octet before anything else."""

    found_by = ("client/connect/first-frame", "client/1.?/frame/grammar")

    def log_in(self, host: str) -> None:
        """Say something else before."""
        self.write(b"\0")
        super().log_in(host)


class Stomps(Fault):
    """Begins with STOMP."""

    found_by = ("client/connect/uses-connect",)

    def send(self, command: str, headers: Headers, body: bytes = b"") -> None:
        """Use the other command."""
        super().send("STOMP" if command == "CONNECT" else command, headers, body)

    def line(self, command: str, name: str, value: str) -> str:
        """Write it as CONNECT is written."""
        return super().line("CONNECT" if command == "STOMP" else command, name, value)


class NamesNoHost(Fault):
    """Has no virtual host."""

    found_by = ("client/connect/host",)

    def connect_headers(self, host: str) -> Headers:
        """Leave it out."""
        return [pair for pair in super().connect_headers(host) if pair[0] != "host"]


class NamesAnotherHost(Fault):
    """Names a virtual host that is not where it connects to."""

    found_by = ("client/connect/host",)

    def connect_headers(self, host: str) -> Headers:
        """Name another one."""
        return super().connect_headers("elsewhere")


class KeepsItsLogin(Fault):
    """Does not say who it is."""

    found_by = ("client/connect/login",)

    def connect_headers(self, host: str) -> Headers:
        """Leave it out."""
        return [pair for pair in super().connect_headers(host) if pair[0] != "login"]


class EscapesConnect(Fault):
    """Escapes the headers of CONNECT."""

    found_by = ("client/connect/unescaped",)

    def connect_headers(self, host: str) -> Headers:
        """Escape them as 1.2 does."""
        self.version = "1.2"
        escaped = [(name, self.escape(value)) for name, value in super().connect_headers(host)]
        self.version = "1.0"
        return escaped


class DoesNotWait(Fault):
    """Subscribes before CONNECTED has come."""

    found_by = ("client/connect/waits-for-connected", "client/connect/refused")

    def log_in(self, host: str) -> None:
        """Say both at once."""
        self.send("CONNECT", self.connect_headers(host))
        self.subscriptions.append(self.subscription_id())
        names = [("destination", IN), ("id", self.subscriptions[0])]
        self.send("SUBSCRIBE", [*names, ("ack", "client-individual")])
        command, headers, _ = self.frame()
        if command != "CONNECTED":
            raise Lost(command)
        self.agree(headers)

    def subscribe(self, destination: str) -> None:
        """Subscribe to all but the first."""
        if destination != IN:
            super().subscribe(destination)


class UnescapesConnected(Fault):
    """Takes the headers of CONNECTED for escaped."""

    found_by = ("client/connected/unescaped",)

    def reads_escapes(self, command: str) -> bool:
        """Think so of CONNECTED as well; at that time the version is not known."""
        return command == "CONNECTED" or super().reads_escapes(command)


class NewestFirst(Fault):
    """Lists its versions the wrong way."""

    found_by = ("client/negotiation/accept-version-format",)
    versions = "1.2,1.1,1.0"


class TakesNoVersionForNewest(Fault):
    """Speaks 1.2 where CONNECTED has no version."""

    found_by = ("client/1.0/negotiation/no-version",)

    def agree(self, connected: dict[str, str]) -> None:
        """Fill in the newest."""
        super().agree({"version": "1.2", **connected})


class DoesNotHearRefusal(Fault):
    """Goes on after an ERROR in answer to CONNECT."""

    found_by = ("client/connect/refused",)

    def log_in(self, host: str) -> None:
        """Never mind what comes."""
        self.send("CONNECT", self.connect_headers(host))
        command, headers, _ = self.frame()
        self.agree(headers if command == "CONNECTED" else {})
