"""Intervals of months, days and microseconds, which cannot be converted to one unit.

PostgreSQL keeps the three apart: a month has no fixed length, and a day with a change of the
clocks has 23 or 25 hours. ``timedelta`` stands for an interval of time only, such as MySQL's
TIME.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

__all__ = ["Interval", "clock", "interval"]

_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND_US: Final = 1_000_000
_DAY_US: Final = 24 * 3600 * _SECOND_US
#: ISO 8601 with designators, each field with a sign of its own, as PostgreSQL writes it.
_ISO: Final = re.compile(
    r"P(?:(-?\d{1,18})Y)?(?:(-?\d{1,18})M)?(?:(-?\d{1,18})W)?(?:(-?\d{1,18})D)?"
    r"(?:T(?:(-?\d{1,18})H)?(?:(-?\d{1,18})M)?(?:(-?)(\d{1,18})(?:\.(\d{1,6}))?S)?)?"
)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval whose months, days and microseconds are kept apart; ``str()`` is ISO 8601."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    def __str__(self) -> str:
        """Return the form of ISO 8601 that PostgreSQL writes: ``P1Y2M-3DT-0.5S``."""
        years, months = _divided(self.months, 12)
        date = "".join(
            f"{number}{unit}"
            for number, unit in ((years, "Y"), (months, "M"), (self.days, "D"))
            if number
        )
        whole, part = divmod(abs(self.microseconds), _SECOND_US)
        minutes, seconds = divmod(whole, 60)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if self.microseconds < 0 else ""
        clock = "".join(
            f"{sign}{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number
        )
        if seconds or part:
            fraction = f".{part:06}".rstrip("0") if part else ""
            clock += f"{sign}{seconds}{fraction}S"
        if clock:
            return f"P{date}T{clock}"
        return f"P{date}" if date else "PT0S"

    @classmethod
    def parse(cls, text: str) -> timedelta | Interval:
        """Read ISO 8601 with designators; raise ``ValueError`` for any other text.

        The result is a ``timedelta`` where there are neither months nor days.
        """
        found = _ISO.fullmatch(text)
        if found is None or text[-1] in "PT":
            raise ValueError(f"{text[:40]!r} is no interval of ISO 8601")
        years, months, weeks, days, hours, minutes, sign, seconds, part = found.groups("0")
        small = int(seconds) * _SECOND_US + int(part.ljust(6, "0"))
        whole = (int(hours) * 60 + int(minutes)) * 60 * _SECOND_US
        return interval(
            12 * int(years) + int(months),
            7 * int(weeks) + int(days),
            whole + (-small if sign == "-" else small),
        )

    @property
    def time_us(self) -> int | None:
        """Total in microseconds with days of 24 hours; ``None`` if there are months.

        The result is not the same interval, so a caller that stores it must document this.
        """
        return None if self.months else self.days * _DAY_US + self.microseconds

    @property
    def in_words(self) -> str:
        """Text form that PostgreSQL reads in any ``IntervalStyle``."""
        # In one style, fields without a sign after a negative field would also be negative.
        sign = "-" if self.microseconds < 0 else "+"
        return f"{self.months:+} mons {self.days:+} days {sign}{clock(abs(self.microseconds))}"


def interval(months: int, days: int, microseconds: int) -> timedelta | Interval:
    """Return a ``timedelta`` for an interval of time only, and an :class:`Interval` for others."""
    if months or days:
        return Interval(months, days, microseconds)
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValueError(f"an interval of {microseconds} microseconds is too long") from None


def clock(microseconds: int) -> str:
    """Return hours, minutes and seconds of a non-negative number: ``100:00:00.000000``."""
    whole, part = divmod(microseconds, _SECOND_US)
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{part:06}"


def _divided(number: int, by: int) -> tuple[int, int]:
    """Return the quotient and the remainder, both with the sign of the number."""
    quotient, rest = divmod(abs(number), by)
    return (-quotient, -rest) if number < 0 else (quotient, rest)
