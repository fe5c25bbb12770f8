"""Database tables of a pipeline, by the names of the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from stompkit.replication.sinks.sql import SinkUnavailableError
from stompkit.replication.sql import Catalog, Database, TargetTable
from stompkit.spark.jobs.settings import PipelineError, TargetSettings, unusable
from stompkit.spark.targets.database.pipeline_tables import PipelineTables

__all__ = ["Tables"]


#: Schemes of targets that are no databases.
_FILES: Final = ("delta", "parquet")


class Tables:
    """The tables of one database."""

    def __init__(self, url: str, settings: TargetSettings | None, place: str) -> None:
        """Start unconnected.

        ``settings`` are those of a target, whose tables may have other names; ``place`` is the
        setting that contains the URL. Raises PipelineError for a URL that is not one of a
        database.
        """
        kind = url.partition(":")[0].partition("+")[0]
        if kind in _FILES:
            raise PipelineError(
                f"{place}: this job needs a database, and {kind}:// has tables in files. Name"
                " a database with --target. To write the files again, remove them and the"
                " checkpoint of replicate, and run replicate"
            )
        try:
            self.database: Final = Database(url, "deferred")
        except ValueError as error:
            raise unusable(place, error) from None
        self._place: Final = place
        self.books: Final = PipelineTables()
        self._catalog: Final = Catalog(
            schema_map={} if settings is None else settings.schema_map,
            table_map={} if settings is None else settings.table_map,
            reserved=self.books.fence.name,
            backend=self.database.backend,
            is_lossy=False,
            checks_foreign_keys=settings is not None and settings.foreign_keys != "off",
            defers_foreign_keys=settings is not None and settings.foreign_keys == "deferred",
        )

    @property
    def name(self) -> str:
        """Name of the database for users, without secrets."""
        return self.database.name

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Open a transaction; raises SinkUnavailableError, which names the setting."""
        try:
            with self.database.transaction() as connection:
                yield connection
        except SinkUnavailableError as error:
            raise type(error)(f"{self._place}: {error}") from error

    def find(self, connection: Connection, schema: str, table: str) -> TargetTable | None:
        """Return the table that corresponds to a source table."""
        return self._catalog.find(connection, schema, table)

    def forget(self) -> None:
        """Clear the cached tables."""
        self._catalog.forget()

    def count(self, connection: Connection, table: TargetTable) -> int:
        """Return the number of rows in a table."""
        statement = f"SELECT COUNT(*) FROM {table.quoted}"
        return int(connection.exec_driver_sql(statement).scalar_one())

    def has_rows(self, connection: Connection, table: TargetTable) -> bool:
        """Return True if the table has rows."""
        statement = f"SELECT 1 FROM {table.quoted} LIMIT 1"
        return connection.exec_driver_sql(statement).first() is not None

    def close(self) -> None:
        """Disconnect."""
        self.database.close()
