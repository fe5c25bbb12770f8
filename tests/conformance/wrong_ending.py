"""Clients that end in a wrong way, or do not."""

from __future__ import annotations

import contextlib

from stompkit.conformance.clients.program import CANNOT
from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class EndsWithAnotherStatus(Fault):
    """Ends with a status as if something had been wrong."""

    found_by = ("client/disconnect/ends", "client/message/after-unsubscribe")

    def run(self) -> int:
        """Change the status."""
        return super().run() or 3


class JustCloses(Fault):
    """Closes without DISCONNECT."""

    found_by = (
        "client/disconnect/polite",
        "client/disconnect/waits-for-receipt",
        "client/disconnect/no-receipt",
        "client/disconnect/closed-instead",
        "client/message/after-unsubscribe",
        "client/receipt/unique",
        "client/1.?/frame/grammar",
    )

    def say_goodbye(self) -> None:
        """Say nothing."""


class DoesNotWaitForReceipt(Fault):
    """Closes right after DISCONNECT."""

    found_by = ("client/disconnect/waits-for-receipt",)

    def say_goodbye(self) -> None:
        """Say it, and be gone; the server may still have been writing."""
        self.ask("DISCONNECT", [])


class GoesOnAfterDisconnect(Fault):
    """Sends another frame behind DISCONNECT."""

    found_by = ("client/disconnect/nothing-after",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Send it at once, before the answer can come."""
        receipt = super().ask(command, headers, body)
        if command == "DISCONNECT":
            self.send("UNSUBSCRIBE", [("id", self.subscriptions[0])])
        return receipt


class WaitsForReceiptForEver(Fault):
    """Waits for the answer to DISCONNECT as long as the connection lasts."""

    found_by = ("client/disconnect/no-receipt",)

    def say_goodbye(self) -> None:
        """Have no deadline."""
        receipt = self.ask("DISCONNECT", [])
        with contextlib.suppress(Lost):
            while self.frame()[1].get("receipt-id") != receipt:
                pass


class NeedsReceipt(Fault):
    """Does not close where there is no answer to DISCONNECT."""

    found_by = ("client/disconnect/closed-instead",)

    def say_goodbye(self) -> None:
        """Stay, until somebody ends it."""
        receipt = self.ask("DISCONNECT", [])
        with contextlib.suppress(Lost):
            while self.frame()[1].get("receipt-id") != receipt:
                pass
            return
        self.aborted.wait()


class TakesErrorsEasily(Fault):
    """Ends after ERROR as if all were well."""

    found_by = ("client/error/ends", "client/connect/refused")

    def status_after(self, error: Exception) -> int:
        """Have another status after ERROR."""
        return 0 if str(error) == "ERROR" else 1


class TakesLossEasily(Fault):
    """Ends with a lost connection as if all were well."""

    found_by = ("client/connection/*",)

    def status_after(self, error: Exception) -> int:
        """Have another status then."""
        return 0 if isinstance(error, OSError) or str(error) == "closed" else 1


class TakesHalfMessages(Fault):
    """Takes what it has of a message when the connection ends for all of it."""

    found_by = ("client/connection/truncated",)

    def end_came(self) -> None:
        """Put the end where there was none."""
        if not self.pending.lstrip(b"\r\n"):
            super().end_came()
        self.pending += b"\0"


class DoesNotGoOn(Fault):
    """Knows of one server only, and says so."""

    found_by = ()

    def run(self) -> int:
        """Say it."""
        return super().run() if len(self.nodes) == 1 else CANNOT


class DoesNotReconnect(Fault):
    """Stays where it was once it has been connected."""

    found_by = ("client/failover/connection-lost",)

    def goes_on(self, error: Exception) -> bool:
        """Only until it is connected."""
        return isinstance(error, ConnectionRefusedError)


class TriesOneServer(Fault):
    """Gives up where the first server refuses connections."""

    found_by = ("client/failover/refused",)

    def goes_on(self, error: Exception) -> bool:
        """Only when it has been connected."""
        return not isinstance(error, ConnectionRefusedError)
