"""Servers that a single malicious client can break."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable

from tests.conformance.proxy import ALL, NEW, Fault, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: Longer than any wait in a test, in seconds.
_LONG_S = 60.0


def robustness(*names: str) -> tuple[str, ...]:
    """Return the ids of cases of the chapter."""
    return tuple(f"robustness/{name}" for name in names)


def per_version(versions: str, name: str) -> tuple[str, ...]:
    """Return the ids of cases of the chapter that several versions have."""
    return tuple(f"robustness/{version}/{name}" for version in versions.split())


class Fragile(Fault):
    """Ends all sessions on an event that subclasses define."""

    def crash(self) -> None:
        # Sessions remove themselves from the list when they end.
        for each in list(self.connections):
            each.line.end()


# Malformed frames.


class PanicsOnError(Fragile):
    """Ends all sessions when one of them gets an ERROR."""

    found_by = (
        *robustness(
            "malformed/commands",
            "malformed/heads",
            "malformed/encodings",
            "malformed/content-lengths",
            "malformed/before-connect",
            "malformed/connect",
            "malformed/other-protocols",
            "parser-faults/negative-content-length",
            "parser-faults/no-number",
            "parser-faults/overflow",
            "floods/nuls",
            "limits/header-line",
            "limits/headers",
            "limits/command",
            "limits/subscriptions",
            "limits/transactions",
            "limits/before-login/header-line",
            "limits/before-login/headers",
        ),
        *per_version(ALL, "malformed/line-ends"),
        *per_version(NEW, "malformed/escapes"),
    )

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        yield octets

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        if frame.command == b"ERROR":
            self.crash()


@requests("SEND", *robustness("malformed/content-lengths"))
def guesses_lengths(frame: Raw) -> None:
    """Ignores a content-length that is not a number, and accepts the frame."""
    length = frame.get("content-length")
    if length is not None and not length.isdecimal():
        frame.drop("content-length")


class PanicsOnBodyOfBegin(Fragile):
    """Ends all sessions when BEGIN has a body."""

    found_by = robustness("malformed/bodies")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        if frame.command == b"BEGIN" and frame.body:
            self.crash()


class PanicsOnMissingOctets(Fragile):
    """Ends all sessions when a body is incomplete according to its content-length."""

    found_by = robustness("malformed/content-lengths", "parser-faults/past-nul", "slow/sender")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        yield from super().octets_from_client(octets)
        if b"\ncontent-length:" in self._requests.pending.partition(b"\n\n")[0]:
            self.crash()


# Chunks.


class WantsWholeFrames(Fault):
    """Closes if a read does not end at the end of a frame."""

    found_by = robustness(
        "splitting/every-octet", "splitting/octet-by-octet", "slow/sender", "floods/frames"
    )

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        if octets.rstrip(b"\r\n").endswith(b"\0"):
            yield octets
        else:
            self.line.end()


class TakingTurns(Fault):
    """Makes all connections wait for one of them; subclasses define when."""

    def __init__(self, line: Line) -> None:
        """Create a lock; all connections use that of the server's first connection."""
        super().__init__(line)
        self._turn = threading.Lock()

    @property
    def turn(self) -> threading.Lock:
        return self.connections[0]._turn


class OneAfterTheOther(TakingTurns):
    """Reads from no other client while a frame is incomplete."""

    found_by = robustness("slow/sender", "slow/half-frames")
    has_turn = False

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        if not self.has_turn:
            self.has_turn = self.turn.acquire()
        yield from super().octets_from_client(octets)
        if not self._requests.pending:
            self.at_end()

    def at_end(self) -> Iterable[Raw]:
        if self.has_turn:
            self.has_turn = False
            self.turn.release()
        return ()


class WaitsForReaders(TakingTurns):
    """Sends to no other client while one does not read."""

    found_by = robustness("slow/queue-reader", "slow/topic-reader")

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        with self.turn:
            self.send_client(frame.octets())
        return ()


# Floods.


class FewFramesAtOnce(Fault):
    """Processes a hundred frames of a read, and drops the rest."""

    found_by = robustness("floods/frames")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        frames = self._requests.feed(octets)
        for frame in frames[:100]:
            yield frame.octets()


class PanicsOnLineEnds(Fragile):
    """Ends all sessions when a client sends more than a thousand line ends."""

    found_by = robustness("floods/line-ends", "floods/early-line-ends")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        yield octets
        if b"\n" * 1_000 in octets:
            self.crash()


class FewConnections(Fault):
    """Does not reply to more than forty clients at a time."""

    found_by = robustness("floods/connections", "limits/connections")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        before = itertools.takewhile(lambda each: each is not self, self.connections)
        if sum(not each.is_over for each in before) < 40:
            yield frame


class SilentWhereItIsTooMuch(Fault):
    """Drops bodies above 100 KiB without an ERROR."""

    found_by = robustness("limits/body")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if len(frame.body) < 100_000:
            yield frame


class HoldsWhatComes(Fault):
    """Buffers all bytes until a NUL, even before login."""

    found_by = robustness(
        "parser-faults/endless-header",
        "parser-faults/endless-headers",
        "parser-faults/endless-body",
    )


# Disconnects.


class PanicsOnEnds(Fragile):
    """Ends all sessions when a client disconnects in the middle of a frame."""

    found_by = robustness(
        "closing/reset-in-head", "closing/in-body", "closing/before-nul", "floods/storm", "fuzzing"
    )

    def at_end(self) -> Iterable[Raw]:
        if self._requests.pending:
            self.crash()
        return ()


class PanicsLateOnEnds(Fragile):
    """Ends all sessions after a disconnect in the middle of a frame, but serves others once.

    This happens if the thread of the ended connection is scheduled late.
    """

    found_by = robustness("closing/in-body", "closing/before-nul")

    def __init__(self, line: Line) -> None:
        """Start before any other client has been served."""
        super().__init__(line)
        self._have_others_been_served = threading.Event()

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        # The last message of a case's bystander before the next check.
        if frame.command == b"MESSAGE" and frame.body == b"bystander 2":
            for each in list(self.connections):
                each._have_others_been_served.set()

    def at_end(self) -> Iterable[Raw]:
        if self._requests.pending and self._have_others_been_served.wait(_LONG_S):
            self.crash()
        return ()


class EndsFramesItself(Fault):
    """Processes a truncated frame."""

    found_by = robustness("closing/in-body", "closing/before-nul")

    def at_end(self) -> Iterable[Raw]:
        if self._requests.pending:
            frame = Raw.parse(self._requests.pending + b"\0")
            frame.drop("content-length")
            yield frame


class KeepsHalfClosed(Fault):
    """Does not close a connection that its client has closed."""

    found_by = robustness("closing/half-close")

    def at_end(self) -> Iterable[Raw]:
        self.keeps_open = True
        self.line.hold()
        return ()


@requests("CONNECT", *robustness("closing/half-open"))
def no_heart_beats_wanted(frame: Raw) -> None:
    """Does not notice that negotiated heart-beats are missing."""
    frame.drop("heart-beat")
