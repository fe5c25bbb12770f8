"""Parts of the SQL sink for other writers: its tables, values and errors."""

from __future__ import annotations

from stompkit.replication.sinks.sql._database import Database, ForeignKeys, Rejected, Stale
from stompkit.replication.sinks.sql._plan import Batch, Kind
from stompkit.replication.sinks.sql._rows import apply_batch
from stompkit.replication.sinks.sql._schema import (
    ColumnChanges,
    SchemaProblem,
    SourceColumn,
    changes_of,
    columns_of,
    make_columns,
    make_table,
    rename_columns,
)
from stompkit.replication.sinks.sql._statements import Statements
from stompkit.replication.sinks.sql._tables import (
    Catalog,
    TargetColumn,
    TargetTable,
    groups_of,
    quote,
    table_options,
)
from stompkit.replication.sinks.sql._values import CannotStore, adapter

__all__ = [
    "Batch",
    "CannotStore",
    "Catalog",
    "ColumnChanges",
    "Database",
    "ForeignKeys",
    "Kind",
    "Rejected",
    "SchemaProblem",
    "SourceColumn",
    "Stale",
    "Statements",
    "TargetColumn",
    "TargetTable",
    "adapter",
    "apply_batch",
    "changes_of",
    "columns_of",
    "groups_of",
    "make_columns",
    "make_table",
    "quote",
    "rename_columns",
    "table_options",
]
