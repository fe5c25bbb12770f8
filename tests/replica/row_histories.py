"""Histories of one row drawn by Hypothesis: changesets, and orders of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from stompkit.replica.rows import Candidate, RowState, Stamp
from stompkit.replica.rules import (
    OnDelete,
    Rules,
    TableRules,
    counter,
    custom,
    first_writer,
    members,
    origin_priority,
)
from stompkit.replica.vectors import covers, merged
from stompkit.replication.model.events import RowChange
from stompkit.replication.model.values import Value

__all__ = [
    "COLUMNS",
    "KEY",
    "Written",
    "applied",
    "histories",
    "orders",
    "part",
    "rules_for",
    "vectors",
]

KEY = {"id": 1}
ORIGINS = ("A~00000001", "B~00000001", "A~00000002", "10~00000001")


def _longest(candidates: Sequence[Candidate]) -> Value:
    return max((str(each.value) for each in candidates), key=lambda text: (len(text), text))


def _failing(candidates: Sequence[Candidate]) -> Value:
    """Fail for some values, as a function of an application can."""
    return max((each.value for each in candidates), key=lambda value: int(str(value)))


#: Possible values of columns, by their names.
COLUMNS: dict[str, st.SearchStrategy[Value]] = {
    "last": st.sampled_from(["x", "y", 1, 1.0, True, None, {"b": 1, "a": 2}]),
    "more": st.sampled_from(["x", b"y", Decimal("1.0")]),
    "first": st.sampled_from(["x", "y"]),
    "ranked": st.sampled_from(["x", "y"]),
    "made": st.sampled_from(["x", "yy", "zzz"]),
    "failing": st.sampled_from(["x", "1", "22"]),
    "total": st.none() | st.integers(-3, 3) | st.just(2**70),
    "price": st.sampled_from([Decimal("1.50"), Decimal("-1.5"), Decimal("0.00"), Decimal("1E+2")]),
    "list": st.none() | st.lists(st.sampled_from(["a", "b", 1, 1.0, None]), max_size=3),
    "set": st.none() | st.frozensets(st.sampled_from("abc"), max_size=2),
}


def rules_for(on_delete: OnDelete) -> TableRules:
    """Return one rule of each kind."""
    columns = {
        "first": first_writer(),
        "ranked": origin_priority("B", "10"),
        "made": custom("longest", _longest),
        "failing": custom("largest", _failing),
        "total": counter(),
        "price": counter(),
        "list": members(),
        "set": members(),
    }
    return Rules(on_delete=on_delete, tables={"t": TableRules(columns=columns)}).of("t")


@dataclass(frozen=True)
class Written:
    """The part of a changeset about the row."""

    stamp: Stamp
    clock: Mapping[str, int]
    changes: tuple[RowChange, ...]

    @property
    def dot(self) -> tuple[str, int]:
        """The name of the changeset."""
        return self.stamp.origin, self.stamp.sequence


def applied(
    history: Iterable[Written], rules: TableRules, state: RowState | None = None
) -> RowState:
    """Return the state after changesets, in their order, stored and loaded after each."""
    state = state or RowState()
    for written in history:
        for change in written.changes:
            state.apply(change, written.stamp, written.clock, rules)
        state = RowState.decode(state.encode())
    return state


def part(history: Iterable[Written], vector: Mapping[str, int], rules: TableRules) -> RowState:
    """Return the state of a replica that has what the vector contains."""
    return applied((each for each in history if covers(vector, each.dot)), rules)


@st.composite
def histories(
    draw: st.DrawFn, rules: TableRules, columns: Sequence[str] = (), *, is_honest: bool = False
) -> list[Written]:
    """Draw changesets of several writers of few columns, in an order that respects their clocks.

    Honest writers change rows that they see, and insert a row if they see none.
    """
    some = st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1, max_size=3)
    columns = columns or draw(some)
    origins = ORIGINS[: draw(st.integers(2, 4))]
    known: dict[str, dict[str, int]] = {origin: {} for origin in origins}
    states = {origin: RowState() for origin in origins}
    history: list[Written] = []
    for _ in range(draw(st.integers(1, 10))):
        origin = draw(st.sampled_from(origins))
        had = known[origin]
        known[origin] = merged(had, known[draw(st.sampled_from(origins))])
        news = (e for e in history if covers(known[origin], e.dot) and not covers(had, e.dot))
        states[origin] = state = applied(news, rules, states[origin])
        sequence = known[origin].get(origin, 0) + 1
        known[origin][origin] = sequence
        # The time of clocks is arbitrary.
        stamp = Stamp(draw(st.integers(1, 4)), origin, sequence)
        changes = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            change = draw(_changes(state.visible(rules), columns, is_honest=is_honest))
            state.apply(change, stamp, known[origin], rules)
            changes.append(change)
        history.append(Written(stamp, dict(known[origin]), tuple(changes)))
    return history


@st.composite
def _changes(
    draw: st.DrawFn,
    visible: Mapping[str, Value] | None,
    columns: Sequence[str],
    *,
    is_honest: bool,
) -> RowChange:
    kinds = ["update", "delete"] if is_honest else ["write", *["update"] * 6, "delete"]
    if visible is None:
        kinds = ["write"] if is_honest else ["write", "write", "write", "update", "delete"]
    action: Any = draw(st.sampled_from(kinds))
    if action == "delete":
        return RowChange(table="t", action="delete", key=KEY, before=dict(visible or {}))
    names = [name for name in columns if draw(st.integers(0, 2))]
    after = {name: draw(COLUMNS[name]) for name in names}
    if action == "write":
        return RowChange(table="t", action="write", key=KEY, after={**KEY, **after})
    before = {name: (visible or {}).get(name) for name in names}
    if not is_honest and draw(st.integers(0, 4)) == 0:
        before = {name: draw(COLUMNS[name]) for name in names}
    return RowChange(table="t", action="update", key=KEY, before=before, after=after)


@st.composite
def orders(draw: st.DrawFn, history: Sequence[Written]) -> list[Written]:
    """Draw another possible order of the same changesets."""
    waiting = draw(st.permutations(history))
    order: list[Written] = []
    vector: dict[str, int] = {}
    while waiting:
        ready = next(each for each in waiting if _is_ready(each, vector))
        waiting.remove(ready)
        order.append(ready)
        vector[ready.stamp.origin] = ready.stamp.sequence
    return order


def _is_ready(written: Written, vector: Mapping[str, int]) -> bool:
    needed = {**written.clock, written.stamp.origin: written.stamp.sequence - 1}
    return all(covers(vector, dot) for dot in needed.items())


@st.composite
def vectors(draw: st.DrawFn, history: Sequence[Written]) -> dict[str, int]:
    """Return the vector of a replica: merged clocks of some changesets."""
    had = draw(st.lists(st.sampled_from(history), min_size=1, max_size=3))
    return merged(*(each.clock for each in had))
