"""Publisher for PostgreSQL, by logical replication.

The server needs ``wal_level = logical`` and PostgreSQL 12 or newer; nothing is installed in it:
``pgoutput`` is built in. The server keeps the log until it was read. When a publisher is no longer
used, drop its slot (``pg_drop_replication_slot``), or the disk fills up.

The changes of a transaction are one changeset. Its ``source`` has the log position after the commit
as ``position``, such as ``16/B374D848``, the number of the transaction, and the time of the
commit. In its changes

* ``key`` is the replica identity: by default the primary key, in its order. With
  ``REPLICA IDENTITY FULL`` it is the primary key, if there is one;
* ``before`` is the old row with ``REPLICA IDENTITY FULL``; otherwise the old key, if a row is
  deleted or its key changes, and nothing elsewhere;
* ``after`` lacks large values, stored apart from the row, that an update has not changed, unless
  ``before`` has them;
* a table whose columns have changed since it was last seen gives a change ``schema`` first. The
  log does not have the statement. Nullability is that at the time of reading.

Values without a Python type are PostgreSQL's text: dates BC, after 9999 or ``infinity``, intervals
with months (``P1M``, ISO 8601), 24:00, arrays, and all types that are not listed in ``values``. So
are JSON documents that are neither object nor list, or whose numbers would be rounded. Domains
have the values of their base types.
"""

from __future__ import annotations

from threading import Event

from stompkit._common.moved import renamed
from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.postgres._connections import Dsn
from stompkit.replication.sources.postgres._copying import Progress
from stompkit.replication.sources.postgres._preflight import PreflightError
from stompkit.replication.sources.postgres._slot import OffsetLostError
from stompkit.replication.sources.postgres._source import PostgresPublisher, SnapshotMode
from stompkit.replication.sources.postgres.pgoutput import PgoutputError
from stompkit.replication.sources.publication import Publication

__all__ = [
    "Dsn",
    "OffsetLostError",
    "PgoutputError",
    "PostgresPublisher",
    "PreflightError",
    "Progress",
    "SnapshotMode",
    "postgres_pub",
]


def postgres_pub(
    dsn: str,
    publication: Publication | None = None,
    *,
    tables: Tables | None = None,
    slot: str = "stompkit",
    publication_name: str = "stompkit",
    snapshot: SnapshotMode | None = None,
    announce: bool = False,
    blocking: bool = True,
    heartbeat_s: float = 10.0,
    chunk_rows: int = 1000,
    stop: Event | None = None,
    on_progress: Progress | None = None,
) -> None:
    """Publish changes of a database, until ``stop`` is set; see :class:`PostgresPublisher`.

    ``dsn`` is a URL, ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``, also with
    ``?host=/DIRECTORY/OF/A/SOCKET`` and other parameters of libpq.

    Without a ``publication``, one of ``tables`` is created, whose only checkpoint is the slot.
    Signals are sent, and after a crash the last changesets are sent again, with another origin. The
    default of ``snapshot`` is then ``never``, otherwise ``initial``.

    Raises ``ValueError`` for an invalid DSN, and for ``tables`` if the publication has its own; and
    the errors of :meth:`PostgresPublisher.run`.
    """
    if publication is None:
        server = Dsn(dsn).server
        publication = Publication(kind="postgresql", server=server, tables=tables)
        snapshot = snapshot or "never"
    elif tables is not None:
        raise ValueError("the tables are those of the publication: give them to that")
    PostgresPublisher(
        dsn,
        publication,
        slot=slot,
        publication_name=publication_name,
        snapshot=snapshot or "initial",
        announce=announce,
        blocking=blocking,
        heartbeat_s=heartbeat_s,
        chunk_rows=chunk_rows,
        stop=stop,
        on_progress=on_progress,
    ).run()


renamed(
    __name__,
    OffsetLost="OffsetLostError",
    PgoutputProblem="PgoutputError",
    PreflightProblem="PreflightError",
)
