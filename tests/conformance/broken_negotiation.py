"""Servers that break one rule about CONNECT and CONNECTED."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, answers, in_versions, requests
from tests.conformance.raw import Raw

CONNECTS = (b"CONNECT", b"STOMP")


# Versions.


@answers(
    "CONNECTED",
    *in_versions(NEW, "connected/version-required", "negotiation/highest-common"),
    "1.2/headers/connected",
)
def no_version(frame: Raw) -> None:
    """Sends CONNECTED without the chosen version."""
    frame.drop("version")


@requests("CONNECT STOMP", *in_versions(NEW, "negotiation/missing-means-1.0"))
def newest_is_the_default(frame: Raw) -> None:
    """Treats clients that offer no version as clients of the newest."""
    if frame.get("accept-version") is None:
        frame.put("accept-version", "1.2")


@answers("ERROR", *in_versions(NEW, "negotiation/error-lists-versions"))
def versions_are_secret(error: Raw) -> None:
    """Does not list its versions to clients that offer none of them."""
    if error.get("version") is not None:
        error.drop("version")
        error.put("message", "not this one")
        error.put_body(b"")


@answers("CONNECTED", "1.2/headers/connected")
def connected_like_a_message(frame: Raw) -> None:
    """Sends CONNECTED with a header of MESSAGE."""
    frame.put("message-id", "1")


# Refusals.


class WrongPasscode(Fault):
    """Refuses a passcode; subclasses break a rule in doing so."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in CONNECTS and frame.get("passcode") == "stompkit-wrong":
            self.reject()
        else:
            yield frame

    @abstractmethod
    def reject(self) -> None:
        """Reply to CONNECT."""


class RejectsInSilence(WrongPasscode):
    """Closes without ERROR if the passcode is wrong."""

    found_by = in_versions(NEW, "connect/reject-with-error")

    def reject(self) -> None:
        self.line.close()


class OpenAfterRejection(WrongPasscode):
    """Does not close if the passcode is wrong."""

    found_by = in_versions(NEW, "connect/reject-then-close")

    def reject(self) -> None:
        self.to_client(Raw(b"ERROR", [b"message:wrong passcode"]))


# Missing replies.


class Silent(Fault):
    """Does not reply to CONNECT of some kind."""

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command not in CONNECTS or not self.is_ignored(frame):
            yield frame

    @abstractmethod
    def is_ignored(self, frame: Raw) -> bool:
        """Return True if a CONNECT gets no reply."""


class SilentWithoutHost(Silent):
    """Does not reply to CONNECT without host."""

    found_by = in_versions(NEW, "connect/host-required")

    def is_ignored(self, frame: Raw) -> bool:
        return frame.get("host") is None


class SilentAboutHosts(Silent):
    """Does not reply to CONNECT with an unknown host."""

    found_by = in_versions(NEW, "connect/unknown-host")

    def is_ignored(self, frame: Raw) -> bool:
        return (frame.get("host") or "").endswith(".invalid")


class SilentAboutLists(Silent):
    """Does not reply to CONNECT that offers the newest version first."""

    found_by = in_versions(NEW, "negotiation/accept-version-format")

    def is_ignored(self, frame: Raw) -> bool:
        return (frame.get("accept-version") or "").startswith("1.2,")
