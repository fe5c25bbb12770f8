"""Dates and times, decoded from the bytes of the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Final

from stompkit.replication.model.values import Value

__all__ = ["Read", "Zero", "datetime_reader", "read_date", "time_reader", "timestamp_reader"]

#: Function from the text of an invalid date, such as 0000-00-00, to a value.
Zero = Callable[[str], Value]
#: Function that reads a value at an index; returns the value and the index after it.
Read = Callable[[bytes, int], tuple[Value, int]]

#: Number of bytes of a fraction of a second, by its number of digits.
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
    """Return a fraction of a second from one, two or three bytes."""
    return int.from_bytes(octets, "big") * (0, 10_000, 100, 1)[len(octets)]


def datetime_reader(places: int, *, zero: Zero) -> Read:
    """Return the reader of a DATETIME with that many fractional digits."""
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
    """Return the reader of a TIMESTAMP with that many fractional digits."""
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
    """Return the reader of a TIME with that many fractional digits.

    Hours, minutes, seconds and fraction form one number with an offset of half its range. A
    negative time is therefore the negative of the whole number, including the fraction.
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
