"""Signals: names, keys, receivers that fail, distinct sessions."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from stompkit.replication.model.signals import (
    CHANGESET,
    emit,
    for_factory,
    has_receivers,
    key_of,
    signal,
)


def changeset(*changes: RowChange) -> Changeset:
    return make_changeset("o", 1, changes, Source(kind="test"))


Listen = Callable[[str], list[Any]]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Return a function that returns the list of values sent with a signal from now on."""
    connected = []

    def connect(name: str) -> list[Any]:
        received: list[Any] = []

        def receive(payload: object, **more: object) -> None:
            received.append(payload)

        signal(name).connect(receive)
        connected.append((name, receive))
        return received

    yield connect
    for name, receive in connected:
        signal(name).disconnect(receive)


def test_a_key_is_a_value_or_a_tuple() -> None:
    assert key_of({"id": 0}) == 0
    assert key_of({"b": 2, "a": 1}) == (2, 1)
    assert key_of({}) is None


@pytest.mark.parametrize("key", [0, "", (1, "two")])
def test_a_row_is_told_by_its_key(listen: Listen, key: object) -> None:
    columns = dict(enumerate(key)) if isinstance(key, tuple) else {"id": key}
    names = {str(name): value for name, value in columns.items()}
    received = [listen(f"things_{action}") for action in ("write", "update", "delete")]
    for action in ("write", "read", "update", "delete"):
        emit(changeset(RowChange(table="things", action=action, key=names)))
    assert received == [[key, key], [key], [key]]


def test_a_changed_key_is_a_delete_and_a_write(listen: Listen) -> None:
    written, updated, deleted = map(listen, ("things_write", "things_update", "things_delete"))
    emit(changeset(RowChange(table="things", action="update", key={"id": 2}, old_key={"id": 1})))
    assert (written, updated, deleted) == ([2], [], [1])


def test_tables_of_two_schemas_are_told_apart(listen: Listen) -> None:
    both, first, second = map(listen, ("things_write", "one.things_write", "two.things_write"))
    for schema in ("one", "two"):
        emit(
            changeset(RowChange(table="things", action="write", key={"id": schema}, schema=schema))
        )
    assert both == ["one", "two"]
    assert first == ["one"]
    assert second == ["two"]


def test_a_raw_signal_has_the_change_or_what_the_publisher_makes(listen: Listen) -> None:
    raw = listen("things_update_raw")
    change = RowChange(table="things", action="update", key={"id": 1}, after={"id": 1})
    emit(changeset(change))
    emit(changeset(change), raw=lambda each: each.after)
    assert raw == [change, {"id": 1}]


def test_a_receiver_of_rows_that_fails_keeps_nobody_from_hearing(
    listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(key: object) -> None:
        raise RuntimeError("not today")

    signal("things_write").connect(fail)
    received = listen("things_write")
    with caplog.at_level(logging.ERROR):
        emit(changeset(RowChange(table="things", action="write", key={"id": 1})))
    signal("things_write").disconnect(fail)
    assert received == [1]
    assert "things_write" in caplog.text


def test_a_receiver_of_changesets_that_fails_stops_the_publisher(listen: Listen) -> None:
    def fail(each: Changeset) -> None:
        raise RuntimeError("the disk is full")

    CHANGESET.connect(fail)
    received = listen("changeset")
    try:
        with pytest.raises(RuntimeError, match="full"):
            emit(changeset())
    finally:
        CHANGESET.disconnect(fail)
    assert len(received) == 1, "all are called"


def test_futures_of_receivers_are_given(listen: Listen) -> None:
    future: Future[None] = Future()

    def take(each: Changeset) -> Future[None]:
        return future

    listen("changeset")
    CHANGESET.connect(take)
    assert emit(changeset()) == [future]
    CHANGESET.disconnect(take)


@pytest.mark.parametrize("of", ["maker", "scoped", "session"])
def test_sessions_of_two_factories_are_told_apart(of: str) -> None:
    """Meepo did this by a change of blinker, which later versions of blinker ignore."""
    makers = [sessionmaker(), sessionmaker()]
    sessions = [make() for make in makers]
    factory = {"maker": makers[0], "scoped": scoped_session(makers[0]), "session": sessions[0]}[of]
    received = []

    def receive(session: Session, **more: object) -> str:
        received.append((session, more))
        return "heard"

    wrapped = for_factory(receive, factory)
    signal("session_commit").connect(wrapped)
    for session in sessions:
        signal("session_commit").send(session, event=1)
        session.close()
    signal("session_commit").disconnect(wrapped)
    assert received == [(sessions[0], {"event": 1})]


def test_nobody_else_uses_the_names_of_blinkers_default() -> None:
    import blinker

    assert signal("things_write") is not blinker.signal("things_write")
    assert signal("things_write") is signal("things_write")


class UnreadReceivers(dict[Any, Any]):
    """Receivers of a signal that nobody looks at."""

    def __len__(self) -> int:
        raise AssertionError("a signal of another table is looked at")


def test_the_work_of_a_changeset_does_not_grow_with_the_number_of_signals(listen: Listen) -> None:
    received = listen("things_write")
    others = [signal(f"table{number}_write") for number in range(100)]
    for each in others:
        each.receivers = UnreadReceivers()
    try:
        emit(changeset(RowChange(table="things", action="write", key={"id": 1})))
    finally:
        for each in others:
            each.receivers = {}
    assert received == [1]


class UnreadChanges(tuple[RowChange, ...]):
    """Changes that nobody reads."""

    __slots__ = ()

    def __iter__(self) -> Iterator[RowChange]:
        """Fail."""
        raise AssertionError("rows are read for nobody")


def test_rows_are_not_read_for_receivers_that_are_gone() -> None:
    def receive(key: object) -> None: ...

    signal("things_write").connect(receive)
    del receive
    gc.collect()
    assert not has_receivers()
    unread = msgspec.structs.replace(changeset(), changes=UnreadChanges())
    assert emit(unread) == []


def test_threads_that_ask_for_a_name_at_once_get_the_same_signal() -> None:
    names = [f"made_at_once_{number}" for number in range(2000)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            first, second = (pool.submit(lambda: [*map(signal, names)]) for _ in range(2))
            pairs = zip(first.result(), second.result(), strict=True)
    finally:
        sys.setswitchinterval(before)
    assert all(one is other for one, other in pairs)
