"""SQL databases as targets: tables, values, planned statements and errors, for all writers.

Names are imported on first use, since some modules import the dialects of SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed

if TYPE_CHECKING:
    from stompkit.replication.sql.batches import apply_batch
    from stompkit.replication.sql.catalog import Catalog
    from stompkit.replication.sql.database import (
        Database,
        ForeignKeys,
        RejectedRowError,
        StaleRowError,
    )
    from stompkit.replication.sql.planner import Batch, Kind, write_kind
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
        create_tables,
        groups_of,
        quote,
        ranks_of,
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
    "create_tables",
    "groups_of",
    "make_columns",
    "make_table",
    "quote",
    "ranks_of",
    "rename_columns",
    "table_options",
    "write_kind",
]

_MODULES = {
    "apply_batch": "batches",
    "Catalog": "catalog",
    "Database": "database",
    "ForeignKeys": "database",
    "RejectedRowError": "database",
    "StaleRowError": "database",
    "Batch": "planner",
    "Kind": "planner",
    "write_kind": "planner",
    "ColumnChanges": "schema",
    "SchemaError": "schema",
    "SourceColumn": "schema",
    "changes_of": "schema",
    "columns_of": "schema",
    "make_columns": "schema",
    "make_table": "schema",
    "rename_columns": "schema",
    "Statements": "statements",
    "TargetColumn": "tables",
    "TargetTable": "tables",
    "create_tables": "tables",
    "groups_of": "tables",
    "quote": "tables",
    "ranks_of": "tables",
    "table_options": "tables",
    "UnstorableValueError": "values",
    "adapter": "values",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)


renamed(
    __name__,
    CannotStore="UnstorableValueError",
    Rejected="RejectedRowError",
    SchemaProblem="SchemaError",
    Stale="StaleRowError",
)
