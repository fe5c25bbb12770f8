"""What the parts of a selector are for a message, and how the text of a header is read."""

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

#: Characters of a number.
MOST_DIGITS: Final = 40
#: No number is larger, so an integer can always be added to an approximate number.
LARGEST: Final = sys.float_info.max

_NUMBER: Final = re.compile(rf"[+-]?{UNSIGNED}")

#: What a header or an expression is for a message; ``None`` for a missing one, or unknown.
Value: TypeAlias = str | float | None
#: Finds out what a part is for a message with some headers.
Read: TypeAlias = Callable[[Mapping[str, str]], Value]


class Kind(Enum):
    """What a part is, in the words of an error."""

    HEADER = "the name of a header"
    TEXT = "a string"
    NUMBER = "a number"
    TRUTH = "a condition"


class Part(NamedTuple):
    """A part of a selector, the place where it begins, and what it is for a message."""

    kind: Kind
    at: int
    read: Read


def as_number(text: str) -> float | None:
    """What a decimal number is, or ``None`` for one too large and for any other text."""
    return _as_number(text) if len(text) <= MOST_DIGITS else None


@lru_cache(maxsize=1024)
def _as_number(text: str) -> float | None:
    # A selector asks again and again for the same.
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


#: The names that JMS has for headers of STOMP, and what a message without the header has: two of
#: them are never NULL. They count only where no header has JMS's name itself.
_STANDS_FOR: Final[dict[str, tuple[str, str | None]]] = {
    "JMSPriority": ("priority", "4"),
    "JMSMessageID": ("message-id", None),
    "JMSTimestamp": ("timestamp", None),
    "JMSCorrelationID": ("correlation-id", None),
    "JMSType": ("type", None),
    "JMSDeliveryMode": ("persistent", "false"),
}


def header(name: str) -> Read:
    """The value of a header, also by a name that JMS has for it."""
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
    """A part as one of another kind, which headers alone can be; ``None`` for what can't."""
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
    """The same for every message."""
    return lambda headers: value
