"""Operators of selectors, with three-valued logic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stompkit.server.selectors.values import (
    LARGEST,
    Kind,
    Part,
    Read,
    Value,
    as_kind,
    as_number,
    constant,
)

__all__ = [
    "COMPARISONS",
    "absence",
    "calculation",
    "comparison",
    "junction",
    "likeness",
    "membership",
    "negation",
]

_EQUALITIES: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
}
#: Comparison functions for values of one type, by operator.
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    **_EQUALITIES,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparison(left: Part, mark: str, right: Part) -> Read:
    """Return the evaluation of a comparison; unknown for operands of different types."""
    kinds = (left.kind, right.kind)
    kind = Kind.TEXT
    if mark not in _EQUALITIES or Kind.NUMBER in kinds:
        kind = Kind.NUMBER
    elif Kind.TRUTH in kinds:
        kind = Kind.TRUTH
    one, other = as_kind(left, kind), as_kind(right, kind)
    if one is None or other is None:
        return constant(None)
    compare = COMPARISONS[mark]

    def compared(headers: Mapping[str, str]) -> bool | None:
        a = one(headers)
        if a is None:
            return None
        b = other(headers)
        return None if b is None else compare(a, b)

    return compared


def membership(read: Read, texts: frozenset[str], numbers: frozenset[float]) -> Read:
    """Return the evaluation of IN for a header and a list of strings, numbers or both."""

    def among(headers: Mapping[str, str]) -> bool | None:
        text = read(headers)
        if not isinstance(text, str):
            return None
        if text in texts:
            return True
        if not numbers:
            return False
        number = as_number(text)
        return None if number is None else number in numbers

    return among


def likeness(read: Read, pattern: re.Pattern[str]) -> Read:
    """Return the evaluation of LIKE for a header and a pattern."""

    def like(headers: Mapping[str, str]) -> bool | None:
        text = read(headers)
        return pattern.fullmatch(text) is not None if isinstance(text, str) else None

    return like


def absence(read: Read) -> Read:
    """Return the evaluation of IS NULL for a header, which is never unknown."""
    return lambda headers: read(headers) is None


def negation(read: Read) -> Read:
    """Return the evaluation of NOT for a condition."""

    def opposite(headers: Mapping[str, str]) -> bool | None:
        truth = read(headers)
        return None if truth is None else not truth

    return opposite


def junction(reads: Sequence[Read], *, decisive: bool) -> Read:
    """Return the evaluation of AND (false is decisive) or OR (true is decisive)."""

    def joined(headers: Mapping[str, str]) -> bool | None:
        result: bool | None = not decisive
        for read in reads:
            truth = read(headers)
            if truth == decisive:
                return decisive
            if truth is None:
                result = None
        return result

    return joined


def _quotient(a: float, b: float) -> float:
    if b == 0:
        return float("nan")  # which no range has in it
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
}


def calculation(first: Read, steps: Sequence[tuple[str, Read]]) -> Read:
    """Return the evaluation of arithmetic operators of one precedence, from left to right."""
    operations = [(_ARITHMETIC[mark], read) for mark, read in steps]

    def calculated(headers: Mapping[str, str]) -> Value:
        result = first(headers)
        for operate, read in operations:
            operand = read(headers)
            if result is None or operand is None:
                return None
            result = operate(result, operand)
            if not -LARGEST <= result <= LARGEST:
                return None
        return result

    return calculated
