"""The choice between a partitioned table of PostgreSQL and its partitions.

Both are tables, but a publication sends the rows of one or the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from sqlalchemy import Connection, text

__all__ = ["chosen", "partitions_of"]

_PARTITIONS: Final = text(
    "SELECT CAST(p.relname AS text), CAST(c.relname AS text) FROM pg_inherits i"
    " JOIN pg_class p ON p.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid"
    " JOIN pg_namespace n ON n.oid = p.relnamespace"
    " WHERE p.relkind = 'p' AND c.relnamespace = n.oid AND n.nspname = current_schema()"
    " ORDER BY 1, 2"
)


def partitions_of(connection: Connection) -> dict[str, list[str]]:
    """Return the names of partitions, by partitioned table, in PostgreSQL's default schema."""
    found: dict[str, list[str]] = {}
    for name, partition in connection.execute(_PARTITIONS):
        found.setdefault(name, []).append(partition)
    return found


def chosen(
    names: Sequence[str], partitions: Mapping[str, Sequence[str]], there: Set[str]
) -> list[str]:
    """Return the tables to compare, so that each row of the source is in one at least.

    Of a partitioned table they are those that are ``there``, in the copy. Without any of its
    partitions the table stands for them, and beside some of them the others are missing.
    """
    parts = {part for each in partitions.values() for part in each}

    def below(name: str) -> Iterator[str]:
        for part in partitions.get(name, ()):
            yield part
            yield from below(part)

    def compared(name: str) -> Iterator[str]:
        held = [each for each in below(name) if each in there]
        if name in there or not held:
            yield from (name, *held)
            return
        for part in partitions[name]:
            yield from compared(part)

    found = {each for name in names if name not in parts for each in compared(name)}
    return [name for name in names if name in found]
