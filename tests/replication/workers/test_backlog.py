"""The backlog of one worker, without any worker or clock."""

from __future__ import annotations

from typing import Any

import pytest

from stompkit.replication.workers._backlog import Backlog, Completion, Item
from stompkit.replication.workers.messages import key_octets


def item(key: Any, completion: Completion | None = None) -> Item:
    return Item("t", key, key_octets(key), [] if completion is None else [completion])


def backlog(*keys: Any, limit: int = 100, max_batch: int = 100) -> Backlog:
    made = Backlog(limit=limit, max_batch=max_batch)
    for key in keys:
        assert made.add(item(key))
    return made


def taken(made: Backlog, now: float = 0.0) -> list[Any]:
    return [each.key for each in made.take(now)]


def test_keys_are_taken_in_their_order_in_batches() -> None:
    made = backlog(3, 1, 2, 1, max_batch=3)
    assert taken(made) == [3, 1, 2]
    assert taken(made) == [1]
    assert taken(made) == []


def test_below_the_limit_nothing_is_merged() -> None:
    made = backlog(1, 1, 1, limit=4)
    assert taken(made) == [1, 1, 1]
    assert made.merged == 0


def test_at_the_limit_a_key_that_waits_keeps_its_first_place_and_others_have_no_room() -> None:
    """Bug of Meepo: past its limit the queue lost its order, and still grew."""
    made = backlog("a", "b", "c", limit=3)
    for _ in range(100):
        assert made.add(item("b"))
        assert not made.add(item("d"))
    assert len(made) == 3
    assert made.merged == 100
    assert taken(made) == ["a", "b", "c"]
    assert made.add(item("d"))


def test_at_the_limit_what_waits_twice_makes_room_first() -> None:
    made = backlog("a", "b", "a", "a", limit=4)
    assert made.add(item("c"))
    assert taken(made) == ["a", "b", "c"]


def test_a_key_that_was_taken_stands_for_no_later_one() -> None:
    """A change after the worker has taken the key is processed again."""
    made = backlog("a", "b", limit=2, max_batch=1)
    assert taken(made) == ["a"]
    assert made.add(item("a"))
    assert taken(made) == ["b"]
    assert taken(made) == ["a"]


def test_whoever_waits_for_a_merged_key_hears_of_it() -> None:
    first, second = Completion(1), Completion(1)
    made = backlog(limit=1)
    assert made.add(item("a", first))
    assert made.add(item("a", second))
    (only,) = made.take(0.0)
    assert only.completions == [first, second]


def test_what_is_delayed_is_not_taken_before_it_is_due_and_holds_up_nobody() -> None:
    made = backlog("a", "b", max_batch=1)
    (failed,) = made.take(0.0)
    made.delay(failed, due=10.0)
    assert made.next_due() == 10.0
    assert taken(made, 9.0) == ["b"]
    assert taken(made, 9.0) == []
    assert taken(made, 10.0) == ["a"]
    assert made.next_due() is None


def test_a_change_of_a_delayed_key_is_done_with_its_next_try() -> None:
    made = backlog("a", "a", "b", max_batch=1)
    (failed,) = made.take(0.0)
    made.delay(failed, due=10.0)
    assert made.add(item("a"))
    assert taken(made, 1.0) == ["b"]
    assert taken(made, 1.0) == []
    assert made.merged == 2
    assert taken(made, 11.0) == ["a"]
    assert taken(made, 11.0) == []


def test_delayed_keys_count_for_the_limit() -> None:
    made = backlog("a", "b", limit=2)
    for failed in made.take(0.0):
        made.delay(failed, due=10.0)
    assert not made.add(item("c"))
    assert made.add(item("a"))
    assert len(made) == made.delayed == 2


def test_what_is_due_and_what_is_new_take_turns() -> None:
    made = backlog(*"abcdef", max_batch=1)
    for _ in range(3):
        (failed,) = made.take(0.0)
        made.delay(failed, due=5.0)
    order = [taken(made, 5.0) for _ in range(6)]
    assert sorted(key for batch in order for key in batch) == list("abcdef")
    kinds = ["old" if batch[0] in "abc" else "new" for batch in order]
    assert kinds in (["old", "new"] * 3, ["new", "old"] * 3)


def test_a_key_is_tried_again_with_no_more_others_than_it_may() -> None:
    made = backlog(*"abcde")
    items = made.take(0.0)
    for each, together in zip(items, [3, 3, 2, 1, 5], strict=True):
        each.together = together
        made.delay(each, due=1.0)
    # The third key allows batches of two only, so it has to wait for the next.
    assert [taken(made, 1.0) for _ in range(5)] == [["a", "b"], ["c"], ["d"], ["e"], []]


def test_what_is_put_back_is_the_first_again_in_its_order() -> None:
    made = backlog(*"abcd", limit=4, max_batch=3)
    items = made.take(0.0)
    assert made.add(item("e"))
    made.put_back(items[1:])
    assert taken(made) == ["b", "c", "d"]
    assert taken(made) == ["e"]


def test_all_is_due_when_it_is_hastened() -> None:
    made = backlog("a", "b")
    for each in made.take(0.0):
        made.delay(each, due=1e9)
    made.hasten()
    assert taken(made, 0.0) == ["a", "b"]


def test_clearing_gives_everything_back() -> None:
    made = backlog(*"abc", max_batch=1)
    (failed,) = made.take(0.0)
    made.delay(failed, due=5.0)
    assert [each.key for each in made.clear()] == ["b", "c", "a"]
    assert len(made) == 0


def test_a_completion_is_done_when_all_its_items_are() -> None:
    completion = Completion(2)
    completion.settle()
    assert not completion.future.done()
    completion.settle()
    assert completion.future.result(0) is None


def test_a_completion_of_nothing_is_done() -> None:
    assert Completion(0).future.done()


def test_an_abandoned_completion_fails_once() -> None:
    completion = Completion(3)
    completion.settle()
    completion.abandon(LookupError("a"))
    completion.abandon(LookupError("b"))
    completion.settle()
    with pytest.raises(LookupError, match="a"):
        completion.future.result(0)
