"""Changes of existing columns, and the earlier changes of rows in a batch.

The same name is not always the same column. A target is changed before a batch is applied, so the
earlier changes of the batch get the columns that exist at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stompkit.spark.states import Choice, Document, Kind, State, StateError, Step

__all__ = [
    "chosen_names",
    "forget_columns",
    "obsolete_columns",
    "rename_columns",
    "without_empty_rows",
]


def chosen_names(
    choice: Choice, key_names: tuple[str, ...], renamed: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the applied column renames; raises StateError if one conflicts with an option."""
    for old, new in renamed.items():
        for option, names in (
            ("column_list", choice.columns or frozenset()),
            ("except_column_list", choice.except_columns),
            ("keys", frozenset(key_names)),
        ):
            if old in names and new not in names:
                raise StateError(
                    f"the column {old!r}, which is in {option}, is called {new!r} now."
                    f" To go on, name that in {option} as well"
                )
    chosen = choice.reduced({new: old for old, new in renamed.items()}, key_names)
    return {old: new for new, old in chosen.items()}


def obsolete_columns(
    told: Mapping[str, str], applied: Mapping[str, str], retyped: Iterable[str]
) -> set[str]:
    """Return the names whose earlier values are those of other columns.

    ``told`` are all new names by the old ones, and ``applied`` those that the target gets. A column
    with a new name replaces a dropped one of that name. All rows with ``retyped`` columns are sent
    again.
    """
    again = set(retyped)
    return {*applied.values(), *again, *(old for old, new in told.items() if new in again)}


def forget_columns(states: Iterable[State], names: set[str]) -> None:
    """Remove the values of columns outside of the key."""
    for state in states:
        for name in names - state.key.keys():
            for columns in filter(None, (state.columns, state.old)):
                columns.pop(name, None)


def rename_columns(states: Iterable[State], renamed: Mapping[str, str]) -> None:
    """Give the columns of rows their new names."""
    for state in states:
        state.key = _with_names(state.key, renamed)
        if state.columns is not None:
            state.columns = _with_names(state.columns, renamed)
        if state.old is not None:
            state.old = _with_names(state.old, renamed)


def without_empty_rows(steps: Iterable[Step]) -> list[Step]:
    """Return steps without rows that have neither a key nor the required values any more."""
    made = []
    for step in steps:
        if step.kind in ("insert", "update_one", "delete_one"):
            step.states = [state for state in step.states if _is_told(step.kind, state)]
        if step.states:
            made.append(step)
    return made


def _is_told(kind: Kind, state: State) -> bool:
    has_new = kind == "delete_one" or bool(state.columns)
    return has_new and (kind == "insert" or bool(state.old))


def _with_names(row: Document, renamed: Mapping[str, str]) -> Document:
    return {renamed.get(name, name): value for name, value in row.items()}
