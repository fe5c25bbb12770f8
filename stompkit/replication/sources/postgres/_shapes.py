"""Shapes: the columns of a table when its rows were published, to detect needed copies.

The log has rows, but no statements. A table may be replaced, or its rows may get values without row
changes: a default of a new column, another type, a column that is no longer generated. The
published rows are then wrong, and the whole table has to be copied again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

__all__ = ["Shape", "differences_of", "stored", "untold_of", "why_copied"]


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table as it was when its rows were published; part of the checkpoint."""

    oid: int
    #: For each column: name, type OID, type modifier, and column number. The table never reuses a
    #: number; 0 if unknown.
    columns: tuple[tuple[str, int, int, int], ...]
    #: Dropped columns, which consumers may still have.
    gone: tuple[str, ...] = ()
    #: Numbers of generated columns, which are not published.
    generated: tuple[int, ...] = ()

    def after(self, before: Shape | None) -> Shape:
        """Return this shape with the dropped and generated columns of ``before``."""
        if before is None or before.oid != self.oid:
            return self
        names = {column[0] for column in self.columns}
        was = [*before.gone, *(column[0] for column in before.columns)]
        gone = tuple(dict.fromkeys(name for name in was if name not in names))
        # The catalogue can be ahead of the rows: a column stays generated until the stream contains
        # it.
        numbers = {column[3] for column in self.columns}
        computed = dict.fromkeys((*before.generated, *self.generated))
        generated = tuple(number for number in computed if number not in numbers)
        # Numbers are unknown where the catalogue is ahead of the rows.
        known = {name: number for name, _, _, number in before.columns if number not in numbers}
        columns = tuple((name, *rest, n or known.get(name, 0)) for name, *rest, n in self.columns)
        return msgspec.structs.replace(self, columns=columns, gone=gone, generated=generated)


def stored(shapes: dict[str, Any]) -> dict[str, Shape]:
    """Return the shapes of a checkpoint, by full names."""
    return {name: msgspec.convert(each, Shape) for name, each in shapes.items()}


def why_copied(before: Shape, now: Shape, plain: Collection[str]) -> str:
    """Return the reason why the rows of a table have to be published again; empty if there is none.

    ``plain`` names the columns that are NULL in all rows when they are added: nullable ones without
    a default.
    """
    if before.oid != now.oid:
        return "another table has its name now"
    known = {name: rest for name, *rest in before.columns}
    names = {number: name for name, _, _, number in before.columns if number}
    there = {column[0] for column in now.columns}
    unnumbered = [name for name, *_, n in before.columns if not n and name not in there]
    for name, type_oid, modifier, number in now.columns:
        old = known.get(name)
        if old is None:
            if number in names:
                return f"its column {names[number]} is called {name} now"
            if name in before.gone:
                return f"its column {name} was dropped and added again"
            if number in before.generated:
                return f"its column {name} is computed no longer, and was not replicated"
            if unnumbered:
                return f"its column {unnumbered[0]} may be called {name} now"
            if name not in plain:
                return f"its new column {name} has values in rows that were there before"
        elif [type_oid, modifier] != old[:2]:
            return f"its column {name} has another type"
        elif number and old[2] and number != old[2]:
            return f"its column {name} was dropped and added again"
    return ""


def untold_of(before: Shape, now: Shape, plain: Collection[str]) -> str:
    """Return the properties of existing rows that changed, for a change ``schema`` without rows.

    ``names`` or ``values``; empty if they need not be published again. See :func:`why_copied`.
    """
    if not why_copied(before, now, plain):
        return ""
    names = {number: name for name, _, _, number in now.columns if number}
    # A column without a number, of an old checkpoint, is known by its name only.
    kept = [each for each in before.columns if each[3] in names or not each[3]]
    columns = tuple((names.get(number, name), *rest, number) for name, *rest, number in kept)
    dropped = tuple(name for name, _, _, number in before.columns if number and number not in names)
    followed = msgspec.structs.replace(before, columns=columns, gone=(*before.gone, *dropped))
    return "values" if why_copied(followed, now, plain) else "names"


def differences_of(before: Shape | None, now: Shape) -> dict[str, Any]:
    """Return the renamed and retyped columns for a change ``schema``."""
    if before is None or before.oid != now.oid:
        # Another table of the same name may store its columns in any way.
        return {} if before is None else {"retyped": [column[0] for column in now.columns]}
    known = {number: (name, rest) for name, *rest, number in before.columns if number}
    numbers = {column[0]: column[3] for column in before.columns}
    types = {name: rest for name, *rest, _ in before.columns}
    renamed = {}
    retyped = []
    for name, type_oid, modifier, number in now.columns:
        # Where one of the numbers is unknown, the name tells which column it is.
        by_name = None if number and numbers.get(name) else types.get(name)
        was, old = known.get(number) or (name, by_name)
        if was != name:
            renamed[was] = name
        # The name may be that of a column which was dropped, or has another name now.
        is_again = name in before.gone or (name in numbers and (old is None or was != name))
        if is_again or (old is not None and old != [type_oid, modifier]):
            retyped.append(name)
    return {
        **({"renamed": renamed} if renamed else {}),
        **({"retyped": retyped} if retyped else {}),
    }
