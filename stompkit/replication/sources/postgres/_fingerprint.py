"""A fingerprint of the catalogue, by which a survey knows if it has to read the tables again."""

from __future__ import annotations

from typing import Final

from stompkit.replication.sources.postgres._connections import Connection

__all__ = ["fingerprint"]

#: The rows of the catalogue on which a survey depends, as the fields and the source of a query.
#: The fields of a row are hashed together: sums of single fields stay equal if objects exchange
#: their names, types or other properties.
_ROWS: Final = (
    (
        "oid, relname, relnamespace, relkind, relpersistence, relreplident, relispartition,"
        " relowner, relacl",
        "pg_class WHERE oid >= 16384 AND relkind IN ('r', 'p')",
    ),
    (
        "attrelid, attnum, attname, atttypid, atttypmod, attnotnull, atthasdef, attidentity,"
        " attgenerated, attisdropped",
        "pg_attribute WHERE attrelid >= 16384 AND attnum > 0",
    ),
    (
        "oid, nspname, nspacl",
        "pg_namespace WHERE oid >= 16384 AND nspname !~ '^pg_' OR nspname = 'public'",
    ),
    ("oid, enumtypid, enumlabel", "pg_enum"),
    (
        "oid, typname, typnamespace, typbasetype, typtypmod",
        "pg_type WHERE oid >= 16384 AND typtype IN ('c', 'd', 'e')",
    ),
    (
        "indexrelid, indrelid, indkey, indisprimary, indisreplident, indisvalid, indimmediate",
        "pg_index WHERE indrelid >= 16384 AND (indisprimary OR indisreplident)",
    ),
    ("inhrelid, inhparent", "pg_inherits WHERE inhrelid >= 16384"),
    ("each.*", "pg_publication each"),
    ("each.*", "pg_publication_rel each"),
)
#: Since version 15.
_SCHEMAS: Final = ("each.*", "pg_publication_namespace each")
_VERSION_OF_SCHEMAS: Final = 150_000


def fingerprint(connection: Connection) -> object:
    """Return a value that changes when tables, their types or the publications change.

    Raises :class:`psycopg.Error`.
    """
    has_schemas = connection.info.server_version >= _VERSION_OF_SCHEMAS
    rows = (*_ROWS, _SCHEMAS) if has_schemas else _ROWS
    sums = ", ".join(
        f"(SELECT sum(hashtextextended(ROW({fields})::text, 0)) FROM {source})"
        for fields, source in rows
    )
    return connection.execute(f"SELECT {sums}".encode()).fetchone()
