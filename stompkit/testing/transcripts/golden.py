"""Comparison of recorded events with a golden file."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stompkit._common.files import make_directory
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.transcripts.transcript import Transcript

__all__ = ["TranscriptDiffersError", "assert_golden"]

_UPDATE_VARIABLE: Final = "STOMPKIT_UPDATE_GOLDEN"


class TranscriptDiffersError(AssertionError):
    """The recorded events differ from the golden file; the message contains the difference."""


def assert_golden(
    seen: Transcript | FrameLog,
    path: str | os.PathLike[str],
    *,
    update: bool = False,
    replacements: Mapping[str, str] | None = None,
) -> None:
    """Compare recorded events with a golden file.

    The function first waits for a log to :meth:`~FrameLog.settle`. Both sides are normalised, with
    ``replacements`` in the recorded events, and put into the order of connections: see
    ``Transcript.normalised`` and ``Transcript.by_connection``. With ``update``, or with
    ``STOMPKIT_UPDATE_GOLDEN=1`` in the environment, the file is written instead.

    Raises TranscriptDiffersError with the difference of the texts, or if the file does not exist.
    Raises TranscriptError for an invalid file.
    """
    path = Path(path)
    if isinstance(seen, FrameLog):
        seen.settle()
        seen = seen.transcript()
    actual = seen.by_connection().normalised(replacements)
    if update or os.environ.get(_UPDATE_VARIABLE, "") not in ("", "0"):
        make_directory(path.parent)
        actual.save(path)
        return
    remedy = (
        "run pytest with --mq-update-golden, or any other program with "
        f"{_UPDATE_VARIABLE}=1 in the environment"
    )
    if not path.exists():
        raise TranscriptDiffersError(f"there is no golden file {path}; to create it, {remedy}")
    expected = Transcript.load(path).by_connection().normalised()
    if str(actual) != str(expected):
        difference = difflib.unified_diff(
            str(expected).split("\n"), str(actual).split("\n"), str(path), "seen", lineterm=""
        )
        lines = [f"the frames differ from {path}; to write it again, {remedy}", *difference]
        raise TranscriptDiffersError("\n".join(lines))
