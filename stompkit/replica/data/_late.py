"""Early checks of deferred foreign keys, row by row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from stompkit.replica.data._links import Link, Links
from stompkit.replica.data._many import Values
from stompkit.replica.data._plan import Batch, Columns
from stompkit.replica.data._runner import Runner
from stompkit.replication.sql import TargetTable

__all__ = ["LateLinks"]


class LateLinks:
    """The deferred foreign keys from and to the tables of some batches."""

    def __init__(self, runner: Runner, links: Links, batches: Sequence[Batch]) -> None:
        """Record the referred values of rows before they change."""
        self._runner = runner
        self._links = links
        self._batches = batches
        self._before: dict[tuple[Link, bytes], Values | None] = {}
        for batch, id, row in self._rows(()):
            table, key = batch.shape.target.table, batch.shape.key
            for link in self._to(batch):
                referred = _columns(table, link.referred)
                self._before[link, id] = runner.find(table, referred, key, row[: len(key)])

    def broken(self, refused: Collection[bytes]) -> set[bytes]:
        """Return the rows that would make a commit fail, if ``refused`` were not written.

        Of two rows in conflict, it returns the referred one: without its change, the other one is
        valid. Rows that are invalid in any case come first.
        """
        left = dict(self._left_behind(refused))
        orphans = list(self._orphans(refused))
        wrong = {id for id, link, values in orphans if (link, values) not in left}
        return wrong or set(left.values())

    def _left_behind(
        self, refused: Collection[bytes]
    ) -> Iterator[tuple[tuple[Link, Values], bytes]]:
        """Yield rows whose former values other rows still refer to."""
        for batch, id, _ in self._rows(refused):
            for link in self._to(batch):
                values = self._before[link, id]
                if values is not None and self._finds(link, link.columns, values):
                    yield (link, values), id

    def _orphans(self, refused: Collection[bytes]) -> Iterator[tuple[bytes, Link, Values | None]]:
        """Yield rows that refer to missing rows, with the referred values."""
        for batch, id, row in self._rows(refused):
            if batch.shape.kind == "delete":
                continue
            key = batch.shape.key
            names = [column.name for column in key]
            for link in self._links.of(batch.shape.target.identity):
                if link.is_late and self._finds(link, names, row[: len(key)]):
                    yield id, link, batch.values_of(row, link.columns)[1]

    def _rows(self, refused: Collection[bytes]) -> Iterator[tuple[Batch, bytes, Values]]:
        for batch in self._batches:
            for id, row in zip(batch.ids, batch.rows, strict=True):
                if id not in refused:
                    yield batch, id, row

    def _to(self, batch: Batch) -> list[Link]:
        return [link for link in self._links.to(batch.shape.target.identity) if link.is_late]

    def _finds(self, link: Link, names: Sequence[str], values: Values) -> bool:
        """Return True if a row with these values has a reference to a missing row."""
        quote = self._runner.connection.dialect.identifier_preparer.quote_identifier
        columns = [f"c.{quote(name)}" for name in link.columns]
        same = [f"c.{quote(name)} = {self._runner.mark}" for name in names]
        present = [f"{column} IS NOT NULL" for column in columns]
        referred = " AND ".join(
            f"p.{quote(name)} = {column}"
            for name, column in zip(link.referred, columns, strict=True)
        )
        statement = (
            f"SELECT 1 FROM {link.child_quoted} c WHERE {' AND '.join([*same, *present])}"
            f" AND NOT EXISTS (SELECT 1 FROM {link.parent_quoted} p WHERE {referred})"
        )
        return self._runner.connection.exec_driver_sql(statement, values).first() is not None


def _columns(table: TargetTable, names: Sequence[str]) -> Columns:
    """Return the existing columns that a foreign key refers to."""
    found = (table.column(name) for name in names)
    return tuple(column for column in found if column is not None)
