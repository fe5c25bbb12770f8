"""Choose the store for the URL of an SQL database."""

from __future__ import annotations

from typing import Final

from stompkit.server.interfaces import MessageStore

__all__ = ["is_postgresql", "sql_store"]

#: Other URLs of PostgreSQL name another driver than psycopg.
_POSTGRESQL: Final = ("postgresql://", "postgresql+psycopg://")


def is_postgresql(url: str) -> bool:
    """Return True if the URL is for PostgreSQL, with psycopg."""
    return url.startswith(_POSTGRESQL)


def sql_store(url: str, *, synchronous: bool = True) -> MessageStore:
    """Return the store in the database at a URL, without opening it.

    Raises ValueError for an invalid URL, ModuleNotFoundError if a package is missing.
    """
    # Imported on demand, since SQLAlchemy and psycopg are optional dependencies.
    from stompkit.server.stores.sqlalchemy import SqlAlchemyStore

    if is_postgresql(url):
        try:
            from stompkit.server.stores.postgresql.store import PostgresStore
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "a store in PostgreSQL needs psycopg: pip install 'stompkit[sql,postgresql]'",
                name=error.name,
            ) from error
        return PostgresStore(url, synchronous=synchronous)
    return SqlAlchemyStore(url, synchronous=synchronous)
