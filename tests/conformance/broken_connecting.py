"""Servers that break one rule about the beginning of a connection."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Self

from tests.conformance.proxy import NEW, Fault, in_versions, refuse, requests
from tests.conformance.raw import Raw

_CONNECTS = (b"CONNECT", b"STOMP")
#: Time in seconds within which the results of earlier connections are known.
_SETTLED_S = 10.0
_PAUSE_S = 0.01


class ReceiptBeforeConnected(Fault):
    """Replies to CONNECT with an unrequested RECEIPT, and then with CONNECTED."""

    found_by = (
        "1.0/connect/always-connected",
        *in_versions(NEW, "connect/connected-on-accept"),
        "1.2/headers/connected",
        # These look for any frame with a receipt, or for the first frame.
        "1.0/receipt/server-sends-receipt",
        *in_versions(NEW, "receipt/server-acknowledges"),
        *in_versions(NEW, "encoding/decode-colon", "encoding/never-trim-pad"),
        *in_versions(NEW, "client-frames/unknown-may-error"),
        "1.2/repeated/first-wins-server",
    )

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command == b"CONNECTED":
            yield Raw(b"RECEIPT", [b"receipt-id:connect"])
        yield frame


@requests(
    "CONNECT STOMP", "1.0/connect/login-passcode", *in_versions(NEW, "connect/login-optional")
)
def no_logins(connect: Raw) -> None:
    """Refuses clients that log in."""
    if connect.get("login") is not None:
        refuse(connect)


class WornOut(Fault):
    """Refuses three clients after fifty connections without CONNECT."""

    found_by = in_versions(NEW, "lingering/rapid-connect")
    has_spoken = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in _CONNECTS and self._is_worn_out():
            refuse(frame)
        self.has_spoken = True
        yield frame

    def _is_worn_out(self) -> bool:
        empty = [each.is_over and not each.has_spoken for each in self._before()]
        return sum(empty) >= 50 and any(empty[-3:])

    def _before(self) -> list[Self]:
        """Return all earlier connections when their results are known.

        Each runs in a separate thread, which may be late.
        """
        until = time.monotonic() + _SETTLED_S
        while True:
            before = [each for each in self.connections if each.line.number < self.line.number]
            known = [each for each in before if each.is_over or each.has_spoken]
            if len(known) == self.line.number - 1 or time.monotonic() >= until:
                return sorted(known, key=lambda each: each.line.number)
            time.sleep(_PAUSE_S)
