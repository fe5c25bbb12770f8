"""Parts of the SQL sink for other writers: its tables, values and errors."""

from __future__ import annotations

from stompkit._common.moved import renamed
from stompkit.replication.sinks.sql._database import (
    Database,
    ForeignKeys,
    RejectedRowError,
    StaleRowError,
)
from stompkit.replication.sinks.sql._plan import Batch, Kind
from stompkit.replication.sinks.sql._rows import apply_batch
from stompkit.replication.sinks.sql._schema import (
    ColumnChanges,
    SchemaError,
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
from stompkit.replication.sinks.sql._values import UnstorableValueError, adapter

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
