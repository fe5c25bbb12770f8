"""Row changes from the messages of ``pgoutput``, assembled by transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stompkit.replication.model.events import RowChange
from stompkit.replication.sources.postgres._catalogue import CatalogueTable
from stompkit.replication.sources.postgres._published import PublishedTable
from stompkit.replication.sources.postgres._records import Transaction
from stompkit.replication.sources.postgres._shapes import (
    Shape,
    untold_of,
    why_copied,
)
from stompkit.replication.sources.postgres.pgoutput import (
    Begin,
    Commit,
    Delete,
    Insert,
    PgoutputError,
    Relation,
    Truncate,
    Update,
    decode,
    relation_of,
)

__all__ = ["Assembler", "TableChangedError", "Transaction"]


class TableChangedError(Exception):
    """The rows of a table have to be published again, before the next transaction."""

    def __init__(self, table: str, why: str) -> None:
        """Store the table's name, with its schema, and the reason."""
        self.table = table
        self.why = why
        super().__init__(f"{table} has to be copied again: {why}")


class Assembler:
    """Assembles messages into transactions. A transaction is in memory until it is complete."""

    def __init__(
        self,
        wants: Callable[[str, str], bool],
        look_up: Callable[[Relation], CatalogueTable | None],
        digests: dict[str, str],
        *,
        announce: bool = False,
        shapes: Mapping[str, Shape] | None = None,
        copied: Mapping[str, int] | None = None,
        copies: bool = False,
    ) -> None:
        """Accept rows of the tables for which ``wants(schema, table)`` returns True.

        ``digests`` are those of tables as they were last described, by their full names. A table
        with another description gives a change ``schema`` before the row; an unknown table does so
        with ``announce`` only. ``shapes`` are likewise the last ones. If rows have to be published
        again and ``copies`` is set, :meth:`feed` raises :class:`TableChangedError`.

        ``copied`` has the log positions of the latest copies of tables, by full names: earlier
        commits are already published.
        """
        self._wants = wants
        self._look_up = look_up
        self._digests = self._sent_digests = digests
        self._announce = announce
        self._shapes = self._sent_shapes = dict(shapes or {})
        self._copied = copied or {}
        self._copies = copies
        #: Tables whose description was compared with the published one.
        self._checked: set[int] = set()
        self._tables: dict[int, PublishedTable | None] = {}
        self._begin: Begin | None = None
        self._changes: list[RowChange] = []

    @property
    def is_between(self) -> bool:
        """True if no transaction is open."""
        return self._begin is None

    def feed(self, octets: bytes) -> Transaction | None:
        """Process a message; return the transaction it ends. Raises :class:`PgoutputError`."""
        oid = relation_of(octets)
        if oid is not None:
            self._feed_row(oid, octets)
            return None
        match decode(octets):
            case Begin() as begin:
                if self._begin is not None:
                    raise PgoutputError("a transaction begins inside another one")
                self._begin = begin
            case Commit() as commit:
                return self._commit(commit)
            case Relation() as relation:
                self._describe(relation)
            case Truncate() as record:
                for each in record.relations:
                    emptied = self._table(each)
                    if emptied is not None and self._is_new(each, emptied):
                        self._add(emptied.truncated())
            case _:
                # Names of types, origins and messages of applications change no rows.
                pass
        return None

    def _feed_row(self, oid: int, octets: bytes) -> None:
        """Process a row; rows of other tables are not decoded."""
        table = self._table(oid)
        if table is None:
            return
        record = decode(octets)
        assert isinstance(record, (Insert, Update, Delete))
        if self._is_new(oid, table):
            self._add(table.change(record))

    def _table(self, oid: int) -> PublishedTable | None:
        try:
            return self._tables[oid]
        except KeyError:
            raise PgoutputError(f"relation {oid} was not described") from None

    def _describe(self, relation: Relation) -> None:
        if not relation.is_readable:
            self._renamed(relation)
        if not relation.is_readable or not self._wants(relation.schema, relation.name):
            self._tables[relation.oid] = None
            return
        self._tables[relation.oid] = PublishedTable(relation, self._look_up(relation))
        self._checked.discard(relation.oid)

    def _renamed(self, relation: Relation) -> None:
        """Handle rows under unreadable names, which have been renamed since.

        Raises :class:`TableChangedError` for a table without a later copy.
        """
        found = self._look_up(relation)
        if found is None or not self._wants(found.schema, found.name):
            return
        begin = self._begin
        if begin is not None and begin.final_lsn < self._copied.get(found.full_name, 0):
            return
        if not self._copies:
            raise PgoutputError(
                f"rows of {found.full_name} were changed while names of it were not UTF-8, and "
                "cannot be read: drop the slot and start over with empty offsets"
            )
        raise TableChangedError(found.full_name, "names of it were not UTF-8")

    def _is_new(self, oid: int, table: PublishedTable) -> bool:
        """Return True if a change is not included in a copy; first publish changed columns."""
        begin = self._begin
        if self._copied and begin is not None:
            if begin.final_lsn < self._copied.get(table.full_name, 0):
                return False
        if oid not in self._checked:
            self._checked.add(oid)
            self._compare(table)
        return True

    def _compare(self, table: PublishedTable) -> None:
        """Publish changed columns; raises :class:`TableChangedError`."""
        name = table.full_name
        digest, shape = self._digests.get(name), self._shapes.get(name)
        if self._copies and shape is not None:
            why = why_copied(shape, table.shape, table.plain)
            if why:
                raise TableChangedError(name, why)
        elif self._copies and digest is None:
            raise TableChangedError(name, "nothing is known of it")
        untold = ""
        if not self._copies and shape is not None:
            untold = untold_of(shape, table.shape, table.plain)
        now = table.shape.after(shape)
        if now != shape:
            self._shapes = {**self._shapes, name: now}
        if digest == table.digest and not untold:
            return
        self._digests = {**self._digests, name: table.digest}
        if digest is not None or self._announce or untold:
            self._add(table.changed(shape, untold))

    def _add(self, change: RowChange) -> None:
        if self._begin is None:
            raise PgoutputError(f"{change.name} is changed outside of a transaction")
        self._changes.append(change)

    def _commit(self, commit: Commit) -> Transaction:
        begin = self._begin
        if begin is None:
            raise PgoutputError("a transaction ends that has not begun")
        changes, self._changes, self._begin = self._changes, [], None
        digests = None if self._digests is self._sent_digests else self._digests
        shapes = None if self._shapes is self._sent_shapes else self._shapes
        self._sent_digests, self._sent_shapes = self._digests, self._shapes
        return Transaction(begin.xid, commit.commit_time, commit.end_lsn, changes, digests, shapes)
