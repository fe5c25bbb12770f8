"""Rows on their way from changes to a target: what is known of them, and which are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

__all__ = [
    "Admit",
    "Broken",
    "Choice",
    "Document",
    "Kind",
    "Place",
    "Problem",
    "State",
    "Step",
    "TableRules",
]

#: A row as JSON has it.
Document = dict[str, Any]
#: Which change: partition, ordinal, and its number in the changeset.
Place = tuple[int, int, int]

#: ``rows``: one state for each row. ``move``: rows that get other keys. ``truncate``: all rows go.
#: The others are rows without a key.
Kind = Literal["rows", "move", "truncate", "insert", "update_one", "delete_one"]


class Problem(NamedTuple):
    """A change that can't be applied, and why."""

    place: Place
    operation: str
    #: With its schema, as in ``shop.orders``.
    table: str
    #: JSON.
    key: str
    reason: str

    def __str__(self) -> str:
        """One line, for people."""
        partition, ordinal, number = self.place
        where = f"change {number} of message {ordinal} in partition {partition} of the spool"
        key = f", key {self.key[:200]}" if self.key else ""
        what = f": {self.operation} of the table {self.table!r}{key}" if self.table else ""
        return f"{where}{what}: {self.reason}"


@dataclass(slots=True)
class State:
    """What has become of one row."""

    key: Document
    #: The columns that are told; ``None`` for a row that is gone.
    columns: Document | None
    #: Whether the row that the target has goes first.
    is_new: bool
    #: The last change of it.
    place: Place
    #: What the key was; of a row without one, what is told of how it was.
    old: Document | None = None


@dataclass(slots=True)
class Step:
    """What is done to one table, once the steps before it are done."""

    kind: Kind
    #: Schema and name, as the source has them.
    table: tuple[str, str]
    states: list[State]


@dataclass(frozen=True)
class Choice:
    """Which of the changes, and which of their columns, are applied."""

    #: The columns that identify rows, by ``table`` or ``schema.table``; an empty name: all tables.
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The tables whose changes are applied, as ``table`` or ``schema.table``; ``None``: all.
    tables: frozenset[str] | None = None
    #: The columns that are applied, beside the key; ``None``: all.
    columns: frozenset[str] | None = None
    except_columns: frozenset[str] = frozenset()
    #: Whether an update that sets a column to NULL leaves it as it is.
    ignores_null_updates: bool = False
    #: Whether columns get the names that the source gives them. Without it one with a new name is
    #: another column, which is as good where rows are told again.
    follows_names: bool = True

    def has(self, schema: str, table: str) -> bool:
        """Whether changes of that table are applied."""
        return self.tables is None or bool(self.tables & _names(schema, table))

    def key_of(self, schema: str, table: str) -> tuple[str, ...]:
        """The columns that identify rows; empty where the changes say it themselves."""
        for name in (f"{schema}.{table}", table, ""):
            if name in self.keys:
                return self.keys[name]
        return ()

    @property
    def is_partial(self) -> bool:
        """Whether columns are left out."""
        return self.columns is not None or bool(self.except_columns)

    def reduced(self, image: Document, key: Iterable[str]) -> Document:
        """The columns of a row that are applied."""
        kept = set(key)
        return {
            name: value
            for name, value in image.items()
            if name in kept
            or ((self.columns is None or name in self.columns) and name not in self.except_columns)
        }


def _names(schema: str, table: str) -> set[str]:
    return {table, f"{schema}.{table}"}


class TableRules(NamedTuple):
    """What collapsing has to know of a target's table."""

    #: The same for tables that foreign keys connect; ``None``: for this one the order of tables
    #: does not matter.
    group: int | None = None
    #: Rows of a table are written after those of tables of lower rank, and deleted before.
    rank: int = 0


class Admit(Protocol):
    """Whether a change of a row has an effect."""

    def __call__(
        self, source: tuple[str, str], key: Document, place: Place, *, is_gone: bool
    ) -> bool:
        """Answer for the row with that key of a table; whether it goes by the change."""


class Broken(ValueError):
    """A change that can't be understood; ``str()`` says why."""
