"""The checker of spools finds each kind of broken guarantee, and nothing in a correct spool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.campaign.keeping import (
    Came,
    Confirmed,
    Kept,
    Looked,
    check_bridge,
    check_spool,
)
from tests.campaign.recorder import body_of
from tests.campaign.sending import confirmed, destination_of, event_of, message_in

#: Three messages of each of two senders.
SENT = {Kept(sender, number, "/queue/a") for sender in (0, 1) for number in range(3)}
CONFIRMED = [Confirmed(0, 0), Confirmed(0, 1), Confirmed(1, 0)]


def a(number: int) -> Kept:
    return Kept(0, number, "/queue/a")


def b(number: int) -> Kept:
    return Kept(1, number, "/queue/a")


def seen(*messages: Kept, first: int = 0, partition: int = 0) -> Looked:
    return Looked(partition, first, messages)


def broken(looks: Sequence[Looked]) -> set[str]:
    return {each.rule for each in check_spool(CONFIRMED, looks, SENT).violations}


@pytest.mark.parametrize(
    "looks",
    [
        [seen(a(0), b(0), a(1))],
        # Unconfirmed messages may be in the spool.
        [seen(a(0), b(0), a(1), a(2))],
        # The spool grows, and is read again.
        [seen(a(0)), seen(b(0), a(1), first=1), seen(a(0), b(0), a(1))],
        # Each partition has its own order.
        [seen(a(1), b(0)), seen(a(0), partition=1)],
    ],
)
def test_a_spool_that_keeps_all_promises(looks: Sequence[Looked]) -> None:
    finding = check_spool(CONFIRMED, looks, SENT)
    assert finding.violations == []
    assert finding.counts["receipted"] == finding.counts["settled"] == 3


@pytest.mark.parametrize(
    ("rule", "looks"),
    [
        ("lost", [seen(a(0), b(0))]),
        ("lost", [seen()]),
        ("undone", [seen(a(0), b(0), a(1)), seen(a(0), a(1), b(0))]),
        ("undone", [seen(a(0), b(0), a(1), a(2)), seen(a(0), b(0), a(1))]),
        ("invented", [seen(a(0), b(0), a(1), a(3))]),
        ("invented", [seen(a(0), b(0), a(1), Kept(0, 2, "/queue/b"))]),
        ("invented", [seen(a(0), b(0), a(1), Kept(-1, -1, "/queue/a"))]),
        ("torn", [Looked(0, 0, (a(0), b(0), a(1)), "a block is damaged")]),
        ("order", [seen(a(1), a(0), b(0))]),
        ("doubled", [seen(a(0), b(0), a(1), a(1))]),
        ("doubled", [seen(a(0), b(0), a(1)), seen(a(0), partition=1)]),
    ],
)
def test_a_promise_that_is_broken_is_found(rule: str, looks: Sequence[Looked]) -> None:
    assert broken(looks) == {rule}


def came(*messages: Kept) -> list[Came]:
    return [Came(each, f"here:{event_of(each.sender, each.number)}") for each in messages]


def test_a_bridge_may_bring_messages_twice_and_in_any_order() -> None:
    all_of_it = came(a(1), a(0), a(2), a(1), b(0))
    finding = check_bridge(CONFIRMED, all_of_it, SENT, most_twice=1)
    assert finding.violations == []
    assert (finding.counts["settled"], finding.counts["redelivered"]) == (3, 1)


@pytest.mark.parametrize(
    ("rule", "all_of_it"),
    [
        ("lost", came(a(0), a(1))),
        ("invented", came(a(0), a(1), b(0), a(3))),
        ("doubled", came(a(0), a(1), b(0), b(0), b(0))),
        # Without a common mark, copies and separate messages cannot be distinguished.
        ("doubled", [*came(a(0), a(1), b(0)), Came(a(0), "here:other")]),
        ("doubled", [*came(a(0), a(1)), Came(b(0), "here:0-1")]),
    ],
)
def test_a_promise_of_a_bridge_that_is_broken_is_found(
    rule: str, all_of_it: Sequence[Came]
) -> None:
    finding = check_bridge(CONFIRMED, all_of_it, SENT, most_twice=1)
    assert {each.rule for each in finding.violations} == {rule}


def test_messages_are_known_by_their_bodies() -> None:
    assert message_in(body_of(1_000_005)) == (1, 5)
    assert message_in(body_of(5)) == (0, 5)
    assert message_in(body_of(5) + b"x") is None
    assert message_in(b"") is None
    assert event_of(1, 5) == "1-5"
    assert {destination_of(0, number) for number in range(20)} == {"/queue/a", "/queue/b"}


def test_a_confirmation_that_was_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / "confirmed"
    assert confirmed(path) == set()
    path.write_bytes(b"0\n1\n12")
    assert confirmed(path) == {0, 1}
