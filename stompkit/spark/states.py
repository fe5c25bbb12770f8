"""Intermediate states of rows between changes and a target, and the selection of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, Self

import msgspec

__all__ = [
    "Admit",
    "Choice",
    "Document",
    "Images",
    "Kind",
    "Place",
    "Problem",
    "State",
    "StateError",
    "Step",
    "TableRules",
]

#: A row as a JSON object.
Document = dict[str, Any]
#: Position of a change: partition, ordinal, and number in the changeset.
Place = tuple[int, int, int]

#: Kind of a step: ``rows``: final states of rows. ``move``: changes of keys. ``truncate``: removal
#: of all rows. The others concern rows without a key.
Kind = Literal["rows", "move", "truncate", "insert", "update_one", "delete_one"]
_OPERATIONS: Final[Mapping[Kind, str]] = {
    "rows": "write",
    "move": "update",
    "truncate": "truncate",
    "insert": "write",
    "update_one": "update",
    "delete_one": "delete",
}


class Problem(NamedTuple):
    """A change that cannot be applied, and the reason."""

    place: Place
    operation: str
    #: Name with schema, as in ``shop.orders``.
    table: str
    #: Key as JSON.
    key: str
    reason: str

    def __str__(self) -> str:
        """Return one line for users."""
        partition, ordinal, number = self.place
        where = f"change {number} of message {ordinal} in partition {partition} of the spool"
        key = f", key {self.key[:200]}" if self.key else ""
        what = f": {self.operation} of the table {self.table!r}{key}" if self.table else ""
        return f"{where}{what}: {self.reason}"


class Images(NamedTuple):
    """Images of a row in a change."""

    key: Document
    before: Document | None
    after: Document | None
    old_key: Document | None


@dataclass(slots=True)
class State:
    """The final state of one row."""

    key: Document
    #: Columns to write; ``None`` for a deleted row.
    columns: Document | None
    #: True if the target's row is deleted first.
    is_new: bool
    #: The last change of the row.
    place: Place
    #: Former key; for a row without a key, its former columns.
    old: Document | None = None


@dataclass(slots=True)
class Step:
    """An operation on one table, to run after the preceding steps."""

    kind: Kind
    #: Schema and name in the source.
    table: tuple[str, str]
    #: At least one; that of a truncate has the place only.
    states: list[State]

    def problem(self, state: State, reason: str) -> Problem:
        """Return the problem of a state that is rejected."""
        operation = _OPERATIONS[self.kind]
        if self.kind == "rows" and state.columns is None:
            operation = "delete"
        key = msgspec.json.encode(state.key).decode() if state.key else ""
        return Problem(state.place, operation, ".".join(filter(None, self.table)), key, reason)


@dataclass(frozen=True)
class Choice:
    """Selection of changes and columns to apply."""

    #: Columns that identify rows, by ``table`` or ``schema.table``; an empty name for all tables.
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Tables to apply, as ``table`` or ``schema.table``; ``None`` for all.
    tables: frozenset[str] | None = None
    #: Columns to apply, besides the key; ``None`` for all.
    columns: frozenset[str] | None = None
    except_columns: frozenset[str] = frozenset()
    #: True if an update to NULL leaves a column unchanged.
    ignores_null_updates: bool = False
    #: True if columns follow renames in the source. Otherwise a renamed column is a new column,
    #: which is sufficient if rows are sent again.
    follows_names: bool = True

    @classmethod
    def of(
        cls,
        *,
        keys: Sequence[str] | Mapping[str, Sequence[str]] | None,
        tables: Iterable[str] | None = None,
        column_list: Iterable[str] | None,
        except_column_list: Iterable[str] | None,
        ignores_null_updates: bool = False,
        follows_names: bool = True,
    ) -> Self:
        """Make a selection; a list of ``keys`` is for all tables. Raises ValueError for a text."""
        if isinstance(keys, str):
            raise ValueError("`keys` is a list of columns, or lists by table")
        by_table = keys if isinstance(keys, Mapping) else {"": keys} if keys else {}
        return cls(
            keys={name: tuple(columns) for name, columns in by_table.items()},
            tables=None if tables is None else frozenset(tables),
            columns=None if column_list is None else frozenset(column_list),
            except_columns=frozenset(except_column_list or ()),
            ignores_null_updates=ignores_null_updates,
            follows_names=follows_names,
        )

    def has(self, schema: str, table: str) -> bool:
        """Return True if changes of the table are applied."""
        return self.tables is None or bool(self.tables & _names(schema, table))

    def key_of(self, schema: str, table: str) -> tuple[str, ...]:
        """Return the columns that identify rows; empty if the changes contain the key."""
        for name in (f"{schema}.{table}", table, ""):
            if name in self.keys:
                return self.keys[name]
        return ()

    @property
    def is_partial(self) -> bool:
        """True if columns are excluded."""
        return self.columns is not None or bool(self.except_columns)

    def reduced(self, image: Document, key: Iterable[str]) -> Document:
        """Return the columns of a row to apply."""
        if not self.is_partial:
            return image
        kept = set(key)
        return {
            name: value
            for name, value in image.items()
            if name in kept
            or ((self.columns is None or name in self.columns) and name not in self.except_columns)
        }

    def chosen(self, told: Images, operation: str, key: Iterable[str]) -> Images:
        """Return what is to be applied of a change, in all images of its row."""
        if not self.is_partial and not self.ignores_null_updates:
            return told
        key = set(key)
        after = None if told.after is None else self.reduced(told.after, key)
        if operation == "update" and self.ignores_null_updates and after is not None:
            after = {name: each for name, each in after.items() if each is not None or name in key}
        before, old_key = (
            None if image is None else self.reduced(image, key)
            for image in (told.before, told.old_key)
        )
        return Images(self.reduced(told.key, key), before, after, old_key)


def _names(schema: str, table: str) -> set[str]:
    return {table, f"{schema}.{table}"}


class TableRules(NamedTuple):
    """Properties of a target table that collapsing requires."""

    #: Number shared by tables connected by foreign keys; ``None`` if the order of tables does not
    #: matter.
    group: int | None = None
    #: Rank in the group: rows are written after those of lower rank, and deleted before them.
    rank: int = 0


class Admit(Protocol):
    """A filter for changes of rows."""

    def __call__(
        self, source: tuple[str, str], key: Document, place: Place, *, is_gone: bool
    ) -> bool:
        """Return True if the change of the row takes effect; ``is_gone`` is true for a delete."""


class StateError(ValueError):
    """An invalid change; ``str()`` says why."""
