"""The publisher of MariaDB and MySQL: it reads the binary log.

The server needs ``log_bin``, ``binlog_format=ROW`` and ``binlog_row_metadata=FULL``; the user needs
``REPLICATION SLAVE`` and ``BINLOG MONITOR`` (of MySQL ``REPLICATION CLIENT``), and ``SELECT`` for a
snapshot, and to have documents, UUIDs and addresses told from text and octets. What is wrong is
said before anything is read, all at once.

A changeset is a transaction, which is held in memory while it is read; one that was prepared by XA
is told when it is committed. Reading is resumed between transactions: by GTID at MariaDB, by file
and position at MySQL; a log that is another one than before is :class:`OffsetLost`. What can't be
told as changes of rows is :class:`StreamProblem`, and reading stops in front of it.

What foreign keys change by ``ON DELETE`` or ``ON UPDATE`` is not in the log, nor are rows that go
with a partition; the latter is a change of the table's schema, with its statement. The columns that
come with such a change are those of the catalogue as it is when the statement is read; where a row
follows that has others, they are told once more, in front of it.

A snapshot is of one moment, without a lock at MariaDB; MySQL takes a lock on all tables to begin
it, for which the user needs ``RELOAD``. One that was interrupted goes on with the rest as of a
later moment, and reading the log begins at the first: consumers have to take a row that is written
again, and are right in the end. With tables without a key that is not so: there it does not go on,
but is :class:`OffsetLost`.

Values are as in :mod:`stompkit.replication.publishers.mysql._values`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stompkit.replication.publication import Publication
from stompkit.replication.publishers.mysql._preflight import Findings
from stompkit.replication.publishers.mysql._problems import (
    MysqlProblem,
    OffsetLost,
    PreflightProblem,
    StreamProblem,
)
from stompkit.replication.publishers.mysql._publisher import MysqlPublisher, SnapshotMode
from stompkit.replication.tables import Tables

__all__ = [
    "Findings",
    "MysqlProblem",
    "MysqlPublisher",
    "OffsetLost",
    "PreflightProblem",
    "SnapshotMode",
    "StreamProblem",
    "mysql_pub",
]


def mysql_pub(
    mysql_dsn: str,
    tables: Tables | Iterable[str] | None = None,
    blocking: bool = False,  # noqa: FBT001, FBT002 - as Meepo has it
    *,
    publication: Publication | None = None,
    server_id: int | None = None,
    snapshot: SnapshotMode = "never",
    **more: Any,
) -> None:
    """Run a :class:`MysqlPublisher`, whose arguments these are, until it ends."""
    publisher = MysqlPublisher(
        mysql_dsn,
        tables,
        blocking,
        publication=publication,
        server_id=server_id,
        snapshot=snapshot,
        **more,
    )
    publisher.run()
