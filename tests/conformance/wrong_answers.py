"""Clients with faults in receipts, heart-beats, and the order of frames."""

from __future__ import annotations

import time

from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class DropsEarlyMessages(Fault):
    """Ignores messages before the RECEIPT of SUBSCRIBE."""

    found_by = ("client/message/before-receipt",)
    has_receipt = False

    def receipt_came(self, receipt: str) -> None:
        """Record that the subscription is active."""
        self.has_receipt = True

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Ignore messages before that."""
        if self.has_receipt:
            super().message(headers, body)


class KnowsItsSubscriptions(Fault):
    """Fails on a message for an unknown subscription."""

    found_by = ("client/message/unknown-subscription",)

    def check(self, headers: dict[str, str], body: bytes) -> None:
        """Check the subscription."""
        if headers["subscription"] not in self.subscriptions:
            raise Lost("no such subscription")


class UnsubscribesForGood(Fault):
    """Fails on a message for an ended subscription."""

    found_by = ("client/message/after-unsubscribe",)

    def say_goodbye(self) -> None:
        """Wait for the RECEIPT of UNSUBSCRIBE without accepting messages."""
        command = ""
        while command != "RECEIPT":
            command, _, _ = self.frame()
            if command == "MESSAGE":
                raise Lost("a message for nobody")
        super().say_goodbye()


class KnowsItsReceipts(Fault):
    """Fails on a RECEIPT that it has not requested."""

    found_by = ("client/receipt/unexpected",)

    def receipt_came(self, receipt: str) -> None:
        """Check the format of the id."""
        if not receipt.startswith("r"):
            raise Lost("no such receipt")


class RepeatsReceipts(Fault):
    """Reuses receipt ids."""

    found_by = ("client/receipt/unique",)

    def receipt(self) -> str:
        """Return one of three ids in turn."""
        return f"r{next(self.numbers) % 3}"

    def transaction_name(self) -> str:
        """Return an unused number."""
        return f"t{time.monotonic_ns()}"


class WritesBeatsWrong(Fault):
    """Writes a wrong separator between the two numbers of heart-beat."""

    found_by = ("client/heartbeat/header",)

    def connect_headers(self, host: str) -> Headers:
        """Use a semicolon."""
        beats = [("heart-beat", "500;500")]
        return [p for p in super().connect_headers(host) if p[0] != "heart-beat"] + beats


class SendsNoBeats(Fault):
    """Sends no heart-beats, although it has offered them."""

    found_by = ("client/heartbeat/sends",)

    def agree_beats(self, heart_beat: str) -> None:
        """Ignore the negotiated heart-beats to the server."""
        super().agree_beats(heart_beat)
        self.send_s = 0.0


class AlwaysBeats(Fault):
    """Sends heart-beats, even if they are not wanted."""

    found_by = ("client/heartbeat/none-wanted", "client/heartbeat/missing-is-none")

    def agree_beats(self, heart_beat: str) -> None:
        """Send what the client has offered."""
        super().agree_beats(heart_beat)
        self.send_s = self.heart_beat[0] / 1000


class AlwaysWaitsForBeats(Fault):
    """Expects heart-beats even if CONNECTED has no heart-beat header."""

    found_by = ("client/heartbeat/missing-is-none",)

    def agree(self, connected: dict[str, str]) -> None:
        """Insert the header with its preferred values."""
        wanted = {"heart-beat": f"{self.heart_beat[1]},0"}
        super().agree(connected if "version" not in connected else {**wanted, **connected})


class WantsItsOwnInterval(Fault):
    """Expects heart-beats at its preferred interval, even if the server offers a longer one."""

    found_by = ("client/heartbeat/slower-server",)

    def agree_beats(self, heart_beat: str) -> None:
        """Use the preferred interval."""
        super().agree_beats(heart_beat)
        self.receive_s = min(self.receive_s, self.heart_beat[1] / 1000)


class CountsLineEndsOnly(Fault):
    """Accepts only line ends as heart-beats."""

    found_by = ("client/heartbeat/any-data",)

    def heard(self, octets: bytes) -> None:
        """Check the received bytes."""
        if octets.strip(b"\r\n") == b"":
            super().heard(octets)


class MissesNoBeats(Fault):
    """Does not notice missing heart-beats."""

    found_by = ("client/heartbeat/silent-server",)

    def agree_beats(self, heart_beat: str) -> None:
        """Ignore the negotiated heart-beats of the server."""
        super().agree_beats(heart_beat)
        self.receive_s = 0.0
