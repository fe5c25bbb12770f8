"""Tables of pipelines in the target's own database: fence, tombstones, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from stompkit.replication.sql import Owners, create_tables, owners_from_json, owners_to_json
from stompkit.spark.states import Problem
from stompkit.spark.targets.base import letters_of

__all__ = ["PipelineTables", "Version"]

#: Partition number of the row that locks a pipeline's fence; no partition has it.
_ANCHOR: Final = -1
#: Maximum number of keys in one query.
_MOST_KEYS: Final = 500

#: Version of a row: the value that orders changes, as text with the same sort order.
Version = str


class PipelineTables:
    """The tables of all pipelines with one target database.

    ``stompkit_pipeline_fence``: the ordinal of the last applied message.
    ``stompkit_pipeline_tombstones``: the versions of rows, including deleted ones, for pipelines
    that do not order changes by ordinals. ``stompkit_pipeline_dead_letters``: changes that could
    not be applied. ``stompkit_pipeline_tables``: the source tables of the target's tables.
    """

    def __init__(self) -> None:
        """Describe the tables."""
        data = MetaData()
        text = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
        self.fence = Table(
            "stompkit_pipeline_fence",
            data,
            Column("pipeline", String(100), primary_key=True),
            Column("spool", String(64), primary_key=True),
            Column("partition_no", Integer, primary_key=True, autoincrement=False),
            Column("ordinal", BigInteger, nullable=False),
        )
        self.tombstones = Table(
            "stompkit_pipeline_tombstones",
            data,
            Column("pipeline", String(100), primary_key=True),
            Column("table_name", String(200), primary_key=True),
            # JSON, or a digest of longer JSON.
            Column("key", String(200), primary_key=True),
            Column("version", String(100), nullable=False),
            Column("ordinal", BigInteger, nullable=False),
            # UTC; NULL for an existing row.
            Column("deleted_at", DateTime),
        )
        self.dead_letters = Table(
            "stompkit_pipeline_dead_letters",
            data,
            Column("pipeline", String(100), primary_key=True),
            Column("spool", String(64), primary_key=True),
            Column("partition_no", Integer, primary_key=True, autoincrement=False),
            Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
            Column("change_no", Integer, primary_key=True, autoincrement=False),
            Column("table_name", text, nullable=False),
            Column("operation", String(20), nullable=False),
            Column("row_key", text),
            Column("problem", text, nullable=False),
            # UTC.
            Column("at", DateTime, nullable=False),
        )
        self._tables = tuple(data.tables.values())
        #: Targets of older versions lack it.
        self._owners = Table(
            "stompkit_pipeline_tables",
            MetaData(),
            Column("pipeline", String(100), primary_key=True),
            Column("spool", String(64), primary_key=True),
            # Owners of tables, as JSON.
            Column("tables", text, nullable=False),
        )
        self._has_owners = False

    def missing(self, connection: Connection) -> bool:
        """Return True if one of the tables is missing."""
        there = set(inspect(connection).get_table_names())
        return any(table.name not in there for table in self._tables)

    def create(self, connection: Connection) -> None:
        """Create missing tables, except for that of owners."""
        create_tables(connection, self._tables)

    def create_owners(self, connection: Connection) -> None:
        """Create the table of owners if it is missing; without it, nothing is stored there."""
        create_tables(connection, [self._owners])

    def owners(self, connection: Connection, pipeline: str) -> Owners:
        """Return the source tables that a pipeline has written to the target's tables."""
        self._has_owners = self._has_owners or inspect(connection).has_table(self._owners.name)
        if not self._has_owners:
            return {}
        column = self._owners.c
        found: dict[tuple[str | None, str], tuple[str, str]] = {}
        chosen = select(column.tables).where(column.pipeline == pipeline).order_by(column.spool)
        for text in connection.execute(chosen).scalars():
            found.update(owners_from_json(text))
        return found

    def store_owners(
        self, connection: Connection, pipeline: str, spool: str, owners: Owners
    ) -> None:
        """Store the owners of tables; the fence is locked."""
        if self._has_owners:
            column = self._owners.c
            connection.execute(
                delete(self._owners).where(column.pipeline == pipeline, column.spool == spool)
            )
            row = {"pipeline": pipeline, "spool": spool, "tables": owners_to_json(owners)}
            connection.execute(insert(self._owners), row)

    def load(self, connection: Connection, pipeline: str, spool: str) -> dict[int, int]:
        """Return the committed fence."""
        column = self.fence.c
        found = select(column.partition_no, column.ordinal).where(
            column.pipeline == pipeline, column.spool == spool, column.partition_no != _ANCHOR
        )
        return {int(number): int(ordinal) for number, ordinal in connection.execute(found)}

    def lock(self, connection: Connection, pipeline: str, spool: str) -> dict[int, int]:
        """Return the fence, and lock it until the end of this transaction."""
        row = {"pipeline": pipeline, "spool": spool, "partition_no": _ANCHOR, "ordinal": -1}
        column = self.fence.c
        anchor = (
            select(column.ordinal)
            .where(
                column.pipeline == pipeline,
                column.spool == spool,
                column.partition_no == _ANCHOR,
            )
            .with_for_update()
        )
        dialect = connection.dialect.name
        # SQLite locks the whole database at the first statement that writes.
        if dialect == "sqlite":
            connection.execute(sqlite.insert(self.fence).on_conflict_do_nothing(), row)
        elif connection.execute(anchor).one_or_none() is None:
            if dialect == "postgresql":
                connection.execute(postgresql.insert(self.fence).on_conflict_do_nothing(), row)
            else:
                connection.execute(insert(self.fence).prefix_with("IGNORE"), row)
            connection.execute(anchor)
        return self.load(connection, pipeline, spool)

    def store(
        self,
        connection: Connection,
        pipeline: str,
        spool: str,
        before: Mapping[int, int],
        after: Mapping[int, int],
    ) -> None:
        """Move the locked fence."""
        column = self.fence.c
        for number, ordinal in after.items():
            row = {"pipeline": pipeline, "spool": spool, "partition_no": number}
            if number not in before:
                connection.execute(insert(self.fence), {**row, "ordinal": ordinal})
            elif ordinal != before[number]:
                there = (
                    update(self.fence)
                    .where(
                        column.pipeline == pipeline,
                        column.spool == spool,
                        column.partition_no == number,
                    )
                    .values(ordinal=ordinal)
                )
                connection.execute(there)

    def bury(
        self, connection: Connection, pipeline: str, spool: str, problems: Iterable[Problem]
    ) -> int:
        """Store changes that cannot be applied; return their number.

        The latest problem of a change is kept: a change is applied again if its fence was lost.
        """
        rows = letters_of(pipeline, spool, problems, datetime.now(UTC).replace(tzinfo=None))
        if rows:
            column = self.dead_letters.c
            places = ("pipeline", "spool", "partition_no", "ordinal", "change_no")
            there = delete(self.dead_letters).where(
                *(column[name] == bindparam(f"its_{name}") for name in places)
            )
            keys = [{f"its_{name}": row[name] for name in places} for row in rows]
            connection.execute(there, keys)
            connection.execute(insert(self.dead_letters), rows)
        return len(rows)

    def versions(
        self, connection: Connection, pipeline: str, table: str, keys: Sequence[str]
    ) -> dict[str, Version]:
        """Return the versions of rows that this pipeline has written or deleted."""
        column = self.tombstones.c
        found: dict[str, Version] = {}
        for begin in range(0, len(keys), _MOST_KEYS):
            chosen = select(column.key, column.version).where(
                column.pipeline == pipeline,
                column.table_name == table,
                column.key.in_(keys[begin : begin + _MOST_KEYS]),
            )
            found.update({key: version for key, version in connection.execute(chosen)})
        return found

    def remember(
        self,
        connection: Connection,
        pipeline: str,
        table: str,
        rows: Mapping[str, tuple[Version, int, bool]],
        known: Iterable[str],
    ) -> None:
        """Store versions, ordinals, and deletions of rows by key."""
        column = self.tombstones.c
        stale = [key for key in known if key in rows]
        for begin in range(0, len(stale), _MOST_KEYS):
            connection.execute(
                delete(self.tombstones).where(
                    column.pipeline == pipeline,
                    column.table_name == table,
                    column.key.in_(stale[begin : begin + _MOST_KEYS]),
                )
            )
        now = datetime.now(UTC).replace(tzinfo=None)
        made = [
            {
                "pipeline": pipeline,
                "table_name": table,
                "key": key,
                "version": version,
                "ordinal": ordinal,
                "deleted_at": now if is_gone else None,
            }
            for key, (version, ordinal, is_gone) in rows.items()
        ]
        if made:
            connection.execute(insert(self.tombstones), made)

    def expire(self, connection: Connection, pipeline: str, age_s: float) -> int:
        """Remove tombstones older than that many seconds; return their number."""
        column = self.tombstones.c
        before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=age_s)
        return connection.execute(
            delete(self.tombstones).where(column.pipeline == pipeline, column.deleted_at < before)
        ).rowcount
