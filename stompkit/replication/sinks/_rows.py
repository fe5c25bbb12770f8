"""Net effects of changesets on rows, for stores that keep each row under one name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.values import InvalidValueError, Row, Value, row_to_json, to_json
from stompkit.replication.sinks import ApplyError

__all__ = ["Outcome", "Place", "Rows", "describe", "key_text", "unapplied"]

#: Place of a row: the name of its table's holder, and the row's name in it.
Place = tuple[str, str]


@dataclass(slots=True)
class Outcome:
    """The next state of a stored row."""

    #: Last change of the row.
    change: RowChange
    #: Sequence number of the changeset of ``change``.
    sequence: int
    #: Reported columns; ``None`` for a deleted row.
    columns: dict[str, Value] | None
    #: Current place of the row into which ``columns`` are merged, if there is one.
    base: Place | None
    #: True if the row had another place before, whose row may have been replaced since.
    is_moved: bool = False


class Rows:
    """The outcomes of changes, one for each row with any number of changes."""

    def __init__(
        self, holder: Callable[[RowChange], str], name: Callable[[RowChange, Row], str]
    ) -> None:
        """Start empty; ``name`` returns the name of a row for a change and its key."""
        self._holder = holder
        self._name = name
        self.outcomes: dict[Place, Outcome] = {}
        """Outcomes by place; a row that is moved to another key has two."""
        self.emptied: dict[str, int] = {}
        """Holders whose existing rows are deleted, and the sequence number of the deletion."""

    def add(self, change: RowChange, sequence: int) -> None:
        """Add a change; raises :class:`ApplyError` for a row without a key."""
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
        """Return the places whose rows have to be read."""
        return list({each.base: None for each in self.outcomes.values() if each.base})

    def _place(self, change: RowChange, key: Row) -> Place:
        if not key:
            raise ApplyError(f"table {change.name} has no key: its rows cannot be told apart")
        try:
            return self._holder(change), self._name(change, key)
        except InvalidValueError as problem:
            raise ApplyError(f"table {change.name}, key {describe(key)}: {problem}") from None

    def _write(self, change: RowChange, sequence: int) -> None:
        place = self._place(change, change.key)
        columns = _reported(change)
        # A new row is complete; in any other row, missing columns are unchanged.
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
            self.outcomes[place] = Outcome(change, sequence, columns, base, source != place)
        else:
            columns = {**(before.columns or {}), **columns}
            is_moved = before.is_moved or source != place
            self.outcomes[place] = Outcome(change, sequence, columns, before.base, is_moved)


def _reported(change: RowChange) -> dict[str, Value]:
    """Return the reported columns of a row after a change."""
    if change.after is None:
        return dict(change.key)
    # Columns that an update does not report are unchanged.
    before = change.before if change.action == "update" and change.before else {}
    return {**before, **change.after, **change.key}


def unapplied(changesets: Iterable[Changeset], last: dict[str, int | None]) -> list[Changeset]:
    """Return those with a number above the last one of their origin; update ``last``."""
    found = []
    for changeset in changesets:
        known = last.get(changeset.origin)
        if known is None or changeset.sequence > known:
            last[changeset.origin] = changeset.sequence
            found.append(changeset)
    return found


def key_text(values: Sequence[Value]) -> str:
    """Return a name for the values of a key; different keys of one type have different names.

    Text stands for itself, unless it looks like another name; other values are JSON, and several
    are a list. Raises :class:`~stompkit.replication.model.values.InvalidValueError`.
    """
    if len(values) == 1 and isinstance(values[0], str):
        text: str = values[0]
        if text and not text.startswith('"'):
            return text
    made = [to_json(value) for value in values]
    return json.dumps(made[0] if len(made) == 1 else made, ensure_ascii=False, sort_keys=True)


def describe(key: Row) -> str:
    """Return a key for a message: short, and ASCII only."""
    try:
        text = json.dumps(row_to_json(key))
    except InvalidValueError:
        text = ascii(key)
    return text if len(text) <= 200 else f"{text[:200]}..."
