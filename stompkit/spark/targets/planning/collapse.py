"""Collapsing ordered changes to the final state of each row.

Only columns contained in a change are written; the target keeps the others. A row that is deleted
and written again starts from scratch. A step ends at a change that cannot be merged without the
target's rows: a change of a key, and a truncate. Changes of tables connected by foreign keys keep
the source's order where it matters: consecutive writes are sorted by table, and so are consecutive
deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set

import msgspec
import numpy as np
import pyarrow as pa

from stompkit.replication.sql.unpublished import (
    EXCHANGED,
    exchanged_names,
    rows_changed,
    without_exchanged,
)
from stompkit.spark.documents import COLUMNS, document, identity_of, problem_of, values
from stompkit.spark.states import (
    Admit,
    Choice,
    Document,
    Images,
    Kind,
    Place,
    Problem,
    State,
    StateError,
    Step,
    TableRules,
)
from stompkit.spark.targets.base import NewColumn
from stompkit.spark.targets.planning.bulk import OpenTable, by_table, take
from stompkit.spark.targets.planning.declared import told_changes, told_columns
from stompkit.spark.targets.planning.reshape import (
    chosen_names,
    forget_columns,
    obsolete_columns,
    rename_columns,
    without_empty_rows,
)

__all__ = ["Collapse", "collapse"]


class Collapse:
    """Collapses ordered changes; :meth:`steps` returns the result."""

    def __init__(
        self,
        choice: Choice | None = None,
        rules: Callable[[str, str], TableRules] = lambda schema, table: TableRules(),
        *,
        alone: bool = False,
        admit: Admit | None = None,
    ) -> None:
        """Start without changes; with ``alone`` each change is a separate step.

        Even then, key changes within one changeset happen together. ``admit`` is called for every
        row of a change; rows that it rejects are dropped. A change of a key is then a delete and a
        write.
        """
        self._choice = Choice() if choice is None else choice
        self._rules = rules
        self._alone = alone
        self._admit = admit
        self._tables: dict[tuple[str, str], OpenTable | None] = {}
        self._steps: list[Step] = []
        #: Groups whose tables are being written or deleted from; true for deletes.
        self._runs: dict[int, bool] = {}
        #: Number of changes of selected tables.
        self.changes = 0
        self.problems: list[Problem] = []
        #: Columns in changes with the operation ``schema``, by table.
        self.schemas: dict[tuple[str, str], dict[str, NewColumn]] = {}
        #: Former names of a column, oldest first, by table and current name.
        self.renamed: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        #: Tables of these whose rows are not sent again.
        self.untold: set[tuple[str, str]] = set()
        #: Columns that are not those of the same name before, by table. Another column has the name
        #: now, or the type has changed; all rows of the table are sent again.
        self.retyped: dict[tuple[str, str], Set[str]] = {}

    def retyped_columns(self) -> Iterator[tuple[tuple[str, str], list[NewColumn]]]:
        """Yield tables with the new descriptions of their columns in ``retyped``."""
        for source, names in self.retyped.items():
            columns = self.schemas.get(source, {})
            yield source, [columns[name] for name in names if name in columns]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add changes; invalid ones are added to ``problems``."""
        others = np.zeros(batch.num_rows, bool)
        for source, rows in by_table(batch):
            table = self._find(source)
            own = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            if table is not None and table.is_simple and take(table, own):
                self.changes += len(rows)
            else:
                others[rows] = True
        if others.any():
            self._add_singly(batch if others.all() else batch.filter(pa.array(others)))

    def _add_singly(self, batch: pa.RecordBatch) -> None:
        """Add changes one by one."""
        places = zip(
            *(batch.column(name).to_pylist() for name in ("_partition", "_ordinal", "change")),
            strict=True,
        )
        columns = [values(batch, name) for name in COLUMNS]
        for number, (place, operation, schema, name, *documents) in enumerate(
            zip(places, *columns, strict=True)
        ):
            source = (schema or "", name or "")
            table = self._find(source)
            try:
                if operation == "unreadable":
                    raise StateError(problem_of(batch, number))
                if table is not None:
                    self.changes += 1
                    identity, *others = map(document, documents)
                    self._take(table, operation, place, Images(identity or {}, *others))
            except StateError as broken:
                key = batch.column("key")[number].as_py() or ""
                text = ".".join(filter(None, source))
                self.problems.append(Problem(place, operation, text, key, str(broken)))
            if self._alone:
                self._close_all()

    def steps(self) -> list[Step]:
        """Return the resulting steps; no step remains open."""
        self._close_all()
        for table in filter(None, self._tables.values()):
            table.moves = None
        steps, self._steps = self._steps, []
        return steps

    def _find(self, source: tuple[str, str]) -> OpenTable | None:
        """Return the table if it is selected."""
        if source in self._tables:
            return self._tables[source]
        found = None
        if self._choice.has(*source):
            is_alone = self._alone or self._admit is not None
            found = OpenTable.make(source, self._rules(*source), self._choice, is_alone=is_alone)
        self._tables[source] = found
        return found

    def _take(self, table: OpenTable, operation: str, place: Place, told: Images) -> None:
        if operation == "schema":
            self._take_schema(table, told.after or {})
            return
        if operation == "truncate":
            self._turn(table, deletes=True)
            if table.rules.group is None:
                # All former states are obsolete.
                table.states = {}
            self._close(table)
            table.moves = None
            gone = State({}, None, True, place)
            self._steps.append(Step("truncate", (table.schema, table.name), [gone]))
            return
        names = table.key_names or tuple(told.key)
        # Nothing below sees what is not to be applied.
        key, before, after, old_key = self._choice.chosen(told, operation, names)
        deletes = operation == "delete"
        # A deleted row can be identified by any of its columns.
        image = {**(before or {}), **key} if deletes else after if after is not None else key
        if not key.keys() <= image.keys():
            image = {**key, **image}
        if not names:
            self._take_loose(table, operation, place, before, image)
            return
        try:
            own = {name: image[name] for name in names}
        except KeyError as missing:
            raise StateError(f"the column {missing.args[0]!r} of its key is not told") from None
        values = tuple(own.values())
        if not table.told_key:
            table.told_key = tuple(own)
        elif own.keys() == set(table.told_key):
            # The columns may be in another order.
            values = tuple(own[name] for name in table.told_key)
        else:
            # Equal values of other columns identify another row.
            self._close(table)
            table.moves = None
            table.told_key = tuple(own)
        if None in values:
            raise StateError("NULL in the key")
        if table.rules.group is not None:
            self._turn(table, deletes=deletes)
        source = (table.schema, table.name)
        if self._admit is not None and not self._admit(source, own, place, is_gone=deletes):
            return
        if deletes:
            table.moves = None
            table.states[identity_of(values)] = State(own, None, True, place)
            return
        if operation == "update" and (old_key or (table.key_names and before)):
            former = {**(before or {}), **(old_key or {})}
            if all(name in former for name in names):
                old = {name: former[name] for name in names}
                if old != own:
                    self._move(table, State(own, image, False, place, old), former)
                    return
        table.moves = None
        states, identity = table.states, identity_of(values)
        state = states.get(identity)
        if state is None:
            states[identity] = State(own, image, False, place)
        elif state.columns is None:
            states[identity] = State(own, image, True, place)
        else:
            state.columns.update(image)
            state.place = place

    def _take_schema(self, table: OpenTable, after: Document) -> None:
        """Apply a schema change: earlier changes get the new names, and lose replaced columns."""
        source = (table.schema, table.name)
        columns, changes = told_columns(after), told_changes(after)
        if names := table.key_names:
            columns = {
                each.name: msgspec.structs.replace(each, key=each.name in names)
                for each in columns.values()
            }
        keys = [each.name for each in columns.values() if each.key]
        columns = self._choice.reduced(columns, keys)
        renamed = chosen_names(self._choice, table.key_names, changes.renamed)
        retyped = frozenset() if changes.untold else changes.retyped
        if renamed and not self._choice.follows_names:
            if changes.untold == "names":
                old, new = next(iter(renamed.items()))
                raise StateError(
                    f"the column {old!r} is called {new!r} from then on, which this job does not"
                    " follow. To go on, have the job replicate, under another name, apply the spool"
                    " to an empty target"
                )
            renamed = {}
        if exchanged := exchanged_names(renamed):
            if changes.untold:
                raise StateError(
                    f"{EXCHANGED}. To go on, do the same in the target, and set on-problem to"
                    " dead-letter"
                )
            # The columns that are there get the values of the others.
            renamed, retyped = without_exchanged(renamed), retyped | exchanged
        self._reshape(table, changes.renamed, renamed, retyped)
        again = {renamed.get(name, name) for name in self.retyped.get(source, ())} | retyped
        if again:
            self.retyped[source] = again
        if renamed:
            known = self.renamed.setdefault(source, {})
            known |= {new: (*known.pop(old, ()), old) for old, new in renamed.items()}
            if changes.untold == "names":
                self.untold.add(source)
        self.schemas[source] = columns
        if changes.untold == "values":
            raise StateError(
                f"{rows_changed(after.get('statement'))}. To go on, copy the table by other means,"
                " and set on-problem to dead-letter; or publish with --snapshot initial, which"
                " copies such tables"
            )

    def _reshape(
        self,
        table: OpenTable,
        told: Mapping[str, str],
        applied: Mapping[str, str],
        retyped: frozenset[str],
    ) -> None:
        """Adapt earlier changes to columns of other names and types."""
        source = (table.schema, table.name)
        gone = obsolete_columns(told, applied, retyped)
        if not gone:
            return
        if gone.intersection(table.told_key) and retyped and table.rules.group is None:
            # All rows are sent again, with other keys.
            table.states = {}
            self._steps = [
                step for step in self._steps if step.table != source or step.kind == "truncate"
            ]
            table.moves = None
        own = [step for step in self._steps if step.table == source]
        states = [*table.states.values(), *(state for step in own for state in step.states)]
        forget_columns(states, gone)
        rename_columns(states, applied)
        self._steps = without_empty_rows(self._steps)
        table.told_key = tuple(applied.get(name, name) for name in table.told_key)

    def _move(self, table: OpenTable, state: State, former: Document) -> None:
        """Change the key of a row; the key changes of one changeset happen together."""
        step = table.moves
        assert state.columns is not None
        if self._admit is not None:
            assert state.old is not None
            source = (table.schema, table.name)
            if self._admit(source, state.old, state.place, is_gone=True):
                gone = State(state.old, None, True, state.place)
                self._steps.append(Step("rows", source, [gone]))
            state.columns = {**former, **state.columns}
            state.old = None
            self._steps.append(Step("rows", source, [state]))
            return
        if (
            step is None
            or step.states[-1].place[:2] != state.place[:2]
            or step.states[-1].key.keys() != state.key.keys()
            or any(each.old == state.old for each in step.states)
        ):
            self._close(table)
            step = table.moves = Step("move", (table.schema, table.name), [])
            self._steps.append(step)
        step.states.append(state)

    def _take_loose(
        self,
        table: OpenTable,
        operation: str,
        place: Place,
        before: Document | None,
        image: Document,
    ) -> None:
        """Process a row without a key: the target finds it by its former columns."""
        self._turn(table, deletes=operation == "delete")
        kind: Kind = "insert"
        if operation in ("update", "delete"):
            kind = "update_one" if operation == "update" else "delete_one"
            if not before:
                raise StateError(
                    "neither a key nor the columns to apply of the row before are told: `keys` can"
                    " name a key"
                )
            if not image:
                # Of an update nothing is to be applied.
                return
        self._close(table)
        table.moves = None
        source = (table.schema, table.name)
        state = State({}, image, False, place, before)
        last = self._steps[-1] if self._steps else None
        if last is not None and last.kind == kind == "insert" and last.table == source:
            last.states.append(state)
        else:
            self._steps.append(Step(kind, source, [state]))

    def _turn(self, table: OpenTable, *, deletes: bool) -> None:
        """End the steps of a group when it switches between deletes and writes."""
        group = table.rules.group
        if group is not None and self._runs.get(group) is not deletes:
            self._close_group(group)
            self._runs[group] = deletes

    def _close(self, table: OpenTable) -> None:
        """End the steps of a table and of its group."""
        if table.rules.group is not None:
            self._close_group(table.rules.group)
        else:
            self._close_one(table)

    def _close_group(self, group: int) -> None:
        tables = [each for each in self._tables.values() if each and each.rules.group == group]
        tables.sort(key=lambda each: each.rules.rank, reverse=self._runs.get(group, False))
        for each in tables:
            self._close_one(each)

    def _close_one(self, table: OpenTable) -> None:
        # The key changes stay open: those of one message happen together, whatever else it
        # contains.
        if table.states:
            source = (table.schema, table.name)
            self._steps.append(Step("rows", source, list(table.states.values())))
            table.states = {}

    def _close_all(self) -> None:
        for table in [each for each in self._tables.values() if each]:
            self._close(table)


def collapse(
    batches: Iterable[pa.RecordBatch],
    choice: Choice | None = None,
    rules: Callable[[str, str], TableRules] = lambda schema, table: TableRules(),
) -> tuple[list[Step], list[Problem]]:
    """Return the steps that result from the changes, and the invalid changes."""
    made = Collapse(choice, rules)
    for batch in batches:
        made.add(batch)
    return made.steps(), made.problems
