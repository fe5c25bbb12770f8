"""Sets, and lists used as sets, whose members are added and removed individually.

A member is in the set as long as one of its additions was not followed by a removal that knew of
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from stompkit.replica.rules import RuleError, Stamp
from stompkit.replication.model.values import Value

__all__ = ["Edit", "Part", "edit", "shown"]

#: Kinds of a part: superseded, NULL, a set, or a list.
_NOTHING: Final = 0
_NULL: Final = 1
_SET: Final = 2
_LIST: Final = 3

#: Permitted member types of a set, and of a list.
_TEXT: Final = (str,)
_SCALARS: Final = (str, int, float, type(None))

_ENCODER: Final = msgspec.json.Encoder()


class Part(msgspec.Struct, array_like=True):
    """The surviving part of one changeset in a column."""

    kind: int
    #: Members as JSON: 1, 1.0 and true are three members.
    members: set[str]

    def supersede(self, edit: Edit) -> bool:
        """Remove the parts that a later changeset has overwritten; returns True if any is left."""
        self.kind = _NOTHING
        self.members -= edit.removed
        return bool(self.members)

    def intersect(self, other: Part) -> bool:
        """Keep the members in both parts; returns True if anything is left."""
        if other.kind == _NOTHING:
            self.kind = _NOTHING
        self.members &= other.members
        return bool(self.members or self.kind)

    def copy(self) -> Part:
        """Return an independent copy."""
        return Part(self.kind, set(self.members))


class Edit(NamedTuple):
    """The effect of a change on a set."""

    kind: int
    added: set[str]
    removed: set[str]


def edit(after: Value, before: Value, column: str) -> Edit:
    """Return the difference between two sets; raises :class:`RuleError`."""
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
        raise RuleError(
            f"column {column} has members: it takes sets and lists, not {type(value).__name__}"
        )
    for each in value:
        if not isinstance(each, allowed) or (isinstance(each, float) and not isfinite(each)):
            raise RuleError(f"column {column} has members, and {each!r} cannot be one")
    return kind, {_ENCODER.encode(each).decode() for each in value}


def shown(parts: Iterable[tuple[Stamp, Part]]) -> Value:
    """Return the value: all members, in the container type of the last writer."""
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
    """Return the sort key of a member; types sort separately."""
    if member is None:
        return 0, 0, ""
    if isinstance(member, str):
        return 3, member, ""
    # The last item distinguishes 1 and 1.0.
    return (1 if isinstance(member, bool) else 2), member, repr(member)
