"""Sets, and lists that are used as sets: members are put in and taken out one by one.

A member is there as long as one of those who have put it in was not followed by somebody who has
taken it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from stompkit.replica.rules import RuleProblem, Stamp
from stompkit.replication.values import Value

__all__ = ["Edit", "Part", "edit", "shown"]

#: What a writer has left there: somebody else's since, NULL, a set, or a list.
_NOTHING: Final = 0
_NULL: Final = 1
_SET: Final = 2
_LIST: Final = 3

#: What members of a set can be, and those of a list.
_TEXT: Final = (str,)
_SCALARS: Final = (str, int, float, type(None))

_ENCODER: Final = msgspec.json.Encoder()


class Part(msgspec.Struct, array_like=True):
    """What survives in a column of what one changeset has put there."""

    kind: int
    #: As JSON: 1, 1.0 and true are three members.
    members: set[str]

    def supersede(self, edit: Edit) -> bool:
        """Take out what a later changeset has written; gives whether anything is left."""
        self.kind = _NOTHING
        self.members -= edit.removed
        return bool(self.members)

    def intersect(self, other: Part) -> bool:
        """Leave what survives in both; gives whether that is anything."""
        if other.kind == _NOTHING:
            self.kind = _NOTHING
        self.members &= other.members
        return bool(self.members or self.kind)

    def copy(self) -> Part:
        """The same, to be changed by itself."""
        return Part(self.kind, set(self.members))


class Edit(NamedTuple):
    """What a change does to a set."""

    kind: int
    added: set[str]
    removed: set[str]


def edit(after: Value, before: Value, column: str) -> Edit:
    """The difference between two sets; raises :class:`RuleProblem`."""
    kind, now = _read(after, column)
    _, then = _read(before, column)
    return Edit(kind, now - then, then - now)


def _read(value: Value, column: str) -> tuple[int, set[str]]:
    if value is None:
        return _NULL, set()
    allowed: tuple[type, ...]
    if isinstance(value, (set, frozenset)):
        allowed, kind = _TEXT, _SET
    elif isinstance(value, (list, tuple)):
        allowed, kind = _SCALARS, _LIST
    else:
        raise RuleProblem(
            f"column {column} has members: it takes sets and lists, not {type(value).__name__}"
        )
    for each in value:
        if not isinstance(each, allowed) or (isinstance(each, float) and not isfinite(each)):
            raise RuleProblem(f"column {column} has members, and {each!r} can't be one")
    return kind, {_ENCODER.encode(each).decode() for each in value}


def shown(parts: Iterable[tuple[Stamp, Part]]) -> Value:
    """The value: all members, in what the last writer has put them."""
    found = sorted(parts, key=lambda part: part[0])
    kinds = [part.kind for _, part in found if part.kind != _NOTHING]
    texts = {text for _, part in found for text in part.members}
    members = [msgspec.json.decode(text) for text in texts]
    if not members and kinds[-1:] == [_NULL]:
        return None
    kind = next((kind for kind in reversed(kinds) if kind != _NULL), _LIST)
    if kind == _SET and all(isinstance(member, str) for member in members):
        return frozenset(members)
    return sorted(members, key=_rank)


def _rank(member: Any) -> tuple[int, Any, str]:
    """The order of members of several types, of which each has an order of its own."""
    if member is None:
        return 0, 0, ""
    if isinstance(member, str):
        return 3, member, ""
    # The last is for 1 and 1.0.
    return (1 if isinstance(member, bool) else 2), member, repr(member)
