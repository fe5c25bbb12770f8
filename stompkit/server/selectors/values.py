"""Values of the parts of a selector, and conversion of header texts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from stompkit.server.selectors.words import UNSIGNED

__all__ = [
    "LARGEST",
    "MOST_DIGITS",
    "Kind",
    "Part",
    "Read",
    "Value",
    "as_kind",
    "as_number",
    "constant",
    "header",
]

#: Maximum number of characters of a number.
MOST_DIGITS: Final = 40
#: The largest number, so that an integer can always be added to an approximate number.
LARGEST: Final = sys.float_info.max

_NUMBER: Final = re.compile(rf"[+-]?{UNSIGNED}")

#: Value of a header or expression for a message; ``None`` if missing or unknown.
Value: TypeAlias = str | float | None
#: Evaluates a part for a message with these headers.
Read: TypeAlias = Callable[[Mapping[str, str]], Value]


class Kind(Enum):
    """Types of parts, with their names in error messages."""

    HEADER = "the name of a header"
    TEXT = "a string"
    NUMBER = "a number"
    TRUTH = "a condition"


class Part(NamedTuple):
    """A part of a selector with its type, its position and its evaluation function."""

    kind: Kind
    at: int
    read: Read


def as_number(text: str) -> float | None:
    """Return the value of a decimal number, or ``None`` if it is too large or not a number."""
    return _as_number(text) if len(text) <= MOST_DIGITS else None


@lru_cache(maxsize=1024)
def _as_number(text: str) -> float | None:
    # A selector converts the same texts repeatedly.
    if not _NUMBER.fullmatch(text):
        return None
    if "." not in text and "e" not in text and "E" not in text:
        return int(text)
    number = float(text)
    return number if -LARGEST <= number <= LARGEST else None


_TRUTHS: Final = {"true": True, "false": False}
_LONGEST_TRUTH: Final = max(map(len, _TRUTHS))


def _truth(text: str) -> bool | None:
    return _TRUTHS.get(text.lower()) if len(text) <= _LONGEST_TRUTH else None


def _delivery_mode(text: str) -> str:
    return "PERSISTENT" if _truth(text) else "NON_PERSISTENT"


#: JMS names for headers of STOMP, with the default for a missing header: two of them are never
#: NULL. They apply only if no header has the JMS name itself.
_STANDS_FOR: Final[dict[str, tuple[str, str | None]]] = {
    "JMSPriority": ("priority", "4"),
    "JMSMessageID": ("message-id", None),
    "JMSTimestamp": ("timestamp", None),
    "JMSCorrelationID": ("correlation-id", None),
    "JMSType": ("type", None),
    "JMSDeliveryMode": ("persistent", "false"),
}


def header(name: str) -> Read:
    """Return the evaluation of a header, by its own name or its JMS name."""
    if name not in _STANDS_FOR:
        return lambda headers: headers.get(name)
    other, default = _STANDS_FOR[name]

    def read(headers: Mapping[str, str]) -> str | None:
        text = headers.get(name)
        if text is not None:
            return text
        text = headers.get(other, default)
        return _delivery_mode(text) if text is not None and other == "persistent" else text

    return read


_CONVERSIONS: Final[dict[Kind, Callable[[str], Value]]] = {
    Kind.NUMBER: as_number,
    Kind.TRUTH: _truth,
}


def as_kind(part: Part, kind: Kind) -> Read | None:
    """Return a part converted to a type; only headers are convertible, else return ``None``."""
    read = part.read
    if part.kind is kind:
        return read
    if part.kind is not Kind.HEADER:
        return None
    if kind not in _CONVERSIONS:
        return read
    convert = _CONVERSIONS[kind]

    def converted(headers: Mapping[str, str]) -> Value:
        text = read(headers)
        return convert(text) if isinstance(text, str) else None

    return converted


def constant(value: Value) -> Read:
    """Return the evaluation of a constant."""
    return lambda headers: value
