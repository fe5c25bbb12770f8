"""The mailbox of an engine's thread: calls at once, messages up to a limit."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from stompkit.replica._running.mailbox import Mailbox

LONG_S = 30.0


def mailbox(max_messages: int = 10, max_bytes: int = 100) -> Mailbox[str]:
    return Mailbox(max_messages=max_messages, max_bytes=max_bytes)


def delivering(box: Mailbox[str], *texts: str) -> Future[list[bool]]:
    """Deliver texts in another thread; return a future of True if they were accepted."""
    future: Future[list[bool]] = Future()
    threading.Thread(
        target=lambda: future.set_result([box.deliver(text, len(text)) for text in texts]),
        daemon=True,
    ).start()
    return future


def taken(box: Mailbox[str], count: int) -> list[str]:
    """Take messages one after the other, up to this number."""
    found: list[str] = []
    while len(found) < count:
        box.wait(LONG_S)
        found += box.take(1, 1000)
    return found


def test_messages_come_in_their_order_and_wait_for_room() -> None:
    box = mailbox(max_messages=2)
    future = delivering(box, "a", "b", "c", "d", "e")
    assert taken(box, 5) == ["a", "b", "c", "d", "e"]
    assert future.result(LONG_S) == [True] * 5
    assert box.take(1, 1000) == []


def test_no_more_wait_than_there_is_room_for() -> None:
    box = mailbox(max_bytes=10)
    future = delivering(box, "x" * 6, "y" * 6)
    box.wait(LONG_S)
    assert box.take(10, 1000) == ["x" * 6]
    assert future.result(LONG_S) == [True, True]
    assert box.take(10, 1000) == ["y" * 6]


def test_a_message_that_is_larger_than_the_room_goes_alone() -> None:
    box = mailbox(max_bytes=10)
    future = delivering(box, "x" * 1000, "y" * 1000)
    assert taken(box, 2) == ["x" * 1000, "y" * 1000]
    assert future.result(LONG_S) == [True, True]


def test_as_much_is_taken_as_is_wanted_but_one_at_least() -> None:
    box = mailbox()
    for text in ("aaaa", "bbbb", "cccc"):
        box.deliver(text, len(text))
    assert box.take(10, 8) == ["aaaa", "bbbb"]
    assert box.take(10, 1) == ["cccc"]
    for text in ("a", "b", "c"):
        box.deliver(text, 1)
    assert box.take(2, 1000) == ["a", "b"]


def test_calls_wait_for_nothing() -> None:
    box = mailbox(max_messages=1)
    box.deliver("a", 1)
    called: list[int] = []
    for number in range(5):
        assert box.call(lambda number=number: called.append(number))  # type: ignore[misc]
    box.wait(LONG_S, for_deliveries=False)
    for function in box.take_calls():
        function()
    assert called == [0, 1, 2, 3, 4]
    assert box.take_calls() == []


def test_nobody_waits_for_a_mailbox_that_is_closed() -> None:
    box = mailbox(max_messages=1)
    box.deliver("a", 1)
    future = delivering(box, "b")
    box.call(list)
    box.close()
    assert future.result(LONG_S) == [False]
    box.wait(None)
    assert not box.call(list)
    assert box.take(10, 1000) == []
    # An earlier caller must be answered.
    assert len(box.take_calls()) == 1
