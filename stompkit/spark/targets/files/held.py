"""Tables in files as they are now, and the changes that they do not contain yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs as pa_fs

from stompkit._common.files import shortened
from stompkit.replication.sql import SchemaError, TargetTable
from stompkit.spark.fence import Fence
from stompkit.spark.targets.base import NewColumn
from stompkit.spark.targets.files.arrow import arrow_type, described
from stompkit.spark.targets.files.rewrite import File
from stompkit.spark.targets.planning.collapse import Collapse

__all__ = [
    "Ahead",
    "Held",
    "Source",
    "check_renames",
    "folder_of",
    "new_columns",
    "replaced_columns",
    "schema_with",
    "sources_of",
    "without",
]

#: Longest name of a folder on most file systems, in bytes, and what a longer one keeps of it.
_LONGEST_NAME: Final = 255
_KEPT: Final = 200

Source = tuple[str, str]
#: Positions of tables whose commits are ahead of the pipeline, after a crash between two commits.
Ahead = Mapping[Source, Fence]


@dataclass(frozen=True)
class Held:
    """The current state of a table."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    files: Sequence[File]
    folder: pa_fs.FileSystem
    #: Additional data of the file format.
    more: Any = None
    table: TargetTable = field(init=False)

    def __post_init__(self) -> None:
        """Create the description for planning."""
        object.__setattr__(self, "table", described(self.name, self.schema, self.key))


def folder_of(quoted: str, name: str) -> str:
    """Return the folder of a table for its *name* with escapes, each of which takes some bytes."""
    return shortened(quoted, name, longest=_LONGEST_NAME, kept=_KEPT)


def new_columns(
    held: Held, name: str, columns: Iterable[NewColumn], *, can_add: bool
) -> list[NewColumn]:
    """Return the columns that a table lacks; raises SchemaError if they must not be added."""
    new = [each for each in columns if held.table.column(each.name) is None]
    names = ", ".join(f"{each.name} ({each.type})" for each in new)
    if any(each.key for each in new):
        raise SchemaError(
            f"the target's table {name!r} lacks a column of the key: {names}."
            " To go on, name the key in `keys`"
        )
    if new and not can_add:
        raise SchemaError(
            f"the target's table {name!r} lacks {names}. To go on, open the target with"
            " evolve=True, or name them in `except_column_list`"
        )
    return new


def check_renames(collapse: Collapse, find: Callable[[str, str], Held | None]) -> None:
    """Check that renames of columns can be followed, which files do not support.

    If rows are sent again, a new column is equivalent.
    """
    for source, renamed in collapse.renamed.items():
        held = find(*source)
        is_untold = source in collapse.untold
        told = collapse.schemas.get(source, {})
        for new, names in renamed.items() if held is not None else ():
            assert held is not None
            there = [name for name in names if held.table.column(name) is not None]
            # A new column without the values, where the source has told the name before.
            has_both = held.table.column(new) is not None
            if has_both and is_untold:
                there = [name for name in there if name not in told]
            if not there or (has_both and not is_untold):
                continue
            if not is_untold and not any(name in held.key for name in there):
                continue
            way = (
                f"rewrite the table with a column {new!r} in its place"
                if is_untold
                else "remove the table from the target, and open that with create=True: all"
                " rows are told again behind this change"
            )
            raise SchemaError(
                f"the source calls the column {there[0]!r} of the table"
                f" {'.'.join(filter(None, source))!r} {new!r} now, and columns of files keep"
                f" their names. To go on, {way}"
            )


def replaced_columns(held: Held, columns: Iterable[NewColumn]) -> list[NewColumn]:
    """Return the columns whose types differ from those of a table.

    Raises SchemaError for a column of the key, which rows of the same batch may have.
    """
    found = []
    for column in columns:
        own = held.table.column(column.name)
        if own is None or held.schema.field(own.name).type == arrow_type(column):
            continue
        if own.name in held.key:
            raise SchemaError(
                f"the source has another type for the column {column.name!r}, which is of the key"
                f" of the table {held.name!r}. To go on, remove the table from the target, and open"
                " that with create=True: all rows are told again behind this change"
            )
        found.append(column)
    return found


def schema_with(held: Held, columns: Iterable[NewColumn]) -> pa.Schema:
    """Return the columns of a table, some of them with other types."""
    schema = held.schema
    for column in columns:
        own = held.table.column(column.name)
        assert own is not None
        made = pa.field(own.name, arrow_type(column))
        schema = schema.set(schema.get_field_index(own.name), made)
    return schema


def sources_of(batches: Iterable[pa.RecordBatch]) -> list[Source]:
    """Return the tables of the changes."""
    found: dict[Source, None] = {}
    for batch in batches:
        names = [batch.column(name).dictionary_encode().to_pylist() for name in ("schema", "table")]
        found.update(dict.fromkeys(zip(*names, strict=True)))
    made = dict.fromkeys((schema or "", table or "") for schema, table in found)
    return [source for source in made if source[1]]


def without(batch: pa.RecordBatch, ahead: Ahead) -> pa.RecordBatch:
    """Return the rows that the tables do not contain yet."""
    if not any(ahead.values()):
        return batch
    names = ("schema", "table", "_partition", "_ordinal")
    rows = zip(*[batch.column(name).to_pylist() for name in names], strict=True)
    nowhere: Fence = {}
    is_new = [
        ordinal > ahead.get((schema or "", table or ""), nowhere).get(partition, -1)
        for schema, table, partition, ordinal in rows
    ]
    return batch.filter(pa.array(is_new, pa.bool_()))
