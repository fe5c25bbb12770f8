"""What changesets leave of rows, for stores that keep a row under one name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyProblem
from stompkit.replication.values import Row, Value, ValueProblem, row_to_json, to_json

__all__ = ["Outcome", "Place", "Rows", "describe", "key_text", "unapplied"]

#: Where a row is kept: the name of what holds its table, and the row's name in there.
Place = tuple[str, str]


@dataclass(slots=True)
class Outcome:
    """What is to become of a stored row."""

    #: The last change of it.
    change: RowChange
    #: That of the changeset of ``change``.
    sequence: int
    #: The columns that were told; ``None`` for a row that is gone.
    columns: dict[str, Value] | None
    #: Where the row is kept until now that ``columns`` are laid over, if there is one.
    base: Place | None


class Rows:
    """The outcome of changes in their order: one for each row, whatever has happened to it."""

    def __init__(
        self, holder: Callable[[RowChange], str], name: Callable[[RowChange, Row], str]
    ) -> None:
        """Begin without changes; ``name`` makes a row's name of a change of it and its key."""
        self._holder = holder
        self._name = name
        self.outcomes: dict[Place, Outcome] = {}
        """By places; a row that is moved to another key is in two."""
        self.emptied: dict[str, int] = {}
        """Holders that lose all rows that they have until now, and the sequence when they did."""

    def add(self, change: RowChange, sequence: int) -> None:
        """Add a change; raises :class:`ApplyProblem` for a row without a key."""
        match change.action:
            case "schema":
                pass
            case "truncate":
                self.empty(self._holder(change), sequence)
            case "delete":
                self.outcomes[self._place(change, change.key)] = Outcome(
                    change, sequence, None, None
                )
            case _:
                self._write(change, sequence)

    def empty(self, holder: str, sequence: int) -> None:
        """Drop all rows of a holder."""
        self.emptied[holder] = sequence
        for place in [each for each in self.outcomes if each[0] == holder]:
            del self.outcomes[place]

    def bases(self) -> list[Place]:
        """The places whose rows have to be known."""
        return list({each.base: None for each in self.outcomes.values() if each.base})

    def _place(self, change: RowChange, key: Row) -> Place:
        if not key:
            raise ApplyProblem(f"table {change.name} has no key: its rows can't be told apart")
        try:
            return self._holder(change), self._name(change, key)
        except ValueProblem as problem:
            raise ApplyProblem(f"table {change.name}, key {describe(key)}: {problem}") from None

    def _write(self, change: RowChange, sequence: int) -> None:
        place = self._place(change, change.key)
        columns = _told(change)
        # A row that is new is told as it is; of any other what is not told stays.
        if change.action in ("write", "read") and change.after is not None:
            self.outcomes[place] = Outcome(change, sequence, columns, None)
            return
        source = place
        if change.old_key is not None:
            source = self._place(change, change.old_key)
        before = self.outcomes.get(source)
        if source != place:
            self.outcomes[source] = Outcome(change, sequence, None, None)
        if before is None:
            base = None if source[0] in self.emptied else source
            self.outcomes[place] = Outcome(change, sequence, columns, base)
        else:
            columns = {**(before.columns or {}), **columns}
            self.outcomes[place] = Outcome(change, sequence, columns, before.base)


def _told(change: RowChange) -> dict[str, Value]:
    """The columns of a row as a change leaves it, those that are told."""
    if change.after is None:
        return dict(change.key)
    # What an update does not tell is what it was.
    before = change.before if change.action == "update" and change.before else {}
    return {**before, **change.after, **change.key}


def unapplied(changesets: Iterable[Changeset], last: dict[str, int | None]) -> list[Changeset]:
    """Those with a number above the last one of their origin; ``last`` is moved on."""
    found = []
    for changeset in changesets:
        known = last.get(changeset.origin)
        if known is None or changeset.sequence > known:
            last[changeset.origin] = changeset.sequence
            found.append(changeset)
    return found


def key_text(values: Sequence[Value]) -> str:
    """A name made of the values of a key; different ones for different keys of one type.

    Text stands for itself, but for what would look like another name; other values are JSON, and
    several are a list. Raises :class:`~stompkit.replication.values.ValueProblem`.
    """
    if len(values) == 1 and isinstance(values[0], str):
        text: str = values[0]
        if text and not text.startswith('"'):
            return text
    made = [to_json(value) for value in values]
    return json.dumps(made[0] if len(made) == 1 else made, ensure_ascii=False, sort_keys=True)


def describe(key: Row) -> str:
    """A key for a message: short, and ASCII only."""
    try:
        text = json.dumps(row_to_json(key))
    except ValueProblem:
        text = ascii(key)
    return text if len(text) <= 200 else f"{text[:200]}..."
