"""Foreign keys: which rows have to be written before others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, inspect
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

__all__ = ["Identity", "Link", "Links", "parents_first"]

#: A table, by schema and name, without regard to case.
Identity = tuple[str, str]

#: What a database does with rows that refer to one that goes, if not this: refuse it.
_REFUSING: Final = frozenset({"NO ACTION", "RESTRICT"})

Node = TypeVar("Node", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Link:
    """A foreign key."""

    child: Identity
    columns: tuple[str, ...]
    parent: Identity
    referred: tuple[str, ...]
    #: The tables as a statement names them.
    child_quoted: str
    parent_quoted: str
    #: Whether it is looked at when a transaction ends, unless somebody wants it earlier.
    is_late: bool
    #: Whether rows of the child are changed by the database itself when one of the parent goes.
    acts: bool


class Links:
    """The foreign keys of the schemas that tables are in."""

    def __init__(self, connection: Connection, schemas: Iterable[str]) -> None:
        """Read them; an empty name is the default schema."""
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
        """What a table is known by here."""
        return "" if schema == self._default else schema.casefold(), table.casefold()

    def of(self, table: Identity) -> Sequence[Link]:
        """The foreign keys that a table has."""
        return self._from.get(table, ())

    def to(self, table: Identity) -> Sequence[Link]:
        """Those that lead to it."""
        return self._to.get(table, ())

    def parents_first(self, tables: Iterable[Identity]) -> list[Identity]:
        """Tables in an order in which rows can be added, as far as there is one."""
        parents = {
            table: [link.parent for link in self.of(table) if link.parent != table]
            for table in sorted(tables)
        }
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


def parents_first(parents: Mapping[Node, Sequence[Node]]) -> list[Node]:
    """The keys of a mapping, each behind those that it leads to, except where they lead back."""
    order: dict[Node, None] = {}
    begun: set[Node] = set()
    for start in parents:
        path = [start]
        while path:
            node = path[-1]
            if node in order:
                path.pop()
                continue
            begun.add(node)
            path += [each for each in parents[node] if each in parents and each not in begun][:1]
            if path[-1] == node:
                order[path.pop()] = None
    return list(order)
