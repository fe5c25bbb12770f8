"""The part of a store for changesets and the progress of origins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from sqlalchemy import Select, delete, select, update

from stompkit.replica.store._access import Access, from_json, storable, to_json
from stompkit.replica.store._records import (
    LONGEST_ORIGIN,
    ChangesetRecord,
    OriginRecord,
    check_name,
)

__all__ = ["ChangesetReader", "ChangesetWriter"]


class ChangesetReader(Access):
    """Reads changesets and origins."""

    def origins(self) -> dict[str, OriginRecord]:
        """Return all known origins."""
        return {
            row.origin: OriginRecord(
                origin=row.origin,
                sequence=row.sequence,
                clock=from_json(row.clock),
                floor=row.floor,
                last_id=row.last_id,
            )
            for row in self._all(self._statements.origins)
        }

    def vector(self) -> dict[str, int]:
        """Return the applied vector: the last sequence of each origin that has one."""
        found = self._all(self._statements.vector)
        return {origin: sequence for origin, sequence in found if sequence}

    def floor(self) -> dict[str, int]:
        """Return the last sequence of each origin that is no longer available here."""
        origins = self._tables.origins.c
        query = select(origins.origin, origins.floor).where(origins.floor > 0)
        return {origin: floor for origin, floor in self._all(query)}

    def last_position(self) -> int:
        """Return the position of the last applied changeset; 0 before the first."""
        found = self._all(self._statements.state)
        return int(found[0].position)

    def changeset(self, origin: str, sequence: int) -> ChangesetRecord | None:
        """Return a changeset, if it was applied and is kept."""
        changesets = self._tables.changesets.c
        there = (changesets.origin == origin) & (changesets.sequence == sequence)
        found = self._all(self._changesets(with_body=True).where(there))
        return _record(found[0]) if found else None

    def ids_of(self, origin: str, first: int, last: int) -> list[tuple[int, str]]:
        """Return the sequences and ids of kept changesets, in order."""
        changesets = self._tables.changesets.c
        query = select(changesets.sequence, changesets.id).where(
            changesets.origin == origin, changesets.sequence.between(first, last)
        )
        return [(n, id.hex()) for n, id in self._all(query.order_by(changesets.sequence))]

    def by_id(self, prefix: str) -> list[ChangesetRecord]:
        """Return the changesets whose id has a hexadecimal prefix; raises ValueError."""
        if not prefix or len(prefix) > 64:
            raise ValueError(f"an id has 1 to 64 hexadecimal digits, not {prefix!r}")
        least, most = bytes.fromhex(prefix.ljust(64, "0")), bytes.fromhex(prefix.ljust(64, "f"))
        changesets = self._tables.changesets.c
        query = self._changesets(with_body=True).where(changesets.id.between(least, most))
        return [_record(row) for row in self._all(query.order_by(changesets.position))]

    def changesets(
        self,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        descending: bool = False,
        origin: str | None = None,
        with_body: bool = True,
    ) -> list[ChangesetRecord]:
        """Return changesets by position: after ``after``, up to ``upto`` inclusive."""
        changesets = self._tables.changesets.c
        query = self._changesets(with_body=with_body).where(changesets.position > after)
        if upto is not None:
            query = query.where(changesets.position <= upto)
        if origin is not None:
            query = query.where(changesets.origin == origin)
        # For one origin, the order is the same, and there is an index.
        number = changesets.position if origin is None else changesets.sequence
        query = query.order_by(number.desc() if descending else number).limit(limit)
        return [_record(row) for row in self._all(query)]

    def ranges(
        self, ranges: Mapping[str, tuple[int, int]], *, limit: int, max_bytes: int
    ) -> list[ChangesetRecord]:
        """Return the first changesets of ``{origin: (first, last)}``, in order of application.

        At most ``limit`` changesets with bodies of ``max_bytes`` together are returned, but at
        least one if there is any. No changeset comes before its predecessors.
        """
        changesets = self._tables.changesets.c
        found = [
            self._all(
                select(changesets.position, changesets.size)
                .where(changesets.origin == origin, changesets.sequence.between(first, last))
                .order_by(changesets.sequence)
                .limit(limit)
            )
            for origin, (first, last) in ranges.items()
        ]
        positions: list[int] = []
        octets = 0
        for position, size in islice(merge(*found), limit):
            octets += size
            if positions and octets > max_bytes:
                break
            positions.append(position)
        rows = self._all_of(self._statements.changesets, positions)
        return sorted(map(_record, rows), key=lambda each: each.position)

    def touching(self, row_id: bytes, limit: int | None = None) -> list[ChangesetRecord]:
        """Return the changesets recorded as changes of a row, last first."""
        touched, changesets = self._tables.touched.c, self._tables.changesets.c
        query = (
            self._changesets(with_body=True)
            .join(self._tables.touched, touched.position == changesets.position)
            .where(touched.row_id == row_id)
            .order_by(touched.position.desc())
            .limit(limit)
        )
        return [_record(row) for row in self._all(query)]

    def _changesets(self, *, with_body: bool) -> Select[Any]:
        columns = self._tables.changesets.columns
        return select(*(each for each in columns if with_body or each.name != "body"))


def _record(row: Any) -> ChangesetRecord:
    # In the order of the table's columns.
    return ChangesetRecord(
        position=row[0],
        origin=row[1],
        sequence=row[2],
        id=row[3].hex(),
        hlc=row[4],
        time=row[5],
        author=row[6],
        comment=row[7],
        changes=row[8],
        via=row[9],
        size=row[10],
        signature=row[11],
        body=row[12] if len(row) > 12 else None,
    )


class ChangesetWriter(ChangesetReader):
    """Writes changesets and origins."""

    def _write(self) -> None:
        """Count this transaction as a write transaction."""
        raise NotImplementedError

    def put_origins(self, origins: Iterable[OriginRecord]) -> None:
        """Store the state of origins."""
        rows = []
        for each in origins:
            check_name("the name of an origin", each.origin, LONGEST_ORIGIN)
            rows.append(
                {
                    "origin": each.origin,
                    "sequence": each.sequence,
                    "floor": each.floor,
                    "last_id": each.last_id,
                    "clock": to_json(each.clock),
                }
            )
        if rows:
            self._write()
            self.connection.execute(self._statements.put_origins, rows)

    def add_changesets(
        self,
        records: Sequence[ChangesetRecord],
        touched: Mapping[int, Iterable[bytes]] | None = None,
    ) -> None:
        """Add changesets with consecutive positions; ``touched`` has ids of rows."""
        if not records:
            return
        for name in {each.origin for each in records} | {each.via for each in records} - {""}:
            check_name("the name of an origin", name, LONGEST_ORIGIN)
        self._write()
        last = self.last_position()
        rows = []
        for record in records:
            last += 1
            if record.position != last:
                raise ValueError(f"the next position is {last}, not {record.position}")
            rows.append(_values(record))
        self._statements.add_changesets.run(self.connection, rows)
        self._put_position(last)
        notes = [
            (row_id, position)
            for position, row_ids in (touched or {}).items()
            for row_id in dict.fromkeys(row_ids)
        ]
        if notes:
            self._statements.add_touched.run(self.connection, notes)

    def _put_position(self, last: int) -> None:
        self.connection.execute(self._statements.set_position, {"last": last})

    def drop_changesets(self, upto: Mapping[str, int]) -> int:
        """Remove changesets of origins up to a sequence; returns their number."""
        changesets, touched = self._tables.changesets, self._tables.touched
        count = 0
        for origin, sequence in upto.items():
            there = (changesets.c.origin == origin) & (changesets.c.sequence <= sequence)
            positions = select(changesets.c.position).where(there)
            self._write()
            self.connection.execute(delete(touched).where(touched.c.position.in_(positions)))
            count += self.connection.execute(delete(changesets).where(there)).rowcount
        self._raise_floor(upto)
        return count

    def remove_changesets(self, origin: str, above: int) -> None:
        """Remove changesets of an origin above a sequence, as if they had never existed."""
        changesets, touched = self._tables.changesets, self._tables.touched
        there = (changesets.c.origin == origin) & (changesets.c.sequence > above)
        positions = select(changesets.c.position).where(there)
        self._write()
        self.connection.execute(delete(touched).where(touched.c.position.in_(positions)))
        self.connection.execute(delete(changesets).where(there))

    def drop_origin(self, origin: str) -> None:
        """Remove an origin that has no applied changesets any more."""
        origins = self._tables.origins
        self._write()
        self.connection.execute(delete(origins).where(origins.c.origin == origin))

    def drop_bodies(self, upto: Mapping[str, int]) -> int:
        """Remove the bodies of changesets up to a sequence; returns their number.

        They can still be listed, but not sent: the floor is raised as by :meth:`drop_changesets`.
        """
        changesets = self._tables.changesets
        count = 0
        for origin, sequence in upto.items():
            there = (changesets.c.origin == origin) & (changesets.c.sequence <= sequence)
            self._write()
            gone = update(changesets).where(there, changesets.c.body.is_not(None)).values(body=None)
            count += self.connection.execute(gone).rowcount
        self._raise_floor(upto)
        return count

    def _raise_floor(self, upto: Mapping[str, int]) -> None:
        origins = self._tables.origins
        for origin, sequence in upto.items():
            is_lower = (origins.c.origin == origin) & (origins.c.floor < sequence)
            self.connection.execute(update(origins).where(is_lower).values(floor=sequence))


def _values(record: ChangesetRecord) -> tuple[object, ...]:
    # In the order of the table's columns.
    return (
        record.position,
        record.origin,
        record.sequence,
        bytes.fromhex(record.id),
        record.hlc,
        record.time,
        storable(record.author),
        storable(record.comment),
        record.changes,
        record.via,
        record.size,
        record.signature,
        record.body,
    )
