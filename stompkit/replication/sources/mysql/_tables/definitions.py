"""Effects of DDL statements on rows that were already published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

from stompkit.replication.sources.mysql._tables.catalogue import Catalogue
from stompkit.replication.sources.mysql._tables.specials import Specials
from stompkit.replication.sources.mysql._tables.statements import Effect, Name

__all__ = ["Definitions", "Outcome"]

#: ``nothing``: the published rows stay correct; ``empty``: the table is empty now; ``copy``: all
#: rows have to be published again.
Outcome = Literal["nothing", "empty", "copy"]

#: Maximum number of dropped databases to remember: build servers drop any number of them.
_MOST_DATABASES: Final = 100


class Definitions:
    """Dropped databases, tables and columns, whose values consumers still have."""

    def __init__(self, state: dict[str, Any] | None) -> None:
        """Restore from :meth:`state`; ``None`` for an empty start."""
        state = state or {}
        self._revision = 0
        self._is_loaded = False
        self._gone: set[Name] = {(schema, table) for schema, table in state.get("gone", ())}
        self._dropped: dict[Name, set[str]] = {
            (schema, table): set(names) for schema, table, names in state.get("columns", ())
        }
        #: Dropped databases, each with the tables that exist since.
        self._databases: dict[str, set[str]] = {
            name: set(tables) for name, tables in state.get("databases", {}).items()
        }

        #: New tables whose columns were not published yet, and therefore no rows.
        self._unpublished: set[Name] = {
            (schema, table) for schema, table in state.get("unpublished", ())
        }
        #: Types that the log lacks, of the columns of tables.
        self.specials = Specials(state.get("specials", ()))

    @property
    def revision(self) -> int:
        """Number that every change raises."""
        return self._revision + self.specials.revision

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as JSON values."""
        return {
            "gone": sorted(map(list, self._gone)),
            "columns": [[*name, sorted(names)] for name, names in sorted(self._dropped.items())],
            **(
                {"databases": {name: sorted(each) for name, each in self._databases.items()}}
                if self._databases
                else {}
            ),
            **({"unpublished": sorted(map(list, self._unpublished))} if self._unpublished else {}),
            **({"specials": self.specials.state()} if self.specials else {}),
        }

    def load(self, catalogue: Catalogue, wants: Callable[[str, str], bool]) -> None:
        """Record the types that the log lacks, at the first start of a job."""
        if self.specials or self._is_loaded:
            return
        for table, types in catalogue.all_specials().items():
            if wants(*table):
                self.specials.store(table, types)
        self._is_loaded = True

    def publish(self, table: Name, *, with_columns: bool) -> None:
        """Record that a new table is published, with its columns or for now without them."""
        if with_columns == (table in self._unpublished):
            self._revision += 1
        (self._unpublished.discard if with_columns else self._unpublished.add)(table)

    def is_unpublished(self, table: Name) -> bool:
        """Return True if consumers know no columns of a new table, and have no rows of it."""
        return table in self._unpublished

    def is_gone(self, table: Name) -> None:
        """Record that a table does not exist."""
        self._revision += 1
        self._gone.add(table)
        self._dropped.pop(table, None)

    def drop_database(self, name: str) -> None:
        """Record that no table of a database exists; the log does not list them."""
        self._revision += 1
        self._gone = {table for table in self._gone if table[0] != name}
        self._dropped = {table: names for table, names in self._dropped.items() if table[0] != name}
        self.specials.drop_database(name)
        self._unpublished = {table for table in self._unpublished if table[0] != name}
        self._databases.pop(name, None)
        self._databases[name] = set()
        if len(self._databases) > _MOST_DATABASES:
            del self._databases[next(iter(self._databases))]

    def recall(self, effect: Effect) -> Effect:
        """Return an effect that considers earlier dropped columns, whose names are used again."""
        names = (*effect.added, *(name for _, name in effect.renamed))
        again = self._dropped.get(effect.table, set()).intersection(names)
        if not again:
            return effect
        retyped = (*effect.retyped, *sorted(again.difference(effect.retyped)))
        return replace(effect, kind="copy", retyped=retyped, only_names=False)

    def follow(self, effect: Effect, *, can_copy: bool = True) -> Outcome:
        """Apply a statement's effect; return its outcome for the published rows.

        Without ``can_copy``, consumers keep the values of dropped columns even then.
        """
        self._revision += 1
        table = effect.table
        outcome: Outcome = "nothing"
        if effect.kind == "gone":
            self.is_gone(table)
            return outcome
        if effect.kind == "made":
            outcome = "empty" if self._is_known_gone(table) else "nothing"
        elif effect.kind == "replaced":
            outcome = "empty"
        else:
            outcome = "copy" if self.recall(effect).kind == "copy" else "nothing"
        self._gone.discard(table)
        if table[0] in self._databases:
            self._databases[table[0]].add(table[1])
        if outcome == "empty" or (outcome == "copy" and can_copy):
            self._dropped.pop(table, None)
        elif effect.dropped:
            self._dropped.setdefault(table, set()).update(effect.dropped)
        return outcome

    def _is_known_gone(self, table: Name) -> bool:
        """Return True if a table was dropped, by itself or with its database."""
        schema, name = table
        return table in self._gone or name not in self._databases.get(schema, {name})
