"""How versions of one row that were written at the same time become one row.

Every replica has to have the same rules: what a row looks like is computed from the changesets, at
each replica by itself. :attr:`Rules.fingerprint` tells whether they have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from stompkit.replication.values import Value, ValueProblem, to_json

__all__ = [
    "Candidate",
    "OnDelete",
    "Rule",
    "RuleProblem",
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

#: What becomes of a row that one replica has deleted and another one has changed. ``update-wins``:
#: it is there, with all its columns. ``delete-wins``: it is gone. ``last-writer``: what was done
#: last, as the clocks say.
OnDelete = Literal["update-wins", "delete-wins", "last-writer"]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class RuleProblem(ValueError):
    """Rules that make no sense, or a value that the rule of its column can't take."""


class Stamp(NamedTuple):
    """When a changeset was made, and which: stamps are in the order of writers."""

    #: Microseconds since 1970 or more, of a clock that never runs behind what its replica has seen.
    hlc: int
    origin: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several versions of a column."""

    stamp: Stamp
    value: Value
    #: What its writer saw before; ``None`` also where the row was new.
    before: Value = None


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of versions of a column; made by the functions of this module."""

    #: ``choice``: one of them. ``sum``: differences are added up. ``members``: of sets.
    kind: Literal["choice", "sum", "members"]
    #: The same where the rule does the same.
    text: str
    #: The one that is taken, of at least two in the order of their stamps.
    pick: Callable[[Sequence[Candidate]], Candidate] = field(compare=False)


def _last(candidates: Sequence[Candidate]) -> Candidate:
    return candidates[-1]


def _first(candidates: Sequence[Candidate]) -> Candidate:
    return candidates[0]


def last_writer() -> Rule:
    """Take what was written last, as the clocks say."""
    return Rule("choice", "last-writer", _last)


def first_writer() -> Rule:
    """Take what was written first of what was written at the same time."""
    return Rule("choice", "first-writer", _first)


def origin_priority(*branch_ids: str) -> Rule:
    """Take what was written at the first of these nodes; what others wrote only without one.

    Of several versions of nodes that are not named it is the last. Raises :class:`RuleProblem` for
    no nodes, and for one that is named twice.
    """
    if not branch_ids or len(set(branch_ids)) < len(branch_ids):
        raise RuleProblem("origin_priority takes branch ids, each of them once")
    ranks = {branch_id: -rank for rank, branch_id in enumerate(branch_ids)}
    others = -len(branch_ids)

    def rank(candidate: Candidate) -> tuple[int, Stamp]:
        branch_id = candidate.stamp.origin.partition("~")[0]
        return ranks.get(branch_id, others), candidate.stamp

    def pick(candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=rank)

    return Rule("choice", " ".join(("origin-priority", *branch_ids)), pick)


def custom(name: str, function: Callable[[Sequence[Candidate]], Value]) -> Rule:
    """Take what a function makes of the versions, which come in the order of their stamps.

    It has to give the same for the same everywhere: it may look at nothing else. It is called only
    where versions differ. ``name`` stands for it in :attr:`Rules.fingerprint`: a function that does
    something else needs another name. Raises :class:`RuleProblem` for an empty name.
    """
    if not name:
        raise RuleProblem("a custom rule needs a name")

    def pick(candidates: Sequence[Candidate]) -> Candidate:
        try:
            value = function(candidates)
            to_json(value)
        except ValueProblem as problem:
            raise RuleProblem(f"the rule {name!r} gave no value: {problem}") from None
        except Exception as error:
            raise RuleProblem(f"the rule {name!r} failed: {error!r}") from error
        return Candidate(candidates[-1].stamp, value)

    return Rule("choice", f"custom {name}", pick)


def counter() -> Rule:
    """Add up what was added and taken away everywhere; for whole numbers and decimals."""
    return Rule("sum", "counter", _last)


def members() -> Rule:
    """Put in and take out members of a set, or of a list that is used as one."""
    return Rule("members", "members", _last)


@dataclass(frozen=True)
class TableRules:
    """The rules of one table; what is ``None`` is as :class:`Rules` has it."""

    default: Rule | None = None
    on_delete: OnDelete | None = None
    columns: Mapping[str, Rule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check it; raises :class:`RuleProblem`."""
        default, on_delete = self.default, self.on_delete
        if default is not None and not (isinstance(default, Rule) and default.kind == "choice"):
            raise RuleProblem(
                f"default={default!r}: it is a rule that takes one of several versions, since it is"
                " for columns of any type; name the columns that are counters or sets"
            )
        if on_delete is not None and on_delete not in get_args(OnDelete):
            raise RuleProblem(f"on_delete={on_delete!r} is none of {', '.join(get_args(OnDelete))}")
        for name, rule in self.columns.items():
            if not isinstance(rule, Rule):
                raise RuleProblem(f"column {name}: {rule!r} is no rule, as counter() gives one")

    def rule(self, column: str) -> Rule:
        """The rule of a column."""
        return self.columns.get(column) or self.default or _LAST_WRITER

    @cached_property
    def merging(self) -> Mapping[str, Rule]:
        """The columns of which versions are not chosen from but put together."""
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
        """Have rules for tables by their names, with their schema where they have one.

        ``default`` is for columns that no table has a rule for, and ``on_delete`` likewise. Raises
        :class:`RuleProblem`.
        """
        self._others = TableRules(default, on_delete)
        self._tables = {}
        for name, each in (tables or {}).items():
            if not isinstance(each, TableRules):
                raise RuleProblem(f"table {name}: {each!r} is no TableRules")
            self._tables[name] = TableRules(
                each.default or default, each.on_delete or on_delete, each.columns
            )

    def of(self, table: str) -> TableRules:
        """The rules of a table."""
        return self._tables.get(table, self._others)

    @cached_property
    def fingerprint(self) -> str:
        """Text that is the same for rules that do the same; custom ones are told by their names."""
        return hashlib.sha256(_ENCODER.encode(self._described())).hexdigest()

    def _described(self) -> list[object]:
        others = _description(self._others)
        tables = {name: _description(each) for name, each in self._tables.items()}
        return [others, {name: each for name, each in tables.items() if each != others}]


def _description(rules: TableRules) -> list[object]:
    default = rules.rule("").text
    columns = {name: rule.text for name, rule in rules.columns.items() if rule.text != default}
    return [default, rules.on_delete, columns]
