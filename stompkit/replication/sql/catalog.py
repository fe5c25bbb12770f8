"""Target tables of source tables, as settings map them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy import Connection, inspect

from stompkit.replication.sinks import ApplyError
from stompkit.replication.sql.reflection import Reflector
from stompkit.replication.sql.tables import TargetTable

__all__ = ["Catalog", "Owners", "TablesClashError", "owners_from_json", "owners_to_json"]

#: Source tables, by schemas and names of the target's tables.
Owners = Mapping[tuple[str | None, str], tuple[str, str]]


class TablesClashError(ApplyError):
    """Two tables of the source map to the same one of the target; ``str()`` names both."""


class Catalog:
    """Finds and caches the target's tables for changes."""

    def __init__(
        self,
        *,
        schema_map: Mapping[str, str],
        table_map: Mapping[str, str],
        reserved: str,
        backend: str,
        is_lossy: bool,
        checks_foreign_keys: bool,
        defers_foreign_keys: bool,
    ) -> None:
        """Start empty; ``reserved`` is a table that no change may use."""
        self._schema_map = schema_map
        self._table_map = table_map
        self._reserved = reserved
        self._backend = backend
        self._reflector = Reflector(
            backend,
            is_lossy=is_lossy,
            checks_foreign_keys=checks_foreign_keys,
            defers_foreign_keys=defers_foreign_keys,
        )
        #: Target tables, by schema and name of the source.
        self._tables: dict[tuple[str, str], TargetTable | None] = {}
        self._names: dict[str | None, list[str]] = {}
        #: First source table of each target table.
        self._owners: dict[tuple[str | None, str], tuple[str, str]] = {}

    def forget(self, *, missing_only: bool = False) -> None:
        """Clear the cache; with ``missing_only`` only for tables that did not exist."""
        self._names.clear()
        if not missing_only:
            self._tables.clear()
            return
        for source in [name for name, table in self._tables.items() if table is None]:
            del self._tables[source]

    def wanted(self, schema: str, table: str) -> tuple[str | None, str] | None:
        """Return the target of a source table's changes; ``None`` if there is none."""
        mapped = self._table_map.get(f"{schema}.{table}" if schema else table)
        mapped = self._table_map.get(table) if mapped is None else mapped
        if mapped is not None:
            target_schema, _, name = mapped.rpartition(".")
            return target_schema or None, name
        if not self._schema_map:
            return None, table
        return (self._schema_map[schema] or None, table) if schema in self._schema_map else None

    def known(self, schema: str, table: str) -> TargetTable | None:
        """Return the cached target of a source's table; raises :class:`TablesClashError`."""
        return self._owned((schema, table), self._tables.get((schema, table)))

    def find(self, connection: Connection, schema: str, table: str) -> TargetTable | None:
        """Return the target of a source's table; ``None`` if there is none."""
        source = (schema, table)
        if source not in self._tables:
            self._tables[source] = self._look(connection, source)
        return self._owned(source, self._tables[source])

    def adopt(self, owners: Owners) -> None:
        """Add the stored owners of target tables."""
        self._owners.update(owners)

    def restore(self, owners: Owners) -> None:
        """Replace all owners of target tables by the stored ones."""
        self._owners = dict(owners)

    @property
    def owners(self) -> Owners:
        """First source table of each target table."""
        return dict(self._owners)

    def owned(self, sources: Collection[tuple[str, str]]) -> Owners:
        """Return the target's tables that these tables of the source own."""
        return {target: owner for target, owner in self._owners.items() if owner in sources}

    def is_free(self, connection: Connection, schema: str | None, name: str) -> bool:
        """Return True if a table of exactly this name can be created."""
        if self._backend == "sqlite":
            return False
        if self._folds_names(connection):
            return False
        return name not in inspect(connection).get_table_names(schema)

    def claim(self, source: tuple[str, str], target: tuple[str | None, str]) -> None:
        """Check that a target's table has one source, unless the settings allow more.

        The first source table becomes its owner. Raises :class:`TablesClashError`.
        """
        owner = self._owners.setdefault(target, source)
        if not self._goes_to(owner, target):
            # The settings were different when that was stored.
            owner = self._owners[target] = source
        if owner != source and not self._may_share(source, owner, target):
            raise TablesClashError(
                f"the tables {_text(owner)} and {_text(source)} would both be the target's table "
                f"{target[1]}: leave one out, or give them names of their own by --table-map "
                "or --schema-map"
            )

    def _owned(self, source: tuple[str, str], found: TargetTable | None) -> TargetTable | None:
        """Return a target's table after its owner is checked."""
        if found is not None:
            self.claim(source, found.identity)
        return found

    def _folds_names(self, connection: Connection) -> bool:
        """Return True if the server's names of tables are case-insensitive."""
        query = "SELECT @@lower_case_table_names"
        return self._backend == "mysql" and bool(connection.exec_driver_sql(query).scalar())

    def _goes_to(self, source: tuple[str, str], target: tuple[str | None, str]) -> bool:
        """Return True if a source table still maps to a target table."""
        wanted = self.wanted(*source)
        return wanted is not None and _text(wanted).casefold() == _text(target).casefold()

    def _may_share(
        self, source: tuple[str, str], owner: tuple[str, str], target: tuple[str | None, str]
    ) -> bool:
        """Return True if the settings let two source tables share a target table.

        A table map allows it for tables with exactly the same target name, a schema map for tables
        with the same name. Names that differ by case are never shared.
        """
        wanted = self.wanted(*source)
        if self._is_mapped(source):
            return wanted is not None and _text(target).endswith(wanted[1])
        if self._is_mapped(owner):
            return wanted == self.wanted(*owner)
        return bool(self._schema_map) and source[1] == owner[1]

    def _is_mapped(self, source: tuple[str, str]) -> bool:
        """Return True if the table map has this table."""
        schema, table = source
        return (f"{schema}.{table}" if schema else table) in self._table_map or (
            table in self._table_map
        )

    def _look(self, connection: Connection, source: tuple[str, str]) -> TargetTable | None:
        wanted = self.wanted(*source)
        if wanted is None or wanted[1].casefold() == self._reserved.casefold():
            return None
        schema, name = wanted
        inspector = inspect(connection)
        if schema is not None and schema not in self._names:
            schemas = inspector.get_schema_names()
            if schema not in schemas and self._folds_names(connection):
                # Otherwise the same table could be found in two schemas.
                alike = (each for each in schemas if each.casefold() == schema.casefold())
                schema = next(alike, schema)
            if schema not in schemas:
                return None
        if schema not in self._names:
            self._names[schema] = inspector.get_table_names(schema)
        names = self._names[schema]
        if name not in names:
            similar = [each for each in names if each.casefold() == name.casefold()]
            if len(similar) != 1:
                return None
            name = similar[0]
        return self._reflector.describe(connection, inspector, schema, name)


def owners_to_json(owners: Owners) -> str:
    """Return owners as JSON: target schema, target table, source schema, source table."""
    return msgspec.json.encode([(*target, *source) for target, source in owners.items()]).decode()


def owners_from_json(text: str | None) -> Owners:
    """Return owners from JSON; empty for none."""
    rows = msgspec.json.decode(text or "[]", type=list[tuple[str | None, str, str, str]])
    return {row[:2]: row[2:] for row in rows}


def _text(name: tuple[str | None, str]) -> str:
    return ".".join(filter(None, name))
