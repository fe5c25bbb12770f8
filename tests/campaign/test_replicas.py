"""The checker of replicas finds each kind of broken guarantee, and nothing in a correct replica."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert, update

from tests.campaign.copies import Replica, Source
from tests.campaign.replicas import (
    Accounts,
    Applied,
    Committed,
    Seen,
    Stored,
    check_replicas,
)
from tests.campaign.writing import Account, Event, accounts_after

#: Transactions that create an account, add to it, and close it when another one exists.
COMMITTED = [
    Committed(1, "[[7,10]]", "d1"),
    Committed(2, "[[7,-4]]", "d2"),
    Committed(3, "[[7,null],[8,1]]", "d3"),
]
STATES: list[Accounts] = [{}, {7: (10, 0)}, {7: (6, 1)}, {8: (1, 0)}]
#: A transaction whose digest of the other written rows differs.
OTHER = Committed(3, COMMITTED[2].steps, "d4")
END = Applied("r", (1, 2, 3), tuple(COMMITTED))


def seen(count: int, accounts: Accounts | None = None) -> Seen:
    there = STATES[count] if accounts is None else accounts
    return Seen("r", tuple(range(1, count + 1)), there)


def broken(seen: Sequence[Seen], end: Applied = END, *stored: int) -> set[str]:
    stores = [Stored(stored)] if stored else []
    return {each.rule for each in check_replicas(COMMITTED, seen, [end], stores).violations}


def test_accounts_are_what_steps_say() -> None:
    accounts: Accounts = {}
    for each, after in zip(COMMITTED, STATES[1:], strict=True):
        accounts = accounts_after(accounts, each.steps)
        assert accounts == after


def test_a_replica_that_keeps_all_promises() -> None:
    looks = [seen(0), seen(1), seen(3), seen(3)]
    finding = check_replicas(COMMITTED, looks, [END], [Stored((1, 2, 3))])
    assert finding.violations == []
    assert (finding.counts["receipted"], finding.counts["settled"]) == (3, 3)


@pytest.mark.parametrize(
    ("rule", "looks"),
    [
        ("torn", [seen(1, {})]),
        ("torn", [seen(2, STATES[1])]),
        ("torn", [seen(3, {7: (6, 1), 8: (1, 0)})]),
        # As if the second transaction had been applied twice.
        ("torn", [seen(2, {7: (2, 2)})]),
        ("undone", [seen(2), seen(1)]),
        ("order", [Seen("r", (1, 3), STATES[1])]),
        ("invented", [Seen("r", (1, 2, 3, 4), STATES[3])]),
    ],
)
def test_a_replica_that_was_never_like_its_source_is_found(
    rule: str, looks: Sequence[Seen]
) -> None:
    assert broken(looks) == {rule}


@pytest.mark.parametrize(
    ("rule", "end"),
    [
        ("lost", Applied("r", (1, 2), tuple(COMMITTED[:2]))),
        ("invented", Applied("r", (1, 2, 3), (*COMMITTED, Committed(4, "[]", "d4")))),
        ("invented", Applied("r", (1, 2, 3), (*COMMITTED[:2], Committed(3, "[]", "d3")))),
        (
            "invented",
            Applied("r", (1, 2, 3), (*COMMITTED[:2], Committed(3, "[[7,null],[8,1]]", ""))),
        ),
        ("doubled", Applied("r", (1, 2, 2, 3), tuple(COMMITTED))),
        ("order", Applied("r", (1, 3, 2), tuple(COMMITTED))),
    ],
)
def test_an_end_that_is_not_that_of_the_source_is_found(rule: str, end: Applied) -> None:
    assert broken([], end) == {rule}


@pytest.mark.parametrize(
    ("rule", "stored"),
    [
        ("lost", (1, 3)),
        ("invented", (1, 2, 3, 4)),
        ("doubled", (1, 2, 2, 3)),
        ("order", (2, 1, 3)),
    ],
)
def test_an_event_store_that_has_something_else_is_found(
    rule: str, stored: tuple[int, ...]
) -> None:
    assert broken([], END, *stored) == {rule}


def test_a_replica_writes_down_what_is_applied_twice(tmp_path: Path) -> None:
    replica = Replica("r", tmp_path / "replica")
    engine = create_engine(replica.url)
    with engine.begin() as connection:
        event = {"id": 1, "steps": "[[7,10]]", "filler": ""}
        connection.execute(insert(Event), event)
        connection.execute(insert(Account), {"id": 7, "amount": 10, "version": 0})
    replica.look()
    replica.look()
    assert replica.seen == [Seen("r", (1,), STATES[1])]
    assert replica.applied().numbers == (1,)
    with engine.begin() as connection:
        connection.execute(update(Event).where(Event.id == 1).values(steps="[[7,10]]"))
    engine.dispose()
    assert replica.applied().numbers == (1, 1)


def test_a_source_begins_with_nothing(tmp_path: Path) -> None:
    source = Source(tmp_path / "source")
    assert (source.committed(), source.accounts(), source.waiting()) == ([], {}, 0)
