"""Rules: the choice among versions, and the equality of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stompkit.replica.rules import (
    Candidate,
    Rule,
    RuleError,
    Rules,
    Stamp,
    TableRules,
    counter,
    custom,
    first_writer,
    last_writer,
    members,
    origin_priority,
)
from stompkit.replication.model.values import Value

#: In the order of their stamps: the numbers of origins decide only between equal clocks.
VERSIONS = [
    Candidate(Stamp(5, "A~00000002", 9), "first"),
    Candidate(Stamp(6, "AB~00000001", 3), "second"),
    Candidate(Stamp(6, "B~00000002", 1), "third"),
    Candidate(Stamp(7, "B~00000001", 2), "last"),
]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (last_writer(), "last"),
        (first_writer(), "first"),
        (origin_priority("C", "A", "B"), "first"),
        (origin_priority("AB", "B"), "second"),
        (origin_priority("B", "AB"), "last"),
        (origin_priority("C"), "last"),
        (custom("count", len), 4),
    ],
)
def test_version_that_is_taken(rule: Rule, value: Value) -> None:
    assert rule.pick(VERSIONS).value == value


def test_order_of_stamps_is_clock_then_origin_then_number() -> None:
    stamps = [each.stamp for each in VERSIONS]
    tenth = Stamp(6, "AB~00000001", 10)
    assert sorted([tenth, *stamps]) == [*stamps[:2], tenth, *stamps[2:]]


def failing(versions: Sequence[Candidate]) -> Value:
    raise KeyError("nothing")


@pytest.mark.parametrize(
    ("function", "told"),
    [(failing, "the rule 'mine' failed: KeyError\\('nothing'\\)"), (set, "'mine' gave no value")],
)
def test_custom_rule_that_gives_nothing_is_named(
    function: Callable[[Sequence[Candidate]], Value], told: str
) -> None:
    with pytest.raises(RuleError, match=told):
        custom("mine", function).pick(VERSIONS)


def test_tables_have_what_is_not_said_from_all() -> None:
    rules = Rules(
        first_writer(),
        "delete-wins",
        {
            "notes": TableRules(columns={"n": counter(), "owner": last_writer()}),
            "shop.orders": TableRules(origin_priority("A"), "last-writer"),
        },
    )
    other, notes, orders = rules.of("other"), rules.of("notes"), rules.of("shop.orders")
    assert (other.rule("n"), other.on_delete) == (first_writer(), "delete-wins")
    assert (notes.rule("n"), notes.rule("owner"), notes.rule("title")) == (
        counter(),
        last_writer(),
        first_writer(),
    )
    assert notes.on_delete == "delete-wins"
    assert (orders.rule("n").text, orders.on_delete) == ("origin-priority A", "last-writer")
    assert rules.of("orders").on_delete == "delete-wins"


def test_rules_are_the_last_writer_and_updates_if_nothing_is_said() -> None:
    table = Rules().of("notes")
    assert (table.rule("n"), table.on_delete) == (last_writer(), "update-wins")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rules(counter()),
        lambda: Rules(members()),
        lambda: TableRules(default=counter()),
        lambda: TableRules(default=_any("last-writer")),
        lambda: Rules(on_delete=_any("deletes-win")),
        lambda: TableRules(on_delete=_any("")),
        lambda: TableRules(columns={"n": _any(counter)}),
        lambda: Rules(tables={"notes": _any({"n": counter()})}),
        lambda: origin_priority(),
        lambda: origin_priority("A", "B", "A"),
        lambda: custom("", len),
    ],
)
def test_rules_that_make_no_sense_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(RuleError):
        make()


def _any(value: Any) -> Any:
    """Return an unchecked value of a program."""
    return value


def fingerprint(table: TableRules, default: Rule | None = None) -> str:
    return Rules(default or last_writer(), tables={"notes": table}).fingerprint


def test_fingerprint_is_the_same_for_rules_that_do_the_same() -> None:
    mine = fingerprint(TableRules(columns={"n": counter(), "a": custom("x", len)}))
    again = TableRules(
        last_writer(),
        "update-wins",
        {"a": custom("x", max), "n": counter(), "title": last_writer()},
    )
    assert fingerprint(again) == mine
    assert fingerprint(TableRules()) == Rules().fingerprint
    assert fingerprint(TableRules(first_writer()), first_writer()) == (
        Rules(first_writer()).fingerprint
    )


def test_fingerprints_of_rules_that_differ_differ() -> None:
    made = [
        TableRules(),
        TableRules(on_delete="last-writer"),
        TableRules(first_writer()),
        TableRules(origin_priority("A", "B")),
        TableRules(origin_priority("B", "A")),
        TableRules(custom("A", len)),
        TableRules(columns={"n": counter()}),
        TableRules(columns={"n": members()}),
        TableRules(columns={"m": counter()}),
        TableRules(columns={"n": custom("A", len)}),
        TableRules(columns={"n": custom("B", len)}),
    ]
    assert len({fingerprint(each) for each in made}) == len(made)
    others = [Rules(first_writer()), Rules(on_delete="delete-wins")]
    others.append(Rules(tables={"other": TableRules(columns={"n": counter()})}))
    assert not {each.fingerprint for each in others} & {fingerprint(each) for each in made}
