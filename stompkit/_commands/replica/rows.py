"""Parsing of row keys, for ``stompkit replica``."""

from __future__ import annotations

from sqlalchemy import inspect
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.types import String

from stompkit._commands.replica.documents import is_document
from stompkit._commands.replica.subcommand import ReplicaUsageError
from stompkit._commands.shared.values import parse_key
from stompkit.replica import Replica
from stompkit.replication.model.values import Value

__all__ = ["key_of"]


def key_of(replica: Replica, table: str, text: str) -> dict[str, Value]:
    """Return the key that a text denotes in a table; raises :class:`ReplicaUsageError`."""
    columns, texts = ["id"], ["id"]
    if not is_document(table):
        columns, texts = _key_columns(replica, table)
    try:
        return parse_key(text, columns, texts)
    except ValueError as problem:
        raise ReplicaUsageError(f"{table} {text}: {problem}") from None


def _key_columns(replica: Replica, table: str) -> tuple[list[str], list[str]]:
    """Return a table's key columns, and those with text; empty if the table is missing."""
    schema, _, name = table.rpartition(".")
    inspector = inspect(replica.store.engine)
    try:
        columns = inspector.get_pk_constraint(name, schema or None)["constrained_columns"]
        types = {each["name"]: each["type"] for each in inspector.get_columns(name, schema or None)}
    except NoSuchTableError:
        return [], []
    return columns, [name for name in columns if isinstance(types[name], String)]
