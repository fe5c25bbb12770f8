"""Servers that one bad client is enough for."""

# ruff: noqa: D102 (a method does what the docstring of its class says)

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable

from tests.conformance.proxy import ALL, NEW, Fault, requests
from tests.conformance.raw import Raw
from tests.conformance.scripted import Line

#: What nothing in a test lasts.
_LONG_S = 60.0


def robustness(*names: str) -> tuple[str, ...]:
    """Ids of cases of the chapter."""
    return tuple(f"robustness/{name}" for name in names)


def per_version(versions: str, name: str) -> tuple[str, ...]:
    """Ids of cases of the chapter that several versions have."""
    return tuple(f"robustness/{version}/{name}" for version in versions.split())


class Fragile(Fault):
    """Ends all sessions when something happens that the others say."""

    def crash(self) -> None:
        # Those that end take themselves out of the list meanwhile.
        for each in list(self.connections):
            each.line.end()


# Malformed frames.


class PanicsOnError(Fragile):
    """Ends all sessions where one of them gets an ERROR."""

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
    """Leaves out a content-length that is no number, and takes the frame."""
    length = frame.get("content-length")
    if length is not None and not length.isdecimal():
        frame.drop("content-length")


class PanicsOnBodyOfBegin(Fragile):
    """Ends all sessions where a frame has a body that may have none."""

    found_by = robustness("malformed/bodies")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        if frame.command == b"BEGIN" and frame.body:
            self.crash()


class PanicsOnMissingOctets(Fragile):
    """Ends all sessions where a body is not yet as long as its content-length says."""

    found_by = robustness("malformed/content-lengths", "parser-faults/past-nul", "slow/sender")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        yield from super().octets_from_client(octets)
        if b"\ncontent-length:" in self._requests.pending.partition(b"\n\n")[0]:
            self.crash()


# Pieces.


class WantsWholeFrames(Fault):
    """Closes where a read does not end at the end of a frame."""

    found_by = robustness(
        "splitting/every-octet", "splitting/octet-by-octet", "slow/sender", "floods/frames"
    )

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        if octets.rstrip(b"\r\n").endswith(b"\0"):
            yield octets
        else:
            self.line.end()


class TakingTurns(Fault):
    """Has all connections wait for one of them; the others say when."""

    def __init__(self, line: Line) -> None:
        """Begin with a lock; that of the server's first connection is the one that counts."""
        super().__init__(line)
        self._turn = threading.Lock()

    @property
    def turn(self) -> threading.Lock:
        return self.connections[0]._turn


class OneAfterTheOther(TakingTurns):
    """Reads from nobody else while a frame has come in part."""

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
    """Sends nobody anything while somebody does not read what it has for him."""

    found_by = robustness("slow/queue-reader", "slow/topic-reader")

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        with self.turn:
            self.send_client(frame.octets())
        return ()


# Much at once.


class FewFramesAtOnce(Fault):
    """Deals with a hundred frames of a read, and forgets the rest."""

    found_by = robustness("floods/frames")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        frames = self._requests.feed(octets)
        for frame in frames[:100]:
            yield frame.octets()


class PanicsOnLineEnds(Fragile):
    """Ends all sessions where somebody sends more than a thousand line ends."""

    found_by = robustness("floods/line-ends", "floods/early-line-ends")

    def octets_from_client(self, octets: bytes) -> Iterable[bytes]:
        yield octets
        if b"\n" * 1_000 in octets:
            self.crash()


class FewConnections(Fault):
    """Does not answer more than forty clients at a time."""

    found_by = robustness("floods/connections", "limits/connections")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        before = itertools.takewhile(lambda each: each is not self, self.connections)
        if sum(not each.is_over for each in before) < 40:
            yield frame


class SilentWhereItIsTooMuch(Fault):
    """Takes no body above 100 KiB, and does not say so."""

    found_by = robustness("limits/body")

    def from_client(self, frame: Raw) -> Iterable[Raw]:
        if len(frame.body) < 100_000:
            yield frame


class HoldsWhatComes(Fault):
    """Keeps whatever comes until there is a NUL, before the login, too."""

    found_by = robustness(
        "parser-faults/endless-header",
        "parser-faults/endless-headers",
        "parser-faults/endless-body",
    )


# Ends.


class PanicsOnEnds(Fragile):
    """Ends all sessions where somebody goes in the middle of a frame."""

    found_by = robustness(
        "closing/reset-in-head", "closing/in-body", "closing/before-nul", "floods/storm", "fuzzing"
    )

    def at_end(self) -> Iterable[Raw]:
        if self._requests.pending:
            self.crash()
        return ()


class PanicsLateOnEnds(Fragile):
    """Ends all sessions where somebody goes in the middle of a frame, but serves the others once.

    So it is where the thread of the connection that has ended gets its turn late.
    """

    found_by = robustness("closing/in-body", "closing/before-nul")

    def __init__(self, line: Line) -> None:
        """Begin with others that have not been served."""
        super().__init__(line)
        self._have_others_been_served = threading.Event()

    def from_server(self, frame: Raw) -> Iterable[Raw]:
        yield frame
        # The last message that a bystander of a case has before somebody looks again.
        if frame.command == b"MESSAGE" and frame.body == b"bystander 2":
            for each in list(self.connections):
                each._have_others_been_served.set()

    def at_end(self) -> Iterable[Raw]:
        if self._requests.pending and self._have_others_been_served.wait(_LONG_S):
            self.crash()
        return ()


class EndsFramesItself(Fault):
    """Takes what was cut off for a frame."""

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
    """Does not notice that the heart-beats it was promised do not come."""
    frame.drop("heart-beat")
