"""Foreign keys, which determine the write order of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, inspect
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from stompkit._common.graph import parents_first

__all__ = ["Identity", "Link", "Links"]

#: Schema and name of a table, case-insensitive.
Identity = tuple[str, str]

#: Referential actions that refuse the deletion of a referred row.
_REFUSING: Final = frozenset({"NO ACTION", "RESTRICT"})


@dataclass(frozen=True, eq=False)
class Link:
    """A foreign key."""

    child: Identity
    columns: tuple[str, ...]
    parent: Identity
    referred: tuple[str, ...]
    #: Quoted table names for statements.
    child_quoted: str
    parent_quoted: str
    #: True if the constraint is initially deferred to the end of the transaction.
    is_late: bool
    #: True if the database itself changes child rows when a parent row is deleted.
    acts: bool


class Links:
    """The foreign keys of the schemas that contain the tables."""

    def __init__(self, connection: Connection, schemas: Iterable[str]) -> None:
        """Load the foreign keys; an empty name is the default schema."""
        inspector = inspect(connection)
        self._quote = connection.dialect.identifier_preparer.quote_identifier
        self._default = inspector.default_schema_name or ""
        self.all: list[Link] = []
        for schema in sorted({*schemas}):
            found = inspector.get_multi_foreign_keys(schema=schema or None)
            for (_, table), keys in found.items():
                self.all += (self._link(schema, table, key) for key in keys)
        self._from: dict[Identity, list[Link]] = {}
        self._to: dict[Identity, list[Link]] = {}
        for link in self.all:
            self._from.setdefault(link.child, []).append(link)
            self._to.setdefault(link.parent, []).append(link)

    def identity(self, schema: str, table: str) -> Identity:
        """Return the identity of a table."""
        return "" if schema == self._default else schema.casefold(), table.casefold()

    def of(self, table: Identity) -> Sequence[Link]:
        """Return the foreign keys of a table."""
        return self._from.get(table, ())

    def to(self, table: Identity) -> Sequence[Link]:
        """Return the foreign keys that refer to a table."""
        return self._to.get(table, ())

    def parents_first(self, tables: Iterable[Identity]) -> list[Identity]:
        """Return the tables in insertion order, as far as cycles permit."""
        parents = {table: [link.parent for link in self.of(table)] for table in sorted(tables)}
        return parents_first(parents)

    def _quoted(self, schema: str, table: str) -> str:
        return ".".join(map(self._quote, [schema, table] if schema else [table]))

    def _link(self, schema: str, table: str, key: ReflectedForeignKeyConstraint) -> Link:
        options: Mapping[str, Any] = key.get("options", {})
        referred_schema = key["referred_schema"] or schema
        return Link(
            child=self.identity(schema, table),
            columns=tuple(key["constrained_columns"]),
            parent=self.identity(referred_schema, key["referred_table"]),
            referred=tuple(key["referred_columns"]),
            child_quoted=self._quoted(schema, table),
            parent_quoted=self._quoted(referred_schema, key["referred_table"]),
            is_late=str(options.get("initially", "")).upper() == "DEFERRED",
            acts=str(options.get("ondelete") or "NO ACTION").upper() not in _REFUSING,
        )
