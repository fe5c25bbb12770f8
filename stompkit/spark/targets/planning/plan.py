"""Planning: from the final states of rows to operations on a target's tables and columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stompkit.replication.model.values import InvalidValueError, from_json
from stompkit.replication.sql import (
    Kind,
    SchemaError,
    Shape,
    TargetColumn,
    TargetTable,
    UnstorableValueError,
    shape_of,
)
from stompkit.replication.sql.unpublished import both_names
from stompkit.spark.states import Document, Problem, State, Step
from stompkit.spark.targets.base import NewColumn
from stompkit.spark.targets.planning.fast_convert import quick

__all__ = ["Op", "Plan"]

#: Values of one column.
Values = Sequence[object]

_LISTS: Final = frozenset({dict, list})


@dataclass(slots=True)
class Op:
    """An operation on many rows of a table, planned by a task and run by the driver."""

    kind: Kind
    #: Schema and name in the source.
    table: tuple[str, str]
    #: Names in the target.
    key: tuple[str, ...]
    others: tuple[str, ...]
    #: Number of rows.
    count: int
    #: Values of each column, the key first; for ``move``, the former key precedes it. Empty if the
    #: values are in a staging table.
    values: list[Values]
    #: Staging table of the values; empty if they are here.
    stage: str = ""
    #: For a staging table: its server, and a checksum of its rows.
    server: str = ""
    checksum: str = ""

    def rows(self) -> list[tuple[object, ...]]:
        """Return the values of each row."""
        return list(zip(*self.values, strict=True)) if self.values else [()] * self.count


@dataclass(slots=True)
class Plan:
    """Plans the operations of steps.

    It collects the columns that a target lacks, with the values of the first rows that have them.
    """

    find: Callable[[str, str], TargetTable | None]
    backend: str
    ops: list[Op] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    #: Missing columns by table, or those of a missing table, with sample values.
    lacking: dict[tuple[str, str], dict[str, list[Any]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    #: Columns declared by the source, of which the target lacks some.
    schemas: dict[tuple[str, str], dict[str, NewColumn]] = field(default_factory=dict)
    #: Former names, in the target, of columns renamed in the source, by table and new name.
    renamed: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    #: Columns that the target has to create again with another type, by table.
    replaced: dict[tuple[str, str], list[NewColumn]] = field(default_factory=dict)
    #: Tables of which all rows are sent again.
    resent: set[tuple[str, str]] = field(default_factory=set)
    #: Keys of these tables.
    keys: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def rename(
        self,
        source: tuple[str, str],
        renamed: Mapping[str, tuple[str, ...]],
        told: Iterable[str],
        *,
        is_untold: bool,
    ) -> None:
        """Rename columns of a table as in the source.

        ``told`` are the final columns of the source. Raises SchemaError if the target has both
        names, but the source does not, unless its rows are sent again.
        """
        table = self.find(*source)
        for new, names in renamed.items() if table is not None else ():
            assert table is not None
            there = [name for name in names if table.column(name) is not None]
            if table.column(new) is None:
                if there:
                    self.renamed.setdefault(source, {})[new] = there[0]
            elif is_untold and (left := [name for name in there if name not in set(told)]):
                raise SchemaError(both_names(".".join(filter(None, source)), left[0], new))

    def add(self, step: Step) -> None:
        """Plan a step; errors are added to ``problems``."""
        table = self.find(*step.table)
        if table is None:
            self._miss_table(step)
        elif table.engine_without_transactions:
            engine = table.engine_without_transactions
            self._refuse(step, step.states, f"the table's engine {engine} has no transactions")
        elif step.kind == "truncate":
            self.ops.append(Op("truncate", step.table, (), (), 1, []))
        elif step.kind == "rows":
            self._add_rows(step, table)
        elif step.kind == "move":
            self._add_moves(step, table)
        else:
            for state in step.states:
                self._add_loose(step, table, state)

    def _miss_table(self, step: Step) -> None:
        columns = self.lacking[step.table]
        if step.kind == "truncate":
            self.resent.add(step.table)
        for state in step.states:
            if state.key:
                self.keys.setdefault(step.table, tuple(state.key))
            for name, value in {**state.key, **(state.columns or {})}.items():
                columns.setdefault(name, []).append(value)

    def _add_rows(self, step: Step, table: TargetTable) -> None:
        gone = [state for state in step.states if state.is_new]
        by_key: dict[tuple[str, ...], list[State]] = defaultdict(list)
        for state in gone:
            by_key[tuple(state.key)].append(state)
        for names, states in by_key.items():
            self._add_op(step, table, "delete", names, names, states, [s.key for s in states])
        by_shape: dict[tuple[tuple[str, ...], tuple[str, ...]], list[State]] = defaultdict(list)
        for state in step.states:
            if state.columns is not None:
                by_shape[tuple(state.key), tuple(state.columns)].append(state)
        for (key, names), states in by_shape.items():
            images = [state.columns or {} for state in states]
            self._add_op(step, table, "upsert", key, names, states, images)

    def _add_moves(self, step: Step, table: TargetTable) -> None:
        """Plan changes of keys with the columns that all rows contain, then the other columns."""
        key = tuple(step.states[0].key)
        told = [state.columns or {} for state in step.states]
        names = tuple(name for name in told[0] if all(name in each for each in told))
        images = [{name: each[name] for name in names} for each in told]
        for at, state in enumerate(step.states):
            if len(told[at]) == len(names):
                continue
            later = [each for each in step.states[at + 1 :] if each.old == state.key]
            if later and later[0].key != state.old:
                # It is ambiguous whether one row continues or another one was replaced.
                reason = (
                    "rows get its key and give it up in one transaction, and tell of different"
                    " columns: which row is which cannot be known"
                )
                self._refuse(step, step.states, reason)
                return
        before = len(self.ops)
        self._add_op(step, table, "move", key, names, step.states, images)
        if len(self.ops) > before:
            op = self.ops.pop()
            olds = [{name: (state.old or {})[name] for name in key} for state in step.states]
            self._add_op(step, table, "delete", key, key, step.states, olds)
            if len(self.ops) > before:
                op.values = [*self.ops.pop().values, *op.values]
                self.ops.append(op)
        by_rest: dict[tuple[str, ...], list[State]] = defaultdict(list)
        for state, each in zip(step.states, told, strict=True):
            by_rest[tuple(name for name in each if name not in names)].append(state)
        for rest, states in by_rest.items():
            if rest:
                more = [{n: (state.columns or {})[n] for n in (*key, *rest)} for state in states]
                self._add_op(step, table, "upsert", key, (*key, *rest), states, more)

    def _add_loose(self, step: Step, table: TargetTable, state: State) -> None:
        """Plan a change of a row without a key."""
        old, new = state.old or {}, state.columns or {}
        if step.kind == "insert":
            self._add_op(step, table, "insert", (), tuple(new), [state], [new])
            return
        before = len(self.ops)
        self._add_op(step, table, "insert", (), tuple(old), [state], [old])
        if len(self.ops) == before:
            return
        image = self.ops.pop()
        if step.kind == "delete_one":
            self.ops.append(Op("delete_one", step.table, image.others, (), 1, image.values))
            return
        self._add_op(step, table, "insert", (), tuple(new), [state], [new])
        if len(self.ops) > before:
            made = self.ops.pop()
            values = [*image.values, *made.values]
            self.ops.append(Op("update_one", step.table, image.others, made.others, 1, values))

    def _add_op(
        self,
        step: Step,
        table: TargetTable,
        kind: Kind,
        key: tuple[str, ...],
        names: tuple[str, ...],
        states: Sequence[State],
        images: Sequence[Document],
    ) -> None:
        """Plan one operation for rows with the same columns."""
        columns = list(zip(*[image.values() for image in images], strict=True))
        try:
            shape = self._shape(step, table, key, names, columns)
        except UnstorableValueError as problem:
            self._refuse(step, states, str(problem))
            return
        if shape is None:
            return
        values = dict(zip(names, columns, strict=True))
        adapted = []
        for column, name in zip(
            (*shape.key, *shape.others), (*shape.key_names, *shape.other_names), strict=True
        ):
            try:
                adapted.append(_adapted(column, values[name], self.backend))
            except (UnstorableValueError, InvalidValueError):
                self._look(step, states, column, name, values[name])
                return
        self.ops.append(
            Op(
                shape.kind if kind == "upsert" else kind,
                step.table,
                tuple(column.name for column in shape.key),
                tuple(column.name for column in shape.others),
                len(images),
                adapted,
            )
        )

    def _shape(
        self,
        step: Step,
        table: TargetTable,
        key: tuple[str, ...],
        names: tuple[str, ...],
        values: Sequence[Values],
    ) -> Shape | None:
        """Return the target columns; ``None`` if the target lacks some."""
        shape = shape_of(table, key, names, self.backend)
        lacks = False
        for name in shape.missing:
            # A missing column is equivalent to NULL.
            told = [value for value in values[names.index(name)] if value is not None]
            if told or name in key:
                self.lacking[step.table].setdefault(name, []).extend(told)
                lacks = True
        if lacks:
            self.keys.setdefault(step.table, key)
            return None
        return shape

    def _look(
        self,
        step: Step,
        states: Sequence[State],
        column: TargetColumn,
        name: str,
        values: Values,
    ) -> None:
        """Find the rows whose values a column rejects."""
        for state, value in zip(states, values, strict=True):
            try:
                _adapted(column, (value,), self.backend)
            except (UnstorableValueError, InvalidValueError) as problem:
                self._refuse(step, [state], f"column {name!r}: {problem}")

    def _refuse(self, step: Step, states: Sequence[State], reason: str) -> None:
        self.problems += [step.problem(state, reason) for state in states]


def _adapted(column: TargetColumn, values: Values, backend: str) -> Values:
    """Return JSON values for the driver; raises UnstorableValueError and InvalidValueError."""
    made = quick(column, values, backend)
    if made is not None:
        return made
    adapt = column.adapt
    return [adapt(from_json(value) if type(value) in _LISTS else value) for value in values]
