"""Proofs that a log can give: it masks secrets, and drops old frames and ends of long bodies."""

from __future__ import annotations

import re
from dataclasses import replace

from stompkit.testing.frames.events import SeenFrame
from stompkit.testing.frames.matching import Direction, Match
from stompkit.testing.frames.words import MASK, Secrets, is_secret

__all__ = [
    "FrameNotSeenError",
    "UnexpectedFrameError",
    "check_answerable",
    "is_of_kind",
    "is_what_was_wanted",
    "may_have_been",
]


class FrameNotSeenError(AssertionError):
    """An awaited frame did not come in time; the message shows the frames that did."""


class UnexpectedFrameError(AssertionError):
    """A frame was seen that a test forbids, or may have been; the message shows it."""


def check_answerable(wanted: Match, secrets: Secrets) -> None:
    """Raise ValueError for a match with a secret: masked, no frame would ever match it."""
    for name, value in wanted.headers.items():
        if value is None:
            continue
        if not is_secret(name):
            _check_text(f"header {name!r}", value, secrets)
        elif isinstance(value, str) or value.search(MASK) is None:
            raise ValueError(
                f"the log does not know any {name}; only whether there is one:"
                " use re.compile('') for any, or None"
            )
    if wanted.body is not None:
        _check_text("the body", wanted.body, secrets)


def _check_text(
    what: str, value: str | bytes | re.Pattern[str] | re.Pattern[bytes], secrets: Secrets
) -> None:
    text = value.pattern if isinstance(value, re.Pattern) else value
    if secrets.are_in(text):
        raise ValueError(
            f"{what} is to be matched with a text that contains a secret, such as the passcode: the"
            f" log has {MASK} in its place, so search for re.escape({MASK!r})"
        )


def is_what_was_wanted(wanted: Match, seen: SeenFrame) -> bool:
    """Return True if a recorded frame matches; a cut body does not equal any text."""
    if seen.cut_bytes and isinstance(wanted.body, str | bytes):
        return False
    return wanted(seen.direction, seen.connection, seen.frame)


def may_have_been(wanted: Match, seen: SeenFrame, secrets: Secrets) -> bool:
    """Return True if the frame may have matched before its secrets and its end were removed."""
    if seen.cut_bytes and wanted.body is not None:
        if not _may_be_cut_from(wanted.body, seen):
            return False
        wanted = replace(wanted, body=None)
    frames = (seen.frame, *secrets.originals(seen.frame))
    return any(wanted(seen.direction, seen.connection, frame) for frame in frames)


def _may_be_cut_from(
    wanted: str | bytes | re.Pattern[str] | re.Pattern[bytes], seen: SeenFrame
) -> bool:
    if isinstance(wanted, re.Pattern):
        return True
    octets = wanted.encode("utf-8", "surrogateescape") if isinstance(wanted, str) else wanted
    return len(octets) == len(seen.body) + seen.cut_bytes and octets.startswith(seen.body)


def is_of_kind(wanted: Match, direction: Direction, command: str) -> bool:
    """Return True if a frame of which only this is known may match."""
    return wanted.command in (None, command) and wanted.direction in (None, direction)
