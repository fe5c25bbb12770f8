"""Requirements on every store."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from stompkit.server.interfaces import (
    CreateLane,
    Delivered,
    DropLane,
    LaneState,
    Mark,
    MessageStore,
    Operation,
    Put,
    Remove,
    SetRecord,
    StoredMessage,
    StoreError,
)
from tests.server.stores.conftest import Place

ALL_OCTETS = bytes(range(256))
#: Characters that are invalid UTF-8 on the wire, or invalid text for some databases.
ODD_TEXT = "caf\udce9 \0 \U0001f600 \\ ' \" %s {x} \n"
MANY = 1_300


def put(place: int, size: int = 10, *, lane: int = 1, body: bytes = b"body") -> Put:
    return Put(lane, place, size, 0, 0, f"id-{place}", b"a:b\n", body)


def read_all(store: MessageStore, lane: int = 1) -> list[StoredMessage]:
    return list(store.read(lane, 0, 1_000_000, 1_000_000_000))


def places(store: MessageStore, lane: int = 1) -> list[int]:
    return [message.place for message in read_all(store, lane)]


def deliveries(store: MessageStore, lane: int = 1) -> list[int]:
    return [message.deliveries for message in read_all(store, lane)]


def state(store: MessageStore, lane: int = 1) -> LaneState:
    (found,) = [each for each in store.lanes() if each.lane == lane]
    return found


@pytest.fixture
def lane(store: MessageStore) -> int:
    """The number of a lane without messages."""
    store.apply([CreateLane(1, "/queue/a", 4)])
    return 1


# Lanes.


def test_a_new_store_is_empty(store: MessageStore) -> None:
    assert store.lanes() == []
    assert store.records() == {}
    assert store.read(1, 0, 10, 1_000) == []


def test_a_lane_is_given_back_as_it_was_made(store: MessageStore) -> None:
    store.apply([CreateLane(7, "/queue/b", 10), CreateLane(3, ODD_TEXT, 0), CreateLane(5, "", 4)])
    assert sorted(store.lanes()) == [
        LaneState(3, ODD_TEXT, 0, 0, 0, 0, 0),
        LaneState(5, "", 4, 0, 0, 0, 0),
        LaneState(7, "/queue/b", 10, 0, 0, 0, 0),
    ]


def test_a_queue_may_have_a_long_name(store: MessageStore) -> None:
    name = "/queue/" + "é" * 5_000
    store.apply([CreateLane(1, name, 4)])
    assert state(store).queue == name


def test_a_lane_that_is_there_is_not_made_again(store: MessageStore, lane: int) -> None:
    store.apply([put(1)])
    with pytest.raises(StoreError, match="lane 1 exists"):
        store.apply([CreateLane(lane, "/queue/b", 4)])
    assert state(store).queue == "/queue/a"
    assert places(store) == [1]


def test_a_lane_is_dropped_with_its_messages_and_no_others(store: MessageStore) -> None:
    for number in (1, 2, 3):
        store.apply(
            [CreateLane(number, "/queue/a", number), put(1, lane=number), put(2, lane=number)]
        )
    store.apply([Mark(2, 1, 3), DropLane(2)])
    assert [each.lane for each in store.lanes()] == [1, 3]
    assert [places(store, number) for number in (1, 2, 3)] == [[1, 2], [], [1, 2]]


def test_a_lane_that_is_not_there_is_dropped_without_complaint(store: MessageStore) -> None:
    store.apply([DropLane(1)])
    assert store.lanes() == []


def test_a_lane_that_is_made_again_has_nothing_of_the_old_one(
    store: MessageStore, lane: int
) -> None:
    store.apply([put(1), put(2), Mark(lane, 1, 5), Delivered(lane, 2)])
    store.apply([DropLane(lane), CreateLane(lane, "/queue/b", 0), put(1)])
    assert store.lanes() == [LaneState(lane, "/queue/b", 0, 1, 10, 1, 0)]
    assert deliveries(store) == [0]


def test_a_lane_can_come_and_go_within_one_batch(store: MessageStore) -> None:
    store.apply([CreateLane(1, "/queue/a", 4), put(1), Mark(1, 1, 2), DropLane(1)])
    assert store.lanes() == []
    assert places(store) == []


# Messages.


def test_a_message_is_given_back_as_it_was_put(store: MessageStore, lane: int) -> None:
    message = Put(lane, 9, 1_000, 2**52, 2**53, ODD_TEXT, ALL_OCTETS, ALL_OCTETS * 3)
    store.apply([message])
    assert read_all(store) == [StoredMessage(9, 0, *message[2:])]


def test_a_message_may_be_empty(store: MessageStore, lane: int) -> None:
    store.apply([Put(lane, 1, 0, 0, 0, "", b"", b"")])
    assert read_all(store) == [StoredMessage(1, 0, 0, 0, 0, "", b"", b"")]
    assert state(store).messages == 1


def test_a_message_may_be_large(store: MessageStore, lane: int) -> None:
    body = ALL_OCTETS * 4_096 * 3
    store.apply([put(1, len(body), body=body), put(2)])
    assert [message.body for message in read_all(store)] == [body, b"body"]
    store.apply([Remove(lane, 1)])
    assert places(store) == [2]


def test_numbers_may_be_large(store: MessageStore) -> None:
    lane, place = 2**40, 2**41
    store.apply(
        [CreateLane(lane, "/queue/a", 4), put(place, 2**42, lane=lane), Delivered(lane, place)]
    )
    store.apply([Mark(lane, place, 2**33)])
    assert store.lanes() == [LaneState(lane, "/queue/a", 4, 1, 2**42, place, place)]
    assert deliveries(store, lane) == [2**33]


def test_messages_are_read_by_their_places_whatever_the_order_of_puts(
    store: MessageStore, lane: int
) -> None:
    store.apply([put(256), put(3)])
    store.apply([put(65_536), put(255), put(1)])
    assert places(store) == [1, 3, 255, 256, 65_536]


def test_lanes_do_not_mix(store: MessageStore, lane: int) -> None:
    store.apply([CreateLane(2, "/queue/a", 5), put(1), put(2, lane=2), put(3), Remove(2, 1)])
    assert (places(store, 1), places(store, 2)) == ([1, 3], [2])
    assert store.read(1, 3, 10, 1_000) == []


def test_a_message_without_a_lane_is_refused(store: MessageStore) -> None:
    with pytest.raises(StoreError, match="no lane 1"):
        store.apply([put(1)])
    store.apply([CreateLane(1, "/queue/a", 4)])
    assert places(store) == []


def test_the_sum_of_a_lane_is_that_of_its_messages(store: MessageStore, lane: int) -> None:
    store.apply([put(1, 10), put(2, 200), put(5, 3_000)])
    assert state(store) == LaneState(lane, "/queue/a", 4, 3, 3_210, 5, 0)
    store.apply([Remove(lane, 2), put(3, 40_000)])
    assert state(store) == LaneState(lane, "/queue/a", 4, 3, 43_010, 5, 0)


def test_a_message_replaces_what_is_in_its_place(store: MessageStore, lane: int) -> None:
    store.apply([put(1, 10), put(2, 20), Mark(lane, 1, 4)])
    store.apply([put(1, 300, body=b"new")])
    assert [(each.body, each.deliveries) for each in read_all(store)] == [(b"new", 0), (b"body", 0)]
    assert state(store) == LaneState(lane, "/queue/a", 4, 2, 320, 2, 0)


def test_what_is_removed_is_gone_and_given_back(store: MessageStore, lane: int) -> None:
    store.apply([put(1), put(2), put(3)])
    store.apply([Remove(lane, 2), Remove(lane, 3)])
    assert places(store) == [1]
    assert state(store) == LaneState(lane, "/queue/a", 4, 1, 10, 3, 0)


def test_what_is_not_there_is_removed_without_complaint(store: MessageStore, lane: int) -> None:
    store.apply([put(1), Remove(lane, 1), Remove(lane, 1), Remove(lane, 9), Remove(2, 1)])
    store.apply([Remove(lane, 1), Remove(lane, 9), Remove(2, 1)])
    assert state(store) == LaneState(lane, "/queue/a", 4, 0, 0, 1, 0)


def test_the_last_place_is_known_when_its_message_is_gone(place: Place) -> None:
    store = place.store()
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4), put(7)])
    store.apply([put(9), Remove(1, 9), put(2)])
    store.apply([Remove(1, 7)])
    store.close()
    store.open()
    assert state(store).last_place == 9
    store.close()


def test_a_batch_may_have_very_many_operations(store: MessageStore, lane: int) -> None:
    store.apply([put(number) for number in range(1, MANY + 1)])
    assert state(store).messages == MANY
    store.apply([Remove(lane, number) for number in range(1, MANY + 1) if number % 100])
    assert places(store) == list(range(100, MANY + 1, 100))
    assert state(store).octets == 10 * (MANY // 100)


@pytest.mark.parametrize(
    ("operations", "left"),
    [
        ([put(5), Remove(1, 5)], [1]),
        ([Remove(1, 1), put(1, 20)], [1]),
        ([put(1, 20), Remove(1, 1)], []),
        ([put(5), Remove(1, 5), put(5, 30)], [1, 5]),
        ([Remove(1, 1), put(1), Remove(1, 1)], []),
        ([DropLane(1), CreateLane(1, "/queue/a", 4), put(2)], [2]),
        ([put(2), DropLane(1), CreateLane(1, "/queue/a", 4)], []),
        ([DropLane(1), Remove(1, 1), Mark(1, 1, 2), Delivered(1, 3)], []),
    ],
)
def test_operations_are_done_in_order(
    store: MessageStore, lane: int, operations: list[Operation], left: list[int]
) -> None:
    store.apply([put(1)])
    store.apply(operations)
    assert places(store) == left
    if store.lanes():
        sizes = [message.size for message in read_all(store)]
        assert (state(store).messages, state(store).octets) == (len(sizes), sum(sizes))


# Deliveries.


def test_a_mark_tells_the_deliveries_of_a_message(store: MessageStore, lane: int) -> None:
    store.apply([put(1), Mark(lane, 1, 2), put(2), put(3)])
    store.apply([Mark(lane, 3, 1)])
    store.apply([Mark(lane, 3, 6)])
    assert deliveries(store) == [2, 0, 6]


def test_a_mark_of_what_is_not_there_does_nothing(store: MessageStore, lane: int) -> None:
    store.apply([put(1), Remove(lane, 1), Mark(lane, 1, 2), Mark(lane, 9, 2), Mark(2, 1, 2)])
    store.apply([Mark(lane, 1, 2), Mark(lane, 9, 2), Mark(2, 1, 2)])
    store.apply([put(1), put(9), CreateLane(2, "/queue/b", 4), put(1, lane=2)])
    assert (deliveries(store), deliveries(store, 2)) == ([0, 0], [0])


def test_a_mark_goes_with_its_message(store: MessageStore, lane: int) -> None:
    store.apply([put(1), put(2), Mark(lane, 1, 5)])
    store.apply([Remove(lane, 1)])
    store.apply([put(1)])
    assert deliveries(store) == [0, 0]
    store.apply([Mark(lane, 2, 5), put(2)])
    assert deliveries(store) == [0, 0]


def test_what_is_delivered_up_to_a_place_was_delivered_once(store: MessageStore, lane: int) -> None:
    store.apply([put(1), put(2), put(3), put(4), Mark(lane, 1, 3)])
    store.apply([Delivered(lane, 2), Mark(lane, 4, 2)])
    assert deliveries(store) == [3, 1, 0, 2]
    assert state(store).delivered_place == 2


def test_the_delivered_place_never_goes_back(store: MessageStore, lane: int) -> None:
    store.apply([put(1), put(2), Delivered(lane, 2), Delivered(lane, 1)])
    store.apply([Delivered(lane, 1), Delivered(2, 5)])
    assert state(store).delivered_place == 2
    assert deliveries(store) == [1, 1]


# Reading.


def test_reading_begins_above_a_place(store: MessageStore, lane: int) -> None:
    store.apply([put(2), put(4), put(6)])
    found = [[each.place for each in store.read(lane, after, 10, 1_000)] for after in range(8)]
    assert found == [[2, 4, 6], [2, 4, 6], [4, 6], [4, 6], [6], [6], [], []]


def test_reading_keeps_within_both_bounds(store: MessageStore, lane: int) -> None:
    store.apply([put(number, 100) for number in range(1, 6)])

    def count(max_messages: int, max_octets: int) -> int:
        return len(store.read(lane, 0, max_messages, max_octets))

    assert [count(number, 10_000) for number in (1, 2, 5, 6)] == [1, 2, 5, 5]
    assert [count(10, octets) for octets in (100, 199, 200, 499, 500)] == [1, 1, 2, 4, 5]
    assert count(3, 250) == 2
    assert count(2, 450) == 2


def test_one_message_at_least_is_read(store: MessageStore, lane: int) -> None:
    store.apply([put(1, 100), put(2, 100)])
    assert [each.place for each in store.read(lane, 0, 10, 99)] == [1]
    assert [each.place for each in store.read(lane, 1, 0, 0)] == [2]


def test_a_message_that_does_not_fit_is_not_passed_over(store: MessageStore, lane: int) -> None:
    store.apply([put(1, 10), put(2, 1_000), put(3, 10)])
    assert [each.place for each in store.read(lane, 0, 10, 100)] == [1]


# Records.


def test_a_record_is_kept_replaced_and_forgotten(store: MessageStore) -> None:
    long = "key " * 5_000
    store.apply([SetRecord("a", b"1"), SetRecord(ODD_TEXT, ALL_OCTETS), SetRecord(long, b"")])
    assert store.records() == {"a": b"1", ODD_TEXT: ALL_OCTETS, long: b""}
    store.apply([SetRecord("a", b"2"), SetRecord(long, None), SetRecord("none", None)])
    assert store.records() == {"a": b"2", ODD_TEXT: ALL_OCTETS}


def test_the_last_of_several_values_of_a_record_is_kept(store: MessageStore) -> None:
    store.apply([SetRecord("a", b"1"), SetRecord("a", b"2"), SetRecord("b", b"1")])
    store.apply([SetRecord("b", None), SetRecord("b", b"3"), SetRecord("a", None)])
    assert store.records() == {"b": b"3"}


def test_names_of_records_differ_by_case_and_by_spaces(store: MessageStore) -> None:
    records = {"a": b"1", "A": b"2", "a ": b"3", "á": b"4"}
    store.apply([SetRecord(name, value) for name, value in records.items()])
    assert store.records() == records


# Atomicity.


@pytest.mark.parametrize("fault", [put(1, lane=9), CreateLane(1, "/queue/a", 4)])
def test_nothing_of_a_batch_that_fails_is_done(
    store: MessageStore, lane: int, fault: Operation
) -> None:
    store.apply(
        [put(1), put(2), CreateLane(2, "/queue/b", 4), put(1, lane=2), SetRecord("a", b"1")]
    )
    before = (store.lanes(), store.records(), read_all(store), read_all(store, 2))
    operations: list[Operation] = [
        put(3),
        put(1, 500),
        Remove(lane, 2),
        Mark(lane, 1, 3),
        Delivered(lane, 2),
        CreateLane(3, "/queue/c", 4),
        DropLane(2),
        SetRecord("a", None),
        SetRecord("b", b"2"),
        fault,
        put(4),
    ]
    with pytest.raises(StoreError):
        store.apply(operations)
    assert (store.lanes(), store.records(), read_all(store), read_all(store, 2)) == before
    operations.remove(fault)
    store.apply(operations)
    assert places(store) == [1, 3, 4]


def test_a_batch_may_have_nothing_in_it(store: MessageStore, lane: int) -> None:
    store.apply([])
    assert state(store).messages == 0


# Opening and closing.


@pytest.mark.parametrize("synchronous", [True, False])
def test_what_was_applied_is_there_after_reopening(place: Place, *, synchronous: bool) -> None:
    store = place.store(synchronous=synchronous)
    store.open()
    store.apply([CreateLane(1, "/queue/a", 4), put(1), put(2), Mark(1, 2, 3), Delivered(1, 1)])
    store.sync()
    store.apply([SetRecord("a", b"1"), Remove(1, 1), put(3)])
    before = (store.lanes(), store.records(), read_all(store))
    store.close()
    again = place.store(synchronous=synchronous)
    again.open()
    assert (again.lanes(), again.records(), read_all(again)) == before
    again.apply([put(4)])
    assert places(again) == [2, 3, 4]
    again.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.lanes(),
        lambda store: store.records(),
        lambda store: store.apply([]),
        lambda store: store.read(1, 0, 1, 1),
        lambda store: store.sync(),
    ],
)
def test_a_store_that_is_not_open_does_nothing(
    place: Place, call: Callable[[MessageStore], object]
) -> None:
    store = place.store()
    with pytest.raises(StoreError, match="not open"):
        call(store)
    store.open()
    call(store)
    store.close()
    with pytest.raises(StoreError, match="not open"):
        call(store)


def test_a_store_is_opened_once_and_closed_any_number_of_times(place: Place) -> None:
    store = place.store()
    store.close()
    store.open()
    with pytest.raises(StoreError, match="open already"):
        store.open()
    assert store.lanes() == []
    store.close()
    store.close()


def test_a_store_can_be_called_from_several_threads_in_turn(place: Place) -> None:
    store = place.store()
    failures: list[BaseException] = []

    def in_a_thread(call: Callable[[], object]) -> None:
        def run() -> None:
            try:
                call()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    in_a_thread(store.open)
    in_a_thread(lambda: store.apply([CreateLane(1, "/queue/a", 4)]))
    in_a_thread(lambda: store.apply([put(1)]))
    store.apply([put(2)])
    in_a_thread(lambda: store.read(1, 0, 10, 1_000))
    assert places(store) == [1, 2]
    in_a_thread(store.close)
    assert failures == []
