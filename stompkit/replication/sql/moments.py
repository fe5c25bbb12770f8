"""Dates and times without a Python type: text that a database both writes and reads.

PostgreSQL has ``infinity``, years before 1 and after 9999, and the time 24:00; MariaDB and MySQL
have dates with zeros and invalid days. Words that a database would interpret, such as ``now``, are
not accepted.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from stompkit.replication.sql.forms import UnstorableValueError, shown

__all__ = ["END_OF_DAY", "mysql_moment", "postgresql_date", "postgresql_moment", "time_of_text"]

END_OF_DAY: Final = timedelta(hours=24)

_INFINITE: Final = ("infinity", "-infinity")
_DATE: Final = re.compile(r"\d{4,7}-\d\d-\d\d(?: BC)?")
_MOMENT: Final = re.compile(
    r"(?P<date>\d{4,7}-\d\d-\d\d)"
    r"(?:[ T](?P<time>\d\d:\d\d:\d\d(?:\.\d{1,6})?)(?P<zone>[+-]\d\d(?::\d\d){0,2})?)?"
    r"(?P<era> BC)?"
)
_END: Final = re.compile(r"24:00(?::00(?:\.0{1,6})?)?(?P<zone>[+-]\d\d(?::\d\d){0,2})?")
_MYSQL: Final = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.(?P<part>\d{1,6}))?)?")


def postgresql_date(text: str) -> str | None:
    """Return text that PostgreSQL reads as that date; ``None`` for any other text."""
    return text if text in _INFINITE or _DATE.fullmatch(text) else None


def postgresql_moment(text: str, *, has_zone: bool, digits: int | None) -> str | None:
    """Return text that PostgreSQL reads as that time, in UTC if the text has no zone.

    ``None`` for other text. Raises :class:`UnstorableValueError` if the column has no zone but the
    text does, and for more ``digits`` of a second than the column has.
    """
    if text in _INFINITE:
        return text
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    zone, time = found["zone"] or "", found["time"] or "00:00:00"
    if zone and not has_zone and zone.strip("+-:0"):
        raise UnstorableValueError(f"{shown(text)} has a zone, and cannot be counted in UTC")
    part = time.partition(".")[2]
    if digits is not None and part[digits:].strip("0"):
        raise UnstorableValueError(f"{shown(text)} has more than {digits} digits of a second")
    # The server would ignore a zone for a column without one, and add its own for one with a zone.
    zone = (zone or "+00") if has_zone else ""
    return f"{found['date']} {time}{zone}{found['era'] or ''}"


def mysql_moment(text: str, digits: int | None) -> str | None:
    """Return text that MariaDB and MySQL read as that date or time; ``None`` for any other text.

    Raises :class:`UnstorableValueError` for more ``digits`` of a second than the column has.
    """
    found = _MYSQL.fullmatch(text)
    if found is None:
        return None
    if digits is not None and (found["part"] or "")[digits:].strip("0"):
        raise UnstorableValueError(f"{shown(text)} has more than {digits} digits of a second")
    return text


def time_of_text(text: str) -> str | None:
    """Return the zone of a text for 24:00, empty for none; ``None`` for any other text."""
    found = _END.fullmatch(text)
    return None if found is None else found["zone"] or ""
