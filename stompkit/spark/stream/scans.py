"""Scans of all partitions of a spool, repeated until gaps between changesets are settled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from stompkit.spark.stream.options import GapPolicy
from stompkit.spark.stream.order import Scan, check_late, scan
from stompkit.spark.stream.origins import Gap, Origins
from stompkit.spool import SpoolError, SpoolReader

__all__ = ["WAY_OUT", "Begins", "Decide", "Skips", "present", "settled"]

_log: Final = logging.getLogger(__name__)

#: Advice for a gap.
WAY_OUT: Final = (
    "When it has come the job goes on by itself, once it is started; to go on without it set the"
    " option gap to skip"
)
#: Numbers to skip: first and last, by origin.
Skips = dict[str, list[tuple[int, int]]]
#: First numbers of origins, besides 1.
Begins = dict[str, int]


class Decide(Protocol):
    """A function that adds the gaps to skip to *skips*, and the first numbers to *begins*."""

    def __call__(
        self, gaps: Sequence[Gap], skips: Skips, begins: Begins, *, is_stuck: bool
    ) -> bool:
        """Return True if it has added any; ``is_stuck`` is true if no message can be read."""


def settled(
    reader: SpoolReader,
    bounds: Sequence[tuple[int, int, int]],
    progress: Callable[[], Origins],
    decide: Decide,
    policy: GapPolicy,
) -> tuple[list[Scan], Origins]:
    """Scan a range of each partition until *decide* has settled the gaps.

    ``bounds`` are start, end and head by partition.
    ``progress`` returns a new copy of the progress at the start. Returns the scans, and the
    progress at their ends. Raises SpoolError for changesets that arrived too late, unless
    ``policy`` is to skip.
    """
    skips: Skips = {}
    begins: Begins = {}
    while True:
        origins = progress()
        scans = [
            scan(reader, number, *each, origins, skips=skips, begins=begins)
            for number, each in enumerate(bounds)
        ]
        gaps = [gap for each in scans for gap in each.gaps]
        is_stuck = all(made.end == start for made, (start, *_) in zip(scans, bounds, strict=True))
        if not decide(gaps, skips, begins, is_stuck=is_stuck):
            break
    late = [each for made in scans for each in made.late]
    if policy != "skip":
        check_late(late)
    elif late:
        _log.warning("left out %d changesets that came too late, as %s", len(late), late[0])
    return scans, origins


def present(reader: SpoolReader, ends: Sequence[int], policy: GapPolicy) -> list[Scan]:
    """Scan all messages of a spool up to *ends* in order, to read them once.

    Gaps are skipped if ``policy`` is to skip; otherwise raises SpoolError.
    """

    def decide(gaps: Sequence[Gap], skips: Skips, begins: Begins, *, is_stuck: bool) -> bool:
        for gap in gaps:
            assert gap.found is not None
            if gap.is_beginning:
                begins[gap.origin] = gap.found
            elif policy == "skip":
                skips.setdefault(gap.origin, []).append((gap.missing, gap.found - 1))
            else:
                raise SpoolError(f"{gap}. {WAY_OUT}")
        return bool(gaps)

    floor, head = reader.floor(), reader.head()
    has_past = any(floor)
    bounds = list(zip(floor, ends, head, strict=True))
    return settled(reader, bounds, lambda: Origins(has_past=has_past), decide, policy)[0]
