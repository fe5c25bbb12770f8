"""Conversion of values to the families of an SQL database's columns, without loss."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from stompkit.replication.model.intervals import clock
from stompkit.replication.model.values import Interval, Json, Value
from stompkit.replication.sql.exactness import is_multiple
from stompkit.replication.sql.forms import (
    INT64,
    MICROSECOND,
    UnstorableValueError,
    check_digits,
    json_text,
    misfit,
    mysql_document,
    mysql_time,
    number_in,
    parsed,
    shown,
    sqlite_number,
    text_of,
    utf_8,
    whole_number,
)
from stompkit.replication.sql.moments import (
    END_OF_DAY,
    mysql_moment,
    postgresql_date,
    postgresql_moment,
    time_of_text,
)

__all__ = ["ColumnConversion"]

_INFINITE: Final = ("infinity", "-infinity")
#: Epoch of SQLAlchemy's intervals in columns of times.
_EPOCH: Final = datetime(1970, 1, 1)
#: Microseconds as text.
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}")
#: First characters of numbers in JSON.
_NUMBER_BEGINS: Final = "-0123456789"


@dataclass(frozen=True, slots=True)
class ColumnConversion:
    """Conversions of values for a column, one method for each family of columns."""

    #: ``sqlite``, ``postgresql`` or ``mysql``.
    backend: str
    #: True if the database may round to the column's number of digits.
    lossy: bool
    #: Maximum number of characters, if there is one.
    length: int | None = None
    #: Maximum number of fractional digits of a number or of seconds, if there is one.
    digits: int | None = None
    has_zone: bool = False
    #: Last field of an interval of PostgreSQL, such as ``DAY`` or ``MINUTE``, if it is limited.
    fields: str | None = None

    def to_bool(self, value: Value) -> object:
        """Return a boolean; also accepts 0 and 1."""
        if value is True or value is False:
            return value if self.backend == "postgresql" else int(value)
        if isinstance(value, (int, float, Decimal)) and value in (0, 1):
            return bool(value) if self.backend == "postgresql" else int(value)
        raise misfit(value, "a truth value")

    def to_int(self, value: Value) -> object:
        """Return an integer; for an interval, its microseconds."""
        if type(value) is int and value in INT64:
            return value
        if isinstance(value, (timedelta, Interval)):
            return self._time_us(value)
        if isinstance(value, str):
            value = number_in(value)
        if isinstance(value, (float, Decimal)):
            value = whole_number(value)
        if not isinstance(value, int):
            raise misfit(value, "a whole number")
        if self.backend == "sqlite" and value not in INT64:
            raise UnstorableValueError(f"{shown(value)} has more than 64 bits")
        return int(value)

    def to_decimal(self, value: Value) -> object:
        """Return the exact decimal number."""
        if isinstance(value, str):
            value = number_in(value)
        if isinstance(value, (bool, float)):
            value = Decimal(repr(value)) if isinstance(value, float) else int(value)
        if not isinstance(value, (int, Decimal)):
            raise misfit(value, "a number")
        number = Decimal(value)
        if not number.is_finite():
            if self.backend != "postgresql":
                raise UnstorableValueError(f"{number} is not a number that it has")
            return number
        if self.backend == "sqlite":
            return sqlite_number(number)
        if self.digits is not None and not self.lossy:
            check_digits(number, self.digits)
        return value

    def to_float(self, value: Value) -> object:
        """Return the equal floating-point number."""
        if isinstance(value, str):
            value = number_in(value)
        if not isinstance(value, (int, float, Decimal)):
            raise misfit(value, "a number")
        try:
            number = float(value)
        except OverflowError:
            raise UnstorableValueError(f"{shown(value)} is too large") from None
        if not math.isfinite(number):
            if isinstance(value, Decimal) and value.is_finite():
                raise UnstorableValueError(f"{shown(value)} is too large")
            # SQLite stores NaN as NULL, and MySQL has no non-finite numbers.
            if self.backend == "mysql" or (self.backend == "sqlite" and math.isnan(number)):
                raise UnstorableValueError(f"{number} is not a number that it has")
        elif not isinstance(value, float) and Decimal(repr(number)) != value and not self.lossy:
            raise UnstorableValueError(f"{shown(value)} has more digits than it holds")
        return number

    def to_text(self, value: Value) -> object:
        """Return text, also of any value with a single text form."""
        if type(value) is not str:
            value = text_of(value, self.length)
        if self.backend == "postgresql" and "\0" in value:
            raise UnstorableValueError("text with a NUL character")
        if self.length is not None and len(value) > self.length and self.backend != "sqlite":
            raise UnstorableValueError(
                f"text of {len(value)} characters, and it holds {self.length}"
            )
        return value

    def to_bytes(self, value: Value) -> object:
        """Return bytes; for text, its UTF-8."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, UUID):
            return value.bytes
        if isinstance(value, Json):
            return utf_8(value.text)
        if isinstance(value, str):
            return utf_8(value)
        raise misfit(value, "octets")

    def to_date(self, value: Value) -> object:
        """Return a date; also accepts a time of midnight."""
        if isinstance(value, str):
            kept = self._kept_date(value)
            if kept is not None:
                return kept
            value = parsed(datetime, value, "a date")
        if isinstance(value, datetime):
            if value.time() != time() or value.tzinfo is not None:
                raise UnstorableValueError(f"{value} is more than a date")
            value = value.date()
        if not isinstance(value, date):
            raise misfit(value, "a date")
        return value.isoformat() if self.backend == "sqlite" else value

    def _kept_date(self, value: str) -> str | None:
        """Return a date that Python cannot represent, in the database's form."""
        with suppress(ValueError):
            datetime.fromisoformat(value)
            return None
        if self.backend == "postgresql":
            return postgresql_date(value)
        # A time would be cut off.
        return mysql_moment(value, None) if self.backend == "mysql" and " " not in value else None

    def _kept_moment(self, value: str) -> str | None:
        """Return a datetime that Python cannot represent, in the database's form."""
        with suppress(ValueError):
            datetime.fromisoformat(value)
            return None
        digits = None if self.lossy else self.digits
        if self.backend == "postgresql":
            return postgresql_moment(value, has_zone=self.has_zone, digits=digits)
        return mysql_moment(value, digits) if self.backend == "mysql" else None

    def to_time(self, value: Value) -> object:
        """Return a time of day; MySQL's TIME accepts any interval."""
        if isinstance(value, str):
            # Some versions of Python read it as midnight.
            zone = time_of_text(value)
            if zone is not None:
                return self._end_of_day(value, zone)
            value = parsed(time, value, "a time")
        if isinstance(value, Interval):
            value = self._length(value)
        if isinstance(value, timedelta):
            if self.backend == "mysql":
                self._whole(value, value.microseconds)
                return mysql_time(value)
            if value == END_OF_DAY:
                return self._end_of_day("24:00:00", "")
            if not timedelta() <= value < END_OF_DAY:
                raise UnstorableValueError(f"{value} is no time of a day")
            value = (datetime.min + value).time()
        if not isinstance(value, time):
            raise misfit(value, "a time")
        if value.tzinfo is not None and not self.has_zone:
            # The date does not matter, because received zones are fixed offsets.
            value = datetime.combine(date(2000, 1, 1), value).astimezone(UTC).time()
        elif value.tzinfo is None and self.has_zone:
            value = value.replace(tzinfo=UTC)
        self._whole(value, value.microsecond)
        return value.isoformat("microseconds") if self.backend == "sqlite" else value

    def _end_of_day(self, value: str, zone: str) -> object:
        """Return the time 24:00, which differs from 0:00."""
        is_zoned = bool(zone.strip("+-:0"))
        if self.backend == "postgresql" and (self.has_zone or not is_zoned):
            return f"24:00:00{zone or '+00'}" if self.has_zone else "24:00:00"
        if self.backend == "mysql" and not is_zoned:
            return mysql_time(END_OF_DAY)
        raise misfit(value, "a time of a day")

    def to_datetime(self, value: Value) -> object:
        """Return a datetime: UTC if the column has no zone, and read as UTC if the value has none.

        An interval is counted from 1970, as in SQLAlchemy for databases without intervals.
        """
        if isinstance(value, str):
            kept = self._kept_moment(value)
            if kept is not None:
                return kept
            value = parsed(datetime, value, "a time")
        if isinstance(value, (timedelta, Interval)):
            try:
                value = _EPOCH + self._length(value)
            except OverflowError:
                raise UnstorableValueError(f"the interval {value} is too long") from None
        if not isinstance(value, datetime):
            if not isinstance(value, date):
                raise misfit(value, "a time")
            value = datetime.combine(value, time())
        try:
            if self.has_zone:
                value = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            elif value.tzinfo is not None:
                value = value.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:
            raise UnstorableValueError(f"{value} is out of range in UTC") from None
        self._whole(value, value.microsecond)
        return value.isoformat(" ", "microseconds") if self.backend == "sqlite" else value

    def _whole(self, value: Value, microseconds: int) -> None:
        """Raise UnstorableValueError if a part of a second would be lost."""
        if self.digits is not None and not self.lossy and microseconds % 10 ** (6 - self.digits):
            raise UnstorableValueError(f"{value} has more than {self.digits} digits of a second")

    def _time_us(self, value: timedelta | Interval) -> int:
        """Return an interval of time in microseconds; raise UnstorableValueError for others."""
        if isinstance(value, timedelta):
            return value // MICROSECOND
        found = value.time_us
        if found is None:
            raise UnstorableValueError(f"{value} has months, which have no fixed length")
        if value.days and not self.lossy:
            raise UnstorableValueError(f"{value} has days, which are not 24 hours")
        return found

    def _length(self, value: timedelta | Interval) -> timedelta:
        """Return an interval of time only as a timedelta."""
        try:
            return timedelta(microseconds=self._time_us(value))
        except OverflowError:
            raise UnstorableValueError(f"the interval {value} is too long") from None

    def to_interval(self, value: Value) -> object:
        """Return an interval; also accepts text, a number of microseconds, or a time of day."""
        if isinstance(value, str):
            if value in _INFINITE:
                return value
            with suppress(ValueError):
                value = int(value) if _NUMBER.fullmatch(value) else Interval.parse(value)
        if isinstance(value, time) and value.tzinfo is None:
            value = datetime.combine(date.min, value) - datetime.min
        if isinstance(value, int) and not isinstance(value, bool):
            try:
                value = timedelta(microseconds=value)
            except OverflowError:
                raise UnstorableValueError(f"{value} microseconds are too many") from None
        if not isinstance(value, (timedelta, Interval)):
            raise misfit(value, "an interval")
        if not self.lossy:
            self._check_interval(value)
        if isinstance(value, Interval):
            return value.in_words
        # The driver would write days, which differ from 24 hours.
        sign = "-" if value < timedelta() else ""
        return f"{sign}{clock(abs(value) // MICROSECOND)}"

    def _check_interval(self, value: timedelta | Interval) -> None:
        """Raise UnstorableValueError for an interval that PostgreSQL would cut or round."""
        if isinstance(value, timedelta):
            value = Interval(microseconds=value // MICROSECOND)
        self._whole(value, value.microseconds)
        if self.fields is not None and not is_multiple(value, self.fields):
            raise UnstorableValueError(f"{value} has smaller units than {self.fields.upper()}")

    def to_uuid(self, value: Value) -> object:
        """Return a UUID; also accepts its text or its 16 bytes."""
        try:
            if isinstance(value, str):
                value = UUID(value)
            elif isinstance(value, bytes):
                value = UUID(bytes=value)
        except ValueError:
            pass
        if not isinstance(value, UUID):
            raise misfit(value, "a UUID")
        return value if self.backend == "postgresql" else str(value)

    def to_json(self, value: Value) -> object:
        """Return a document. Text in the form of an object or a list is already one.

        Older versions wrote a :class:`Json` in this form, and text columns still do.
        """
        document = self._document(value)
        # MariaDB's JSON is text, and its columns have another family.
        return document if self.backend != "mysql" or self.lossy else mysql_document(document)

    def _document(self, value: Value) -> str:
        if isinstance(value, Json):
            if self.backend == "sqlite" and value.text[0] in _NUMBER_BEGINS:
                # It converts text that looks like a number.
                sqlite_number(Decimal(value.text))
            return value.text
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                json.loads(value)
            except ValueError:
                return json_text(value)
            return value
        if value is None or isinstance(value, (str, bool, int, float, Mapping, list, tuple)):
            return json_text(value)
        return json_text(text_of(value, self.length))

    def to_array(self, value: Value) -> object:
        """Return a list, which the driver converts to an array."""
        if not isinstance(value, (list, str)):
            raise misfit(value, "a list")
        return value

    def to_other(self, value: Value) -> object:
        """Return a value that the driver accepts for a type that only the database knows."""
        if isinstance(value, (int, float, bytes)):
            return self.to_float(value) if isinstance(value, float) else value
        if isinstance(value, (timedelta, Interval)):
            # A number would be read as seconds or days.
            raise misfit(value, "a value of its type")
        return self.to_text(value)
