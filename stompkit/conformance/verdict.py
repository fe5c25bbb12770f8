"""What a case can find, and the record of one that was run."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stompkit.conformance.requirements import Level

__all__ = [
    "CaseResult",
    "Ending",
    "Failed",
    "Outcome",
    "Unsupported",
    "Verdict",
    "WireEvent",
]


class Verdict(StrEnum):
    """The judgement on one case."""

    #: The target does what the specification says.
    OK = "OK"
    #: It does not do what the specification only recommends (SHOULD).
    NON_STRICT = "NON-STRICT"
    #: It breaks the specification.
    FAILED = "FAILED"
    #: It does not have what the case is about.
    UNSUPPORTED = "UNSUPPORTED"
    #: The specification leaves it open; what was seen is in the notes.
    INFORMATIONAL = "INFORMATIONAL"


class Ending(StrEnum):
    """How the connections of a case ended, from best to worst."""

    #: The suite closed them while the target was still there.
    CLEAN = "clean"
    #: The target closed one in an orderly way.
    CLOSED = "closed"
    #: The target reset one.
    DROPPED = "DROPPED"
    #: Something that was waited for, a frame or a close, never came.
    HUNG = "HUNG"

    @property
    def rank(self) -> int:
        """The place in that order, from 0."""
        return list(Ending).index(self)


class Outcome(StrEnum):
    """What a target does with a frame, in words that end a sentence: "... is accepted"."""

    ACCEPTED = "accepted"
    ERROR = "answered by ERROR"
    ERROR_AND_CLOSE = "answered by ERROR and the end of the connection"
    CLOSE = "answered by the end of the connection"
    NOTHING = "not answered"


class Failed(AssertionError):
    """The target does not do what the case expects; ``str()`` says what it did instead."""


class Unsupported(Exception):
    """The target does not have what the case is about."""


class WireEvent(msgspec.Struct, frozen=True):
    """Octets seen on a connection, or what became of it."""

    #: Number of the connection within the case, from 1.
    connection: int
    #: Milliseconds since the case began.
    at_ms: int
    #: ``>`` sent, ``<`` received, ``.`` anything else: connected, closed, waited.
    direction: str
    #: Octets, as text: line ends as they are, NUL as ``^@``, others unprintable as ``\xNN``.
    text: str


class CaseResult(msgspec.Struct, kw_only=True):
    """One case, run against one target."""

    id: str
    version: str
    chapter: str
    section: str
    level: Level
    requirements: list[str]
    #: The statement that is tested, in our words.
    statement: str
    #: What the case does and expects.
    expectation: str
    verdict: Verdict
    ending: Ending
    #: Why it is not OK; empty where it is.
    detail: str = ""
    notes: list[str] = []
    #: What the target was seen to do where it is free to choose, by what it is about.
    profile: dict[str, str] = {}
    duration_ms: int = 0
    wire: list[WireEvent] = []
    #: Reason given by the list of expected deviations, if this one is on it.
    expected: str = ""
