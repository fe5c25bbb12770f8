"""Invalid dates that MariaDB and MySQL can store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["NoDate"]

_DATE: Final = re.compile(r"\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])")
_TIME: Final = re.compile(r" (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?")
_DATE_LENGTH: Final = 10


@dataclass(frozen=True, slots=True)
class NoDate:
    """An invalid date or datetime, with zeros or a day that does not exist: 0000-00-00."""

    #: Text as MySQL writes it.
    text: str

    def __str__(self) -> str:
        """Return the text of MySQL."""
        return self.text

    @property
    def is_date(self) -> bool:
        """True if it has no time of day."""
        return len(self.text) == _DATE_LENGTH

    @classmethod
    def parse(cls, text: str, *, is_date: bool) -> NoDate:
        """Parse MySQL's text; raise ``ValueError`` for any other."""
        date, time = text[:_DATE_LENGTH], text[_DATE_LENGTH:]
        is_right = not time if is_date else _TIME.fullmatch(time) is not None
        if not is_right or _DATE.fullmatch(date) is None:
            raise ValueError("neither a date of ISO 8601 nor one that MySQL has")
        return cls(text)
