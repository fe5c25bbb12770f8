"""Dates and times, of the octets of the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from stompkit.replication.values import Value

__all__ = ["Read", "Zero", "datetime_reader", "read_date", "time_reader", "timestamp_reader"]

#: Makes a value of the text of a date that is none, such as 0000-00-00.
Zero = Callable[[str], Value]
#: Reads a value at an index of octets; gives the value and the index behind it.
Read = Callable[[bytes, int], tuple[Value, int]]

#: Octets that fractions of a second take, by the places after the point.
_FRACTION: Final = (0, 1, 1, 2, 2, 3, 3)


def read_date(data: bytes, at: int, *, zero: Zero) -> tuple[Value, int]:
    """Read a DATE."""
    packed = int.from_bytes(data[at : at + 3], "little")
    year, month, day = packed >> 9, packed >> 5 & 15, packed & 31
    try:
        return date(year, month, day), at + 3
    except ValueError:
        return zero(f"{year:04}-{month:02}-{day:02}"), at + 3


def _microseconds(octets: bytes) -> int:
    """A fraction of a second in one, two or three octets."""
    return int.from_bytes(octets, "big") * (0, 10_000, 100, 1)[len(octets)]


def datetime_reader(places: int, *, zero: Zero) -> Read:
    """What reads a DATETIME with so many places after the second."""
    size = 5 + _FRACTION[places]

    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        year, month = divmod(packed >> 22, 13)
        day, hour = packed >> 17 & 31, packed >> 12 & 31
        minute, second = packed >> 6 & 63, packed & 63
        part = _microseconds(data[at + 5 : end]) if size > 5 else 0
        try:
            return datetime(year, month, day, hour, minute, second, part), end
        except ValueError:
            text = f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
            return zero(f"{text}{_fraction_text(part, places)}"), end

    return read


def _fraction_text(microseconds: int, places: int) -> str:
    return f".{microseconds:06}"[: places + 1] if places else ""


def timestamp_reader(places: int, *, zero: Zero) -> Read:
    """What reads a TIMESTAMP with so many places after the second."""
    size = 4 + _FRACTION[places]
    none = zero(f"0000-00-00 00:00:00{_fraction_text(0, places)}")

    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        seconds = int.from_bytes(data[at : at + 4], "big")
        part = _microseconds(data[at + 4 : end]) if size > 4 else 0
        if not seconds and not part:
            return none, end
        moment = datetime.fromtimestamp(seconds, UTC)
        return (moment.replace(microsecond=part) if part else moment), end

    return read


def time_reader(places: int) -> Read:
    """What reads a TIME with so many places after the second.

    Hours, minutes, seconds and fraction are one number, from which a half is taken away: so a
    negative time is
    the negative of all of them, the fraction included.
    """
    width = _FRACTION[places]
    size = 3 + width
    half = 1 << size * 8 - 1
    unit = (0, 10_000, 100, 1)[width]

    def read(data: bytes, at: int) -> tuple[timedelta, int]:
        end = at + size
        packed = int.from_bytes(data[at:end], "big") - half
        whole, part = divmod(abs(packed), 1 << width * 8)
        found = timedelta(
            hours=whole >> 12 & 1023,
            minutes=whole >> 6 & 63,
            seconds=whole & 63,
            microseconds=part * unit,
        )
        return (-found if packed < 0 else found), end

    return read
