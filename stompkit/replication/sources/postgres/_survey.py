"""Changes of tables that the stream does not contain: new tables, replaced tables, new columns."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier

from stompkit.replication.sources.postgres._catalogue import (
    CatalogueTable,
    read_tables,
    unreadable_tables,
)
from stompkit.replication.sources.postgres._connections import Connection
from stompkit.replication.sources.postgres._fingerprint import fingerprint
from stompkit.replication.sources.postgres._preflight import check_names, unpublished_actions
from stompkit.replication.sources.postgres._published import PublishedTable
from stompkit.replication.sources.postgres._shapes import stored, why_copied
from stompkit.replication.sources.postgres._snapshot import published_rows
from stompkit.replication.sources.publication import Publication

__all__ = ["OWN", "Survey", "TableLostError", "TablesChangedError"]

_log: Final = logging.getLogger(__name__)

#: State of a publication that the job itself has created, and may change.
OWN: Final = "own"
#: Back-off: wait this multiple of the duration of a catalogue query before the next one, up to a
#: maximum in seconds.
_REST: Final = 10
_EVERY_S: Final = 1.0


def _renewed(name: str) -> str:
    return f"its values of the type {name} are written in another way"


class TablesChangedError(Exception):
    """Tables have to be copied again, or for the first time."""

    def __init__(self, tables: list[str]) -> None:
        """Store their names, with their schemas."""
        self.tables = tables
        super().__init__(f"{', '.join(tables)} have to be copied")


class TableLostError(Exception):
    """A replicated table is no longer published; ``str()`` gives the remedy."""


class Survey:
    """Compares the server's catalogue with the published columns.

    Commits before a transaction of the stream are visible when the transaction arrives.
    """

    def __init__(
        self, connection: Connection, name: str, publication: Publication, *, follows: bool
    ) -> None:
        """Check the tables that ``publication`` selects, in the server's publication ``name``.

        Unless it ``follows``, nothing is copied, and new tables are only reported.
        """
        self._connection = connection
        self._name = name
        self._publication = publication
        self._follows = follows
        self._next = 0.0
        self._reported: set[tuple[str, str]] = set()
        self._fingerprint: object = None
        #: The last warning of statements that the publication leaves out.
        self._actions = unpublished_actions(connection, name)

    def look(self) -> None:
        """Check the catalogue before each transaction, unless the last check was too recent.

        Raises :class:`TablesChangedError`, :class:`TableLostError`, :class:`UnreadableNamesError`
        and
        :class:`psycopg.Error`.
        """
        began = time.monotonic()
        if began < self._next:
            return
        found = fingerprint(self._connection)
        ended = time.monotonic()
        self._next = ended + min(_EVERY_S, _REST * (ended - began))
        if found == self._fingerprint:
            return
        try:
            changed = self._changed()
        except psycopg.errors.CharacterNotInRepertoire:
            # A name has just become invalid UTF-8; the next check finds it.
            return
        if changed:
            raise TablesChangedError(changed)
        self._fingerprint = found

    def _changed(self) -> list[str]:
        publication = self._publication
        state = publication.state
        check_names(self._connection, self._name)
        actions = unpublished_actions(self._connection, self._name)
        if actions and actions != self._actions:
            _log.warning("%s", actions)
        self._actions = actions
        for names in unreadable_tables(self._connection).values():
            shown = ", ".join(map(repr, names))
            self._report(
                shown, "it has names that are not UTF-8, and is not replicated: rename them"
            )
        published = published_rows(self._connection, self._name)
        shapes = stored(state.get("shapes", {}))
        known = {*state.get("tables", {}), *state.get("present", ())}
        # Without a snapshot, only tables created later are copied.
        takes_new = self._follows or "present" in state
        wanted = [
            table
            for table in read_tables(self._connection).values()
            if publication.tables.wants(table.schema, table.name)
        ]
        renewed = self._renewed_types([each for each in wanted if each.full_name in shapes])
        found = []
        for table in wanted:
            name = table.full_name
            rows = published.get(table.place)
            if rows is None:
                if table.is_partitioned:
                    continue
                # Published tables are missed; if tables are copied, also those that only existed.
                is_missed = name in (known if self._follows else shapes)
                if self._is_to_add(table, state, is_missed=is_missed, takes_new=takes_new):
                    found.append(name)
            elif not table.is_identified and name in known and not table.is_partitioned:
                self._let_go(table, state)
            elif name not in known:
                if takes_new:
                    self._report(name, "it is new")
                    found.append(name)
            elif name in shapes and self._follows:
                now = PublishedTable(rows.relation(table), table)
                why = why_copied(shapes[name], now.shape, now.plain)
                if why or name in renewed:
                    self._report(name, why or _renewed(renewed[name]))
                    found.append(name)
        return found

    def _renewed_types(self, tables: Collection[CatalogueTable]) -> dict[str, str]:
        """Return types whose values are written in another way, by the tables that have them.

        Records the current types for the next call.
        """
        state = self._publication.state
        known = state.get("types", {})
        types = {table.full_name: table.types for table in tables}
        renewed = {
            table.full_name: name
            for table in tables
            if (name := table.renewed_type(known.get(table.full_name, {})))
        }
        if not self._follows:
            for table, name in renewed.items():
                self._report(table, f"{_renewed(name)}, and no snapshot is taken")
            renewed = {}
        # Tables to copy are recorded with their copy.
        now = {name: each for name, each in types.items() if each and name not in renewed}
        if any(known.get(name) != each for name, each in now.items()):
            state = {**state, "types": {**known, **now}}
            self._publication.advance(self._publication.position, state)
        return renewed

    def _let_go(self, table: CatalogueTable, state: dict[str, Any]) -> None:
        """Stop publishing a table whose key was dropped, because its rows could not be changed."""
        name = table.full_name
        why = (
            "has nothing any more that identifies its rows, and while it is published the server "
            f"refuses every UPDATE and DELETE of it: give it a primary key, or ALTER TABLE {name} "
            "REPLICA IDENTITY FULL, or exclude it"
        )
        if not self._follows or state.get("publication") != OWN or not table.is_owned:
            self._report(name, f"it {why}")
            return
        self._connection.execute(
            SQL("ALTER PUBLICATION {} DROP TABLE {}").format(
                Identifier(self._name), Identifier(table.schema, table.name)
            )
        )
        raise TableLostError(
            f"{name} {why}. It was taken out of the publication {self._name}; start the job again "
            "then, which copies the table"
        )

    def _is_to_add(
        self, table: CatalogueTable, state: dict[str, Any], *, is_missed: bool, takes_new: bool
    ) -> bool:
        """Return True if a selected table is to be published from now on; else log the reason."""
        name = table.full_name
        if not table.is_identified:
            reason = (
                "it has nothing that identifies its rows, and once it is published the server "
                f"refuses every UPDATE and DELETE of it: give it a primary key, or ALTER TABLE "
                f"{name} REPLICA IDENTITY FULL, or exclude it"
            )
        elif state.get("publication") != OWN or not table.is_owned:
            reason = f"ALTER PUBLICATION {self._name} ADD TABLE {name}, or exclude it"
        elif not takes_new:
            reason = f"no snapshot is taken of it: ALTER PUBLICATION {self._name} ADD TABLE {name}"
        else:
            try:
                self._connection.execute(
                    SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
                        Identifier(self._name), Identifier(table.schema, table.name)
                    )
                )
            except psycopg.errors.DuplicateObject:
                return True
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable) as error:
                reason = str(error).strip()
            else:
                self._report(name, "it is new, and published from now on")
                return True
        if is_missed:
            then = "start the job again, which copies the table"
            if not self._follows:
                then = (
                    "bring its rows to those that have it, since without a snapshot nothing is "
                    "copied, and start the job again"
                )
            raise TableLostError(
                f"{name} was dropped and made again, or taken out of the publication "
                f"{self._name}, so that its changes are not seen: {reason}; then {then}"
            )
        self._report(name, f"it is new, and not replicated: {reason}")
        return False

    def _report(self, name: str, why: str) -> None:
        if (name, why) not in self._reported:
            self._reported.add((name, why))
            _log.warning("the table %s: %s", name, why)
