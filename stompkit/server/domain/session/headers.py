"""Values of headers that say yes or no, or how many."""

from __future__ import annotations

from collections.abc import Mapping

from stompkit.frames import parse_number
from stompkit.server.domain.errors import Refused

__all__ = ["flag", "number"]


def flag(headers: Mapping[str, str], name: str) -> bool:
    """Whether a header is there, and true.

    Case does not matter, since some languages write ``True``. Raises :class:`Refused` for any
    other word: a client that asks for something must not be taken for one that does not.
    """
    value = headers.get(name)
    if value is None:
        return False
    word = value.lower()
    if word == "true":
        return True
    if word == "false":
        return False
    raise Refused(f"{name} {value[:40]!a} is neither true nor false", "bad-header")


def number(headers: Mapping[str, str], name: str, what: str, most_digits: int) -> int:
    """The number that a header is, of ``what``; raises :class:`Refused` for anything else."""
    value = headers[name]
    found = parse_number(value, most_digits)
    if found is None:
        raise Refused(f"{name} {value[:40]!a} is not a number of {what}", "bad-header")
    return found
