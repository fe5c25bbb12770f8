"""SQL databases as targets: tables, values, planned statements and errors, for all writers.

Names are imported on first use, since some modules import the dialects of SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed

if TYPE_CHECKING:
    from stompkit.replication.sql.batches import apply_batch
    from stompkit.replication.sql.catalog import (
        Catalog,
        Owners,
        TablesClashError,
        owners_from_json,
        owners_to_json,
    )
    from stompkit.replication.sql.database import (
        Database,
        ForeignKeys,
        RejectedRowError,
        StaleRowError,
    )
    from stompkit.replication.sql.planner import Batch, Kind
    from stompkit.replication.sql.planner.shape import (
        ClashingColumnsError,
        Columns,
        Shape,
        UnfitValueError,
        WriteKind,
        adapted,
        shape_of,
    )
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
    "ClashingColumnsError",
    "ColumnChanges",
    "Columns",
    "Database",
    "ForeignKeys",
    "Kind",
    "Owners",
    "RejectedRowError",
    "SchemaError",
    "Shape",
    "SourceColumn",
    "StaleRowError",
    "Statements",
    "TablesClashError",
    "TargetColumn",
    "TargetTable",
    "UnfitValueError",
    "UnstorableValueError",
    "WriteKind",
    "adapted",
    "adapter",
    "apply_batch",
    "changes_of",
    "columns_of",
    "create_tables",
    "groups_of",
    "make_columns",
    "make_table",
    "owners_from_json",
    "owners_to_json",
    "quote",
    "ranks_of",
    "rename_columns",
    "shape_of",
    "table_options",
]

_MODULES = {
    "apply_batch": "batches",
    "Catalog": "catalog",
    "Owners": "catalog",
    "TablesClashError": "catalog",
    "owners_from_json": "catalog",
    "owners_to_json": "catalog",
    "Database": "database",
    "ForeignKeys": "database",
    "RejectedRowError": "database",
    "StaleRowError": "database",
    "Batch": "planner",
    "Kind": "planner",
    "ClashingColumnsError": "planner.shape",
    "Columns": "planner.shape",
    "Shape": "planner.shape",
    "UnfitValueError": "planner.shape",
    "WriteKind": "planner.shape",
    "adapted": "planner.shape",
    "shape_of": "planner.shape",
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
