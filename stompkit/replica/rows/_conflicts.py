"""Conflicts of concurrent versions, and their resolution by rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec

from stompkit.replica.rows import _counters
from stompkit.replica.rows._contributions import Contribution
from stompkit.replica.rules import Candidate, Rule, RuleError, TableRules, last_writer
from stompkit.replication.model.values import Value, row_from_json, to_json

__all__ = ["Conflict", "column_conflicts", "columns", "row_conflict"]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_LAST_WRITER: Final = last_writer()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Different concurrent versions of a column, or of the existence of a row.

    It lasts until a writer that has all of them writes the column, or the row.
    """

    #: Empty for a conflict about the existence of the row. A version's value is then ``None`` for a
    #: deletion, and otherwise the surviving columns written with it.
    column: str
    #: Visible version.
    winner: Candidate
    #: Versions that differ from it, newest first.
    losers: list[Candidate]
    #: Reason why the rule has picked no version, without values; the last one has then won.
    problem: str = ""


def columns(contributions: Sequence[Contribution], rules: TableRules) -> dict[str, Value]:
    """Return the visible columns, one version of each."""
    found: dict[str, Any] = {}
    for each in contributions:
        found |= each.values
    row = row_from_json(found)
    for conflict in column_conflicts(contributions, rules):
        row[conflict.column] = conflict.winner.value
    return row


def column_conflicts(contributions: Sequence[Contribution], rules: TableRules) -> list[Conflict]:
    """Return the sorted conflicts of columns."""
    names = [name for each in contributions for name in each.values]
    if len(set(names)) == len(names):
        return []
    found = []
    for name in sorted({name for name in names if names.count(name) > 1}):
        holders = [each for each in contributions if name in each.values]
        # Values are equal if their JSON is: 1 and 1.0 differ.
        if len({_ENCODER.encode(each.values[name]) for each in holders}) > 1:
            found.append(_column_conflict(name, holders, rules))
    return found


def _column_conflict(column: str, holders: Iterable[Contribution], rules: TableRules) -> Conflict:
    rule = rules.rule(column)
    is_counter = rule.kind == "sum"
    if rule.kind != "choice":
        # The initial value of a counter comes from one insert, like the other columns.
        rule = rules.default or _LAST_WRITER
    candidates = [each.candidate(column) for each in _by_stamp(holders)]
    winner, problem = _picked(column, rule, candidates, is_counter=is_counter)
    seen = _ENCODER.encode(to_json(winner.value))
    losers = [each for each in candidates if _ENCODER.encode(to_json(each.value)) != seen]
    return Conflict(column, winner, losers[::-1], problem)


def _picked(
    column: str, rule: Rule, candidates: Sequence[Candidate], *, is_counter: bool
) -> tuple[Candidate, str]:
    """Return the winner; if the rule fails, the last version and the reason.

    A row must always have a value that all nodes can compute, whatever a custom rule does.
    """
    try:
        winner = rule.pick(candidates)
        if is_counter:
            _counters.number(winner.value, column)
    except RuleError as error:
        cause = error.__cause__
        reason = str(error) if cause is None else type(cause).__qualname__
        return candidates[-1], f"the rule {rule.text!r} of column {column} has failed: {reason}"
    return winner, ""


def row_conflict(contributions: Iterable[Contribution], rules: TableRules) -> Conflict:
    """Return the conflict of a row with a concurrent deletion and write."""
    versions = _by_stamp(each for each in contributions if each.is_alive is not None)
    if rules.on_delete == "last-writer":
        is_there = versions[-1].is_alive
    else:
        is_there = rules.on_delete != "delete-wins"
    winners = [each for each in versions if each.is_alive == is_there]
    losers = [each for each in versions if each.is_alive != is_there]
    return Conflict("", _version(winners[-1]), [_version(each) for each in reversed(losers)])


def _version(contribution: Contribution) -> Candidate:
    value = row_from_json(contribution.values) if contribution.is_alive else None
    return Candidate(contribution.stamp, value)


def _by_stamp(contributions: Iterable[Contribution]) -> list[Contribution]:
    return sorted(contributions, key=attrgetter("stamp"))
