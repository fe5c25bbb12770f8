"""The checker finds each kind of broken guarantee, and nothing in a correct history."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.campaign.checker import RULES, check
from tests.campaign.history import (
    Asked,
    Began,
    Closed,
    Delivered,
    Done,
    Drained,
    Ended,
    Ending,
    Event,
    Note,
    Opened,
    Refused,
    Setting,
    Staged,
    dead_letters_of,
    read,
    write,
)

A, B, AUTO = "/queue/a", "/queue/b", "/queue/auto"
FANOUT, CHILDREN = "/fanout/f", ("/queue/f1", "/queue/f2")
TOPIC, DURABLE = "/topic/t", "/durable/d/campaign"
SETTING = Setting({FANOUT: CHILDREN}, {DURABLE: TOPIC})
#: Connections of all tests: two producers, and three consumers, the last in the mode auto.
P, Q, C, D, E = 1, 2, 3, 4, 5
BEGINNING: tuple[Event, ...] = (
    SETTING,
    Began(1),
    *(Opened(number, f"client {number}", 1) for number in (P, Q, C, D)),
    Opened(E, "auto", 1, AUTO),
)

Story = Sequence[Event]


def sent(message: int, to: str = A, by: int = P) -> Story:
    """Return a message with its receipt; its operation has the message's number."""
    return asked(message, to, by), Done(message)


def asked(message: int, to: str = A, by: int = P) -> Asked:
    return Asked(message, by, sends=((message, to),))


def given(
    message: int, to: int = C, place: str = A, count: int = 1, *, mark: bool | None = None
) -> Delivered:
    """Return a delivery, numbered by message, connection and count."""
    is_marked = count > 1 if mark is None else mark
    number = delivery(message, to, count)
    return Delivered(number, to, place, message, is_marked, count, to == E)


def delivery(message: int, to: int = C, count: int = 1) -> int:
    return message * 1_000 + to * 10 + count


def acked(message: int, by: int = C, count: int = 1) -> Story:
    """Return an acknowledgement with its receipt."""
    operation = message + 500
    return Asked(operation, by, settles=(delivery(message, by, count),)), Done(operation)


def there(message: int, place: str = A, count: int = 1) -> Drained:
    return Drained(place, message, count > 1, count)


def again(how: Ending = "crash") -> Story:
    """Return the end of the broker and the start of another one, with two clients."""
    ended = [Closed(number, is_clean=False) for number in (P, Q, C, D, E)]
    return (*ended, Ended(1, how), Began(2), Opened(6, "c", 2), Opened(7, "auto", 2, AUTO))


#: The transaction of a worker: acknowledge message 1, and send 2 and 3.
WORK = Asked(9, C, sends=((2, B), (3, B)), settles=(delivery(1),), is_transaction=True)
WORKED: Story = (*sent(1), given(1), Staged(C, (2, 3)), WORK)

KEPT: dict[str, Story] = {
    "nothing happens": (),
    "there in the end": (*sent(1), there(1)),
    "acknowledged": (*sent(1), given(1), *acked(1)),
    "acknowledged without a receipt, and gone": (*sent(1), given(1), acked(1)[0]),
    "acknowledged without a receipt, and there": (
        *sent(1), given(1), acked(1)[0], there(1, count=2),
    ),
    "given back": (*sent(1), given(1), Closed(C, False), given(1, D, count=2), *acked(1, D, 2)),
    "given back, and read in another order": (
        *sent(1), given(1, D, count=2), *acked(1, D, 2), given(1),
    ),
    "given back, and read when others had it": (
        *sent(1), given(1, D, count=2), given(1), *sent(2, B, by=D), there(2, B),
        Closed(C, True), *acked(1, D, 2),
    ),
    "in doubt, and not there": (asked(1),),
    "in doubt, and there": (asked(1), there(1)),
    "refused": (asked(1), Refused(1, "store-full")),
    "in doubt, as its refusal says nothing": (asked(1), Refused(1, "store-failed"), there(1)),
    "dead": (*sent(1), given(1), Asked(9, C, rejects=(delivery(1),)), there(1, "/dlq/a")),
    "a copy for each child": (*sent(1, FANOUT), *(there(1, child) for child in CHILDREN)),
    "nobody subscribed": sent(1, TOPIC),
    "subscribed, perhaps in time": (
        Asked(9, C, durable=DURABLE), *sent(1, TOPIC), Done(9), there(1, DURABLE),
    ),
    "subscribed": (
        Asked(9, C, durable=DURABLE), Done(9), *sent(1, TOPIC), there(1, DURABLE),
    ),
    "worked": (*WORKED, Done(9), there(2, B), there(3, B)),
    "in doubt, and worked": (*WORKED, there(2, B), there(3, B)),
    "in doubt, and not worked": (*WORKED, there(1, count=2)),
    "refused, and not worked": (*WORKED, Refused(9, "store-full"), there(1, count=2)),
    "not committed": (Staged(P, (1, 2)),),
    "in order": (*sent(1), *sent(2, by=Q), given(1), given(2), *acked(1), *acked(2)),
    "given back, so that others were faster": (
        *sent(1), *sent(2), given(1, D), given(2), Closed(D, False), given(1, C, count=2),
        there(1, count=3), there(2, count=2),
    ),
    "side by side, in any order": (
        asked(1), asked(2, by=Q), Done(1), Done(2), given(2), given(1), *acked(1), *acked(2),
    ),
    "auto": (*sent(1, AUTO), given(1, E, AUTO)),
    "auto, and on its way": (*sent(1, AUTO), *sent(2, AUTO), given(1, E, AUTO), *again()),
    "auto, and forgotten in a crash": (
        *sent(1, AUTO), given(1, E, AUTO), *again(), there(1, AUTO),
    ),
    "given, and forgotten in a crash": (
        *sent(1), given(1), *again(), given(1, 6), there(1, count=2),
    ),
    "given, and known after a stop": (*sent(1), given(1), *again("stop"), there(1, count=2)),
}  # fmt: skip

BROKEN: dict[str, tuple[str, Story]] = {
    "gone": ("lost", sent(1)),
    "gone, one of several": ("lost", (*sent(1), *sent(2), there(2))),
    "gone, and had been given": ("lost", (*sent(1), given(1))),
    "gone, rejected as it was": (
        "lost", (*sent(1), given(1), Asked(9, C, rejects=(delivery(1),)), Done(9)),
    ),
    "no copy for one child": ("lost", (*sent(1, FANOUT), there(1, CHILDREN[0]))),
    "no copy for a subscription": (
        "lost", (Asked(9, C, durable=DURABLE), Done(9), *sent(1, TOPIC)),
    ),
    "gone in auto, and nothing was cut": (
        "lost", (*sent(1, AUTO), given(1, E, AUTO), *sent(2, AUTO), Closed(E, True)),
    ),
    "gone in auto, more than was on its way": (
        "lost",
        (
            *(event for number in range(1, 5) for event in sent(number, AUTO)),
            given(2, E, AUTO), given(4, E, AUTO), *again(), Closed(7, True),
        ),
    ),
    "gone, its transaction refused": ("lost",
        (
            *sent(1), given(1), Asked(9, C, settles=(delivery(1),), is_transaction=True),
            Refused(9, "store-full"),
        ),
   ),
    "acknowledged, and there": ("undone", (*sent(1), given(1), *acked(1), there(1, count=2))),
    "acknowledged, and given again": (
        "undone", (*sent(1), given(1), *acked(1), given(1, D, count=2)),
    ),
    "acknowledged, and given again before its receipt was read": (
        "undone", (*sent(1), given(1), acked(1)[0], given(1, D, count=2), Done(501)),
    ),
    "acknowledged, and back after a crash": (
        "undone", (*sent(1), given(1), *acked(1), *again(), given(1, 6)),
    ),
    "acknowledged, and dead": ("undone", (*sent(1), given(1), *acked(1), there(1, "/dlq/a"))),
    "never sent": ("invented", (given(1), *acked(1))),
    "never sent, and there": ("invented", (there(1),)),
    "no body of ours": ("invented", (there(-1),)),
    "out of another place": ("invented", (*sent(1), there(1), there(1, B))),
    "not committed, and there": ("invented", (Staged(P, (1,)), there(1))),
    "refused, and there": ("invented", (asked(1), Refused(1, "store-full"), there(1))),
    "refused, and collected": (
        "invented",
        (
            Asked(9, C, durable=DURABLE), Refused(9, "store-full"),
            *sent(1, TOPIC), there(1, DURABLE),
        ),
    ),
    "in doubt, and half of it": ("torn", (*WORKED, there(2, B))),
    "in doubt, and undone in part": (
        "torn", (*WORKED, there(2, B), there(3, B), there(1, count=2)),
    ),
    "in doubt, and done in part": ("torn", WORKED),
    "in doubt, and for one child": ("torn", (asked(1, FANOUT), there(1, CHILDREN[0]))),
    "in doubt, and acknowledged in part": (
        "torn",
        (
            *sent(1), *sent(2), given(1), given(2),
            Asked(9, C, settles=(delivery(1), delivery(2)), is_transaction=True),
            there(2, count=2),
        ),
    ),
    "overtaken": ("order", (*sent(1), *sent(2), given(2), given(1), *acked(1), *acked(2))),
    "overtaken by another's": (
        "order", (*sent(1), *sent(2, by=Q), given(2), given(1), *acked(1), *acked(2)),
    ),
    "overtaken in a transaction": (
        "order",
        (Asked(9, P, sends=((1, A), (2, A))), Done(9), there(2), there(1)),
    ),
    "overtaken in the end": ("order", (*sent(1), *sent(2), there(2), there(1))),
    "twice without a mark": (
        "doubled", (*sent(1), given(1), given(1, D), *acked(1, D)),
    ),
    "twice without a mark, after a stop": (
        "doubled", (*sent(1), given(1), *again("stop"), there(1)),
    ),
    "a mark without a count": ("doubled", (*sent(1), given(1, mark=True), acked(1)[0])),
    "with two at once": (
        "doubled",
        (
            *sent(1), given(1), given(1, D, count=2), acked(1, D, 2)[0],
            *sent(2, B, by=C), there(2, B),
        ),
    ),
    "auto, and again": (
        "doubled", (*sent(1, AUTO), given(1, E, AUTO), given(1, D, AUTO, 2), acked(1, D, 2)[0]),
    ),
    "auto, and there after a stop": (
        "doubled", (*sent(1, AUTO), given(1, E, AUTO), *again("stop"), there(1, AUTO, 2)),
    ),
    "there twice": ("doubled", (*sent(1), there(1), there(1))),
    "there, and dead": ("doubled", (*sent(1), there(1), there(1, "/dlq/a"))),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_nothing_is_found_where_promises_are_kept(name: str) -> None:
    assert check([*BEGINNING, *KEPT[name]]).violations == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_promise_that_is_broken_is_found(name: str) -> None:
    rule, story = BROKEN[name]
    found = {violation.rule for violation in check([*BEGINNING, *story]).violations}
    assert rule in found
    # A message that is delivered again without a mark is also a duplicate.
    assert found <= {rule, "doubled"}


def test_every_rule_is_broken_once() -> None:
    assert {rule for rule, _ in BROKEN.values()} == set(RULES)


def test_what_is_counted() -> None:
    story = (*sent(1), *sent(2), asked(3), given(1), *acked(1), given(2), there(2, count=2))
    counts = check([*BEGINNING, *story]).counts
    assert counts["receipted"] == 2
    assert counts["in doubt"] == 1
    assert counts["delivered"] == 2
    assert counts["settled"] == 1
    assert counts["drained"] == 1


def test_a_history_can_be_kept(tmp_path: Path) -> None:
    events = [*BEGINNING, Note("something"), *KEPT["worked"], *again()]
    path = tmp_path / "history.jsonl"
    write(path, events)
    assert read(path) == events


def test_dead_letters_have_the_names_that_the_broker_gives_them() -> None:
    assert dead_letters_of("/queue/a") == "/dlq/a"
    assert dead_letters_of("/durable/d/campaign") == "/dlq/durable/d/campaign"
