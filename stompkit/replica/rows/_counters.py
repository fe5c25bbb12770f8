"""Counters: the sum of all differences, each counted once wherever rows are merged.

A difference belongs to the inserts in its past, called generations here. A recreated row does not
start with the sum of the deleted one. So a difference counts as long as one of its generations is
the row's. Differences of one origin with equal generations can be added up, since they always stay
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final

import msgspec

from stompkit.replica.rules import RuleError
from stompkit.replica.vectors import Dot, Vector
from stompkit.replication.model.values import Value

__all__ = ["Share", "add", "difference", "joined", "number", "reduced", "renamed", "shown"]

#: Maximum number of digits of a counter before and after its decimal point. Every sum of such
#: numbers is exact in _EXACT, so that the order of additions does not matter.
_DIGITS: Final = 200
_EXACT: Final = Context(prec=5 * _DIGITS, traps=[Inexact, InvalidOperation])


class Share(msgspec.Struct, array_like=True, frozen=True):
    """The sum that one origin has added to rows of the same generations."""

    #: Sorted generations; empty as long as no insert of the row is known.
    generations: tuple[Dot, ...]
    origin: str
    #: Sum without trailing zeros.
    amount: Decimal
    #: Number of differences. They count even if their sum is 0: a NULL counter then becomes 0.
    count: int


def number(value: Value, column: str) -> Decimal:
    """Return the exact value of a counter; NULL is 0. Raises :class:`RuleError`."""
    places: int | str
    if value is None:
        return Decimal(0)
    if isinstance(value, int) and not isinstance(value, bool):
        exact, places = Decimal(value), 0
    elif isinstance(value, Decimal):
        exact, places = value, value.as_tuple().exponent
    else:
        raise RuleError(
            f"column {column} is a counter: it takes whole numbers and Decimal, not"
            f" {type(value).__name__}"
        )
    if not isinstance(places, int) or places < -_DIGITS or exact.adjusted() > _DIGITS:
        raise RuleError(
            f"column {column} is a counter: it takes numbers of at most {_DIGITS} digits before and"
            " behind the point"
        )
    return exact


def difference(after: Decimal, before: Decimal) -> Decimal:
    """Return the difference of two values."""
    return _EXACT.subtract(after, before)


def add(shares: Iterable[Share], share: Share) -> list[Share]:
    """Return the shares with one added; a share without differences is dropped."""
    amount, count = share.amount, share.count
    others = []
    for each in shares:
        if each.origin == share.origin and each.generations == share.generations:
            amount = _EXACT.add(each.amount, amount)
            count += each.count
        else:
            others.append(each)
    if count:
        amount = _EXACT.normalize(amount) if amount else Decimal(0)
        others.append(Share(share.generations, share.origin, amount, count))
    return others


def reduced(shares: Iterable[Share], is_left: Callable[[Dot], bool]) -> list[Share]:
    """Return the shares restricted to generations that are left after an insert."""
    kept: list[Share] = []
    for each in shares:
        left = tuple(filter(is_left, each.generations))
        if left:
            kept = add(kept, Share(left, each.origin, each.amount, each.count))
    return kept


def renamed(shares: Iterable[Share], rename: Callable[[Dot], Dot]) -> list[Share]:
    """Return the shares with renamed generations."""
    return [
        Share(tuple(sorted(map(rename, each.generations))), each.origin, each.amount, each.count)
        for each in shares
    ]


def joined(mine: list[Share], own: Vector, theirs: list[Share], others: Vector) -> list[Share]:
    """Return the merged shares of two replicas, both reduced to the same generations.

    For each origin, one of them has all the changesets of the other one.
    """
    kept = [each for each in mine if own.get(each.origin, 0) >= others.get(each.origin, 0)]
    kept += [each for each in theirs if own.get(each.origin, 0) < others.get(each.origin, 0)]
    return kept


def shown(initial: Value, shares: Iterable[Share], column: str) -> Value:
    """Return the value of the counter: its initial value plus all differences."""
    total = number(initial, column)
    for each in shares:
        total = _EXACT.add(total, each.amount)
    is_whole = total == total.to_integral_value()
    return int(total) if is_whole and not isinstance(initial, Decimal) else total
