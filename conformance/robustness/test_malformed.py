"""Malformed frames: each is the trouble of the client that sends it, and of nobody else."""

from typing import Final

from stompkit.conformance import Target, trial
from stompkit.conformance.malformed import (
    BODIES,
    COMMANDS,
    CONNECTS,
    ENCODINGS,
    ESCAPES,
    HEADS,
    LENGTHS,
    LINE_ENDS,
    STRANGERS,
    Malformed,
)
from stompkit.conformance.robustness import NEIGHBOURS, endure, summary

STATEMENT: Final = (
    "Malformed frames trouble nobody but the client that sends them: other sessions go on, and what"
    " can't be understood is delivered to nobody."
)
SECTION: Final = "Robustness: malformed frames"


def endure_in_session(target: Target, rows: tuple[Malformed, ...]) -> None:
    """Send each within a session; the table of profiles gets the answers."""
    for name, answer in endure(target, rows).items():
        target.profile(f"malformed: {name}", answer)


def endure_at_the_beginning(target: Target, rows: tuple[Malformed, ...]) -> None:
    """Send each as the first thing on a connection; the notes get the answers."""
    for line in summary(endure(target, rows, in_session=False)):
        target.note(line)


@trial(
    "robustness/malformed/commands", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_commands(target: Target) -> None:
    """Send unknown and misspelt commands and those of servers; others are not disturbed."""
    endure_in_session(target, COMMANDS)


@trial("robustness/malformed/heads", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS)
def test_heads(target: Target) -> None:
    """Send header lines without colon or name, and heads with NUL; others are not disturbed."""
    endure_in_session(target, HEADS)


@trial(
    "robustness/malformed/encodings", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_encodings(target: Target) -> None:
    """Send heads that are not UTF-8; nobody gets them, and others are not disturbed."""
    endure_in_session(target, ENCODINGS)


@trial(
    "robustness/malformed/content-lengths",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_content_lengths(target: Target) -> None:
    """Send a content-length that is no number or the wrong one; others are not disturbed."""
    endure_in_session(target, LENGTHS)


@trial(
    "robustness/malformed/escapes",
    STATEMENT,
    level="MUST",
    section=SECTION,
    versions=("1.1", "1.2"),
    rests_on=NEIGHBOURS,
)
def test_escapes(target: Target) -> None:
    """Send escape sequences that there are not; nobody gets them, others are not disturbed."""
    endure_in_session(target, ESCAPES)


@trial(
    "robustness/malformed/line-ends",
    STATEMENT,
    level="MUST",
    section=SECTION,
    versions=("1.0", "1.1", "1.2"),
    rests_on=NEIGHBOURS,
)
def test_line_ends(target: Target) -> None:
    """Send lines that end as the version does not have it; others are not disturbed."""
    endure_in_session(target, LINE_ENDS[target.version])


@trial("robustness/malformed/bodies", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS)
def test_bodies(target: Target) -> None:
    """Send bodies on frames that may not have one; others are not disturbed."""
    endure_in_session(target, BODIES)


@trial(
    "robustness/malformed/before-connect",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_frames_before_connect(target: Target) -> None:
    """Send malformed frames of all kinds instead of CONNECT; others are not disturbed."""
    endure_at_the_beginning(target, (*COMMANDS, *HEADS, *ENCODINGS, *LENGTHS, *BODIES))


@trial(
    "robustness/malformed/connect", STATEMENT, level="MUST", section=SECTION, rests_on=NEIGHBOURS
)
def test_connect(target: Target) -> None:
    """Send malformed CONNECT frames; others are not disturbed."""
    endure_at_the_beginning(target, CONNECTS)


@trial(
    "robustness/malformed/other-protocols",
    STATEMENT,
    level="MUST",
    section=SECTION,
    rests_on=NEIGHBOURS,
)
def test_other_protocols(target: Target) -> None:
    """Speak TLS, HTTP, MQTT and others to the target; its own clients are not disturbed."""
    endure_at_the_beginning(target, STRANGERS)
