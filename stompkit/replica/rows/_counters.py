"""Counters: the sum of all differences, of which each counts once wherever rows are merged.

A difference belongs to the inserts in its past, which are called generations here: a row that is
deleted and made anew does not begin with what was added to the one before. So it counts as long as
one of them is the row's, and those of one origin that belong to the same ones can be one number,
since they will always go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final

import msgspec

from stompkit.replica.rules import RuleProblem
from stompkit.replica.vectors import Dot, Vector
from stompkit.replication.values import Value

__all__ = ["Share", "add", "difference", "joined", "number", "reduced", "renamed", "shown"]

#: How many digits a counter may have before its point, and behind it. Whatever can be added up of
#: such numbers is exact in _EXACT, so that it does not matter in which order that is done.
_DIGITS: Final = 200
_EXACT: Final = Context(prec=5 * _DIGITS, traps=[Inexact, InvalidOperation])


class Share(msgspec.Struct, array_like=True, frozen=True):
    """What one origin has added to rows of the same generations."""

    #: In order; none as long as no insert of the row is known.
    generations: tuple[Dot, ...]
    origin: str
    #: Without zeros at its end.
    amount: Decimal
    #: How many differences these are. They count even if nothing is left of their sum: a counter
    #: that was NULL is 0 then.
    count: int


def number(value: Value, column: str) -> Decimal:
    """What a counter is set to, exactly; NULL is 0. Raises :class:`RuleProblem`."""
    places: int | str
    if value is None:
        return Decimal(0)
    if isinstance(value, int) and not isinstance(value, bool):
        exact, places = Decimal(value), 0
    elif isinstance(value, Decimal):
        exact, places = value, value.as_tuple().exponent
    else:
        raise RuleProblem(
            f"column {column} is a counter: it takes whole numbers and Decimal, not"
            f" {type(value).__name__}"
        )
    if not isinstance(places, int) or places < -_DIGITS or exact.adjusted() > _DIGITS:
        raise RuleProblem(
            f"column {column} is a counter: it takes numbers of at most {_DIGITS} digits before and"
            " behind the point"
        )
    return exact


def difference(after: Decimal, before: Decimal) -> Decimal:
    """What was added."""
    return _EXACT.subtract(after, before)


def add(shares: Iterable[Share], share: Share) -> list[Share]:
    """Shares with what one of them has more; one without differences is none."""
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
    """Those of generations that are left, and of no others, when a row has had an insert."""
    kept: list[Share] = []
    for each in shares:
        left = tuple(filter(is_left, each.generations))
        if left:
            kept = add(kept, Share(left, each.origin, each.amount, each.count))
    return kept


def renamed(shares: Iterable[Share], rename: Callable[[Dot], Dot]) -> list[Share]:
    """The same of generations with other names."""
    return [
        Share(tuple(sorted(map(rename, each.generations))), each.origin, each.amount, each.count)
        for each in shares
    ]


def joined(mine: list[Share], own: Vector, theirs: list[Share], others: Vector) -> list[Share]:
    """Shares of two replicas, both reduced to the same generations.

    Of each origin one of them has all the changesets that the other one has.
    """
    kept = [each for each in mine if own.get(each.origin, 0) >= others.get(each.origin, 0)]
    kept += [each for each in theirs if own.get(each.origin, 0) < others.get(each.origin, 0)]
    return kept


def shown(initial: Value, shares: Iterable[Share], column: str) -> Value:
    """The value: what the row was made with, and all that was added since."""
    total = number(initial, column)
    for each in shares:
        total = _EXACT.add(total, each.amount)
    is_whole = total == total.to_integral_value()
    return int(total) if is_whole and not isinstance(initial, Decimal) else total
