"""The changes of a batch to the rows of one table, independent of the table's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stompkit.replication.sinks import ApplyError
from stompkit.spark.targets.planning.plan import Op

__all__ = ["Key", "RowChangeset", "moved_keys", "refused"]

#: The values of a row's key.
Key = tuple[Any, ...]
Row = dict[str, Any]
#: Kinds of operations that files support.
_KINDS: Final = frozenset({"truncate", "insert", "delete", "upsert", "merge", "move"})


@dataclass(slots=True)
class _State:
    """The final state of one row."""

    #: Columns to write; ``None`` for a deleted row.
    columns: Row | None
    #: True if the state is complete without the row in the files.
    is_whole: bool


def moved_keys(ops: Iterable[Op]) -> dict[tuple[str, ...], set[Key]]:
    """Return the former and new keys of moved rows by key columns, as input of :meth:`know`."""
    keys: dict[tuple[str, ...], set[Key]] = {}
    for op in ops:
        if op.kind == "move":
            size = len(op.key)
            found = keys.setdefault(op.key, set())
            for row in op.rows():
                found.update((row[:size], row[size : 2 * size]))
    return keys


class RowChangeset:
    """Collects operations in order; only the final state of each row is kept."""

    def __init__(self, name: str) -> None:
        """Start empty, for the table of that name."""
        self._table = name
        self._states: dict[Key, _State] = {}
        self._loose: list[Row] = []
        #: Key columns; empty until an operation contains them.
        self.names: tuple[str, ...] = ()
        #: True if all rows in the files are deleted.
        self.is_emptied = False
        self.written = 0
        self.deleted = 0

    def know(self, names: tuple[str, ...], found: Mapping[Key, Row | None]) -> None:
        """Add rows from the files, ``None`` for a key without row."""
        at = [names.index(name) for name in self._agree(names)]
        for key, row in found.items():
            self._states[tuple(key[each] for each in at)] = _State(row, True)

    def append(self, rows: Iterable[Row]) -> None:
        """Add new rows without key."""
        self._loose += rows

    def do(self, op: Op) -> None:
        """Add an operation; raises ApplyError for one that files do not support."""
        rows = op.rows()
        if op.kind in ("delete", "delete_one"):
            self.deleted += op.count
        else:
            self.written += op.count
        match op.kind:
            case "truncate":
                self.is_emptied = True
                self._states = {}
                self._loose = []
            case "insert":
                self._loose += [dict(zip(op.others, row, strict=True)) for row in rows]
            case "delete" | "upsert" | "merge" | "move":
                names = self._agree(op.key)
                at = [op.key.index(name) for name in names]
                self._do(op, rows, at)
            case _:
                raise _refused(self._table)

    def _do(self, op: Op, rows: Sequence[tuple[Any, ...]], at: Sequence[int]) -> None:
        size = len(op.key)
        if op.kind == "delete":
            for row in rows:
                self._states[tuple(row[each] for each in at)] = _State(None, True)
        elif op.kind == "move":
            self._move(
                {
                    tuple(row[each] for each in at): (
                        tuple(row[size + each] for each in at),
                        dict(zip((*op.key, *op.others), row[size:], strict=True)),
                    )
                    for row in rows
                }
            )
        else:
            names = (*op.key, *op.others)
            for row in rows:
                key = tuple(row[each] for each in at)
                self._write(key, dict(zip(names, row, strict=True)))

    def _agree(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the key columns in their fixed order."""
        if not self.names:
            self.names = names
        elif set(self.names) != set(names):
            raise ApplyError(
                f"rows of the table {self._table!r} are told by {', '.join(self.names)} and by"
                f" {', '.join(names)}. To go on, name the key in `keys`"
            )
        return self.names

    def _write(self, key: Key, columns: Row) -> None:
        state = self._states.get(key)
        if state is None:
            self._states[key] = _State(columns, self.is_emptied)
        elif state.columns is None:
            self._states[key] = _State(columns, True)
        else:
            state.columns.update(columns)

    def _is_taken(self, key: Key) -> bool:
        state = self._states.get(key)
        return state is not None and state.columns is not None

    def _move(self, left: dict[Key, tuple[Key, Row]]) -> None:
        """Change the keys of rows at once: each row moves when its new key is free."""
        while left:
            path = [next(iter(left))]
            while path:
                old = path[-1]
                new, columns = left[old]
                if new == old or new not in left or not self._is_taken(new):
                    del left[path.pop()]
                    self._move_one(old, new, columns)
                elif new in path:
                    # A cycle: each row stays in place, and receives another row's values.
                    for each in path[path.index(new) :]:
                        self._write(*left.pop(each))
                    del path[path.index(new) :]
                else:
                    path.append(new)

    def _move_one(self, old: Key, new: Key, columns: Row) -> None:
        """Move a row; an existing row with the new key stays, and receives its values."""
        if old != new and not self._is_taken(new):
            state = self._states.get(old)
            told = state.columns if state is not None and state.columns is not None else {}
            columns = {**told, **columns}
        if old != new:
            self._states[old] = _State(None, True)
        self._write(new, columns)

    # Interface to the files.

    @property
    def is_empty(self) -> bool:
        """Return True if there is no change."""
        return not (self._states or self._loose or self.is_emptied)

    def keys(self) -> set[Key]:
        """Return the keys of all changed rows."""
        return set(self._states)

    def meet(self, key: Key, row: Row) -> None:
        """Merge a row of the files into its changes; the file copy omits it."""
        state = self._states[key]
        if not state.is_whole and state.columns is not None:
            state.columns = {**row, **state.columns}
            state.is_whole = True

    def rows(self) -> Iterator[Row]:
        """Yield the new rows, after :meth:`meet` was called for all former ones."""
        for state in self._states.values():
            if state.columns is not None:
                yield state.columns
        yield from self._loose


def refused(ops: Iterable[Op]) -> Iterator[ApplyError]:
    """Yield the errors of operations that files do not support."""
    for op in ops:
        if op.kind not in _KINDS:
            yield _refused(".".join(filter(None, op.table)))


def _refused(table: str) -> ApplyError:
    return ApplyError(
        f"a row of the table {table!r} is told without a key, and cannot be found in files. To go"
        " on, name the key in `keys`"
    )
