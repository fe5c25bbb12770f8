"""The common behaviour of all event stores."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from stompkit.replication.eventstore import EventStore
from stompkit.replication.model.values import InvalidValueError
from stompkit.testing.launching.polling import wait_until
from tests.replication.eventstore.conftest import STORE_KINDS, MakeStore

DAY_S = 86400


def by_day(ts: float) -> str:
    return f"es:{datetime.fromtimestamp(ts, UTC):%Y%m%d}"


@pytest.fixture(params=STORE_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def store(make_store: MakeStore) -> EventStore:
    return make_store()


def test_keys_come_in_the_order_of_their_last_times(store: EventStore) -> None:
    assert store.add("t_write", "1")
    assert store.add("t_write", "3")
    assert store.replay("t_write") == ["1", "3"]
    assert store.add("t_write", "1")
    assert store.replay("t_write") == ["3", "1"]


def test_times_that_were_given_come_back(store: EventStore) -> None:
    given = [(pk, 100.0 + pk) for pk in range(5)]
    for pk, ts in reversed(given):
        store.add("t_write", pk, ts=ts)
    assert store.replay("t_write", with_ts=True) == given


def test_fractions_of_a_second_are_kept(store: EventStore) -> None:
    store.add("t_write", "b", ts=1763760000.000002)
    store.add("t_write", "a", ts=1763760000.000003)
    store.add("t_write", "c", ts=1763760000.000001)
    assert store.replay("t_write", 1763760000.000002) == ["b", "a"]
    assert store.query("t_write", "c") == 1763760000.000001


def test_the_time_of_the_server_has_fractions_too(store: EventStore) -> None:
    before = time.time()
    for pk in range(20):
        store.add("t_write", pk)
    after = time.time()
    found = store.replay("t_write", with_ts=True)
    assert [pk for pk, _ in found] == list(range(20))
    times = [ts for _, ts in found]
    # All servers are on this machine.
    assert before - 0.01 <= times[0] <= times[-1] <= after + 0.01
    # Times have microseconds; some stores could round them.
    assert any(abs(ts - round(ts, 4)) > 1e-6 for ts in times)


def test_both_ends_of_what_is_replayed_are_included(store: EventStore) -> None:
    for ts in range(1, 6):
        store.add("t_write", ts, ts=ts)
    assert store.replay("t_write") == [1, 2, 3, 4, 5]
    assert store.replay("t_write", 3) == [3, 4, 5]
    assert store.replay("t_write", 2, 4) == [2, 3, 4]
    assert store.replay("t_write", end_ts=2) == [1, 2]
    assert store.replay("t_write", 4, 2) == []


def test_an_earlier_time_changes_nothing(store: EventStore) -> None:
    assert store.add("t_write", 1, ts=20)
    assert store.add("t_write", 1, ts=10)
    assert store.query("t_write", 1) == 20


def test_the_time_of_a_key_can_be_asked(store: EventStore) -> None:
    store.add("t_write", 1, ts=10)
    assert store.query("t_write", 1) == 10
    assert store.query("t_write", 2) is None
    assert store.query("t_update", 1) is None


def test_the_time_zero_is_a_time(store: EventStore) -> None:
    store.add("t_write", 1, ts=0)
    assert store.query("t_write", 1) == 0
    assert store.query("t_write", 1) is not None
    assert store.replay("t_write", 0, 0) == [1]


def test_events_are_told_apart(store: EventStore) -> None:
    store.add("t_write", 1, ts=1)
    store.add("T_write", 2, ts=1)
    store.add("t_write ", 3, ts=1)
    assert store.replay("t_write") == [1]


KEYS: list[Any] = [
    1,
    "1",
    (2, 3),
    "(2, 3)",
    "[2,3]",
    ("a b", "c,d"),
    0,
    "",
    None,
    True,
    1.5,
    Decimal("1.50"),
    b"\x00\xff",
    date(2026, 11, 21),
    datetime(2026, 11, 21, 12, tzinfo=UTC),
    UUID(int=7),
    "ÄÖ \U0001f600 \x00 '\"\\",
    "x" * 5000,
    (UUID(int=7), Decimal("0.1"), None),
    2**70,
]


def test_keys_come_back_as_what_they_were(store: EventStore) -> None:
    for ts, key in enumerate(KEYS):
        store.add("t_write", key, ts=ts)
    found = store.replay("t_write")
    assert found == KEYS
    assert list(map(type, found)) == list(map(type, KEYS))
    assert [store.query("t_write", key) for key in KEYS] == list(range(len(KEYS)))


def test_a_key_without_a_form_in_json_is_refused(store: EventStore) -> None:
    with pytest.raises(InvalidValueError):
        store.add("t_write", object())
    with pytest.raises(InvalidValueError):
        store.add("t_write", "\ud800")


@pytest.mark.parametrize("ts", [-1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(store: EventStore, ts: float) -> None:
    with pytest.raises(ValueError, match="no time"):
        store.add("t_write", 1, ts=ts)


@pytest.mark.parametrize("ttl", [0, -1, float("nan")])
def test_a_ttl_that_is_none_is_refused(store: EventStore, ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        store.add("t_write", 1, ttl=ttl)


def test_several_events_are_added_together(store: EventStore) -> None:
    assert store.add_many([("t_write", 1), ("t_write", 2), ("t_delete", 1), ("t_write", 1)])
    assert sorted(store.replay("t_write")) == [1, 2]
    assert store.replay("t_delete") == [1]
    assert store.add_many([])


def test_what_is_cleared_is_gone(store: EventStore) -> None:
    store.add_many([("t_write", 1), ("t_write", 2), ("t_update", 1)])
    assert store.clear("t_write") == 2
    assert store.replay("t_write") == []
    assert store.clear("t_write") == 0
    assert store.replay("t_update") == [1]


def test_stores_with_other_namespaces_see_nothing_of_it(make_store: MakeStore) -> None:
    mine, other, third = make_store("a"), make_store("b"), make_store(lambda ts: f"c{ts:.0f}")
    fourth = make_store(lambda ts: f"d{ts:.0f}")
    for store in (mine, other, third):
        store.add("t_write", 1, ts=5)
    fourth.add("t_write", 4, ts=5)
    other.add("t_write", 2, ts=6)
    third.add("t_write", 3, ts=6)
    assert mine.replay("t_write") == [1]
    assert mine.clear("t_write") == 1
    assert other.replay("t_write") == [1, 2]
    assert third.replay("t_write") == [1, 3]
    assert third.clear("t_write") == 2
    assert fourth.replay("t_write") == [4]
    assert other.replay("t_write") == [1, 2]


# Namespaces that depend on the time.


def test_all_namespaces_of_the_range_are_replayed(make_store: MakeStore) -> None:
    store = make_store(by_day)
    today = 20000 * DAY_S
    for days in range(5):
        store.add("t_write", days, ts=today + days * DAY_S)
    assert store.replay("t_write") == [0, 1, 2, 3, 4]
    assert store.replay("t_write", today + DAY_S, today + 3 * DAY_S) == [1, 2, 3]


def test_what_is_new_is_replayed_from_yesterday_on(make_store: MakeStore) -> None:
    store = make_store(by_day)
    store.add("t_write", "old", ts=time.time() - DAY_S)
    store.add("t_write", "new")
    assert store.replay("t_write", time.time() - 2 * DAY_S) == ["old", "new"]


def test_a_key_of_several_namespaces_is_replayed_once(make_store: MakeStore) -> None:
    store = make_store(by_day)
    store.add("t_write", 1, ts=5)
    store.add("t_write", 2, ts=6)
    store.add("t_write", 1, ts=5 + DAY_S)
    assert store.replay("t_write", with_ts=True) == [(2, 6), (1, 5 + DAY_S)]
    assert store.replay("t_write", end_ts=10) == [1, 2]
    assert store.query("t_write", 1) == 5 + DAY_S
    assert store.query("t_write", 1, ts=4) == 5
    assert store.query("t_write", 1, ts=7) is None


def test_one_namespace_can_be_cleared(make_store: MakeStore) -> None:
    store = make_store(by_day)
    store.add("t_write", 1, ts=5)
    store.add("t_write", 2, ts=5 + DAY_S)
    assert store.clear("t_write", ts=100) == 1
    assert store.replay("t_write") == [2]
    assert store.clear("t_write", ts=100) == 0


def test_another_process_finds_the_same_namespaces(make_store: MakeStore) -> None:
    make_store(by_day).add("t_write", 1, ts=5)
    assert make_store(by_day).replay("t_write") == [1]


# Time to live.


def test_events_are_gone_after_their_ttl(make_store: MakeStore) -> None:
    store = make_store(ttl=0.2)
    store.add("t_write", "short")
    store.add("t_write", "long", ttl=1000)
    assert wait_until(lambda: store.replay("t_write") == ["long"], 20)
    assert store.query("t_write", "short") is None
    assert store.query("t_write", "long") is not None
    store.prune()
    assert store.prune() == 0
    assert store.clear("t_write") == 1


@pytest.mark.parametrize("namespace", [None, by_day])
def test_the_ttl_counts_from_when_it_was_added(make_store: MakeStore, namespace: Any) -> None:
    store = make_store(namespace, ttl=0.2)
    store.add("t_write", 1, ts=5)
    store.add("t_write", 2, ts=time.time() + 1000)
    assert wait_until(lambda: store.replay("t_write") == [], 20)


def test_a_key_that_is_added_again_lives_on(make_store: MakeStore) -> None:
    store = make_store(ttl=0.2)
    store.add("t_write", 1, ts=5)
    store.add("t_write", 2, ts=5)
    store.add("t_write", 1, ts=5, ttl=1000)
    assert wait_until(lambda: store.replay("t_write") == [1], 20)


def test_an_earlier_time_does_not_shorten_a_life(make_store: MakeStore) -> None:
    store = make_store(ttl=1000)
    store.add("t_write", 1, ts=6)
    store.add("t_write", 1, ts=5, ttl=0.1)
    store.add("t_write", 2, ts=5, ttl=0.1)
    assert wait_until(lambda: store.query("t_write", 2) is None, 20)
    assert store.query("t_write", 1) == 6


def test_an_earlier_time_is_taken_once_the_later_is_past_its_ttl(make_store: MakeStore) -> None:
    store = make_store(ttl=0.2)
    store.add("t_write", 1, ts=50)
    assert wait_until(lambda: store.query("t_write", 1) is None, 20)
    store.add("t_write", 1, ts=40, ttl=1000)
    assert store.query("t_write", 1) == 40


def test_without_a_ttl_it_is_for_ever(make_store: MakeStore) -> None:
    store = make_store(ttl=None)
    store.add("t_write", 1, ts=5)
    store.add("t_write", 2, ts=5, ttl=0.1)
    assert wait_until(lambda: store.replay("t_write") == [1], 20)


def test_what_is_pruned_is_counted(make_store: MakeStore) -> None:
    store = make_store(ttl=0.1)
    store.add("t_write", 3, ttl=1000)
    store.add_many([("t_write", 1), ("t_write", 2)])
    assert wait_until(lambda: store.replay("t_write") == [3], 20)
    assert store.prune() == 2


# Concurrency.


def test_threads_add_the_latest_time_together(make_store: MakeStore) -> None:
    stores = [make_store() for _ in range(2)]

    def add(number: int) -> bool:
        events = [("t_write", key) for key in range(10)]
        return stores[number % 2].add_many(events if number % 3 else events[::-1], ts=number)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(add, range(60)))
    found = stores[0].replay("t_write", with_ts=True)
    assert found == sorted(((key, 59.0) for key in range(10)), key=lambda each: str(each[0]))
