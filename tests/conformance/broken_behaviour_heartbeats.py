"""Servers that break one rule about heart-beats over time; our broker sends one every second."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

from collections.abc import Iterable

from tests.conformance.proxy import Fault, requests
from tests.conformance.raw import Raw


class BeatsEnd(Fault):
    """Sends eight heart-beats on each connection, and no more."""

    found_by = ("behaviour/heartbeat/long-idle",)
    beats = 0

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        self.beats += not frame.command
        if frame.command or self.beats <= 8:
            yield frame


class NoBeatsForBusyClients(Fault):
    """Sends no heart-beat while a frame of the client has no reply."""

    found_by = ("behaviour/heartbeat/while-receiving",)
    is_busy = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.is_busy |= bool(frame.command)
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command:
            self.is_busy = False
        if not self.is_busy:
            yield frame


class OneSideBeats(Fault):
    """Sends no heart-beat to a client that sends heart-beats."""

    found_by = ("behaviour/heartbeat/both-ways",)
    has_heard_one = False

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        self.has_heard_one |= not frame.command
        yield frame

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        if frame.command or not self.has_heard_one:
            yield frame


@requests("CONNECT", "behaviour/heartbeat/slower-side-decides")
def faster_side_decides(frame: Raw) -> None:
    """Expects a heart-beat every second, even from a client that offers fewer."""
    can_ms, comma, wants_ms = (frame.get("heart-beat") or "").partition(",")
    if comma and int(can_ms) > 1_000:
        frame.put("heart-beat", f"1000,{wants_ms}")


@requests("CONNECT", "behaviour/heartbeat/zero-disables")
def beats_for_everybody(frame: Raw) -> None:
    """Sends heart-beats to a client that wants none."""
    if frame.get("heart-beat") == "0,0":
        frame.put("heart-beat", "0,1000")


@requests("CONNECT", "behaviour/heartbeat/zero-disables")
def beats_of_everybody(frame: Raw) -> None:
    """Disconnects a client that sends no heart-beats, although it offered none."""
    if frame.get("heart-beat") == "0,0":
        frame.put("heart-beat", "1000,0")
