"""Boolean and numeric header values."""

from __future__ import annotations

from collections.abc import Mapping

from stompkit.frames import parse_number
from stompkit.server.domain.errors import RefusedError

__all__ = ["as_number", "flag", "number"]


def flag(headers: Mapping[str, str], name: str) -> bool:
    """Return True if a header is present and true.

    Case does not matter, since some languages write ``True``. Raises :class:`RefusedError` for any
    other word, so that a misspelt request is not ignored.
    """
    value = headers.get(name)
    if value is None:
        return False
    word = value.lower()
    if word == "true":
        return True
    if word == "false":
        return False
    raise RefusedError(f"{name} {value[:40]!a} is neither true nor false", "bad-header")


def number(headers: Mapping[str, str], name: str, what: str, most_digits: int) -> int:
    """Return a header as a number; ``what`` names it in the RefusedError for other values."""
    return as_number(name, headers[name], what, most_digits)


def as_number(name: str, value: str, what: str, most_digits: int) -> int:
    """Return the value of a header as a number, as :func:`number` does."""
    found = parse_number(value, most_digits)
    if found is None:
        raise RefusedError(f"{name} {value[:40]!a} is not a number of {what}", "bad-header")
    return found
