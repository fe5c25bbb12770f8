"""Past states of the rows of some tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from stompkit.replica.history._replay import Rows, Steps, whole
from stompkit.replica.rules import Rules
from stompkit.replica.store import Reader, row_id
from stompkit.replica.vectors import Vector, dominates
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value

__all__ = ["Key", "Shown", "Views", "shown"]

#: Key of a row: the values of its columns, sorted by column name.
Key = tuple[Value, ...]
#: Whole rows, key columns included, by table and key.
Shown = dict[str, dict[Key, dict[str, Value]]]
#: Table, key, and other columns.
_ShownRow = tuple[str, dict[str, Value], dict[str, Value] | None]

#: Batch limits: changesets or rows, and bytes.
_PAGE: Final = 500
_OCTETS: Final = 8 * 1024 * 1024
#: Maximum number of rows for which their changesets are looked up individually.
_FEW: Final = 200


class Views:
    """Past states of the rows of the tables selected by ``wants``."""

    def __init__(
        self, reader: Reader, steps: Steps, rules: Rules, wants: Callable[[str], bool]
    ) -> None:
        """Use the contents of a store."""
        self._reader = reader
        self._steps = steps
        self._rules = rules
        self._wants = wants

    def now(self) -> Shown:
        """Return all current rows."""
        return shown(self._present())

    def _present(self) -> Iterator[_ShownRow]:
        for table in filter(self._wants, self._reader.tables()):
            rules = self._rules.of(table)
            after = None
            while page := self._reader.rows_of(table, after, _PAGE):
                for record in page:
                    yield record.table, record.key, record.state.visible(rules)
                after = page[-1].id

    def at(self, vector: Vector) -> Shown:
        """Return all rows merged from exactly the changesets of a vector."""
        rows = Rows(self._rules, wants=self._wants)
        rows.begin(self._reader)
        for record, clock in self._steps.upto(vector):
            rows.apply(record, clock)
        return shown(rows.all())

    def at_time(self, hlc: int) -> Shown:
        """Return all rows merged from the changesets up to a hybrid timestamp."""
        rows = Rows(self._rules, wants=self._wants)
        rows.begin(self._reader)
        vector = dict(self._steps.base.vector)
        for record, clock in self._steps.upto(self._reader.vector()):
            past = {**clock, record.origin: record.sequence - 1}
            if record.hlc <= hlc and dominates(vector, past):
                vector[record.origin] = record.sequence
                rows.apply(record, clock)
        return shown(rows.all())

    def changed_between(
        self, one: Vector, other: Vector
    ) -> tuple[dict[bytes, RowChange], set[int]]:
        """Return the rows changed between two vectors, and the positions of their changesets.

        Each row comes with any one of its changes.
        """
        ranges = {}
        for origin in one.keys() | other.keys():
            least, most = sorted((one.get(origin, 0), other.get(origin, 0)))
            if least < most:
                ranges[origin] = (least + 1, most)
        found: dict[bytes, RowChange] = {}
        positions: set[int] = set()
        while ranges:
            records = self._reader.ranges(ranges, limit=_PAGE, max_bytes=_OCTETS)
            if not records:
                break
            for record in records:
                changes = [each for each in whole(record).changes if self._wants(each.name)]
                found |= {row_id(each.name, each.key): each for each in changes}
                if changes:
                    positions.add(record.position)
                ranges[record.origin] = (record.sequence + 1, ranges[record.origin][1])
            ranges = {name: ends for name, ends in ranges.items() if ends[0] <= ends[1]}
        return found, positions

    def some_now(self, ids: Iterable[bytes]) -> dict[bytes, dict[str, Value] | None]:
        """Return some current rows."""
        return {
            id: record.state.visible(self._rules.of(record.table))
            for id, record in self._reader.rows(ids).items()
        }

    def some_at(
        self, vector: Vector, ids: Collection[bytes], positions: Collection[int]
    ) -> dict[bytes, dict[str, Value] | None]:
        """Return some rows as :meth:`at` does; ``positions`` are some changesets of theirs."""
        rows = Rows(self._rules, ids=ids)
        rows.begin(self._reader)
        of_interest = self._positions(ids, positions)
        for record, clock in self._steps.upto(vector):
            if of_interest is None or record.position in of_interest:
                rows.apply(record, clock)
        return {id: rows.visible(id) for id in rows.found}

    def _positions(self, ids: Collection[bytes], positions: Collection[int]) -> set[int] | None:
        """Return the positions of the rows' changesets; ``None`` if they must be searched."""
        if len(ids) > _FEW:
            return None
        found = {record.position for id in ids for record in self._reader.touching(id)}
        # They are not recorded while no history is saved.
        return found if found.issuperset(positions) else None


def shown(rows: Iterable[_ShownRow]) -> Shown:
    """Return the rows by table and key."""
    found: Shown = {}
    for table, key, values in rows:
        if values is not None:
            found.setdefault(table, {})[_key(key)] = {**key, **values}
    return found


def _key(key: Mapping[str, Value]) -> Key:
    return tuple(key[name] for name in sorted(key))
