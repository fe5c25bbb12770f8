"""Clients with faults at the end of a session."""

from __future__ import annotations

import contextlib

from stompkit.conformance.clients.program import CANNOT
from tests.conformance.minimal_frames import Headers, Lost
from tests.conformance.wrong_clients import Fault


class EndsWithAnotherStatus(Fault):
    """Ends with an error status."""

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
        """Send nothing."""


class DoesNotWaitForReceipt(Fault):
    """Closes immediately after DISCONNECT."""

    found_by = ("client/disconnect/waits-for-receipt",)

    def say_goodbye(self) -> None:
        """Send DISCONNECT and return, although the server may still be writing."""
        self.ask("DISCONNECT", [])


class GoesOnAfterDisconnect(Fault):
    """Sends another frame after DISCONNECT."""

    found_by = ("client/disconnect/nothing-after",)

    def ask(self, command: str, headers: Headers, body: bytes = b"") -> str:
        """Send the frame immediately, before the reply can arrive."""
        receipt = super().ask(command, headers, body)
        if command == "DISCONNECT":
            self.send("UNSUBSCRIBE", [("id", self.subscriptions[0])])
        return receipt


class WaitsForReceiptForEver(Fault):
    """Waits for the reply to DISCONNECT without a time limit."""

    found_by = ("client/disconnect/no-receipt",)

    def say_goodbye(self) -> None:
        """Wait without a deadline."""
        receipt = self.ask("DISCONNECT", [])
        with contextlib.suppress(Lost):
            while self.frame()[1].get("receipt-id") != receipt:
                pass


class NeedsReceipt(Fault):
    """Does not close if there is no reply to DISCONNECT."""

    found_by = ("client/disconnect/closed-instead",)

    def say_goodbye(self) -> None:
        """Wait until the connection is aborted."""
        receipt = self.ask("DISCONNECT", [])
        with contextlib.suppress(Lost):
            while self.frame()[1].get("receipt-id") != receipt:
                pass
            return
        self.aborted.wait()


class TakesErrorsEasily(Fault):
    """Ends with status 0 after ERROR."""

    found_by = ("client/error/ends", "client/connect/refused")

    def status_after(self, error: Exception) -> int:
        """Return 0 after ERROR."""
        return 0 if str(error) == "ERROR" else 1


class TakesLossEasily(Fault):
    """Ends with status 0 after a lost connection."""

    found_by = ("client/connection/*",)

    def status_after(self, error: Exception) -> int:
        """Return 0 after a lost connection."""
        return 0 if isinstance(error, OSError) or str(error) == "closed" else 1


class TakesHalfMessages(Fault):
    """Accepts a truncated message as complete when the connection ends."""

    found_by = ("client/connection/truncated",)

    def end_came(self) -> None:
        """Add the missing end."""
        if not self.pending.lstrip(b"\r\n"):
            super().end_came()
        self.pending += b"\0"


class DoesNotGoOn(Fault):
    """Supports one server only, and reports that."""

    found_by = ()

    def run(self) -> int:
        """Return the status for missing support."""
        return super().run() if len(self.nodes) == 1 else CANNOT


class DoesNotReconnect(Fault):
    """Does not fail over after it has been connected."""

    found_by = ("client/failover/connection-lost",)

    def goes_on(self, error: Exception) -> bool:
        """Return True until the client has been connected."""
        return isinstance(error, ConnectionRefusedError)


class TriesOneServer(Fault):
    """Gives up if the first server refuses connections."""

    found_by = ("client/failover/refused",)

    def goes_on(self, error: Exception) -> bool:
        """Return True only if the client has been connected."""
        return not isinstance(error, ConnectionRefusedError)
