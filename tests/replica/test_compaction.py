"""Compaction: the removed part of a history, and what remains visible of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompkit.replica.compaction import Compacted, Retention, compact, rebase
from stompkit.replica.history import RevisionError, Shown
from stompkit.replica.rules import Rules, TableRules, counter, members
from stompkit.replica.store import Prepare, Store, Tx
from stompkit.replica.vectors import dominates
from tests.effort import drawn
from tests.replica.branches import NOTES, Branch, Wall, note, removal, titles

DAY = 86_400.0


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


def kept(branch: Branch) -> list[str]:
    """Return the remaining changesets, the last one first."""
    return [f"{each.name[0]}:{each.sequence}" for each in branch.history.log(limit=10_000)]


def tombstones(branch: Branch) -> int:
    with branch.store.reading() as reader:
        return len(reader.tombstones())


def base(branch: Branch) -> dict[str, bool]:
    """Return the rows of the base state, and True for those that exist."""
    with branch.store.reading() as reader:
        return {each.key["id"]: each.is_live for each in reader.base_page(limit=1000)}


# Amount of history.


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("30 days", Retention(30 * DAY)),
        ("1 day", Retention(DAY)),
        ("12 hours", Retention(DAY / 2)),
        ("0.5 weeks", Retention(3.5 * DAY)),
        ("90 seconds", Retention(90.0)),
        (" 2 Minutes ", Retention(120.0)),
        ("100000 changesets", Retention(None, 100_000)),
        ("100_000 changesets", Retention(None, 100_000)),
        ("1 changeset", Retention(None, 1)),
        ("30days,0 changesets", Retention(30 * DAY, 0)),
        ("5 changesets, 1 hour", Retention(3600.0, 5)),
        ("for ever", Retention()),
        ("forever", Retention()),
    ],
)
def test_a_retention_is_read_from_text(text: str, retention: Retention) -> None:
    assert Retention.parse(text) == retention
    assert Retention.parse(text, keep_unseen=False).keep_unseen is False


@pytest.mark.parametrize(
    "text",
    ["", "30", "days", "30 dags", "-1 days", "1 day, 2 days", "1 day,", "1.5 changesets", "all"],
)
def test_a_text_that_is_no_retention_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"'30 days'|whole changesets"):
        Retention.parse(text)


def test_no_limit_is_below_0() -> None:
    for limits in ({"max_age_s": -1.0}, {"max_changesets": -1}):
        with pytest.raises(ValueError, match="below 0"):
            Retention(**limits)


def test_without_a_limit_all_is_kept(a: Branch) -> None:
    a.write(note("1"))
    assert Retention().is_for_ever
    assert a.compact("for ever") == Compacted()
    assert kept(a) == ["A:1"]


def test_the_newest_are_kept_up_to_a_number(a: Branch) -> None:
    for number in range(10):
        a.write(note("1", number=number))
    sizes = {each.sequence: each.size for each in a.history.log()}
    done = a.compact("3 changesets")
    assert done == Compacted(7, sum(sizes[number] for number in range(1, 8)), 0)
    assert kept(a) == ["A:10", "A:9", "A:8"]
    with a.store.reading() as reader:
        assert reader.floor() == {a.origin: 7}
    assert a.compact("3 changesets") == Compacted()


def test_what_is_younger_than_an_age_is_kept(a: Branch, wall: Wall) -> None:
    a.write(note("1", number=1))
    wall.now += 2 * DAY
    a.write(note("1", number=2))
    wall.now += 2 * DAY
    a.write(note("1", number=3))
    assert a.compact("5 days").changesets == 0
    assert a.compact("3 days").changesets == 1
    assert kept(a) == ["A:3", "A:2"]
    assert a.compact("3 days, 1 changeset").changesets == 1
    assert a.compact("0 days").changesets == 1
    assert titles(a.history.at("head")) == {"1": {"number": 3}}


def test_a_changeset_of_the_future_does_not_hold_up_others(a: Branch, wall: Wall) -> None:
    wall.now += 1000 * DAY
    a.write(note("1", number=1))
    wall.now -= 999 * DAY
    a.write(note("1", number=2))
    wall.now += 31 * DAY
    assert a.compact("30 days").changesets == 2


# Changesets that must be kept.


def test_what_a_node_has_not_taken_stays_unless_it_is_not_waited_for(
    a: Branch, b: Branch, tmp_path: Path, wall: Wall
) -> None:
    a.write(note("1", number=1))
    a.give(b)
    a.hear(b)
    a.write(note("1", number=2))
    a.write(note("1", number=3))
    assert a.compact("0 changesets").changesets == 1
    assert kept(a) == ["A:3", "A:2"]
    assert a.compact("1 changeset", keep_unseen=False).changesets == 1
    assert kept(a) == ["A:3"]
    with a.store.reading() as reader:
        # A node that lacks these has to copy all rows.
        assert reader.floor() == {a.origin: 2}


def test_nothing_goes_before_what_it_was_made_on(a: Branch, b: Branch, wall: Wall) -> None:
    a.write(note("1"))
    a.give(b)
    # The clock of this node is slow by ten days.
    wall.now -= 10 * DAY
    b.write(note("2"))
    b.write(note("3"))
    wall.now += 10 * DAY
    b.give(a)
    assert a.compact("5 days").changesets == 0
    assert kept(a) == ["B:2", "B:1", "A:1"]
    wall.now += 5 * DAY
    assert a.compact("5 days").changesets == 3


# Visible states after compaction.


def test_what_is_kept_is_seen_as_before(a: Branch, b: Branch, wall: Wall) -> None:
    a.write(note("1", title="x"), note("2"))
    a.give(b)
    b.write(note("1", body="B's"), removal("2"))
    b.give(a)
    a.write(note("1", title="A's"))
    middle = wall.time
    a.write(note("3"))
    before = [a.history.at("A:2"), a.history.at("A:3"), a.history.at_time(middle)]
    versions = a.history.row(NOTES, {"id": "1"})
    assert a.compact("2 changesets").changesets == 2
    assert [a.history.at("A:2"), a.history.at("A:3"), a.history.at_time(middle)] == before
    assert a.history.diff("A:2", "head")[0].key == {"id": "3"}
    assert a.history.row(NOTES, {"id": "1"}) == versions[:1]
    assert a.history.graph().is_cut
    assert a.history.graph().nodes[0].parents_elsewhere == 1


def test_what_is_compacted_can_not_be_seen_any_more(a: Branch, wall: Wall) -> None:
    a.write(note("1", title="w"))
    a.write(note("1", title="x"))
    first = wall.time
    a.write(note("1", title="y"))
    last = a.history.entry("A:3").id
    a.compact("1 changeset")
    for ask in (a.history.get, a.history.at, a.history.entry):
        with pytest.raises(RevisionError, match=r"A~\w+:1 is compacted: from A~\w+:3 on"):
            ask("A:1")
    with pytest.raises(RevisionError, match="history begins at 2027-01-15"):
        a.history.at_time(first - timedelta(seconds=5))
    a.compact("0 changesets")
    with pytest.raises(RevisionError, match="none of this origin is kept"):
        a.history.get("A:3")
    with pytest.raises(RevisionError, match="has not come yet, or is compacted"):
        a.history.get(last)
    with pytest.raises(RevisionError, match="is compacted: no history is kept"):
        a.history.get("head")
    assert titles(a.history.at("head")) == {"1": {"title": "y"}}
    assert titles(a.history.at_time(wall.time)) == {"1": {"title": "y"}}
    a.write(note("1", body="z"))
    assert titles(a.history.at("A:4")) == {"1": {"title": "y", "body": "z"}}


def test_what_was_written_without_what_is_compacted_says_so(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x"))
    a.give(b)
    a.write(note("1", title="A's"))
    b.write(note("1", body="B's"), note("2"))
    b.give(a)
    a.write(note("3"))
    assert a.compact("2 changesets").changesets == 2
    with pytest.raises(RevisionError, match=r"B~\w+:1 was made without A~\w+:2, which is comp"):
        a.history.at("B:1")
    assert len(a.history.get("B:1").changes) == 2
    (version,) = a.history.row(NOTES, {"id": "1"})
    assert (version.is_known, version.row) == (False, None)
    assert version.changes[0].after == {"body": "B's"}
    assert titles(a.history.at("A:3"))["1"] == {"title": "A's", "body": "B's"}


def test_what_was_skipped_does_not_come_back(a: Branch, b: Branch) -> None:
    a.write(note("1", title="x"))
    a.write(note("1", title="bad"))
    with a.store.transaction() as tx:
        tx.set_meta("skipped", [[a.origin, 2, "poison"]])
    a.write(note("1", body="more"))
    a.compact("1 changeset")
    assert titles(a.history.at("A:3")) == {"1": {"title": "x", "body": "more"}}


# The start of the remaining history.


def test_history_that_was_not_saved_begins_anew(a: Branch) -> None:
    a.write(note("1", title="x"))
    assert a.compact("0 changesets").changesets == 1
    assert base(a) == {"1": True}
    a.write(note("1", title="y"))
    assert a.compact("0 changesets", save_history=False).changesets == 1
    assert base(a) == {}
    a.write(note("1", body="z"))
    with pytest.raises(RevisionError, match="starts over with the next compaction"):
        a.history.at("A:3")
    assert titles(a.history.at("head")) == {"1": {"title": "y", "body": "z"}}
    assert a.compact("5 changesets").changesets == 0
    with pytest.raises(RevisionError, match=r"A~\w+:3 is compacted: history begins after it"):
        a.history.at("A:3")
    assert a.history.get("A:3").sequence == 3
    (version,) = a.history.row(NOTES, {"id": "1"})
    assert (version.entry.sequence, version.is_known) == (3, False)
    a.write(note("2"))
    assert titles(a.history.at("A:4")) == {"1": {"title": "y", "body": "z"}, "2": {}}
    # Changesets in the base are not applied to it again.
    assert a.compact("1 changeset").changesets == 1
    assert titles(a.history.at("A:4")) == {"1": {"title": "y", "body": "z"}, "2": {}}
    assert a.compact("0 changesets").changesets == 1
    assert base(a) == {"1": True, "2": True}


def test_what_history_begins_with_is_not_counted_twice(tmp_path: Path, wall: Wall) -> None:
    with Branch(tmp_path, "A", wall, _RULES) as a:
        a.write(note("1", total=1))
        a.write(note("1", total=3))
        a.write(note("1", total=6))
        with a.store.transaction() as tx:
            rebase(tx)
        a.write(note("1", total=10))
        for left in ("3 changesets", "1 changeset"):
            assert a.compact(left).changesets > 0
            assert titles(a.history.at("A:4")) == {"1": {"total": 10}}


def test_what_was_known_before_history_begins_is_not_forgotten(a: Branch, b: Branch) -> None:
    a.write(note("1"), note("2"))
    a.give(b)
    b.write(note("2", title="B's"))
    b.give(a)
    assert a.compact("0 changesets").changesets == 2
    # The removed changesets had recorded that their writer knew both rows.
    b.write(removal("1"), note("2", title="again"))
    b.give(a)
    assert titles(a.history.at("B:2")) == {"2": {"title": "again"}}
    assert a.compact("0 changesets").changesets == 1
    assert base(a) == {"2": True}


def test_history_does_not_begin_in_the_middle_of_a_snapshot(a: Branch) -> None:
    a.write(note("1"))
    a.write(note("1", title="x"))
    with a.store.transaction() as tx:
        tx.drop_changesets({a.origin: 1})
        tx.put_page(1, {"B~00000000": 5})
        with pytest.raises(ValueError, match="snapshot"):
            rebase(tx)
    assert a.compact("0 changesets") == Compacted()
    with a.store.transaction() as tx:
        tx.clear_pages()
    assert a.compact("0 changesets").changesets == 1


# Deleted rows.


def test_a_deleted_row_is_forgotten_when_all_know_of_it(a: Branch, b: Branch) -> None:
    a.write(note("1"))
    a.give(b)
    a.write(removal("1"))
    a.hear(b)
    assert a.compact("for ever").tombstones == 0
    a.give(b)
    a.hear(b)
    assert a.compact("for ever") == Compacted(0, 0, 1)
    assert tombstones(a) == 0
    # Nothing else is lost.
    assert titles(a.history.at("A:1")) == {"1": {}}
    assert a.history.at("A:2") == {}
    assert len(a.history.row(NOTES, {"id": "1"})) == 2


def test_a_row_that_somebody_may_have_changed_meanwhile_is_not_forgotten(
    a: Branch, b: Branch
) -> None:
    a.write(note("1", title="x", body="y"))
    a.give(b)
    a.write(removal("1"))
    b.write(note("1", title="B's"))
    a.give(b)
    # The node has reported that it knows, but its earlier writes are still in flight.
    a.hear(b)
    assert a.compact("for ever").tombstones == 0
    b.give(a)
    assert a.shown == b.shown == {"1": {"title": "B's", "body": "y"}}


def test_a_row_that_came_ahead_of_its_changesets_is_not_forgotten(a: Branch) -> None:
    a.write(note("1"))
    a.write(removal("1"))
    with a.store.transaction() as tx:
        (record,) = tx.tombstones()
        record.page = 1
        tx.put_rows([record])
        tx.put_page(1, {a.origin: 3})
    assert a.compact("for ever").tombstones == 0
    with a.store.transaction() as tx:
        tx.clear_pages()
    assert a.compact("for ever").tombstones == 1


def test_a_deleted_row_is_forgotten_where_history_begins_too(a: Branch, b: Branch) -> None:
    a.write(note("1"), note("2"))
    a.give(b)
    b.write(note("2", title="B's"))
    a.write(removal("1"))
    a.give(b)
    b.give(a)
    a.hear(b)
    assert a.compact("1 changeset").changesets == 2
    # The kept change was made without knowing the deletion.
    assert base(a) == {"1": False, "2": True}
    a.write(note("3"))
    a.give(b)
    b.write(note("4"))
    b.give(a)
    a.hear(b)
    a.compact("1 changeset")
    assert base(a) == {"2": True, "3": True}
    assert titles(a.history.at("B:2")) == {"2": {"title": "B's"}, "3": {}, "4": {}}


def test_many_rows_are_forgotten(a: Branch) -> None:
    many = [note(f"{number:04}") for number in range(1200)]
    a.write(*many)
    a.write(*(removal(each.key["id"]) for each in many))
    a.write(note("kept"))
    assert a.compact("0 changesets") == Compacted(3, a_size(a, 0), 1200)
    assert base(a) == {"kept": True}
    assert tombstones(a) == 0


def a_size(branch: Branch, size: int) -> Any:
    """Return a placeholder for any number of bytes."""
    return pytest.approx(size, abs=2**30)


# Interruptions.


class Interrupted(Exception):
    """The process has ended."""


class ShortLived(Store):
    """A store whose process ends in the middle of a transaction."""

    left = 1

    @contextmanager
    def transaction(self, prepare: Prepare | None = None) -> Iterator[Tx]:
        """Yield transactions, and abort the last one before its commit."""
        with super().transaction(prepare) as tx:
            yield tx
            self.left -= 1
            if not self.left:
                raise Interrupted


def test_compaction_goes_on_where_it_was_interrupted(tmp_path: Path, wall: Wall) -> None:
    with Branch(tmp_path, "A", wall) as one, Branch(tmp_path, "B", wall) as other:
        for number in range(700):
            one.write(note(str(number % 7), **{"abc"[number % 3]: number}))
        one.give(other)
        last = one.history.at("A:695")
        interruptions = 0
        while True:
            store = ShortLived(one.engine)
            store.left = 2 + interruptions
            try:
                compact(store, one.rules, Retention(None, 10), one.vector, wall.now)
            except Interrupted:
                interruptions += 1
                assert one.history.at("A:695") == last
            else:
                break
            assert interruptions < 20
            assert len(kept(one)) < 700 or interruptions < 3
        assert interruptions > 1
        other.compact("10 changesets")
        assert kept(one) == kept(other)
        assert base(one) == base(other)
        assert one.history.at("A:695") == other.history.at("A:695") == last


# Any history.

_RULES = Rules(tables={NOTES: TableRules(columns={"total": counter(), "tags": members()})})
_steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "remove", "add", "tag", "give", "hear", "compact"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=drawn(25))
@given(_steps)
def test_whatever_is_compacted_nodes_converge_and_what_is_kept_is_seen_as_it_was(
    steps: Sequence[tuple[str, int, int]],
) -> None:
    wall = Wall()
    with TemporaryDirectory() as name, ExitStack() as stack:
        branches = [stack.enter_context(Branch(Path(name), each, wall, _RULES)) for each in "ABC"]
        # One of them keeps everything: it has the expected states.
        *compacting, keeper = branches
        for branch in compacting:
            branch.hear(*(each for each in branches if each is not branch))
        for what, who, which in steps:
            branch = branches[who]
            if what == "give":
                branch.give(branches[which % 3])
            elif what == "hear":
                branch.hear(branches[which % 3]) if which % 3 != who else None
            elif what == "compact":
                if branch is not keeper:
                    branch.compact(f"{which} changesets")
            else:
                _write(branch, what, str(which))
        for branch in compacting:
            branch.give(keeper)
        for branch in compacting:
            keeper.give(branch)
            branch.hear(*(each for each in branches if each is not branch))
        for branch in compacting:
            branch.compact("2 changesets")
            assert branch.history.at("head") == keeper.history.at("head")
            _check(branch, keeper)


def _write(branch: Branch, what: str, id: str) -> None:
    row: Mapping[str, Any] | None = branch.shown.get(id)
    number = int(branch.wall())
    if what == "remove":
        if row is not None:
            branch.write(removal(id))
    elif what == "add":
        branch.write(note(id, total=(row or {}).get("total", 0) + number % 5 + 1))
    elif what == "tag":
        tags = {*((row or {}).get("tags") or ()), str(number)}
        branch.write(note(id, tags=sorted(tags)[-2:]))
    else:
        branch.write(note(id, **{"xy"[number % 2]: number}))


def _check(branch: Branch, keeper: Branch) -> None:
    """Check that a node's view of the past agrees with that of another one."""
    with branch.store.reading() as reader:
        floor = reader.floor()
        records = reader.changesets()
        begun = reader.base_vector()
    assert begun == floor
    with keeper.store.reading() as reader:
        for origin, number in floor.items():
            for record in reader.changesets(origin=origin):
                if record.sequence <= number:
                    revision = keeper.history.get(record.id).revision
                    assert revision is not None
                    assert dominates(floor, revision.context)
    for record in records:
        expected = keeper.history.at(record.id)
        try:
            found: Shown | None = branch.history.at(record.id)
        except RevisionError as problem:
            found = None
            assert "was made without" in str(problem)
        if found is not None:
            assert found == expected
