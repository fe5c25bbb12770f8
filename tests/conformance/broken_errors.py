"""Servers that break one rule about ERROR, or about frames that must cause one."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, in_versions, make_harmless, requests
from tests.conformance.raw import Raw

_COMMANDS = frozenset(
    b"CONNECT STOMP SEND SUBSCRIBE UNSUBSCRIBE ACK NACK BEGIN COMMIT ABORT DISCONNECT".split()
)


@requests(
    "",
    *in_versions(NEW, "client-frames/unknown-may-error", "frame/case-sensitive"),
)
def unknown_commands(frame: Raw) -> None:
    """Replies to unknown commands with RECEIPT."""
    if frame.command and frame.command not in _COMMANDS:
        make_harmless(frame)


class ErrorMiscounted(Fault):
    """Counts characters instead of bytes in the content-length of the ERROR about SEND, on 1.0."""

    found_by = (
        "1.0/error/content-length-octets",
        "1.0/error/content-length-recommended",
        "1.0/error/message-header",
        "1.0/error/body-detail",
        "1.0/send/destination-required",
        "1.0/send/null-after-content-length",
        "1.0/bnf/header-name-chars",
    )
    last = b""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.last = frame.command or self.last
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if self.version == "1.0" and frame.command == b"ERROR" and self.last == b"SEND":
            frame.body = "Das f\u00fchrt zu nichts.".encode()
            frame.put("content-length", str(len(frame.body.decode())))
        yield frame
