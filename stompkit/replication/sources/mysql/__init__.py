"""The publisher for MariaDB and MySQL: it reads the binary log.

The server needs ``log_bin``, ``binlog_format=ROW`` and ``binlog_row_metadata=FULL``. The user needs
``REPLICATION SLAVE`` and ``BINLOG MONITOR`` (for MySQL ``REPLICATION CLIENT``). It needs
``SELECT`` for a snapshot, and to distinguish documents, UUIDs and addresses from text and bytes.
The preflight reports all problems at once, before anything is read.

A changeset is a transaction, which is held in memory while it is read; an XA transaction is
published when it is committed. Reading resumes between transactions: by GTID with MariaDB, by file
and position with MySQL. If the log is not the same log as before, this raises
:class:`OffsetLostError`. Events that cannot be expressed as row changes raise :class:`StreamError`,
and reading stops before them.

The log does not contain changes that foreign keys make by ``ON DELETE`` or ``ON UPDATE``, nor rows
of dropped partitions; the latter is published as a schema change with its statement. The columns
of a schema change are those of the catalogue when the statement is read. If a later row has
other columns, they are published again before it.

A snapshot shows one point in time. MariaDB needs no lock for it; MySQL briefly locks all tables to
start it, for which the user needs ``RELOAD``. An interrupted snapshot continues with the remaining
rows as of a later time, and the log is read from the start of the first. Consumers must therefore
accept that a row is written again; in the end they are consistent. This is impossible for tables
without a key, for which an interrupted snapshot raises :class:`OffsetLostError`.

For the types of values see :mod:`stompkit.replication.sources.mysql._binlog.values`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stompkit._common.moved import renamed
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.mysql._errors import (
    MysqlError,
    OffsetLostError,
    PreflightError,
    StreamError,
)
from stompkit.replication.sources.mysql._preflight import Findings
from stompkit.replication.sources.mysql._source import MysqlPublisher, SnapshotMode
from stompkit.replication.sources.publication import Publication

__all__ = [
    "Findings",
    "MysqlError",
    "MysqlPublisher",
    "OffsetLostError",
    "PreflightError",
    "SnapshotMode",
    "StreamError",
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
    """Run a :class:`MysqlPublisher` with these arguments until it ends."""
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


renamed(
    __name__,
    MysqlProblem="MysqlError",
    OffsetLost="OffsetLostError",
    PreflightProblem="PreflightError",
    StreamProblem="StreamError",
)
