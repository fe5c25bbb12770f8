"""Masks of the publisher: values of the source are compared as the copy has them, masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sqlalchemy import types

from stompkit.replication.model.tables import Mask, Tables, drops, hashes
from stompkit.replication.sql import TargetColumn, TargetTable

__all__ = ["Masked", "masked_columns"]

#: Families of columns whose values any source and any driver have in one type, so that their hashes
#: are equal.
_HASHED: Final = frozenset({"text", "int", "uuid"})


class Masked(NamedTuple):
    """A masked column of a source."""

    #: Mask of the publisher.
    mask: Mask
    #: Type family of the column's own values.
    family: str
    #: The column as its masked values are; ``None`` if it is not compared.
    column: TargetColumn | None


def masked_columns(
    masks: Mapping[str, str], schema: str, source: TargetTable, keys: Sequence[str]
) -> dict[str, Masked]:
    """Return the masked columns of a table.

    A column that is left out, and a hash that depends on the type of a source's values, are not
    compared. Raises ValueError for a mask that the publisher would refuse.
    """
    tables = Tables(masks=masks)
    found: dict[str, Masked] = {}
    for name, column in source.columns.items():
        mask = tables.mask_of(schema, source.name, name)
        if mask is None:
            continue
        is_compared = not drops(mask) and not (hashes(mask) and column.family not in _HASHED)
        if name in keys and not (hashes(mask) and is_compared):
            raise ValueError(
                f"the column {name} is in the key of {source.name}: only a hash of text, whole"
                " numbers or UUIDs can be compared"
            )
        found[name] = Masked(mask, column.family, _shown(column, mask) if is_compared else None)
    return found


def _shown(column: TargetColumn, mask: Mask) -> TargetColumn:
    """Return a column as the mask describes it."""
    family = mask.column({"type": column.family})["type"]
    return column if family == column.family else replace(column, type_=types.Text())
