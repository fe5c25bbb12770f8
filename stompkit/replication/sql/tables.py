"""Tables of a target, and their columns and foreign keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, MetaData, Table
from sqlalchemy.types import TypeEngine

from stompkit._common.graph import ranks
from stompkit._common.tables import create_missing
from stompkit.replication.sql.families import Family, family_of
from stompkit.replication.sql.values import Adapt

__all__ = [
    "ForeignKey",
    "TargetColumn",
    "TargetTable",
    "create_tables",
    "groups_of",
    "quote",
    "ranks_of",
    "table_options",
]


@dataclass(frozen=True, eq=False)
class TargetColumn:
    """A column, with its name in the database, plain and quoted."""

    name: str
    quoted: str
    type_: TypeEngine[Any]
    adapt: Adapt
    #: Types of values that are stored unchanged.
    plain: frozenset[type]
    #: True if new rows must have a value.
    is_required: bool
    #: True if the database generates its values.
    is_generated: bool
    #: True if only new rows can have a given value: GENERATED ALWAYS AS IDENTITY.
    is_fixed: bool = False

    @cached_property
    def family(self) -> Family:
        """Kind of values in the column."""
        return family_of(self.type_)


@dataclass(frozen=True)
class ForeignKey:
    """Columns that reference those of another table, or of the same one."""

    columns: tuple[str, ...]
    parent: tuple[str | None, str]
    referred: tuple[str, ...]
    #: Nullable columns among them.
    nullable: frozenset[str]


@dataclass(frozen=True, eq=False)
class TargetTable:
    """A table, with its name in the database, plain and quoted."""

    schema: str | None
    name: str
    quoted: str
    columns: Mapping[str, TargetColumn]
    primary_key: tuple[str, ...]
    #: Sets of columns that can be the conflict target of an upsert.
    uniques: frozenset[frozenset[str]]
    #: True if there is more than one key that a new row can clash with.
    has_more_keys: bool
    #: Tables whose changes must stay in order with those of this one.
    related: frozenset[tuple[str | None, str]]
    #: Storage engine, if it does not support transactions; otherwise empty.
    engine_without_transactions: str = ""
    foreign_keys: tuple[ForeignKey, ...] = ()
    #: Quoted columns whose values only one row has, with or without a key; see ``row_id``.
    row_id: tuple[str, ...] = ()
    _folded: dict[str, str | None] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str | None, str]:
        """Schema and name of the table."""
        return self.schema, self.name

    @property
    def parents(self) -> frozenset[tuple[str | None, str]]:
        """Tables that its foreign keys reference."""
        return frozenset(each.parent for each in self.foreign_keys)

    def column(self, name: str) -> TargetColumn | None:
        """Return the column of that name, or the only one whose name differs by case."""
        found = self.columns.get(name)
        if found is None and (other := self._folded.get(name.casefold())) is not None:
            found = self.columns[other]
        return found


def quote(connection: Connection, name: str) -> str:
    """Return a quoted name for a driver's statement."""
    return connection.dialect.identifier_preparer.quote_identifier(name)


def table_options(connection: Connection) -> dict[str, str]:
    """Return the options of tables that a sink creates in MySQL or MariaDB.

    With them, keys that differ by case, or by trailing blanks, are different.
    """
    dialect = connection.dialect
    if dialect.name not in ("mysql", "mariadb"):
        return {}
    is_mariadb = getattr(dialect, "is_mariadb", False)
    return {
        f"{dialect.name}_engine": "InnoDB",
        f"{dialect.name}_charset": "utf8mb4",
        f"{dialect.name}_collate": "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin",
    }


def create_tables(connection: Connection, tables: Iterable[Table]) -> None:
    """Create missing tables with :func:`table_options`; concurrent calls are harmless."""
    copies = [table.to_metadata(MetaData()) for table in tables]
    for table in copies:
        table.dialect_kwargs.update(table_options(connection))
    create_missing(connection, copies)


def ranks_of(tables: Iterable[TargetTable]) -> dict[tuple[str | None, str], int]:
    """Return the ranks of tables: rows are written to tables of lower rank first."""
    return ranks({table.identity: sorted(table.related, key=str) for table in tables})


def groups_of(tables: Sequence[TargetTable]) -> dict[tuple[str | None, str], int]:
    """Return group numbers of tables: equal for tables whose changes must stay in order."""
    groups = {table.identity: number for number, table in enumerate(tables)}
    for table in tables:
        for other in table.related & groups.keys():
            one, another = groups[table.identity], groups[other]
            groups = {name: one if each == another else each for name, each in groups.items()}
    return groups
