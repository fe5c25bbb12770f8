"""Tables of databases, as pipelines find them by the names of the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection

from stompkit.replication.sinks.sql.parts import Catalog, Database, TargetTable
from stompkit.spark.jobs.settings import PipelineProblem, TargetSettings
from stompkit.spark.targets._pipeline_tables import PipelineTables

__all__ = ["Tables"]


class Tables:
    """The tables of one database."""

    def __init__(self, url: str, settings: TargetSettings | None, place: str) -> None:
        """Connect to nothing yet.

        ``settings`` are those of a target, whose tables may be called otherwise; ``place`` is where
        the URL is from. Raises PipelineProblem for one that is none of a database.
        """
        try:
            self.database: Final = Database(url, "deferred")
        except ValueError as error:
            raise PipelineProblem(f"{place}: {error}") from None
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
        """The database, for people, without secrets."""
        return self.database.name

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction; raises SinkUnavailable."""
        with self.database.transaction() as connection:
            yield connection

    def find(self, connection: Connection, schema: str, table: str) -> TargetTable | None:
        """The table for one of the source."""
        return self._catalog.find(connection, schema, table)

    def forget(self) -> None:
        """Look at tables again."""
        self._catalog.forget()

    def count(self, connection: Connection, table: TargetTable) -> int:
        """How many rows it has."""
        statement = f"SELECT COUNT(*) FROM {table.quoted}"
        return int(connection.exec_driver_sql(statement).scalar_one())

    def has_rows(self, connection: Connection, table: TargetTable) -> bool:
        """Whether it has any."""
        statement = f"SELECT 1 FROM {table.quoted} LIMIT 1"
        return connection.exec_driver_sql(statement).first() is not None

    def close(self) -> None:
        """Disconnect."""
        self.database.close()
