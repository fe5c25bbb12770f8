"""What a table looked like when its rows were told, and whether they have to be told again.

The log has rows, but no statements. When a table is replaced, or its rows get values that no change
of a row tells (a default of a new column, another type, a column that is computed no longer), what
was told before is wrong from then on: the whole table has to be copied again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

__all__ = ["Shape", "differences_of", "stored", "untold_of", "why_copied"]


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table as it was when its rows were told; part of the checkpoint."""

    oid: int
    #: Of each column its name, the OID of its type, the modifier of that, and its number, which no
    #: other column of the table ever has; 0 where it is not known.
    columns: tuple[tuple[str, int, int, int], ...]
    #: Columns that were dropped; consumers may have them still.
    gone: tuple[str, ...] = ()
    #: The numbers of columns that were computed from others, and so not told.
    generated: tuple[int, ...] = ()

    def after(self, before: Shape | None) -> Shape:
        """Return this shape with what ``before`` knows of columns that are gone, or computed."""
        if before is None or before.oid != self.oid:
            return self
        names = {column[0] for column in self.columns}
        was = [*before.gone, *(column[0] for column in before.columns)]
        gone = tuple(dict.fromkeys(name for name in was if name not in names))
        # The catalogue can be ahead of the rows: what is computed no longer was, until it is told.
        numbers = {column[3] for column in self.columns}
        computed = dict.fromkeys((*before.generated, *self.generated))
        generated = tuple(number for number in computed if number not in numbers)
        return msgspec.structs.replace(self, gone=gone, generated=generated)


def stored(shapes: dict[str, Any]) -> dict[str, Shape]:
    """Read the shapes of a checkpoint, by full names."""
    return {name: msgspec.convert(each, Shape) for name, each in shapes.items()}


def why_copied(before: Shape, now: Shape, plain: Collection[str]) -> str:
    """Say why the rows of a table have to be told again; empty where they need not.

    ``plain`` names the columns that are NULL in all rows when they are added: those that can be
    NULL, and have no default.
    """
    if before.oid != now.oid:
        return "another table has its name now"
    known = {name: rest for name, *rest in before.columns}
    names = {number: name for name, _, _, number in before.columns if number}
    for name, type_oid, modifier, number in now.columns:
        old = known.get(name)
        if old is None:
            if number in names:
                return f"its column {names[number]} is called {name} now"
            if name in before.gone:
                return f"its column {name} was dropped and added again"
            if number in before.generated:
                return f"its column {name} is computed no longer, and was not replicated"
            if name not in plain:
                return f"its new column {name} has values in rows that were there before"
        elif [type_oid, modifier] != old[:2]:
            return f"its column {name} has another type"
        elif number and old[2] and number != old[2]:
            return f"its column {name} was dropped and added again"
    return ""


def untold_of(before: Shape, now: Shape, plain: Collection[str]) -> str:
    """What rows that were there have others of, for a change ``schema`` that tells none of them.

    ``names`` or ``values``; empty where they need not be told again. See :func:`why_copied`.
    """
    if not why_copied(before, now, plain):
        return ""
    names = {number: name for name, _, _, number in now.columns if number}
    columns = tuple(
        (names.get(number, name), *rest, number) for name, *rest, number in before.columns
    )
    return (
        "values"
        if why_copied(msgspec.structs.replace(before, columns=columns), now, plain)
        else "names"
    )


def differences_of(before: Shape | None, now: Shape) -> dict[str, Any]:
    """What a change ``schema`` tells of columns that have other names or types than before."""
    if before is None or before.oid != now.oid:
        # Nothing is known of how another table of the same name has stored its columns.
        return {} if before is None else {"retyped": [column[0] for column in now.columns]}
    names = {number: name for name, _, _, number in before.columns if number}
    types = {name: rest for name, *rest in before.columns}
    renamed = {}
    retyped = []
    for name, type_oid, modifier, number in now.columns:
        was = names.get(number, name) if name not in types else name
        if was != name:
            renamed[was] = name
        old = types.get(was)
        is_again = name in before.gone
        if is_again or (old is not None and (old[:2] != [type_oid, modifier])):
            retyped.append(name)
    return {
        **({"renamed": renamed} if renamed else {}),
        **({"retyped": retyped} if retyped else {}),
    }
