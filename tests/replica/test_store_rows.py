"""A store returns the rows that it was given, and the digests of their tables."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from operator import xor
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, event

from stompkit.replica.store import (
    RowRecord,
    Store,
    Tx,
    row_id,
)
from tests.replica.stores import (
    A,
    B,
    database_url,
    engine,
    row,
    server_urls,
    state,
    store,
)

__all__ = ["database_url", "engine", "server_urls", "store"]


def ids(records: list[RowRecord]) -> list[bytes]:
    return [each.id for each in records]


def test_a_row_is_given_as_it_was_put(store: Store) -> None:
    key = {
        "text": "Ä\0b",
        "number": Decimal("1.50"),
        "day": date(2026, 1, 2),
        "time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "octets": b"\0\xff",
        "uuid": UUID(int=7),
        "none": None,
    }
    given = RowRecord(
        id=row_id("shop.orders", key),
        table="shop.orders",
        key=key,
        state=state("x"),
        is_live=True,
        conflicts=2,
        digest=2**128 - 1,
        page=7,
        problem="there is another row with this name",
    )
    with store.transaction() as tx:
        tx.put_rows([given])
        assert tx.rows([given.id]) == {given.id: given}
    with store.reading() as reader:
        assert reader.rows([given.id, row(1).id]) == {given.id: given}
        assert reader.rows([]) == {}


def test_a_state_that_is_changed_in_place_is_stored_so(store: Store) -> None:
    with store.transaction() as tx:
        tx.put_rows([row(1, state=state("before"))])
        (record,) = tx.rows([row(1).id]).values()
        record.state = state("after")
        tx.put_rows([record])
    with store.reading() as reader:
        (record,) = reader.rows([record.id]).values()
    assert record.encoded() == state("after").encode()
    assert record.state.encode() == state("after").encode()


def test_more_rows_than_a_statement_takes_can_be_put_and_read(store: Store) -> None:
    given = {each.id: each for each in (row(n) for n in range(1700))}
    with store.transaction() as tx:
        tx.put_rows(list(given.values()))
    with store.transaction() as tx:
        assert tx.rows(given) == given
        tx.delete_rows(list(given)[100:])
        assert tx.rows(given).keys() == set(list(given)[:100])


def test_rows_are_paged_by_their_ids(store: Store) -> None:
    given = sorted((row(n) for n in range(450)), key=lambda each: each.id)
    with store.transaction() as tx:
        tx.put_rows(given)
    with store.reading() as reader:
        assert reader.row_page(limit=1000) == given
        assert reader.row_page(given[9].id, limit=5) == given[10:15]
        found: list[RowRecord] = []
        while page := reader.row_page(found[-1].id if found else None, limit=301, max_bytes=9999):
            octets = sum(len(each.encoded()) for each in page)
            assert len(page) == 1 or octets <= 9999
            found += page
        assert found == given
        assert reader.row_page(limit=9, max_bytes=1) == given[:1]
        assert reader.row_range(given[3].id, given[5].id) == given[4:6]
        assert reader.row_range(None, given[1].id) == given[:2]
        assert reader.row_range(given[-2].id, None) == given[-1:]


def test_rows_can_be_asked_for_by_what_is_the_matter_with_them(store: Store) -> None:
    given = [
        row(1, conflicts=1),
        row(2, problem="taken"),
        row(3, is_live=False, digest=0),
        row(4),
        row(1, "other", conflicts=3, problem="taken", is_live=False, digest=0),
    ]
    in_order = {each.id: each for each in sorted(given, key=lambda each: each.id)}
    with store.transaction() as tx:
        tx.put_rows(given)

    def chosen(*numbers: int) -> list[RowRecord]:
        wanted = {given[number].id for number in numbers}
        return [each for id, each in in_order.items() if id in wanted]

    with store.reading() as reader:
        assert reader.rows_of("notes") == chosen(0, 1, 2, 3)
        assert reader.rows_of("notes", chosen(0, 1, 2, 3)[1].id, 1) == chosen(0, 1, 2, 3)[2:3]
        assert reader.rows_of("nothing") == []
        assert reader.with_conflicts() == chosen(0, 4)
        assert reader.with_conflicts("other") == chosen(4)
        assert reader.with_conflicts(after=chosen(0, 4)[0].id) == chosen(0, 4)[1:]
        assert reader.conflict_count() == 2
        assert reader.with_problems() == chosen(1, 4)
        assert reader.with_problems(limit=1) == chosen(1, 4)[:1]
        assert reader.tombstones() == chosen(2, 4)
        assert reader.tombstones(chosen(2, 4)[0].id, 1) == chosen(2, 4)[1:]
    with store.transaction() as tx:
        tx.put_rows([row(1), row(2), row(3), row(1, "other")])
        assert tx.with_conflicts() == tx.with_problems() == tx.tombstones() == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["conflicts", "problems", "tombstones"])
def test_few_rows_are_found_without_a_look_at_all_others(
    engine: Engine, store: Store, name: str
) -> None:
    plans: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def explain(connection: Any, cursor: Any, sql: str, parameters: Any, *_: object) -> None:
        if " rows" in sql.replace("stompkit_replica_", " "):
            raw = connection.connection.dbapi_connection
            plans.extend(each[3] for each in raw.execute(f"EXPLAIN QUERY PLAN {sql}", parameters))

    with store.reading() as reader:
        match name:
            case "conflicts":
                reader.with_conflicts(after=row(1).id, limit=5)
            case "problems":
                reader.with_problems(after=row(1).id, limit=5)
            case _:
                reader.tombstones(after=row(1).id, limit=5)
    assert [f"rows_{name} (id>?)" in plan for plan in plans] == [True], plans


def test_the_digest_of_a_table_is_that_of_its_live_rows(store: Store) -> None:
    with store.transaction() as tx:
        tx.put_rows([row(5), row(6), row(2, is_live=False, digest=0), row(8, "other")])
        assert tx.digests() == {"notes": (5 ^ 6, 2), "other": (8, 1)}
        assert tx.tables() == ["notes", "other"]
    # Rows that this transaction has not read.
    with store.transaction() as tx:
        tx.put_rows([row(5, digest=9), row(2)])
        assert tx.digests()["notes"] == (9 ^ 6 ^ 2, 3)
        tx.put_rows([row(5, is_live=False)])
        assert tx.digests()["notes"] == (6 ^ 2, 2)
        tx.put_rows([row(6), row(6, digest=1)])
        assert tx.digests()["notes"] == (1 ^ 2, 2)
    with store.transaction() as tx:
        tx.delete_rows([row(6).id, row(6).id, row(5).id, row(77).id])
        tx.delete_rows([row(6).id])
        assert tx.digests() == {"notes": (2, 1), "other": (8, 1)}
    with store.reading() as reader:
        assert reader.digests() == {"notes": (2, 1), "other": (8, 1)}


@dataclass
class Model:
    """The expected rows by id."""

    rows: dict[bytes, RowRecord] = field(default_factory=dict)

    def digests(self, tables: list[str]) -> dict[str, tuple[int, int]]:
        found = {}
        for table in tables:
            live = [each.digest for each in self.rows.values() if each.table == table]
            live = [digest for digest in live if digest]
            found[table] = (reduce(xor, live, 0), len(live))
        return found


def change_rows(tx: Tx, model: Model, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 6)):
        some = [(chance.randrange(30), chance.choice(["a", "b"])) for _ in range(5)]
        match chance.randrange(4):
            case 0:
                tx.delete_rows(row(number, table).id for number, table in some)
                for number, table in some:
                    model.rows.pop(row(number, table).id, None)
            case 1:
                tx.rows(row(number, table).id for number, table in some)
            case _:
                digests = [chance.choice([0, chance.getrandbits(128)]) for _ in some]
                records = [
                    row(number, table, digest=digest, is_live=bool(digest))
                    for (number, table), digest in zip(some, digests, strict=True)
                ]
                tx.put_rows(records)
                model.rows.update((each.id, each) for each in records)


@pytest.mark.parametrize("seed", range(3))
def test_digests_stay_right_whatever_is_done_and_undone(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    model = Model()
    for _ in range(8):
        kept = dict(model.rows)
        try:
            with store.transaction() as tx:
                change_rows(tx, model, chance)
                before = dict(model.rows)
                try:
                    with tx.savepoint():
                        change_rows(tx, model, chance)
                        if chance.random() < 0.5:
                            raise KeyError
                except KeyError:
                    model.rows = before
                change_rows(tx, model, chance)
                assert tx.digests() == model.digests(tx.tables())
                if chance.random() < 0.2:
                    raise KeyError
        except KeyError:
            model.rows = kept
        with store.reading() as reader:
            assert reader.digests() == model.digests(reader.tables())
            assert reader.rows(model.rows) == model.rows


def test_names_that_differ_by_case_or_blanks_are_different_tables(store: Store) -> None:
    names = ["notes", "Notes", "notes ", "nötes", "notes\n"]
    with store.transaction() as tx:
        tx.put_rows([row(n, name) for n, name in enumerate(names, 1)])
        tx.set_meta("a", 1)
        tx.set_meta("A", 2)
        tx.set_meta("a ", 3)
    with store.reading() as reader:
        assert reader.digests() == {name: (n, 1) for n, name in enumerate(names, 1)}
        assert [len(reader.rows_of(name)) for name in names] == [1] * len(names)
        assert [reader.meta(name) for name in ("a", "A", "a ")] == [1, 2, 3]


def test_an_id_stands_for_one_table_and_key() -> None:
    keys: list[dict[str, object]] = [
        {"id": 1},
        {"id": "1"},
        {"id": 1.0},
        {"id": Decimal(1)},
        {"a": 1},
        {"id": 1, "a": 1},
    ]
    made = {row_id(table, key) for table in ("t", "T") for key in keys}
    assert len(made) == 2 * len(keys)
    assert {len(each) for each in made} == {16}
    assert row_id("t", {"a": 1, "b": 2}) == row_id("t", {"b": 2, "a": 1})


def test_pages_are_forgotten_with_what_came_in_them(store: Store) -> None:
    with store.transaction() as tx:
        tx.put_page(1, {A: 1})
        tx.put_page(2, {A: 5, B: 1})
        tx.put_page(1, {A: 2})
        tx.put_rows([row(1, page=1), row(2)])
        assert tx.page_vectors() == {1: {A: 2}, 2: {A: 5, B: 1}}
        tx.clear_pages()
    with store.reading() as reader:
        assert reader.page_vectors() == {}
        assert [each.page for each in reader.row_page(limit=9)] == [None, None]


def test_the_base_of_history_is_kept_beside_the_rows(store: Store) -> None:
    given = sorted((row(n, digest=0) for n in range(5)), key=lambda each: each.id)
    with store.transaction() as tx:
        assert tx.base_vector() == {}
        tx.put_base_rows(given)
        changed = RowRecord(
            id=given[1].id,
            table="notes",
            key=given[1].key,
            state=state("other"),
            is_live=False,
        )
        tx.put_base_rows([changed])
        tx.set_base_vector({A: 7})
        tx.delete_base_rows([given[4].id])
    with store.reading() as reader:
        assert reader.base_vector() == {A: 7}
        assert ids(reader.base_page(limit=9)) == ids(given[:4])
        assert ids(reader.base_page(given[0].id, limit=2)) == ids(given[1:3])
        assert reader.base_rows(ids(given)).keys() == set(ids(given[:4]))
        assert reader.base_rows([changed.id]) == {changed.id: changed}
        assert reader.row_page(limit=1) == []
        assert reader.digests() == {}
