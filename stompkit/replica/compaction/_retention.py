"""Retention of history."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from stompkit.replica.store import ChangesetRecord

__all__ = ["AHEAD_S", "Retention"]

#: Maximum time in seconds by which other clocks may be ahead. The age of a changeset dated later
#: than that is unknown.
AHEAD_S: Final = 86_400.0

_UNITS: Final = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": 86_400.0,
    "week": 7 * 86_400.0,
    "changeset": 0.0,
}
_PART: Final = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?) *([a-z]+?)s?").fullmatch


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of the history to keep; without a limit, all of it.

    A changeset beyond either limit is beyond the retention.
    """

    #: Maximum age in seconds, by the clocks of the writers.
    max_age_s: float | None = None
    #: Number of last applied changesets to keep.
    max_changesets: int | None = None
    #: True to keep what a known node still lacks, however old it is.
    keep_unseen: bool = True

    def __post_init__(self) -> None:
        """Reject limits below 0."""
        if min(self.max_age_s or 0, self.max_changesets or 0) < 0:
            raise ValueError("a limit of what is kept cannot be below 0")

    @classmethod
    def parse(cls, text: str, *, keep_unseen: bool = True) -> Self:
        """Parse ``30 days``, ``100000 changesets``, ``2 weeks, 1000 changesets`` or ``for ever``.

        Units of time are seconds, minutes, hours, days and weeks. Raises ValueError.
        """
        words = text.strip().lower()
        found: dict[bool, float] = {}
        if words not in ("for ever", "forever"):
            for part in words.split(","):
                match = _PART(part.strip())
                unit = _UNITS.get(match[2]) if match else None
                is_number = unit == 0
                if match is None or unit is None or is_number in found:
                    raise ValueError(_ADVICE.format(text[:80]))
                if is_number and "." in match[1]:
                    raise ValueError(f"{text[:80]!r}: there are only whole changesets")
                found[is_number] = float(match[1].replace("_", "")) * (unit or 1)
        count = found.get(True)
        return cls(found.get(False), None if count is None else int(count), keep_unseen)

    @property
    def is_for_ever(self) -> bool:
        """True if there is no limit."""
        return self.max_age_s is None and self.max_changesets is None

    def is_beyond(self, record: ChangesetRecord, last: int, now: float) -> bool:
        """Return True if a changeset need not be kept; ``last`` is the last position."""
        if self.max_changesets is not None and record.position <= last - self.max_changesets:
            return True
        if self.max_age_s is None:
            return False
        return record.time <= now - self.max_age_s or record.time > now + AHEAD_S


_ADVICE: Final = (
    "{!r} is no retention: that is '30 days', '12 hours', '100000 changesets', two of them with a"
    " comma between, or 'for ever'"
)
