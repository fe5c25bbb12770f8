"""Types of columns that the log does not contain completely, as of the position of reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stompkit.replication.sources.mysql._tables.alterations import Effect
from stompkit.replication.sources.mysql._tables.tokens import Name

__all__ = ["Ask", "Specials"]

#: Types by the names of columns.
_Types = Mapping[str, str]
#: Function that returns the types of a table by the catalogue; ``None`` if it describes the table
#: after later statements, or another table.
Ask = Callable[[Name], _Types | None]


class Specials:
    """The types of the columns of tables; tables without special types are left out.

    They are part of the checkpoint, because the catalogue only has the present ones. A table may be
    renamed or dropped before the job reads its rows.
    """

    def __init__(self, state: Iterable[tuple[str, str, dict[str, str]]]) -> None:
        """Restore from :meth:`state`."""
        #: Number that every change raises.
        self.revision = 0
        self._types: dict[Name, _Types] = {(schema, table): own for schema, table, own in state}

    def __bool__(self) -> bool:
        """Return True if types of any table are known."""
        return bool(self._types)

    def state(self) -> list[list[Any]]:
        """Return the state for a checkpoint, as JSON values."""
        return [[*name, dict(own)] for name, own in sorted(self._types.items())]

    def of(self, table: Name) -> _Types | None:
        """Return the types of a table; ``None`` if none are known."""
        return self._types.get(table)

    def store(self, table: Name, types: _Types | None) -> None:
        """Record the types of a table, or that none are known."""
        if self._types.get(table, {}) == (types or {}):
            return
        self.revision += 1
        self._types.pop(table, None)
        if types:
            self._types[table] = types

    def drop_database(self, name: str) -> None:
        """Forget the tables of a database."""
        for table in [table for table in self._types if table[0] == name]:
            self.store(table, None)

    def follow(self, effects: Iterable[Effect], ask: Ask) -> None:
        """Apply a statement; the catalogue is asked for tables that have or had special types."""
        before = dict(self._types)
        for effect in effects:
            if effect.kind == "gone":
                self.store(effect.table, None)
                continue
            is_new = effect.kind in ("made", "replaced")
            was = effect.was or (None if is_new and not effect.is_if_missing else effect.table)
            former = {} if was is None else before.get(was, {})
            if effect.is_if_missing and effect.table in before:
                continue
            now = _followed(former, effect)
            if now or effect.table in before:
                found = ask(effect.table)
                self.store(effect.table, now if found is None else found)


def _followed(former: _Types, effect: Effect) -> dict[str, str]:
    """Return the types after a statement, as far as it tells them."""
    renamed = dict(effect.renamed)
    kept = {
        renamed.get(name, name): type_
        for name, type_ in former.items()
        if name not in effect.dropped
    }
    for name, type_ in effect.types:
        kept.pop(name, None)
        if type_ is not None:
            kept[name] = type_
    return kept
