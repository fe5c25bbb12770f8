"""The part of a store for the merge state of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, delete, func, select, text, update

from stompkit.replica.store._access import Access, chunks, from_json, storable, to_json
from stompkit.replica.store._records import (
    LONGEST_NAME,
    RowRecord,
    check_name,
    id_range,
    key_from_octets,
    key_to_octets,
)
from stompkit.replica.store._tables import HAS_CONFLICTS, HAS_PROBLEM, IS_TOMBSTONE

__all__ = ["RowReader", "RowWriter"]

#: Contribution of a row to the digest of its table: table, 1 if it is live, and its own digest.
_Share = tuple[str, int, int]
#: Number of rows read at a time if their bytes are counted.
_PAGE = 200


class RowReader(Access):
    """Reads rows."""

    def rows(self, ids: Iterable[bytes]) -> dict[bytes, RowRecord]:
        """Return rows by id; those that were never written are missing."""
        found = self._all_of(self._statements.rows, ids)
        return {record.id: record for record in self._records(found)}

    def row_page(
        self, after: bytes | None = None, *, limit: int, max_bytes: int | None = None
    ) -> list[RowRecord]:
        """Return rows in the order of their ids, after ``after``.

        At most ``limit`` rows with keys and states of ``max_bytes`` together are returned, but at
        least one if there is any.
        """
        found: list[RowRecord] = []
        octets = 0
        while len(found) < limit:
            # Rows beyond the limit are read and discarded.
            most = limit - len(found) if max_bytes is None else min(limit - len(found), _PAGE)
            rows = self._all(self._page(after, most))
            for row, record in zip(rows, self._records(rows), strict=True):
                octets += len(row.state) + len(row.row_key)
                if max_bytes is not None and found and octets > max_bytes:
                    return found
                found.append(record)
            if len(rows) < most:
                break
            after = found[-1].id
        return found

    def rows_of(
        self, table: str, after: bytes | None = None, limit: int | None = None
    ) -> list[RowRecord]:
        """Return the rows of a table in the order of their ids, after ``after``."""
        return self._found(self._of(table, self._page(after, limit)))

    def row_range(self, after: bytes | None, upto: bytes | None) -> list[RowRecord]:
        """Return the rows after one id, up to another inclusive; ``None`` for no bound."""
        query = self._page(after, None)
        return self._found(query if upto is None else query.where(self._tables.rows.c.id <= upto))

    def conflict_count(self) -> int:
        """Return the number of rows with conflicts."""
        query = select(func.count()).select_from(self._tables.rows)
        ((count,),) = self._all(query.where(text(HAS_CONFLICTS)))
        return int(count)

    def with_conflicts(
        self, table: str | None = None, after: bytes | None = None, limit: int | None = None
    ) -> list[RowRecord]:
        """Return the rows with conflicts, in the order of their ids."""
        query = self._page(after, limit).where(text(HAS_CONFLICTS))
        return self._found(query if table is None else self._of(table, query))

    def with_problems(
        self, after: bytes | None = None, limit: int | None = None
    ) -> list[RowRecord]:
        """Return the rows that the tables refuse or whose rule fails, in the order of their ids."""
        return self._found(self._page(after, limit).where(text(HAS_PROBLEM)))

    def tombstones(self, after: bytes | None = None, limit: int | None = None) -> list[RowRecord]:
        """Return the deleted rows, in the order of their ids."""
        return self._found(self._page(after, limit).where(text(IS_TOMBSTONE)))

    def tables(self) -> list[str]:
        """Return the sorted names of tables with written rows."""
        names = self._tables.digests.c.table_name
        return sorted(name for (name,) in self._all(select(names)))

    def digests(self) -> dict[str, tuple[int, int]]:
        """Return the digest and number of the live rows of each table."""
        found = self._all(select(self._tables.digests))
        return {name: (int.from_bytes(digest), live) for name, digest, live in found}

    def page_vectors(self) -> dict[int, dict[str, int]]:
        """Return the vector of each snapshot page."""
        found = self._all(select(self._tables.pages))
        return {page: from_json(vector) for page, vector in found}

    def base_rows(self, ids: Iterable[bytes]) -> dict[bytes, RowRecord]:
        """Return rows of the base, by id."""
        found = self._all_of(self._statements.base_rows, ids)
        return {record.id: record for record in map(_base_record, found)}

    def base_page(self, after: bytes | None = None, *, limit: int) -> list[RowRecord]:
        """Return rows of the base in the order of their ids, after ``after``."""
        base = self._tables.base
        query = select(base).order_by(base.c.id).limit(limit)
        found = self._all(query if after is None else query.where(base.c.id > after))
        return list(map(_base_record, found))

    def _found(self, query: Select[Any]) -> list[RowRecord]:
        return list(self._records(self._all(query)))

    def _page(self, after: bytes | None, limit: int | None) -> Select[Any]:
        rows = self._tables.rows
        query = select(rows).order_by(rows.c.id).limit(limit)
        return query if after is None else query.where(rows.c.id > after)

    def _of(self, table: str, query: Select[Any]) -> Select[Any]:
        rows = self._tables.rows.c
        return query.where(rows.id.between(*id_range(table)), rows.table_name == table)

    def _records(self, rows: Iterable[Any]) -> Iterator[RowRecord]:
        return map(_record, rows)


def _record(row: Any) -> RowRecord:
    # In the order of the table's columns.
    id, table, is_live, conflicts, digest, page, problem, _, key, state = row
    return RowRecord(
        id=id,
        table=table,
        key=key_from_octets(key),
        state=state,
        is_live=bool(is_live),
        conflicts=conflicts,
        digest=int.from_bytes(digest),
        page=page,
        problem=problem,
    )


def _base_record(row: Any) -> RowRecord:
    id, table, is_live, key, state = row
    return RowRecord(
        id=id, table=table, key=key_from_octets(key), state=state, is_live=bool(is_live)
    )


class RowWriter(RowReader):
    """Writes rows, and maintains the digests of their tables."""

    #: Contributions to the digests of rows that were read or written in this transaction.
    _known: dict[bytes, _Share]

    def _write(self) -> None:
        """Count this transaction as a write transaction."""
        raise NotImplementedError

    def rows(self, ids: Iterable[bytes]) -> dict[bytes, RowRecord]:
        """Return rows by id; those that were never written are missing."""
        wanted = list(ids)
        found = super().rows(wanted)
        self._known.update((id, _NOTHING) for id in wanted if id not in found)
        return found

    def _records(self, rows: Iterable[Any]) -> Iterator[RowRecord]:
        for record in super()._records(rows):
            self._known[record.id] = _share(record)
            yield record

    def put_rows(self, records: Sequence[RowRecord]) -> None:
        """Store the state of rows; the table and key of an id never change."""
        last = {record.id: record for record in records}
        rows = []
        shares = self._shares(last)
        for table in {record.table for record in records}:
            check_name("the name of a table", table, LONGEST_NAME)
        for id, record in last.items():
            self._known[id] = share = _share(record)
            shares.append(share)
            rows.append(_values(record))
        if rows:
            self._write()
            self._statements.put_rows.run(self.connection, rows)
            self._change_digests(shares)

    def delete_rows(self, ids: Iterable[bytes]) -> None:
        """Remove rows, as if they had never been written."""
        unique = list(dict.fromkeys(ids))
        shares = self._shares(unique)
        if not unique:
            return
        self._write()
        self.connection.execute(self._statements.drop_rows, [{"wanted": id} for id in unique])
        for id in unique:
            self._known[id] = _NOTHING
        self._change_digests(shares)

    def _shares(self, ids: Iterable[bytes]) -> list[_Share]:
        """Return the negated contributions of rows to the digests, to subtract them."""
        unknown = [id for id in ids if id not in self._known]
        self._known.update(dict.fromkeys(unknown, _NOTHING))
        for id, table, is_live, digest in self._all_of(self._statements.digests_of_rows, unknown):
            self._known[id] = (table, is_live, int.from_bytes(digest) if is_live else 0)
        known = self._known
        return [(table, -live, digest) for table, live, digest in (known[id] for id in ids)]

    def _change_digests(self, shares: Iterable[_Share]) -> None:
        changes: dict[str, tuple[int, int]] = {}
        for table, live, digest in shares:
            if table:
                before, count = changes.get(table, (0, 0))
                changes[table] = (before ^ digest, count + live)
        found = self._all_of(self._statements.digests, changes)
        old = {name: (int.from_bytes(digest), live) for name, digest, live in found}
        rows = []
        for table, (digest, live) in changes.items():
            before, count = old.get(table, (0, 0))
            octets = (before ^ digest).to_bytes(16)
            rows.append({"table_name": table, "digest": octets, "live": count + live})
        if rows:
            self.connection.execute(self._statements.put_digests, rows)

    def put_page(self, page: int, vector: Mapping[str, int]) -> None:
        """Store the vector of a snapshot page."""
        self._write()
        row = {"page": page, "vector": to_json(vector)}
        self.connection.execute(self._statements.put_page, row)

    def clear_pages(self) -> None:
        """Remove the pages of a snapshot, and the references of rows to them."""
        rows = self._tables.rows
        self._write()
        self.connection.execute(update(rows).where(rows.c.page.is_not(None)).values(page=None))
        self.connection.execute(delete(self._tables.pages))

    def put_base_rows(self, records: Sequence[RowRecord]) -> None:
        """Store rows of the base."""
        rows = []
        for record in records:
            check_name("the name of a table", record.table, LONGEST_NAME)
            rows.append(_base_values(record))
        if rows:
            self._write()
            self._statements.put_base_rows.run(self.connection, rows)

    def delete_base_rows(self, ids: Iterable[bytes]) -> None:
        """Remove rows of the base."""
        base = self._tables.base
        self._write()
        for some in chunks(list(ids)):
            self.connection.execute(delete(base).where(base.c.id.in_(some)))


#: Contribution of a row that was never written.
_NOTHING: _Share = ("", 0, 0)


def _share(record: RowRecord) -> _Share:
    return (record.table, 1, record.digest) if record.is_live else (record.table, 0, 0)


def _values(record: RowRecord) -> tuple[object, ...]:
    # In the order of the table's columns.
    return (
        record.id,
        record.table,
        int(record.is_live),
        record.conflicts,
        record.digest.to_bytes(16),
        record.page,
        storable(record.problem),
        int(bool(record.problem)),
        key_to_octets(record.key),
        record.encoded(),
    )


def _base_values(record: RowRecord) -> tuple[object, ...]:
    is_live = int(record.is_live)
    return record.id, record.table, is_live, key_to_octets(record.key), record.encoded()
