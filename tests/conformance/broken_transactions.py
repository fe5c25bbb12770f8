"""Servers that break one rule about transactions."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import ALL, NEW, Fault, in_versions, make_harmless, refuse, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line


@requests("BEGIN", *in_versions(ALL, "begin/transaction-required"))
def begin_needs_no_name(begin: Raw) -> None:
    """Accepts BEGIN without transaction."""
    if begin.get("transaction") is None:
        make_harmless(begin)


@requests("COMMIT", *in_versions(ALL, "commit/transaction-required"))
def commit_needs_no_name(commit: Raw) -> None:
    """Accepts COMMIT without transaction."""
    if commit.get("transaction") is None:
        make_harmless(commit)


@requests("ABORT", *in_versions(ALL, "abort/transaction-required"))
def abort_needs_no_name(abort: Raw) -> None:
    """Accepts ABORT without transaction."""
    if abort.get("transaction") is None:
        make_harmless(abort)


class NothingToBegin(Fault):
    """Refuses BEGIN with a single-letter name if the client has not sent other frames."""

    found_by = (
        "1.0/begin/starts-transaction",
        *in_versions(NEW, "begin/starts"),
        # Cases that begin so and are not about transactions; only single-letter names, to limit
        # their number.
        *in_versions(NEW, "frame/null-terminator"),
        "1.0/frame/null-ends-frame",
        *in_versions(ALL, "receipt-frame/empty-body"),
    )
    is_busy = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.is_busy |= frame.command in (b"SEND", b"SUBSCRIBE")
        name = frame.get("transaction")
        if frame.command == b"BEGIN" and name and len(name) == 1 and not self.is_busy:
            refuse(frame)
        yield frame


class SharedTransactions(Fault):
    """On ABORT, ends transactions of the same name on other connections."""

    found_by = ("1.2/begin/id-scope-connection",)

    def __init__(self, line: Line) -> None:
        """Start without transactions."""
        super().__init__(line)
        self.begun: set[str | None] = set()

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        name = frame.get("transaction")
        if frame.command == b"BEGIN":
            self.begun.add(name)
        if frame.command == b"ABORT":
            for each in self.connections:
                if each is not self and not each.is_over and name in each.begun:
                    each.to_broker(Raw(b"ABORT", [f"transaction:{name}".encode()]))
        yield frame
