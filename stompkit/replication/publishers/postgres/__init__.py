"""Publishing what is committed in PostgreSQL, by its logical replication.

The server needs ``wal_level = logical`` and is PostgreSQL 12 or newer; nothing is installed in it:
``pgoutput`` is its own. It keeps the log until it was read: a publisher that is given up leaves a
slot behind, which is to be dropped (``pg_drop_replication_slot``), or the disk fills up.

What a transaction has changed is one changeset. Its ``source`` has the place behind the commit in
the log as ``position``, such as ``16/B374D848``, the number of the transaction, and the time of the
commit. In its changes

* ``key`` is the replica identity: the primary key, if nothing else was chosen, in its order. With
  ``REPLICA IDENTITY FULL`` it is the primary key, if there is one;
* ``before`` is the old row with ``REPLICA IDENTITY FULL``; otherwise the old key, where a row is
  deleted or its key changes, and nothing elsewhere;
* ``after`` lacks large values, stored apart from the row, that an update has not touched, unless
  ``before`` has them;
* a table whose columns are others than when it was seen last gives a change ``schema`` first. The
  log does not have the statement. A column counts as nullable as it is when this is read.

Values that Python has none for are the text that PostgreSQL writes: dates BC, after 9999 or
``infinity``, intervals with months (``P1M``, ISO 8601), 24:00, documents of JSON that are no object
or list or whose numbers would be rounded, arrays, and all types that are not listed in
``values``. Domains are what they are built on.
"""

from __future__ import annotations

from threading import Event

from stompkit.replication.publication import Publication
from stompkit.replication.publishers.postgres._connections import Dsn
from stompkit.replication.publishers.postgres._copying import Progress
from stompkit.replication.publishers.postgres._preflight import PreflightProblem
from stompkit.replication.publishers.postgres._publisher import PostgresPublisher, SnapshotMode
from stompkit.replication.publishers.postgres._slot import OffsetLost
from stompkit.replication.publishers.postgres.pgoutput import PgoutputProblem
from stompkit.replication.tables import Tables

__all__ = [
    "Dsn",
    "OffsetLost",
    "PgoutputProblem",
    "PostgresPublisher",
    "PreflightProblem",
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
    ``?host=/DIRECTORY/OF/A/SOCKET`` and what else libpq takes.

    Without a ``publication`` one is made of ``tables`` that has no checkpoint but the slot: signals
    are sent, and some of the last come again after a crash, as those of another origin.
    ``snapshot`` is ``never`` then, if nothing is said, and otherwise ``initial``.

    Raises ``ValueError`` for a DSN that is none, and for ``tables`` where the publication has its
    own; and what :meth:`PostgresPublisher.run` raises.
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
