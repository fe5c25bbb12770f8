"""Rules for merging concurrent versions of a row.

All replicas need the same rules, because each computes the merged row from the changesets on its
own. Equal :attr:`Rules.fingerprint` values show that they have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from stompkit._common.moved import renamed
from stompkit.replication.model.values import InvalidValueError, Value, to_json

__all__ = [
    "Candidate",
    "OnDelete",
    "Rule",
    "RuleError",
    "Rules",
    "Stamp",
    "TableRules",
    "counter",
    "custom",
    "first_writer",
    "last_writer",
    "members",
    "origin_priority",
]

#: Rule for a row that one replica has deleted and another has changed. ``update-wins``: the row
#: stays, with all its columns. ``delete-wins``: the row is deleted. ``last-writer``: the last
#: change by the clocks wins.
OnDelete = Literal["update-wins", "delete-wins", "last-writer"]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class RuleError(ValueError):
    """Inconsistent rules, or a value that the rule of its column does not accept."""


class Stamp(NamedTuple):
    """Time and identity of a changeset; stamps sort in write order."""

    #: Timestamp in microseconds since 1970, or later: the clock never runs behind a timestamp seen.
    hlc: int
    origin: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several versions of a column."""

    stamp: Stamp
    value: Value
    #: Value that the writer saw before; ``None`` also if the row was new.
    before: Value = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A merge rule for a column; created by the functions of this module."""

    #: ``choice``: pick one version. ``sum``: add up differences. ``members``: merge sets.
    kind: Literal["choice", "sum", "members"]
    #: Description, equal for rules with equal effect.
    text: str
    #: Function that picks one of at least two versions, sorted by stamp.
    pick: Callable[[Sequence[Candidate]], Candidate] = field(compare=False)


def _last(candidates: Sequence[Candidate]) -> Candidate:
    return candidates[-1]


def _first(candidates: Sequence[Candidate]) -> Candidate:
    return candidates[0]


def last_writer() -> Rule:
    """Pick the last version by the clocks."""
    return Rule("choice", "last-writer", _last)


def first_writer() -> Rule:
    """Pick the first of the concurrent versions."""
    return Rule("choice", "first-writer", _first)


def origin_priority(*branch_ids: str) -> Rule:
    """Prefer versions of these nodes, in order; other nodes' versions only if there are none.

    Among versions of unlisted nodes, the last wins. Raises :class:`RuleError` for an empty list
    and for duplicates.
    """
    if not branch_ids or len(set(branch_ids)) < len(branch_ids):
        raise RuleError("origin_priority takes branch ids, each of them once")
    ranks = {branch_id: -rank for rank, branch_id in enumerate(branch_ids)}
    others = -len(branch_ids)

    def rank(candidate: Candidate) -> tuple[int, Stamp]:
        branch_id = candidate.stamp.origin.partition("~")[0]
        return ranks.get(branch_id, others), candidate.stamp

    def pick(candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=rank)

    return Rule("choice", " ".join(("origin-priority", *branch_ids)), pick)


def custom(name: str, function: Callable[[Sequence[Candidate]], Value]) -> Rule:
    """Merge the versions, sorted by their stamps, with a function.

    It must be deterministic and depend on its argument only. It is called only if versions differ.
    If it fails, the last version is visible, and the status lists the row among its problems.
    ``name`` represents it in :attr:`Rules.fingerprint`: rename a function whose behaviour changes.
    Raises :class:`RuleError` for an empty name.
    """
    if not name:
        raise RuleError("a custom rule needs a name")

    def pick(candidates: Sequence[Candidate]) -> Candidate:
        try:
            value = function(candidates)
            to_json(value)
        except InvalidValueError as problem:
            raise RuleError(f"the rule {name!r} gave no value: {problem}") from problem
        except Exception as error:
            raise RuleError(f"the rule {name!r} failed: {error!r}") from error
        return Candidate(candidates[-1].stamp, value)

    return Rule("choice", f"custom {name}", pick)


def counter() -> Rule:
    """Add up the differences of all nodes; for integers and decimals."""
    return Rule("sum", "counter", _last)


def members() -> Rule:
    """Merge additions and removals of members of a set, or of a list used as a set."""
    return Rule("members", "members", _last)


@dataclass(frozen=True)
class TableRules:
    """The rules of one table; ``None`` means the default of :class:`Rules`."""

    default: Rule | None = None
    on_delete: OnDelete | None = None
    columns: Mapping[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the rules; raises :class:`RuleError`."""
        default, on_delete = self.default, self.on_delete
        if default is not None and not (isinstance(default, Rule) and default.kind == "choice"):
            raise RuleError(
                f"default={default!r}: it is a rule that takes one of several versions, since it is"
                " for columns of any type; name the columns that are counters or sets"
            )
        if on_delete is not None and on_delete not in get_args(OnDelete):
            raise RuleError(f"on_delete={on_delete!r} is none of {', '.join(get_args(OnDelete))}")
        for name, rule in self.columns.items():
            if not isinstance(rule, Rule):
                raise RuleError(f"column {name}: {rule!r} is no rule, as counter() gives one")

    def rule(self, column: str) -> Rule:
        """Return the rule of a column."""
        return self.columns.get(column) or self.default or _LAST_WRITER

    @cached_property
    def merging(self) -> Mapping[str, Rule]:
        """Columns whose versions are merged instead of chosen from."""
        return {name: rule for name, rule in self.columns.items() if rule.kind != "choice"}


_LAST_WRITER: Final = last_writer()


class Rules:
    """The rules of all tables."""

    def __init__(
        self,
        default: Rule = _LAST_WRITER,
        on_delete: OnDelete = "update-wins",
        tables: Mapping[str, TableRules] | None = None,
    ) -> None:
        """Set the rules by table name, with the schema where a table has one.

        ``default`` applies to columns without a rule, and ``on_delete`` likewise to tables. Raises
        :class:`RuleError`.
        """
        self._others = TableRules(default, on_delete)
        self._tables = {}
        for name, each in (tables or {}).items():
            if not isinstance(each, TableRules):
                raise RuleError(f"table {name}: {each!r} is no TableRules")
            self._tables[name] = TableRules(
                each.default or default, each.on_delete or on_delete, each.columns
            )

    def of(self, table: str) -> TableRules:
        """Return the rules of a table."""
        return self._tables.get(table, self._others)

    @cached_property
    def fingerprint(self) -> str:
        """Hash that is equal for rules with equal effect; custom rules count by their names."""
        return hashlib.sha256(_ENCODER.encode(self._described())).hexdigest()

    def _described(self) -> list[object]:
        others = _description(self._others)
        tables = {name: _description(each) for name, each in self._tables.items()}
        return [others, {name: each for name, each in tables.items() if each != others}]


def _description(rules: TableRules) -> list[object]:
    default = rules.rule("").text
    columns = {name: rule.text for name, rule in rules.columns.items() if rule.text != default}
    return [default, rules.on_delete, columns]


renamed(
    __name__,
    RuleProblem="RuleError",
)
