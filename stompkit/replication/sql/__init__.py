"""SQL databases as targets: tables, values, planned statements and errors, for all writers."""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.replication.sql.batches import apply_batch
from stompkit.replication.sql.catalog import Catalog
from stompkit.replication.sql.database import (
    Database,
    ForeignKeys,
    RejectedRowError,
    StaleRowError,
)
from stompkit.replication.sql.planner import Batch, Kind
from stompkit.replication.sql.schema import (
    ColumnChanges,
    SchemaError,
    SourceColumn,
    changes_of,
    columns_of,
    make_columns,
    make_table,
    rename_columns,
)
from stompkit.replication.sql.statements import Statements
from stompkit.replication.sql.tables import (
    TargetColumn,
    TargetTable,
    groups_of,
    quote,
    table_options,
)
from stompkit.replication.sql.values import UnstorableValueError, adapter

__all__ = [
    "Batch",
    "Catalog",
    "ColumnChanges",
    "Database",
    "ForeignKeys",
    "Kind",
    "RejectedRowError",
    "SchemaError",
    "SourceColumn",
    "StaleRowError",
    "Statements",
    "TargetColumn",
    "TargetTable",
    "UnstorableValueError",
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

renamed(
    __name__,
    CannotStore="UnstorableValueError",
    Rejected="RejectedRowError",
    SchemaProblem="SchemaError",
    Stale="StaleRowError",
)
