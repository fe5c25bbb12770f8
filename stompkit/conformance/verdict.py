"""Verdicts, and the record of a case that was run."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stompkit._common.moved import renamed
from stompkit.conformance.requirements import Level

__all__ = [
    "CaseResult",
    "CommandError",
    "Ending",
    "FailedError",
    "Outcome",
    "SuiteError",
    "UnsupportedError",
    "Verdict",
    "WireEvent",
]


class Verdict(StrEnum):
    """The judgement on one case."""

    #: The target follows the specification.
    OK = "OK"
    #: It does not follow a recommendation (SHOULD) of the specification.
    NON_STRICT = "NON-STRICT"
    #: It violates the specification.
    FAILED = "FAILED"
    #: It does not support the feature under test.
    UNSUPPORTED = "UNSUPPORTED"
    #: The specification leaves it open; the notes have the observations.
    INFORMATIONAL = "INFORMATIONAL"


class Ending(StrEnum):
    """Endings of the connections of a case, from best to worst."""

    #: The suite closed them while the target was still there.
    CLEAN = "clean"
    #: The target closed one in order.
    CLOSED = "closed"
    #: The target reset one.
    DROPPED = "DROPPED"
    #: An awaited frame or close never came.
    HUNG = "HUNG"

    @property
    def rank(self) -> int:
        """The position in that order, from 0."""
        return list(Ending).index(self)


class Outcome(StrEnum):
    """Outcomes of a frame, as words that end a sentence: "... is accepted"."""

    ACCEPTED = "accepted"
    ERROR = "answered by ERROR"
    ERROR_AND_CLOSE = "answered by ERROR and the end of the connection"
    CLOSE = "answered by the end of the connection"
    NOTHING = "not answered"


class FailedError(AssertionError):
    """The target deviates from the expectation of the case; ``str()`` describes its behaviour."""


class UnsupportedError(Exception):
    """The target does not support the feature under test."""


class CommandError(Exception):
    """A command that the user gave for the target failed: no verdict can rest on it."""


class SuiteError(Exception):
    """The machine of the suite prevents a case: no verdict can rest on it."""


class WireEvent(msgspec.Struct, frozen=True):
    """Bytes or another event on a connection."""

    #: Number of the connection within the case, from 1.
    connection: int
    #: Time in milliseconds since the case began.
    at_ms: int
    #: ``>`` sent, ``<`` received, ``.`` anything else: connected, closed, waited.
    direction: str
    #: Bytes as text: line ends unchanged, NUL as ``^@``, other unprintable ones as ``\xNN``.
    text: str


class CaseResult(msgspec.Struct, kw_only=True):
    """One case, run against one target."""

    id: str
    version: str
    chapter: str
    section: str
    level: Level
    requirements: list[str]
    #: The tested statement, paraphrased.
    statement: str
    #: The words of the specification that FAILED rests on; empty if the case cannot be FAILED.
    sentence: str = ""
    #: The actions and the expected result of the case.
    expectation: str
    verdict: Verdict
    ending: Ending
    #: Reason why it is not OK; empty if it is.
    detail: str = ""
    notes: list[str] = []
    #: Behaviour of the target where it has a choice, by topic.
    profile: dict[str, str] = {}
    #: Statements that received frames violate, whatever the case is about, with the observations.
    violations: dict[str, str] = {}
    duration_ms: int = 0
    wire: list[WireEvent] = []
    #: Reason given by the list of expected deviations, if this one is on it.
    expected: str = ""


renamed(
    __name__,
    Failed="FailedError",
    Unsupported="UnsupportedError",
)
