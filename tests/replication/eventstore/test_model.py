"""Stores of all kinds behave as a model with a dictionary and a list."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from stompkit.replication.eventstore import EventStore, Namespace
from stompkit.replication.eventstore._keys import key_to_text
from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset
from tests.effort import drawn
from tests.replication.eventstore.conftest import STORE_KINDS, strict_store

_RUNS: Final = count()
_EVENTS = st.sampled_from(["a_write", "a_delete", "b_write"])
_KEYS = st.sampled_from([1, 2, "1", (1, 2), ("1", 2), 0, ""])
_TIMES = st.integers(0, 4000).map(lambda quarter: quarter / 4)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _EVENTS, _KEYS, _TIMES),
        st.tuples(st.just("replay"), _EVENTS, _TIMES, st.none() | _TIMES),
        st.tuples(st.just("query"), _EVENTS, _KEYS, st.none() | _TIMES),
        st.tuples(st.just("clear"), _EVENTS, st.none() | _TIMES),
        st.tuples(st.just("append"), st.sampled_from("tu"), st.integers(0, 9), _TIMES),
        st.tuples(st.just("events"), _TIMES, st.none() | _TIMES, st.sampled_from(["t", "u", None])),
    ),
    max_size=25,
)


class Model:
    """The specification of a store."""

    def __init__(self, namespace: Namespace) -> None:
        """Start empty."""
        self._namespace = namespace
        self._times: dict[tuple[str, str, str], tuple[float, Any]] = {}
        self._history: list[tuple[float, str, str]] = []

    def _name(self, ts: float) -> str:
        return self._namespace if isinstance(self._namespace, str) else self._namespace(ts)

    def add(self, event: str, key: Any, ts: float) -> bool:
        """Add an event as the store does."""
        place = (self._name(ts), event, key_to_text(key))
        self._times[place] = max((ts, key), self._times.get(place, (ts, key)), key=lambda p: p[0])
        return True

    def replay(self, event: str, ts: float, end: float | None) -> list[tuple[Any, float]]:
        """Replay as the store does."""
        latest: dict[str, tuple[float, Any]] = {}
        for (_, name, text), (time, key) in self._times.items():
            if name == event and ts <= time and (end is None or time <= end):
                latest[text] = max(latest.get(text, (time, key)), (time, key), key=lambda p: p[0])
        ordered = sorted(latest.items(), key=lambda item: (item[1][0], item[0]))
        return [(key, time) for _, (time, key) in ordered]

    def query(self, event: str, key: Any, ts: float | None) -> float | None:
        """Query as the store does."""
        names = None if ts is None else self._name(ts)
        found = [
            time
            for (name, known, text), (time, _) in self._times.items()
            if known == event and text == key_to_text(key) and names in (None, name)
        ]
        newest = max(found, default=None)
        return None if newest is None or (ts is not None and newest < ts) else newest

    def clear(self, event: str, ts: float | None) -> int:
        """Clear as the store does."""
        gone = [
            place
            for place in self._times
            if place[1] == event and (ts is None or place[0] == self._name(ts))
        ]
        for place in gone:
            del self._times[place]
        return len(gone)

    def append(self, table: str, number: int, ts: float) -> bool:
        """Append a changeset as the store does."""
        place = (self._name(ts), f"{table}{number}")
        if place not in [(self._name(time), id) for time, _, id in self._history]:
            self._history.append((ts, table, f"{table}{number}"))
        return True

    def events(
        self, since: float, until: float | None, table: str | None
    ) -> list[tuple[float, str]]:
        """Return events as the store does, with ids in place of changesets."""
        found = [
            (time, id)
            for time, of, id in self._history
            if since <= time and (until is None or time <= until) and table in (None, of)
        ]
        return sorted(found, key=lambda each: each[0])


def by_hundreds(ts: float) -> str:
    return f"n{ts // 100:.0f}"


@pytest.fixture(params=STORE_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=["one namespace", "many namespaces"])
def is_one(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "one namespace")


@settings(
    max_examples=drawn(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=_STEPS)
def test_a_store_is_a_dictionary_and_a_list(
    place: str | Engine | Path, steps: list[Any], *, is_one: bool
) -> None:
    run = next(_RUNS)
    namespace: Namespace = f"m{run}" if is_one else (lambda ts: f"m{run}{by_hundreds(ts)}")
    store = strict_store(place, namespace, history=True)
    try:
        compare(store, Model(namespace), steps)
    finally:
        store.close()


def compare(store: EventStore, model: Model, steps: list[Any]) -> None:
    for number, (what, *arguments) in enumerate(steps):
        expected = getattr(model, what)(*arguments)
        match what:
            case "replay":
                event, ts, end = arguments
                found: Any = store.replay(event, ts, end, with_ts=True)
                assert store.replay(event, ts, end) == [key for key, _ in found]
            case "append":
                table, id, ts = arguments
                found = store.append(changeset(table, id, number), ts)
            case "events":
                since, until, wanted = arguments
                read = store.events(since=since, until=until, table=wanted)
                found = [(time, each.id) for time, each in read]
            case _:
                found = getattr(store, what)(*arguments)
        assert found == expected, (number, what, arguments)


def changeset(table: str, id: int, number: int) -> Changeset:
    change = RowChange(table=table, action="write", key={"id": number})
    return make_changeset("o", number, [change], Source(kind="k"), id=f"{table}{id}")
