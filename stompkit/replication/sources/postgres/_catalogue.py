"""Tables in the server's catalogue: details that the replication stream lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stompkit.replication.sources.postgres._connections import Connection, is_unchecked
from stompkit.replication.sources.postgres.pgoutput import Column, Relation

__all__ = ["CatalogueTable", "TypeForm", "read_references", "read_tables", "unreadable_tables"]


class TypeForm(msgspec.Struct, frozen=True):
    """The parts of a type that determine the text of existing values.

    ``ALTER TYPE`` changes such values without changing rows: it renames the labels of an
    enumeration, and adds and drops the attributes of a composite type.
    """

    name: str
    #: Labels, or attributes, as a number that grows and a digest.
    parts: tuple[tuple[int, str], ...]
    #: True if existing values do not have the parts that were added later.
    is_enumeration: bool

    def noted(self) -> list[Any]:
        """Return the number of the last part and a digest, for a checkpoint."""
        last = max((number for number, _ in self.parts), default=0)
        return [last, self._digest(last)]

    def has_changed(self, noted: list[Any]) -> bool:
        """Return True if values that existed then have another text now; see :meth:`noted`."""
        last, digest = noted
        return bool(self._digest(last) != digest)

    def _digest(self, last: int) -> str:
        """Return a digest of the parts, of an enumeration only those up to ``last``."""
        parts = [each for each in self.parts if not self.is_enumeration or each[0] <= last]
        return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


class CatalogueTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that can be published, in its current state."""

    oid: int
    schema: str
    name: str
    #: ``relreplident``: the replica identity; see :class:`Relation`.
    identity: str
    is_partitioned: bool
    #: Columns of the primary key or of the replica identity index, in order.
    key: tuple[str, ...]
    #: Columns that are not generated.
    columns: tuple[Column, ...]
    nullable: frozenset[str]
    #: Numbers of columns by their names; the table never reuses a number.
    numbers: dict[str, int]
    #: Generated columns, with their numbers: the stream does not contain them.
    generated: dict[str, int]
    #: Nullable columns without a default: all rows have NULL when such a column is added.
    plain: frozenset[str]
    #: Base types of the domains among the column types, with their modifiers.
    domains: dict[int, tuple[int, int]]
    #: Enumerations and composite types that the columns' types contain, by OID.
    forms: dict[int, TypeForm]
    #: Estimated number of rows.
    rows: int
    #: True if the user may add it to a publication, and read it.
    is_owned: bool
    may_be_read: bool

    @property
    def full_name(self) -> str:
        """Name with the schema."""
        return f"{self.schema}.{self.name}"

    @property
    def place(self) -> tuple[str, str]:
        """Schema and name."""
        return self.schema, self.name

    @property
    def is_identified(self) -> bool:
        """True if the server accepts updates and deletes when the table is published."""
        return self.identity == "f" or (self.identity != "n" and bool(self.key))

    @property
    def types(self) -> dict[str, list[Any]]:
        """The forms as a checkpoint has them, by OID; see :meth:`renewed_type`."""
        return {str(oid): form.noted() for oid, form in sorted(self.forms.items())}

    def renewed_type(self, types: dict[str, list[Any]]) -> str:
        """Return the name of a type whose values are written in another way than they were."""
        for oid, form in self.forms.items():
            noted = types.get(str(oid))
            if noted is not None and form.has_changed(noted):
                return form.name
        return ""

    @property
    def relation(self) -> Relation:
        """Relation as the stream would describe it."""
        return Relation(self.oid, self.schema, self.name, self.identity, self.columns)


_TABLES: Final = b"""
SELECT c.oid, n.nspname, c.relname, c.relreplident::text, c.relkind = 'p',
    greatest(c.reltuples, 0)::bigint, pg_has_role(c.relowner, 'USAGE'),
    has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT'),
    ARRAY(
        SELECT a.attname::text
        FROM pg_index i
        CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
        WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate AND k.place <= i.indnkeyatts
            AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END
        ORDER BY k.place
    )
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND (%(oids)s::oid[] IS NULL OR c.oid = ANY (%(oids)s::oid[]))
    AND c.oid <> ALL (%(unreadable)s::oid[])
ORDER BY n.nspname, c.relname
"""
_COLUMNS: Final = b"""
SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attnum,
    a.atthasdef OR a.attidentity <> '', a.attgenerated <> ''
FROM pg_attribute a
WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_NAMES: Final = b"""
SELECT DISTINCT convert_to(name, 'SQL_ASCII'), c.oid
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN unnest(ARRAY[n.nspname::text, c.relname::text, a.attname::text]) AS each (name)
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND name IS NOT NULL
ORDER BY 1
"""
_PUBLISHED: Final = b"""
SELECT c.oid
FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = %s
"""
#: OID of the first type that is not the server's own.
_FIRST_OID: Final = 16384
#: Types that others consist of: items, base types, ranges' values, attributes.
_INNER_TYPES: Final = b"""
WITH RECURSIVE used (outermost, oid) AS (
    SELECT given, given FROM unnest(%s::oid[]) AS given
    UNION
    SELECT u.outermost, inside.oid
    FROM used u
    JOIN pg_type y ON y.oid = u.oid
    CROSS JOIN LATERAL (
        SELECT unnest(ARRAY[y.typelem, y.typbasetype])
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = y.oid
        UNION ALL SELECT a.atttypid FROM pg_attribute a
        WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS inside (oid)
    WHERE inside.oid >= 16384
)
SELECT u.outermost, y.oid, y.typtype = 'e', format_type(y.oid, NULL),
    CASE WHEN y.typtype = 'e' THEN ARRAY(
        SELECT ARRAY[e.oid::text, md5(e.enumlabel)] FROM pg_enum e WHERE e.enumtypid = y.oid
        ORDER BY e.oid
    ) ELSE ARRAY(
        SELECT ARRAY[a.attnum::text, a.atttypid::text] FROM pg_attribute a
        WHERE a.attrelid = y.typrelid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
    ) END
FROM used u JOIN pg_type y ON y.oid = u.oid
WHERE y.typtype IN ('c', 'e')
"""
_DOMAINS: Final = b"SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'"


def read_tables(
    connection: Connection, oids: Iterable[int] | None = None
) -> dict[int, CatalogueTable]:
    """Return the tables with those OIDs, or all non-system tables, by OID and in order of names.

    Tables with names that are not UTF-8 are omitted.
    """
    wanted = None if oids is None else list(oids)
    unreadable = sorted(unreadable_tables(connection))
    rows = connection.execute(_TABLES, {"oids": wanted, "unreadable": unreadable}).fetchall()
    found: dict[int, list[tuple[Any, ...]]] = {row[0]: [] for row in rows}
    generated: dict[int, dict[str, int]] = {oid: {} for oid in found}
    for oid, *column, is_generated in connection.execute(_COLUMNS, [list(found)]):
        if is_generated:
            generated[oid][column[0]] = column[4]
        else:
            found[oid].append(tuple(column))
    domains = {row[0]: (row[1], row[2]) for row in connection.execute(_DOMAINS)}
    types = {column[1] for columns in found.values() for column in columns}
    forms = _read_forms(connection, types)
    tables = {}
    for oid, schema, name, identity, is_partitioned, estimate, is_owned, may_read, key in rows:
        columns = tuple(
            Column(column, type_oid, modifier, identity == "f" or column in key)
            for column, type_oid, modifier, *_ in found[oid]
        )
        tables[oid] = CatalogueTable(
            oid=oid,
            schema=schema,
            name=name,
            identity=identity,
            is_partitioned=is_partitioned,
            key=tuple(key),
            columns=columns,
            nullable=frozenset(row[0] for row in found[oid] if not row[3]),
            numbers={row[0]: row[4] for row in found[oid]},
            generated=generated[oid],
            plain=frozenset(row[0] for row in found[oid] if not row[3] and not row[5]),
            domains={
                each.type_oid: _base(each.type_oid, domains)
                for each in columns
                if each.type_oid in domains
            },
            forms={
                oid: form for each in columns for oid, form in forms.get(each.type_oid, {}).items()
            },
            rows=estimate,
            is_owned=is_owned,
            may_be_read=may_read,
        )
    return tables


def _read_forms(connection: Connection, types: set[int]) -> dict[int, dict[int, TypeForm]]:
    """Return the enumerations and composite types that types contain, by their OIDs."""
    forms: dict[int, dict[int, TypeForm]] = {}
    wanted = sorted(each for each in types if each >= _FIRST_OID)
    for outermost, oid, is_enumeration, name, parts in (
        connection.execute(_INNER_TYPES, [wanted]) if wanted else ()
    ):
        found = tuple((int(number), digest) for number, digest in parts)
        forms.setdefault(outermost, {})[oid] = TypeForm(name, found, is_enumeration)
    return forms


def unreadable_tables(
    connection: Connection, *, publication: str | None = None
) -> dict[int, list[bytes]]:
    """Return the names that are not UTF-8, by table; of a publication's tables, or of all.

    Only a database in SQL_ASCII has such names, and its server aborts queries that return them.
    """
    if not is_unchecked(connection):
        return {}
    found: dict[int, list[bytes]] = {}
    for name, oid in connection.execute(_NAMES):
        try:
            name.decode()
        except UnicodeDecodeError:
            found.setdefault(oid, []).append(name)
    if publication is None or not found:
        return found
    published = {oid for (oid,) in connection.execute(_PUBLISHED, [publication])}
    return {oid: names for oid, names in found.items() if oid in published}


def read_references(connection: Connection) -> list[tuple[int, int]]:
    """Return the foreign keys: the OIDs of a table and of the table it references."""
    query = b"SELECT conrelid::bigint, confrelid::bigint FROM pg_constraint WHERE contype = 'f'"
    return [(child, parent) for child, parent in connection.execute(query)]


def _base(type_oid: int, domains: dict[int, tuple[int, int]]) -> tuple[int, int]:
    modifier = -1
    while type_oid in domains:
        type_oid, modifier = domains[type_oid]
    return type_oid, modifier
