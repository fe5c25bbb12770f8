"""Preflight checks: all mistakes are reported at once, with their remedies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from psycopg.sql import SQL, Composable, Identifier

from stompkit.replication.model.tables import Tables
from stompkit.replication.sources.postgres._catalogue import (
    CatalogueTable,
    read_tables,
    unreadable_tables,
)
from stompkit.replication.sources.postgres._connections import (
    Connection,
    format_lsn,
)
from stompkit.replication.sources.postgres._slot import OffsetLostError, Slot
from stompkit.replication.sources.postgres._snapshot import published_rows

__all__ = [
    "PreflightError",
    "UnreadableNamesError",
    "check_names",
    "check_position",
    "check_server",
    "check_version",
    "make_publication",
    "unpublished_actions",
    "warn_of_generated",
    "warn_of_patterns",
]

_log: Final = logging.getLogger(__name__)

_OLDEST: Final = 120_000

_Wants = Callable[[str, str], bool]


class PreflightError(Exception):
    """The server's configuration, or the request, does not allow reading changes."""

    def __init__(self, problems: Iterable[str]) -> None:
        """Store all ``problems``; each includes its remedy."""
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class UnreadableNamesError(PreflightError):
    """Names are not UTF-8, which requires intervention."""


class _Server(msgspec.Struct, frozen=True):
    """Properties of the server, and of the connected user."""

    user: str
    database: str
    wal_level: str
    may_replicate: bool
    is_superuser: bool
    may_create: bool
    slots: int
    max_slots: int
    senders: int
    max_senders: int
    encoding: str


_ASK: Final = b"""
SELECT current_user::text, current_database()::text, current_setting('wal_level'),
    -- Amazon gives the right to replicate by a role of its own.
    r.rolreplication OR r.rolsuper OR EXISTS (
        SELECT FROM pg_roles o
        WHERE o.rolname = 'rds_replication' AND pg_has_role(current_user, o.oid, 'member')
    ),
    r.rolsuper, has_database_privilege(current_database(), 'CREATE'),
    (SELECT count(*) FROM pg_replication_slots),
    current_setting('max_replication_slots')::int,
    (SELECT count(*) FROM pg_stat_replication),
    current_setting('max_wal_senders')::int,
    current_setting('server_encoding')
FROM pg_roles r WHERE r.rolname = current_user
"""
_PUBLICATION: Final = b"""
SELECT pubupdate OR pubdelete, puballtables FROM pg_publication WHERE pubname = %s
"""


_ACTIONS: Final = b"""
SELECT array_remove(ARRAY[
    CASE WHEN NOT pubinsert THEN 'INSERT' END, CASE WHEN NOT pubupdate THEN 'UPDATE' END,
    CASE WHEN NOT pubdelete THEN 'DELETE' END, CASE WHEN NOT pubtruncate THEN 'TRUNCATE' END
], NULL)
FROM pg_publication WHERE pubname = %s
"""


def unpublished_actions(connection: Connection, publication: str) -> str:
    """Return a warning for statements whose changes a publication leaves out; empty if none."""
    row = connection.execute(_ACTIONS, [publication]).fetchone()
    if row is None or not row[0]:
        return ""
    return (
        f"the publication {publication} leaves out changes by {', '.join(row[0])}, which are lost: "
        f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate'), and "
        "then take a new snapshot"
    )


def check_server(
    connection: Connection,
    *,
    slot: Slot | None,
    publication: str,
    wants: _Wants,
    selection: Tables,
    with_rows: bool,
    has_begun: bool,
) -> None:
    """Raise :class:`PreflightError` if the server cannot or must not do what is requested.

    ``slot`` is the existing slot. ``with_rows``: there will be a snapshot. ``has_begun``: there is
    a checkpoint; new tables with unreadable names are then omitted. Patterns of ``selection`` that
    match nothing are logged.
    """
    check_version(connection)
    check_names(connection, publication if has_begun else None)
    said = connection.execute(_ASK).fetchone()
    assert said is not None
    server = _Server(*said)
    problems = [*_about_replication(server, slot)]
    if slot is not None:
        problems += _about_slot(server, slot)
    if server.encoding == "SQL_ASCII":
        _log.warning(
            "%s is in SQL_ASCII, so that its server does not know which characters it holds: text "
            "that is not UTF-8 is carried as octets, which a column of text in a target refuses. "
            "Let the target's columns be of octets, or copy the database into one in UTF8",
            server.database,
        )
    tables = list(read_tables(connection).values())
    warn_of_patterns(selection, tables)
    wanted = [table for table in tables if wants(table.schema, table.name)]
    row = connection.execute(_PUBLICATION, [publication]).fetchone()
    if row is None:
        problems += _about_new_publication(server, publication, slot, tables, wanted)
        changes_rows = True
    else:
        changes_rows, is_for_all = row
        published = published_rows(connection, publication)
        if warning := unpublished_actions(connection, publication):
            _log.warning("%s", warning)
        if not is_for_all:
            left_out = [each for each in wanted if each.place not in published]
            # The survey of new tables says what a table without a key needs first: once it was
            # published, the server would refuse to change its rows.
            _tell_missing(
                publication, [each for each in left_out if each.is_identified or not changes_rows]
            )
        wanted = [each for each in wanted if each.place in published]
    warn_of_generated(wanted)
    problems += _about_tables(server, wanted, changes_rows=changes_rows, with_rows=with_rows)
    if problems:
        raise PreflightError(problems)


def check_version(connection: Connection) -> None:
    """Raise :class:`PreflightError` for a server that is too old."""
    version = connection.info.server_version
    if version < _OLDEST:
        raise PreflightError(
            [f"this is PostgreSQL {version // 10000}: {_OLDEST // 10000} or newer is needed"]
        )


def check_names(connection: Connection, publication: str | None = None) -> None:
    """Raise :class:`UnreadableNamesError` for names that the server cannot return in UTF-8.

    Checks the tables of a publication, or all tables.
    """
    tables = unreadable_tables(connection, publication=publication)
    names = sorted({name for names in tables.values() for name in names})
    if names:
        said = ", ".join(map(repr, names[:10]))
        raise UnreadableNamesError(
            [
                f"names of tables, columns or schemas are not UTF-8, in a database in SQL_ASCII: "
                f"{said}. Rename them"
            ]
        )


def _about_replication(server: _Server, slot: Slot | None) -> Iterable[str]:
    if server.wal_level != "logical":
        yield (
            f"wal_level is {server.wal_level}: ALTER SYSTEM SET wal_level = 'logical', "
            "and start the server again"
        )
    if not server.may_replicate:
        yield f"{server.user} may not replicate: ALTER ROLE {server.user} REPLICATION"
    if slot is None and server.slots >= server.max_slots:
        yield (
            f"all {server.max_slots} slots for replication are taken: drop one that nobody needs "
            "(pg_drop_replication_slot), or raise max_replication_slots"
        )
    if server.senders >= server.max_senders:
        yield (
            f"all {server.max_senders} senders of the log are busy (pg_stat_replication): "
            "raise max_wal_senders"
        )


def _about_slot(server: _Server, slot: Slot) -> Iterable[str]:
    another = "give this publisher another slot"
    if slot.plugin != "pgoutput":
        plugin = slot.plugin or "no plug-in, as slots of physical replication have"
        yield f"the slot {slot.name} is there with {plugin}, not with pgoutput: {another}"
    elif slot.database != server.database:
        yield f"the slot {slot.name} is one of the database {slot.database}: {another}"
    elif slot.active_pid is not None:
        yield (
            f"the slot {slot.name} is read by somebody else, whom the process {slot.active_pid} "
            f"of the server serves: stop that one, or {another}"
        )


def _about_new_publication(
    server: _Server,
    publication: str,
    slot: Slot | None,
    tables: list[CatalogueTable],
    wanted: list[CatalogueTable],
) -> Iterable[str]:
    by_others = "or have an administrator make the publication"
    if not server.may_create:
        yield (
            f"there is no publication {publication}, and {server.user} may not make it: "
            f"GRANT CREATE ON DATABASE {server.database} TO {server.user}, {by_others}"
        )
    if slot is not None:
        yield (
            f"the slot {slot.name} is there, but the publication {publication} is not, and "
            "what was logged before it is made cannot be read: drop the slot, or use the "
            "publication that was made for it"
        )
    if not wanted and (tables or not server.is_superuser):
        yield "no table is wanted that is there: see include and exclude"
    foreign = [table.full_name for table in wanted if not table.is_owned]
    if foreign:
        yield (
            f"{server.user} cannot publish tables of other owners ({', '.join(foreign)}): "
            f"GRANT their owner TO {server.user}, {by_others}"
        )


def _tell_missing(publication: str, left_out: list[CatalogueTable]) -> None:
    names = [table.full_name for table in left_out if not table.is_partitioned]
    if names:
        _log.warning(
            "the publication %s leaves out tables that are wanted: "
            "ALTER PUBLICATION %s ADD TABLE %s",
            publication,
            publication,
            ", ".join(names),
        )


def warn_of_patterns(selection: Tables, tables: Iterable[CatalogueTable]) -> None:
    """Warn about patterns that match no table or column of the database."""
    names = {
        (table.schema, table.name): [*(column.name for column in table.columns), *table.generated]
        for table in tables
    }
    for warning in selection.unmatched(names):
        _log.warning("%s", warning)


def warn_of_generated(wanted: Iterable[CatalogueTable]) -> None:
    """Warn about generated columns, whose values are not published."""
    for table in wanted:
        if table.generated:
            _log.warning(
                "columns of %s that are computed from others are not replicated: %s. Let the "
                "target compute them, too",
                table.full_name,
                ", ".join(table.generated),
            )


def _about_tables(
    server: _Server, wanted: list[CatalogueTable], *, changes_rows: bool, with_rows: bool
) -> Iterable[str]:
    secret = [table.full_name for table in wanted if not table.may_be_read]
    if with_rows and secret:
        yield (
            f"{server.user} may not read {', '.join(secret)} for a snapshot: "
            f"GRANT SELECT ON these TABLES, and USAGE ON their SCHEMA, TO {server.user}"
        )
    if changes_rows:
        for table in wanted:
            if not (table.is_identified or table.is_partitioned):
                yield _unidentified(table)


def _unidentified(table: CatalogueTable) -> str:
    return (
        f"{table.full_name} has nothing that identifies its rows, and once it is published the "
        "server refuses every UPDATE and DELETE of it: give it a primary key, or "
        f"ALTER TABLE {table.full_name} REPLICA IDENTITY FULL, or exclude it"
    )


def check_position(
    slot: Slot | None, name: str, *, position: int | None, system: str, known_system: str
) -> None:
    """Raise :class:`OffsetLostError` if the log is not available from the checkpoint on.

    ``position`` is that of the checkpoint, if there is one, and ``known_system`` its server.
    """
    again = "to start over, with a snapshot, remove the checkpoint and the slot"
    if slot is not None and slot.is_lost:
        raise OffsetLostError(
            f"the server has removed log that the slot {name} had not read yet, as "
            f"max_slot_wal_keep_size says: {again}"
        )
    if position is None:
        if slot is not None:
            _log.warning(
                "the slot %s exists already, and there is no checkpoint of it here: it is read from"
                " %s on. Another job that uses it cannot go on then: give each its own --slot",
                name,
                format_lsn(slot.confirmed_lsn),
            )
        return
    if known_system and known_system != system:
        raise OffsetLostError(
            f"the checkpoint is of the server {known_system}, and this is {system}: {again}"
        )
    if slot is None:
        raise OffsetLostError(
            f"there is a checkpoint at {format_lsn(position)}, but the slot {name} is not there: "
            f"{again}"
        )
    if slot.confirmed_lsn > position:
        raise OffsetLostError(
            f"the checkpoint is at {format_lsn(position)}, but the slot {name} was read up to "
            f"{format_lsn(slot.confirmed_lsn)}, by somebody else or with an older checkpoint: "
            f"{again}"
        )


def make_publication(
    connection: Connection, name: str, wants: _Wants, *, all_tables: bool = False
) -> bool:
    """Create the publication with the selected tables if it does not exist; return True if created.

    With ``all_tables`` it is FOR ALL TABLES, which only a superuser may create. Raises
    :class:`psycopg.Error`.
    """
    if connection.execute(_PUBLICATION, [name]).fetchone() is not None:
        return False
    tables = list(read_tables(connection).values())
    wanted = [table for table in tables if wants(table.schema, table.name)]
    create = SQL("CREATE PUBLICATION {}").format(Identifier(name))
    if all_tables:
        connection.execute(create + SQL(" FOR ALL TABLES"))
        _log.warning(
            "the publication %s is for all tables: the server refuses UPDATE and DELETE of every "
            "table without a key that anybody makes from now on",
            name,
        )
        return False
    names: list[Composable] = [Identifier(table.schema, table.name) for table in wanted]
    if names:
        create += SQL(" FOR TABLE {}").format(SQL(", ").join(names))
    connection.execute(create)
    return True
