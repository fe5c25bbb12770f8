"""Servers that break one rule about heart-beats."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.conformance.proxy import NEW, Fault, in_versions, refuse, requests
from tests.conformance.raw import Raw


def offer(frame: Raw) -> tuple[str, str]:
    """Return the two parts of a heart-beat header; 0 and 0 if there is none."""
    can, _, wants = (frame.get("heart-beat") or "0,0").partition(",")
    return can, wants


# Heart-beats of the server.


@requests("CONNECT STOMP", *in_versions(NEW, "heartbeat/missing-is-0-0"))
def beats_for_all(frame: Raw) -> None:
    """Sends heart-beats to clients without a heart-beat header."""
    if frame.get("heart-beat") is None:
        frame.put("heart-beat", "0,500")


@requests("CONNECT STOMP", *in_versions(NEW, "heartbeat/error-margin"))
def beats_that_nobody_wants(frame: Raw) -> None:
    """Sends heart-beats to clients that send some and want none."""
    can, wants = offer(frame)
    if can != "0" and wants == "0":
        frame.put("heart-beat", f"{can},500")


# Heart-beats of the client.


@requests("CONNECT STOMP", *in_versions(NEW, "heartbeat/missing-is-0-0"))
def beats_from_all(frame: Raw) -> None:
    """Closes sessions of clients that want heart-beats but cannot send any."""
    can, wants = offer(frame)
    if can == "0" and wants != "0":
        frame.put("heart-beat", f"{3 * int(wants)},{wants}")


class FramesAreNoBeats(Fault):
    """Closes sessions with heart-beats after five frames without a line end between them."""

    found_by = in_versions(NEW, "heartbeat/any-data-counts")
    has_beats = False
    in_a_row = 0

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in (b"CONNECT", b"STOMP"):
            self.has_beats = offer(frame)[0] != "0"
        self.in_a_row = self.in_a_row + 1 if frame.command else 0
        if self.has_beats and self.in_a_row == 5:
            self.line.close()
        yield frame


class NoPatience(Fault):
    """Closes a session as soon as a heart-beat is late."""

    found_by = in_versions(NEW, "heartbeat/error-margin")
    can_ms = 0
    heard_at = 0.0
    interval_s = float("inf")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if frame.command in (b"CONNECT", b"STOMP") and offer(frame)[0].isdecimal():
            self.can_ms = int(offer(frame)[0])
        now = time.monotonic()
        if self.heard_at and now - self.heard_at > self.interval_s:
            self.line.close()
        self.heard_at = now
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        wants_ms = int(offer(frame)[1])
        if frame.command == b"CONNECTED" and self.can_ms and wants_ms:
            self.interval_s = max(self.can_ms, wants_ms) / 1000
        yield frame


# The header.


@requests("CONNECT STOMP", *in_versions(NEW, "connect/heart-beat-optional"))
def beats_are_required(frame: Raw) -> None:
    """Refuses clients that disable heart-beats."""
    if frame.get("heart-beat") == "0,0":
        refuse(frame)
