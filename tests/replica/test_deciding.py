"""Resolving conflicts: changes that set a row, by an author who knew all versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from stompkit.replica._deciding import decision, row_conflicts
from stompkit.replica.changes import reduced
from stompkit.replica.rows import RowState, Stamp
from stompkit.replica.rules import TableRules, counter, members, origin_priority
from stompkit.replica.store import RowRecord, row_id
from stompkit.replication.model.events import RowChange

KEY = {"id": 1}
TABLE = "shop.items"


@dataclass
class Row:
    """A row that two nodes write concurrently; ``c`` knows all versions."""

    rules: TableRules = field(default_factory=TableRules)
    state: RowState = field(default_factory=RowState)
    clock: dict[str, int] = field(default_factory=dict)
    hlc: int = 0

    def do(self, origin: str, *changes: RowChange, knows: dict[str, int] | None = None) -> None:
        """Apply one changeset of an origin, which knows this vector."""
        self.hlc += 1
        sequence = self.clock.get(origin, 0) + 1
        clock = {**(self.clock if knows is None else knows), origin: sequence}
        for change in changes:
            made = reduced(change, self.state.visible(self.rules)) if knows is None else change
            if made is not None:
                self.state.apply(made, Stamp(self.hlc, origin, sequence), clock, self.rules)
        self.clock[origin] = sequence

    @property
    def record(self) -> RowRecord:
        """Return the row as the store has it."""
        return RowRecord(
            id=row_id(TABLE, KEY), table=TABLE, key=KEY, state=self.state, is_live=True
        )

    @property
    def visible(self) -> dict[str, Any] | None:
        """The visible row."""
        return self.state.visible(self.rules)

    def decide(self, **said: Any) -> None:
        """Resolve the conflict with these values."""
        self.do("c", *decision(self.record, self.rules, **said))


def change(action: Any, before: Any = None, **after: Any) -> RowChange:
    return RowChange(
        schema="shop", table="items", action=action, key=KEY, before=before, after=after or None
    )


def contested(rules: TableRules | None = None, **values: Any) -> Row:
    """Return a row with these columns, changed concurrently by ``a`` and ``b``."""
    row = Row(rules or TableRules())
    row.do("a", change("write", **{"title": "t", "body": "b", **values}))
    return row


def test_each_version_of_a_column_can_be_picked() -> None:
    for pick, title in (("winner", "3"), ("loser 1", "2"), ("loser 2", "1"), ("loser 3", "3")):
        row = contested()
        known = dict(row.clock)
        for number, origin in enumerate("abd", 1):
            row.do(origin, change("update", {"title": "t"}, title=str(number)), knows=known)
        assert [
            each.value for each in row_conflicts(row.record, row.rules).conflicts[0].losers
        ] == [
            "2",
            "1",
        ]
        row.decide(pick=pick)
        assert row.visible == {"title": title, "body": "b"}
        assert row.state.conflicts(row.rules) == []


def test_one_column_can_be_decided_and_others_left() -> None:
    row = contested()
    known = dict(row.clock)
    for origin in "ab":
        values = {"title": origin, "body": origin}
        row.do(origin, change("update", {"title": "t", "body": "b"}, **values), knows=known)
    row.decide(pick="loser 1", column="title")
    assert row.visible == {"title": "a", "body": "b"}
    assert [each.column for each in row.state.conflicts(row.rules)] == ["body"]
    row.decide(values={"body": "new"})
    assert row.visible == {"title": "a", "body": "new"}
    assert row.state.conflicts(row.rules) == []


def test_null_and_empty_text_can_win_and_lose() -> None:
    for pick, title in (("winner", None), ("loser 1", "")):
        row = contested()
        known = dict(row.clock)
        row.do("a", change("update", {"title": "t"}, title=""), knows=known)
        row.do("b", change("update", {"title": "t"}, title=None), knows=known)
        row.decide(pick=pick)
        assert row.visible == {"title": title, "body": "b"}
        assert row.state.conflicts(row.rules) == []


def test_what_a_rule_has_decided_can_be_decided_otherwise() -> None:
    row = contested(TableRules(default=origin_priority("a")))
    known = dict(row.clock)
    for origin in "ab":
        row.do(origin, change("update", {"title": "t"}, title=origin), knows=known)
    row.decide(pick="loser 1")
    assert row.visible == {"title": "b", "body": "b"}
    assert row.state.conflicts(row.rules) == []


@pytest.mark.parametrize(("pick", "stars"), [("winner", 25), ("loser 1", 15)])
def test_what_was_counted_stays_counted(pick: str, stars: int) -> None:
    """Two have inserted the same row, each with a start value, and both have counted since."""
    row = Row(TableRules(columns={"stars": counter()}))
    row.do("a", change("write", title="t", stars=10), knows={})
    row.do("b", change("write", title="t", stars=20), knows={})
    row.do("a", change("update", {"stars": 20}, stars=22), knows={"a": 1, "b": 1})
    row.do("b", change("update", {"stars": 20}, stars=23), knows={"a": 1, "b": 1})
    assert row.visible == {"title": "t", "stars": 25}
    row.decide(pick=pick)
    assert row.visible == {"title": "t", "stars": stars}
    assert row.state.conflicts(row.rules) == []


def test_columns_that_are_merged_are_not_touched_by_a_decision_about_others() -> None:
    rules = TableRules(columns={"tags": members(), "stars": counter()})
    tags = frozenset({"x", "y"})
    row = contested(rules, stars=1, tags=tags)
    known = dict(row.clock)
    for origin in "ab":
        values = {"title": origin, "stars": 2}
        row.do(origin, change("update", {"title": "t", "stars": 1}, **values), knows=known)
    knows = dict(row.clock)
    row.decide(values={"title": "x", "stars": 3, "tags": tags})
    assert row.visible == {"title": "x", "body": "b", "stars": 3, "tags": tags}
    # A node has counted, and removed members, without knowing of the decision.
    before = {"stars": 3, "tags": tags}
    row.do("a", change("update", before, stars=4, tags=frozenset({"y"})), knows=knows)
    assert row.visible == {"title": "x", "body": "b", "stars": 4, "tags": frozenset({"y"})}


@pytest.mark.parametrize("on_delete", ["update-wins", "delete-wins"])
@pytest.mark.parametrize("is_kept", [True, False])
def test_whether_there_is_a_row_can_be_decided(on_delete: Any, *, is_kept: bool) -> None:
    row = contested(TableRules(on_delete=on_delete))
    known = dict(row.clock)
    row.do("a", change("delete", {"title": "t", "body": "b"}), knows=known)
    row.do("b", change("update", {"title": "t"}, title="kept"), knows=known)
    wins = (on_delete == "update-wins") == is_kept
    row.decide(pick="winner" if wins else "loser 1")
    assert row.visible == ({"title": "kept", "body": "b"} if is_kept else None)
    assert row.state.conflicts(row.rules) == []


def test_whether_there_is_a_row_without_other_columns_can_be_decided() -> None:
    for pick in ("winner", "loser 1"):
        row = Row()
        row.do("a", change("write"))
        known = dict(row.clock)
        row.do("a", change("delete", {}), knows=known)
        row.do("b", change("write"), knows=known)
        row.decide(pick=pick)
        assert row.visible == ({} if pick == "winner" else None)
        assert row.state.conflicts(row.rules) == []


def test_a_decision_names_its_table_as_others_do() -> None:
    row = contested()
    known = dict(row.clock)
    for origin in "ab":
        row.do(origin, change("update", {"title": "t"}, title=origin), knows=known)
    made = decision(row.record, row.rules, pick="winner")
    assert {each.name for each in made} == {TABLE}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "either"),
        ({"pick": "winner", "values": {"title": "x"}}, "either"),
        ({"pick": "loser 0"}, "not 'loser 0'"),
        ({"pick": "both"}, "not 'both'"),
        ({"values": {}}, "names none"),
        ({"values": {"id": 2}}, "which row"),
    ],
)
def test_what_can_not_be_picked_is_refused(said: dict[str, Any], reason: str) -> None:
    row = contested()
    known = dict(row.clock)
    for origin in "ab":
        row.do(origin, change("update", {"title": "t"}, title=origin), knows=known)
    with pytest.raises(ValueError, match=reason):
        decision(row.record, row.rules, **said)


def test_where_nothing_is_in_conflict_nothing_is_decided() -> None:
    row = contested()
    with pytest.raises(LookupError, match=TABLE):
        decision(row.record, row.rules, pick="winner")
