"""Changes that create rows without a column that a table in files requires.

A database rejects them. For files the former rows have to be read, since a change of some columns
is complete if its row exists.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.spark.targets.files.held import Held
from stompkit.spark.targets.files.rewrite import Rewrite
from stompkit.spark.targets.files.rewriting import by_table
from stompkit.spark.targets.files.row_changeset import Key
from stompkit.spark.targets.planning.plan import Op

__all__ = ["Incomplete"]


class Incomplete:
    """Finds incomplete new rows among operations, in the order of the changes."""

    def __init__(self, ops: Iterable[Op], find: Callable[[str, str], Held | None]) -> None:
        """Read the keys of tables with incomplete operations; raises ApplyError."""
        self._find = find
        self._tables: dict[str, _Table] = {}
        for name, own in by_table(ops, find).items():
            held = find(*own[0].table)
            assert held is not None
            if any(_lacks(held, op) for op in own):
                self._tables[name] = _Table(held, own)

    def reason(self, ops: Sequence[Op]) -> str:
        """Return why the operations of one step are rejected; otherwise consider them as done."""
        for name, own in by_table(ops, self._find).items() if self._tables else ():
            if name in self._tables and (lacking := self._tables[name].lacking(own)):
                return (
                    f"a new row has no value for the column {lacking!r}, which is never NULL."
                    " To go on, rewrite the table without that column, or with NULL allowed in"
                    " it"
                )
        return ""


class _Table:
    """The keys of a table's rows."""

    def __init__(self, held: Held, ops: Sequence[Op]) -> None:
        self._held = held
        keyed = [op for op in ops if op.key]
        #: Key columns, in the order of all keys here.
        self._names = keyed[0].key if keyed else ()
        keys = {key for op in keyed for pair in self._keys(op) for key in pair}
        try:
            found = Rewrite(held.folder, held.schema).find(held.files, self._names, keys)
        except OSError as error:
            raise SinkUnavailableError(str(error)) from error
        self._is_there = {key: row is not None for key, row in found.items()}

    def lacking(self, ops: Iterable[Op]) -> str:
        """Return the column that a new row lacks, or an empty string after noting the rows."""
        made: dict[Key, bool] = {}
        is_there = ChainMap(made, self._is_there)
        for op in ops:
            if op.kind == "truncate":
                made.update(dict.fromkeys(self._is_there, False))
            elif op.kind == "delete":
                made.update((key, False) for _, key in self._keys(op))
            elif lacking := self._written(op, is_there):
                return lacking
        self._is_there.update(made)
        return ""

    def _written(self, op: Op, is_there: MutableMapping[Key, bool]) -> str:
        pairs = list(self._keys(op)) if op.key else []
        are_new = [not (is_there[old] or is_there[new]) for old, new in pairs]
        if (lacking := _lacks(self._held, op)) and (any(are_new) or not op.key):
            return lacking
        is_there.update((old, False) for old, _ in pairs)
        is_there.update((new, True) for _, new in pairs)
        return ""

    def _keys(self, op: Op) -> Iterator[tuple[Key, Key]]:
        """Yield the former and the new key of each row."""
        size = len(op.key)
        # An operation with other key columns is rejected later.
        at = [op.key.index(name) if name in op.key else 0 for name in self._names]
        for row in op.rows():
            new = row[size : 2 * size] if op.kind == "move" else row
            yield tuple(row[each] for each in at), tuple(new[each] for each in at)


def _lacks(held: Held, op: Op) -> str:
    """Return a required column that an operation does not have."""
    if op.kind in ("truncate", "delete"):
        return ""
    required = (each.name for each in held.schema if not each.nullable)
    return next((name for name in required if name not in (*op.key, *op.others)), "")
