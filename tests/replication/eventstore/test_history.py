"""The history of an event store: later events do not remove earlier ones."""

from __future__ import annotations

from decimal import Decimal

import pytest

from stompkit.replication.eventstore import EventStore
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.testing.launching.polling import wait_until
from tests.replication.eventstore.conftest import STORE_KINDS, MakeStore


@pytest.fixture(params=STORE_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def store(make_store: MakeStore) -> EventStore:
    return make_store(history=True)


def change(table: str, key: int, price: str, schema: str = "") -> RowChange:
    after = {"id": key, "price": Decimal(price)}
    return RowChange(table=table, schema=schema, action="update", key={"id": key}, after=after)


def made(number: int, *changes: RowChange) -> Changeset:
    return make_changeset("o", number, changes, Source(kind="k"), id=f"o:{number}")


def test_every_change_is_kept_with_what_was_in_it(store: EventStore) -> None:
    given = [made(n, change("t", 1, f"{n}.50")) for n in range(1, 6)]
    for each in given:
        assert store.append(each)
    assert [each for _, each in store.events()] == given
    times = [time for time, _ in store.events()]
    assert times == sorted(times)


def test_changes_of_one_time_are_in_the_order_in_which_they_came(store: EventStore) -> None:
    given = [made(n, change("t", 1, "1")) for n in (3, 1, 12, 2)]
    for each in given:
        store.append(each, ts=7)
    assert [each.sequence for _, each in store.events()] == [3, 1, 12, 2]


def test_both_ends_of_the_range_are_included(store: EventStore) -> None:
    for n in range(1, 6):
        store.append(made(n, change("t", 1, "1")), ts=n + 0.25)
    found = [(time, each.sequence) for time, each in store.events(since=2.25, until=4.25)]
    assert found == [(2.25, 2), (3.25, 3), (4.25, 4)]


def test_the_changes_of_one_table_can_be_had(store: EventStore) -> None:
    store.append(made(1, change("t", 1, "1", "s"), change("u", 2, "1", "s")), ts=1)
    store.append(made(2, change("u", 3, "1", "s")), ts=2)
    assert [each.changes for _, each in store.events(table="t")] == [(change("t", 1, "1", "s"),)]
    assert [len(each.changes) for _, each in store.events(table="s.u")] == [1, 1]
    assert list(store.events(table="x.u")) == []


def test_the_same_changeset_is_kept_once(store: EventStore) -> None:
    store.append(made(1, change("t", 1, "1")), ts=1)
    assert store.append(made(1, change("t", 1, "2")), ts=2)
    assert [(time, each.changes[0].after) for time, each in store.events()] == [
        (1, {"id": 1, "price": Decimal(1)})
    ]


def test_a_long_history_is_read_in_parts(store: EventStore) -> None:
    for n in range(450):
        store.append(made(n, change("t", n, "1")), ts=n // 3)
    assert [each.sequence for _, each in store.events()] == list(range(450))


def test_a_changeset_of_any_size_is_kept(store: EventStore) -> None:
    large = made(1, RowChange(table="t", action="write", key={"id": 1}, after={"x": "y" * 300_000}))
    store.append(large)
    assert [each for _, each in store.events()] == [large]


def test_it_is_gone_after_its_ttl_and_can_be_kept_again(make_store: MakeStore) -> None:
    store = make_store(ttl=0.2, history=True)
    store.append(made(1, change("t", 1, "1")), ts=5)
    assert wait_until(lambda: list(store.events()) == [], 20)
    again = make_store(ttl=1000, history=True)
    again.append(made(2, change("t", 1, "1")), ts=4)
    again.append(made(1, change("t", 1, "2")), ts=5)
    assert [each.sequence for _, each in again.events()] == [2, 1]


def test_clearing_keys_leaves_it(store: EventStore) -> None:
    store.append(made(1, change("t", 1, "1")))
    store.add("t_update", 1)
    store.clear("t_update")
    assert len(list(store.events())) == 1


def test_all_namespaces_are_read(make_store: MakeStore) -> None:
    store = make_store(lambda ts: f"n{ts // 10:.0f}", history=True)
    other = make_store(lambda ts: f"m{ts // 10:.0f}", history=True)
    for n in (31, 5, 14):
        store.append(made(n, change("t", n, "1")), ts=n)
        other.append(made(n + 100, change("t", n, "1")), ts=n)
    assert [each.sequence for _, each in store.events()] == [5, 14, 31]
    assert [each.sequence for _, each in store.events(since=10, until=20)] == [14]


def test_a_store_without_a_history_says_so(make_store: MakeStore) -> None:
    store = make_store()
    assert not store.has_history
    with pytest.raises(RuntimeError, match="history=True"):
        store.append(made(1))
    with pytest.raises(RuntimeError, match="history=True"):
        list(store.events())
