"""A database drawn by Hypothesis: its final state, and the changesets of its history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from stompkit.replication.model.events import Changeset, RowChange, Source, make_changeset

__all__ = ["COLUMNS", "Database", "Delivery", "Step", "databases", "deliver", "deliveries"]

#: Columns of each table; ``id`` is the key.
COLUMNS = ("id", "x", "y")
_SCHEMA = "shop"


@dataclass
class Database:
    """Tables with their rows by key, and all changesets of their history."""

    tables: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {"a": {}, "b": {}})
    changesets: list[Changeset] = field(default_factory=list)

    def commit(self, steps: Sequence[Step], origin: str = "o") -> None:
        """Commit one transaction."""
        changes = [change for step in steps for change in self._do(step)]
        number = len(self.changesets)
        self.changesets.append(make_changeset(origin, number, changes, Source(kind="test")))

    def _do(self, step: Step) -> Iterator[RowChange]:
        rows = self.tables[step.table]
        row = rows.get(step.key)
        told = {name: value for name, value in step.values.items() if name in step.told}
        if step.truncates:
            rows.clear()
            yield self._change(step, "truncate")
        elif row is None:
            rows[step.key] = {"id": step.key, **step.values}
            yield self._change(step, "write", step.key, after=dict(rows[step.key]))
        elif step.deletes:
            del rows[step.key]
            yield self._change(step, "delete", step.key)
        elif step.new_key not in rows:
            rows[step.new_key] = {**rows.pop(step.key), **told, "id": step.new_key}
            yield self._change(
                step,
                "update",
                step.new_key,
                after={"id": step.new_key, **told},
                old_key={"id": step.key},
            )
        else:
            row.update(told)
            yield self._change(step, "update", step.key, after={"id": step.key, **told})

    def _change(
        self, step: Step, action: Any, key: int | None = None, **arguments: Any
    ) -> RowChange:
        made = {} if key is None else {"id": key}
        return RowChange(schema=_SCHEMA, table=step.table, action=action, key=made, **arguments)


@dataclass(frozen=True)
class Step:
    """A statement: its effect depends on the current rows."""

    table: str
    key: int
    new_key: int
    #: The columns that the change contains; the others stay.
    told: frozenset[str]
    values: dict[str, Any]
    deletes: bool
    truncates: bool


_VALUES = st.none() | st.integers() | st.text("aé\x1b", max_size=3)
_STEPS = st.builds(
    Step,
    table=st.sampled_from("ab"),
    key=st.integers(1, 3),
    new_key=st.integers(1, 3),
    told=st.frozensets(st.sampled_from(["x", "y"])),
    values=st.fixed_dictionaries({"x": _VALUES, "y": _VALUES}),
    deletes=st.sampled_from([False, False, True]),
    truncates=st.sampled_from([False] * 7 + [True]),
)


@st.composite
def databases(draw: st.DrawFn) -> Database:
    """Draw a database with a history."""
    made = Database()
    for steps in draw(st.lists(st.lists(_STEPS, max_size=4), min_size=1, max_size=12)):
        made.commit(steps)
    return made


@dataclass(frozen=True)
class Delivery:
    """The changesets that a consumer receives at once, with repeats, perhaps in a new process."""

    repeats: int
    new: int
    restarts: bool


deliveries = st.lists(
    st.builds(
        Delivery,
        repeats=st.sampled_from([0, 0, 1, 3, 20]),
        new=st.integers(0, 4),
        restarts=st.booleans(),
    ),
    max_size=8,
)


def deliver(
    changesets: Sequence[Changeset], plan: Sequence[Delivery]
) -> Iterator[tuple[Sequence[Changeset], bool]]:
    """Return batches of changesets, and True for those of a new process; all arrive at the end."""
    done = 0
    for each in plan:
        yield changesets[max(0, done - each.repeats) : done + each.new], each.restarts
        done = min(len(changesets), done + each.new)
    yield changesets[done:], False
