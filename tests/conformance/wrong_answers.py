"""Clients that are wrong about receipts, heart-beats, and when frames come."""

from __future__ import annotations

import time

from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class DropsEarlyMessages(Fault):
    """Passes over messages before the RECEIPT of SUBSCRIBE."""

    found_by = ("client/message/before-receipt",)
    has_receipt = False

    def receipt_came(self, receipt: str) -> None:
        """From now on it is subscribed."""
        self.has_receipt = True

    def message(self, headers: dict[str, str], body: bytes) -> None:
        """Wait for that."""
        if self.has_receipt:
            super().message(headers, body)


class KnowsItsSubscriptions(Fault):
    """Gives up at a message for another subscription."""

    found_by = ("client/message/unknown-subscription",)

    def check(self, headers: dict[str, str], body: bytes) -> None:
        """Look for it."""
        if headers["subscription"] not in self.subscriptions:
            raise Lost("no such subscription")


class UnsubscribesForGood(Fault):
    """Gives up at a message for a subscription that it has ended."""

    found_by = ("client/message/after-unsubscribe",)

    def say_goodbye(self) -> None:
        """Wait for the RECEIPT of UNSUBSCRIBE, and then take no messages."""
        command = ""
        while command != "RECEIPT":
            command, _, _ = self.frame()
            if command == "MESSAGE":
                raise Lost("a message for nobody")
        super().say_goodbye()


class KnowsItsReceipts(Fault):
    """Gives up at a RECEIPT that it has not asked for."""

    found_by = ("client/receipt/unexpected",)

    def receipt_came(self, receipt: str) -> None:
        """Look at its form."""
        if not receipt.startswith("r"):
            raise Lost("no such receipt")


class RepeatsReceipts(Fault):
    """Asks for the same receipt again."""

    found_by = ("client/receipt/unique",)

    def receipt(self) -> str:
        """Count to three."""
        return f"r{next(self.numbers) % 3}"

    def transaction_name(self) -> str:
        """Count somewhere else."""
        return f"t{time.monotonic_ns()}"


class WritesBeatsWrong(Fault):
    """Puts the wrong sign between the two numbers."""

    found_by = ("client/heartbeat/header",)

    def connect_headers(self, host: str) -> Headers:
        """A semicolon."""
        beats = [("heart-beat", "500;500")]
        return [p for p in super().connect_headers(host) if p[0] != "heart-beat"] + beats


class SendsNoBeats(Fault):
    """Sends no heart-beats, though it has promised them."""

    found_by = ("client/heartbeat/sends",)

    def agree_beats(self, heart_beat: str) -> None:
        """Forget about them."""
        super().agree_beats(heart_beat)
        self.send_s = 0.0


class AlwaysBeats(Fault):
    """Sends heart-beats, whether they are wanted or not."""

    found_by = ("client/heartbeat/none-wanted", "client/heartbeat/missing-is-none")

    def agree_beats(self, heart_beat: str) -> None:
        """Send what it can."""
        super().agree_beats(heart_beat)
        self.send_s = self.heart_beat[0] / 1000


class AlwaysWaitsForBeats(Fault):
    """Misses heart-beats where CONNECTED does not speak of them."""

    found_by = ("client/heartbeat/missing-is-none",)

    def agree(self, connected: dict[str, str]) -> None:
        """Fill in what it wants itself."""
        wanted = {"heart-beat": f"{self.heart_beat[1]},0"}
        super().agree(connected if "version" not in connected else {**wanted, **connected})


class WantsItsOwnInterval(Fault):
    """Misses heart-beats that come as rarely as the server has said."""

    found_by = ("client/heartbeat/slower-server",)

    def agree_beats(self, heart_beat: str) -> None:
        """Take what it wants itself."""
        super().agree_beats(heart_beat)
        self.receive_s = min(self.receive_s, self.heart_beat[1] / 1000)


class CountsLineEndsOnly(Fault):
    """Takes only line ends for a sign of life."""

    found_by = ("client/heartbeat/any-data",)

    def heard(self, octets: bytes) -> None:
        """Look at what came."""
        if octets.strip(b"\r\n") == b"":
            super().heard(octets)


class MissesNoBeats(Fault):
    """Does not notice that there are no heart-beats."""

    found_by = ("client/heartbeat/silent-server",)

    def agree_beats(self, heart_beat: str) -> None:
        """Forget about the server's."""
        super().agree_beats(heart_beat)
        self.receive_s = 0.0
