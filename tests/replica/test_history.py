"""Queries of the history: who has changed what and when, and the state at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.replica.applier import Hooks, RefuseChangesetError
from stompkit.replica.history import Counts, RevisionError, Shown
from stompkit.replica.rules import Rules, TableRules, counter
from stompkit.replica.store import ChangesetRecord, OriginRecord
from stompkit.replication.model.events import Changeset, RowChange
from tests.effort import drawn
from tests.replica.branches import NOTES, Branch, Wall, note, removal, titles


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def a(tmp_path: Path, wall: Wall) -> Iterator[Branch]:
    with Branch(tmp_path, "A", wall) as branch:
        yield branch


@pytest.fixture
def b(tmp_path: Path, wall: Wall) -> Iterator[Branch]:
    with Branch(tmp_path, "B", wall) as branch:
        yield branch


def names(branch: Branch, **asked: Any) -> list[str]:
    """Return the log, as names of branches and numbers."""
    return [
        f"{each.origin.partition('~')[0]}:{each.sequence}" for each in branch.history.log(**asked)
    ]


# The log.


def test_the_log_says_who_has_changed_what_and_when(a: Branch, b: Branch, wall: Wall) -> None:
    a.write(note("1", title="x"), note("2", title="y"), author="Ann", comment="two notes")
    a.give(b)
    b.write(note("1", title="z"), removal("2"), note("3"), author="Bob")
    b.give(a)
    later, earlier = a.history.log()
    assert (later.author, later.comment) == ("Bob", "")
    assert later.tables == {NOTES: Counts(written=1, updated=1, deleted=1)}
    assert later.changes == 3
    assert (later.dot, later.via) == ((b.origin, 1), b.origin)
    assert (later.is_head, earlier.is_head) == (True, False)
    assert later.parents == (earlier.id,)
    assert (earlier.author, earlier.comment, earlier.via) == ("Ann", "two notes", "")
    assert earlier.time < later.time < wall.time
    assert earlier.name == f"{a.origin}:1"
    assert earlier.id.startswith(earlier.short_id)
    assert len(earlier.short_id) == 12


def test_heads_are_those_that_nothing_was_made_on_top_of(a: Branch, b: Branch) -> None:
    a.write(note("1"))
    b.write(note("2"))
    a.give(b)
    assert [each.is_head for each in b.history.log()] == [True, True]
    b.write(note("3"))
    assert [each.is_head for each in b.history.log()] == [True, False, False]


def test_the_log_is_of_a_table_a_row_or_a_node_if_that_is_asked(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x"))
    a.write(note("1", "lists", title="y"))
    a.give(b)
    b.write(note("1", title="z"))
    b.write(note("2", title="z"))
    assert names(b) == ["B:2", "B:1", "A:2", "A:1"]
    assert names(b, table=NOTES) == ["B:2", "B:1", "A:1"]
    assert names(b, table=NOTES, key={"id": "1"}) == ["B:1", "A:1"]
    assert names(b, table="doc.lists") == ["A:2"]
    assert names(b, origin="A") == names(b, origin=a.origin) == ["A:2", "A:1"]
    assert names(b, origin="A", table=NOTES) == ["A:1"]
    assert names(b, origin="C") == []
    with pytest.raises(ValueError, match="a key is one of a table"):
        b.history.log(key={"id": "1"})


@pytest.mark.parametrize("asked", [{}, {"table": NOTES}, {"table": NOTES, "key": {"id": "1"}}])
def test_the_log_goes_on_behind_its_last_entry(a: Branch, asked: dict[str, Any]) -> None:
    for number in range(7):
        a.write(note("1", number=number))
    assert names(a, limit=3, **asked) == names(a, limit=3, before="head", **asked)
    found: list[str] = []
    before = None
    while page := a.history.log(limit=3, before=before, **asked):
        found += [each.name for each in page]
        before = page[-1].id
    assert found == [f"{a.origin}:{number}" for number in range(7, 0, -1)]


# Names of revisions.


def test_a_changeset_is_found_by_all_its_names(a: Branch) -> None:
    a.write(note("1", title="x"), comment="this")
    a.write(note("1", title="y"))
    entry = a.history.entry("A:1")
    assert entry.comment == "this"
    assert not entry.is_head
    for name in (entry.name, entry.id, entry.short_id, entry.id[:6], entry.id.upper(), " A:1 "):
        changeset = a.history.get(name)
        assert (changeset.id, changeset.sequence) == (entry.id, 1)
        assert changeset.changes[0].after == {"title": "x"}
    assert a.history.get("head").sequence == 2


def test_the_id_is_the_hash_of_what_is_sent(a: Branch) -> None:
    a.write(note("1", title="x"))
    with a.store.reading() as reader:
        (record,) = reader.changesets()
    assert a.history.get("A:1").id == sha256(record.body or b"").hexdigest()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("A:3", r"A~[0-9a-f]{8}:3 is not known here: the last is A~[0-9a-f]{8}:2"),
        ("laptp:1", r"'laptp' .* is it laptop\?"),
        ("A~00000000:1", "known are A~"),
        ("A:x", "the number of a changeset"),
        ("A:0", "the number of a changeset"),
        ("A", "add the number of a changeset, as in 'A~[0-9a-f]{8}:2'"),
        ("abcde", "first 6 digits"),
        ("0" * 65, "up to 64"),
        ("00000000", "no changeset is kept here whose id begins with"),
        ("yesterday", r"is no revision: .*'A:17'.*'head'"),
        ("", "is no revision"),
    ],
)
def test_a_name_that_is_not_known_gets_advice(
    a: Branch, tmp_path: Path, wall: Wall, name: str, advice: str
) -> None:
    laptop = Branch(tmp_path, "laptop", wall)
    laptop.write(note("0"))
    laptop.give(a)
    a.write(note("1"))
    a.write(note("2"))
    for ask in (a.history.get, a.history.at, lambda each: a.history.log(before=each)):
        with pytest.raises(RevisionError, match=advice):
            ask(name)


def test_a_branch_with_two_origins_does_not_name_one(a: Branch, tmp_path: Path, wall: Wall) -> None:
    (tmp_path / "other").mkdir()
    other = Branch(tmp_path / "other", "A", wall)
    with other.store.transaction() as tx:
        other.applier.renew(tx, 0)
    with other.store.reading() as reader:
        other.origin = reader.meta("identity")["origin"]
    other.write(note("1"))
    a.write(note("2"))
    other.give(a)
    with pytest.raises(RevisionError, match=rf"2 stores have written as 'A': .*{other.origin}"):
        a.history.get("A:1")
    assert a.history.get(f"{other.origin}:1").origin == other.origin


def test_digits_with_which_two_ids_begin_do_not_name_one(a: Branch) -> None:
    ids = ["abcdef" + digit * 58 for digit in "12"]
    with a.store.transaction() as tx:
        tx.put_origins([OriginRecord(origin=a.origin, sequence=2)])
        tx.add_changesets(
            [
                ChangesetRecord(
                    position=number,
                    origin=a.origin,
                    sequence=number,
                    id=each,
                    hlc=number,
                    time=float(number),
                )
                for number, each in enumerate(ids, 1)
            ]
        )
    with pytest.raises(RevisionError, match="2 ids begin with 'abcdef': abcdef111111, abcdef222"):
        a.history.entry("abcdef")
    assert a.history.entry("abcdef2").sequence == 2


def test_there_is_no_changeset_called_head_where_there_are_several_or_none(
    a: Branch, b: Branch
) -> None:
    with pytest.raises(RevisionError, match="nothing was ever written"):
        a.history.get("head")
    with pytest.raises(RevisionError, match="there is no history yet"):
        a.history.get("A:1")
    a.write(note("1"))
    b.write(note("1"))
    b.give(a)
    with pytest.raises(RevisionError, match="there are 2 heads"):
        a.history.get("head")


# Visible states.


def test_a_revision_shows_what_its_writer_saw_and_nothing_else(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x", body="old"))
    a.give(b)
    a.write(note("1", title="A's"), note("2", title="new"))
    b.write(note("1", body="B's"))
    b.give(a)
    a.write(removal("2"))
    for branch in (a, b):
        if branch is b:
            a.give(b)
        history = branch.history
        assert titles(history.at("A:1")) == {"1": {"title": "x", "body": "old"}}
        assert titles(history.at("A:2")) == {
            "1": {"title": "A's", "body": "old"},
            "2": {"title": "new"},
        }
        assert titles(history.at("B:1")) == {"1": {"title": "x", "body": "B's"}}
        assert titles(history.at("A:3")) == {"1": {"title": "A's", "body": "B's"}}
        assert history.at("head") == history.at("A:3")


def test_only_tables_that_are_asked_for_are_shown(a: Branch) -> None:
    a.write(note("1", title="x"), note("2", "lists"))
    a.write(removal("1"))
    assert set(a.history.at("A:1")) == {NOTES, "doc.lists"}
    assert a.history.at("A:1", ["doc.lists"]) == {"doc.lists": {("2",): {"id": "2"}}}
    assert a.history.at("A:1", "doc.lists") == a.history.at("head", "doc.lists")
    assert NOTES not in a.history.at("A:2")
    with pytest.raises(ValueError, match=r"no table 'nots' is known here; there are doc\.lists"):
        a.history.at("head", ["nots"])


def test_tables_of_other_nodes_are_shown_if_they_are_asked_for(a: Branch) -> None:
    a.write(note("1", title="x"))
    orders = RowChange(table="orders", action="write", key={"b": 1, "a": "z"}, after={"n": 2})
    with a.store.transaction() as tx:
        a.applier.write(tx, [orders])
    assert set(a.history.at("A:2")) == {NOTES}
    row = {"a": "z", "b": 1, "n": 2}
    assert a.history.at("A:2", ["orders"]) == {"orders": {("z", 1): row}}
    assert a.history.at("head", ["orders"]) == {"orders": {("z", 1): row}}


def test_a_time_shows_what_had_been_written_by_then(a: Branch, b: Branch, wall: Wall) -> None:
    begin = wall.time
    a.write(note("1", title="x"))
    first = wall.time
    a.give(b)
    b.write(note("1", title="B's"))
    a.write(note("2", title="A's"))
    both = wall.time
    a.write(removal("1"), removal("2"))
    a.give(b)
    b.give(a)
    for branch in (a, b):
        assert branch.history.at_time(begin) == {}
        assert titles(branch.history.at_time(first)) == {"1": {"title": "x"}}
        seen = titles(branch.history.at_time(both))
        assert seen == {"1": {"title": "B's"}, "2": {"title": "A's"}}
        later = both + timedelta(days=1)
        assert branch.history.at_time(later) == branch.history.at("head")


def test_a_time_shows_nothing_without_what_it_was_made_on(a: Branch, b: Branch, wall: Wall) -> None:
    a.write(note("1", title="before"))
    a.give(b)
    before = wall.time
    # So far ahead that other nodes do not follow that clock.
    wall.now += 10 * 86_400
    a.write(note("1", title="of the future"))
    wall.now = before.timestamp() + 100
    a.give(b)
    b.write(note("1", title="after"))
    moment = before + timedelta(seconds=200)
    assert b.history.entry("B:1").hlc < moment.timestamp() * 1_000_000
    assert titles(b.history.at_time(moment)) == {"1": {"title": "before"}}


def test_a_time_has_a_zone(a: Branch) -> None:
    with pytest.raises(RevisionError, match="in which zone"):
        a.history.at_time(datetime(2027, 1, 15))


def test_a_changeset_that_was_skipped_here_is_not_seen_here(
    a: Branch, tmp_path: Path, wall: Wall
) -> None:
    def refuse(changeset: Changeset) -> None:
        assert changeset.revision is not None
        if changeset.revision.comment == "poison":
            raise RefuseChangesetError("never")

    strict = Branch(tmp_path, "strict", wall, hooks=Hooks(validate=refuse))
    a.write(note("1", title="x"))
    a.write(note("1", title="bad"), comment="poison")
    a.give(strict)
    with strict.store.transaction() as tx:
        strict.applier.skip(tx, (a.origin, 2))
    a.write(note("1", body="more"))
    a.give(strict)
    assert titles(strict.history.at("A:3")) == strict.shown == {"1": {"title": "x", "body": "more"}}
    assert strict.history.row(NOTES, {"id": "1"})[0].row == {"title": "x", "body": "more"}
    assert titles(a.history.at("A:3")) == {"1": {"title": "bad", "body": "more"}}


# Differences.


def test_a_difference_is_told_as_changes(a: Branch) -> None:
    a.write(note("1", title="x", body="y"), note("2"), note("4", title="same"))
    a.write(note("1", title="z"), removal("2"), note("3", title="new"))
    a.write(note("4", title="other"))
    a.write(note("4", title="same"))
    changes = a.history.diff("A:1", "A:4")
    assert [(each.name, each.action, each.key["id"]) for each in changes] == [
        (NOTES, "update", "1"),
        (NOTES, "delete", "2"),
        (NOTES, "write", "3"),
    ]
    assert [(each.before, each.after) for each in changes] == [
        ({"title": "x"}, {"title": "z"}),
        ({}, None),
        (None, {"title": "new"}),
    ]
    assert (changes[0].schema, changes[0].table) == ("doc", "notes")
    assert a.history.diff("A:1", "head") == changes
    assert a.history.diff("A:1", "A:4", NOTES) == changes
    assert a.history.diff("A:4", "A:4") == a.history.diff("head", "head") == []


def test_values_that_differ_as_json_differ(a: Branch) -> None:
    a.write(note("1", value=1))
    a.write(note("1", value="one"))
    a.write(note("1", value=True))
    (change,) = a.history.diff("A:1", "A:3")
    assert change.after == {"value": True}
    assert change.after is not None
    assert change.after["value"] is True


def test_what_two_have_done_at_once_is_a_difference_both_ways(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x"))
    a.give(b)
    a.write(note("1", title="A's"))
    b.write(note("2", title="B's"))
    b.give(a)
    forth = a.history.diff("A:2", "B:1")
    assert [(each.action, each.before, each.after) for each in forth] == [
        ("update", {"title": "A's"}, {"title": "x"}),
        ("write", None, {"title": "B's"}),
    ]
    back = a.history.diff("B:1", "A:2")
    assert [(each.action, each.before, each.after) for each in back] == [
        ("update", {"title": "x"}, {"title": "A's"}),
        ("delete", {"title": "B's"}, None),
    ]


# Rows.


def test_versions_of_a_row_say_who_made_it_what_it_was_to_them(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x", body="y"), note("2"), author="Ann")
    a.give(b)
    a.write(note("1", title="A's"), author="Ann")
    b.write(note("1", body="B's"), author="Bob", comment="shorter")
    b.write(note("2", title="another"))
    b.give(a)
    a.give(b)
    b.write(note("1", stars=1))
    b.give(a)
    a.write(removal("1"))
    versions = a.history.row(NOTES, {"id": "1"})
    assert [each.row for each in versions] == [
        None,
        {"title": "A's", "body": "B's", "stars": 1},
        {"title": "x", "body": "B's"},
        {"title": "A's", "body": "y"},
        {"title": "x", "body": "y"},
    ]
    assert [each.entry.author for each in versions] == ["", "", "Bob", "Ann", "Ann"]
    assert versions[2].entry.comment == "shorter"
    assert all(each.is_known for each in versions)
    actions = [each.changes[0].action for each in versions]
    assert actions == ["delete", "update", "update", "update", "write"]
    assert all(len(each.changes) == 1 for each in versions)
    assert a.history.row(NOTES, {"id": "1"}, limit=2) == versions[:2]
    assert a.history.row(NOTES, {"id": "9"}) == []


# The graph.


def test_the_graph_has_what_each_was_made_on_top_of(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x"))
    a.give(b)
    b.write(note("1", title="B's"))
    a.write(note("1", title="A's"))
    b.give(a)
    conflicting = a.history.graph()
    assert [each.conflicts for each in conflicting.nodes] == [0, 1, 1]
    a.write(note("1", title="agreed"))
    a.give(b)
    graph = a.history.graph()
    found = [each.entry.name for each in graph.nodes]
    assert found == [
        f"{b.origin if who == 'b' else a.origin}:{n}"
        for who, n in (("a", 1), ("b", 1), ("a", 2), ("a", 3))
    ]
    ids = {each.entry.id: each.entry.name for each in graph.nodes}
    edges = {(ids[each.parent], ids[each.child]) for each in graph.edges}
    assert edges == {(found[0], found[1]), (found[0], found[2])} | {
        (found[1], found[3]),
        (found[2], found[3]),
    }
    assert [each.is_merge for each in graph.nodes] == [False, False, False, True]
    assert [each.conflicts for each in graph.nodes] == [0, 0, 0, 0]
    assert graph.origins == (a.origin, b.origin)
    assert not graph.is_cut


def test_a_graph_that_is_cut_says_so(a: Branch) -> None:
    for number in range(4):
        a.write(note("1", number=number))
    graph = a.history.graph(3)
    assert [each.entry.sequence for each in graph.nodes] == [2, 3, 4]
    assert [each.parents_elsewhere for each in graph.nodes] == [1, 0, 0]
    assert graph.is_cut
    assert not a.history.graph(4).is_cut


# Any history.

_Step = tuple[str, int, int]
_steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "remove", "add", "give"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=25,
)
_RULES = Rules(tables={NOTES: TableRules(columns={"total": counter()})})


@contextmanager
def _run(steps: Sequence[_Step]) -> Iterator[tuple[list[Branch], dict[str, Shown]]]:
    """Run three nodes with these steps; return what each saw with each of its changesets."""
    wall = Wall()
    with TemporaryDirectory() as name, ExitStack() as stack:
        branches = [
            # The last of them does not record the changesets of each row.
            stack.enter_context(Branch(Path(name), each, wall, _RULES, save_history=each != "C"))
            for each in "ABC"
        ]
        yield branches, _done(branches, steps)


def _done(branches: list[Branch], steps: Sequence[_Step]) -> dict[str, Shown]:
    random = Random(len(steps))
    seen: dict[str, Shown] = {}
    for what, who, which in steps:
        branch = branches[who]
        if what == "give":
            branch.give(branches[which % 3])
            continue
        row = branch.shown.get(str(which))
        if what == "remove":
            changes = [] if row is None else [removal(str(which))]
        elif what == "add":
            changes = [note(str(which), total=(row or {}).get("total", 0) + random.randint(1, 9))]
        else:
            changes = [note(str(which), **{random.choice("xyz"): random.randint(0, 9**9)})]
        if changes:
            name = branch.write(*changes)
            seen[name] = branch.history.at("head")
    for branch in branches[1:]:
        branch.give(branches[0])
    for branch in branches[1:]:
        branches[0].give(branch)
    return seen


def _with(shown: Shown, changes: Sequence[RowChange]) -> Shown:
    """Return rows with changes applied to them."""
    made = {table: dict(rows) for table, rows in shown.items()}
    for change in changes:
        rows = made.setdefault(change.name, {})
        key = (change.key["id"],)
        if change.action == "delete":
            before = rows.pop(key)
            assert {**change.key, **(change.before or {})} == before
            continue
        old: Mapping[str, Any] = rows.get(key, change.key)
        assert (change.action == "update") == (key in rows)
        for name, value in (change.before or {}).items():
            assert old.get(name) == value
        rows[key] = {**old, **(change.after or {})}
    return {
        table: {key: _told(row) for key, row in rows.items()}
        for table, rows in made.items()
        if rows
    }


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without NULL columns: those were unset, or set to NULL."""
    return {name: value for name, value in row.items() if value is not None}


@settings(max_examples=drawn(15))
@given(_steps)
def test_every_node_shows_at_a_revision_what_its_writer_saw(steps: Sequence[_Step]) -> None:
    with _run(steps) as (branches, seen):
        for branch in branches:
            for name, shown in seen.items():
                assert branch.history.at(name) == shown
        merged = branches[0].history.at("head")
        assert all(branch.history.at("head") == merged for branch in branches)
        graphs = [branch.history.graph(100) for branch in branches]
        orders = [[node.entry.id for node in graph.nodes] for graph in graphs]
        assert orders[0] == orders[1] == orders[2]
        assert graphs[0].edges == graphs[1].edges == graphs[2].edges
        for edge in graphs[0].edges:
            assert orders[0].index(edge.parent) < orders[0].index(edge.child)
        for version in branches[0].history.row(NOTES, {"id": "1"}):
            row = seen[version.entry.name].get(NOTES, {}).get(("1",))
            assert (None if row is None else {"id": "1", **(version.row or {})}) == row


@settings(max_examples=drawn(15))
@given(_steps, st.randoms(use_true_random=False))
def test_a_difference_makes_one_revision_of_the_other(
    steps: Sequence[_Step], random: Random
) -> None:
    with _run(steps) as (branches, seen):
        names = [*seen, "head"]
        for _ in range(5):
            one, other = random.choice(names), random.choice(names)
            branch = random.choice(branches)
            changes = branch.history.diff(one, other)
            expected = branch.history.at(other)
            assert _with(branch.history.at(one), changes) == {
                table: {key: _told(row) for key, row in rows.items()}
                for table, rows in expected.items()
            }
