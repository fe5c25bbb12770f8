"""Check a replica against the guarantees of ``docs/howto/replication.rst``.

The source has numbered transactions, each of which describes its changes. At each look the replica
must equal the source after some number of them. This number never decreases, and in the end all of
them must be applied. A violation is one of these:

``lost``      a transaction that was committed is not in the replica in the end
``undone``    a replica has less than it had
``invented``  the replica has a transaction that was not committed, or another one in its place
``torn``      the replica has a part of a transaction
``order``     the replica has a transaction, and not all before it
``doubled``   a transaction was applied twice
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from tests.campaign.accounts import Violation
from tests.campaign.checker import Finding
from tests.campaign.writing import accounts_after

__all__ = ["Accounts", "Applied", "Committed", "Seen", "Stored", "check_replicas"]

#: Amount and number of changes, by account.
Accounts = dict[int, tuple[int, int]]


class Committed(Struct, frozen=True, tag=True):
    """A transaction of the source: its changes, and a digest of its other written rows."""

    number: int
    steps: str
    digest: str


class Seen(Struct, frozen=True, tag=True):
    """A replica at one moment: numbers of transactions, and accounts."""

    replica: str
    numbers: tuple[int, ...]
    accounts: Accounts


class Applied(Struct, frozen=True, tag=True):
    """The final state of a replica: the applied transactions, in that order.

    ``there`` are its transactions in the form of :class:`Committed`.
    """

    replica: str
    numbers: tuple[int, ...]
    there: tuple[Committed, ...]


class Stored(Struct, frozen=True, tag=True):
    """The numbers of the changesets in an event store at the end, in its order."""

    numbers: tuple[int, ...]


def check_replicas(
    committed: Sequence[Committed],
    seen: Iterable[Seen],
    applied: Iterable[Applied],
    stored: Iterable[Stored] = (),
) -> Finding:
    """Check the views of replicas, in the order in which they were taken."""
    states: list[Accounts] = [{}]
    for each in committed:
        states.append(accounts_after(states[-1], each.steps))
    violations: list[Violation] = []
    before: dict[str, int] = {}
    last: dict[str, Seen] = {}
    for look in seen:
        violations += _look(look, states, before.get(look.replica, 0))
        before[look.replica] = len(look.numbers)
        last[look.replica] = look
    counts = Counter(receipted=len(committed))
    wanted = {each.number: each for each in committed}
    for end in applied:
        counts["settled"] += len(set(end.numbers) & set(wanted))
        counts["drained"] += len(end.there)
        violations += _end(end, wanted)
    for store in stored:
        violations += _store(store, len(committed))
    return Finding(violations, counts)


def _look(look: Seen, states: Sequence[Accounts], before: int) -> Iterable[Violation]:
    count = len(look.numbers)
    where = f"{look.replica} with {count} transactions"
    if sorted(look.numbers) != list(range(1, count + 1)):
        gap = min(set(range(1, count + 1)) - set(look.numbers))
        yield Violation("order", f"{where} has {max(look.numbers)}, and not {gap}")
    elif count >= len(states):
        yield Violation("invented", f"{where} has more than the {len(states) - 1} of its source")
    elif look.accounts != states[count]:
        wrong = sorted(set(look.accounts.items()) ^ set(states[count].items()))
        yield Violation("torn", f"{where} has other accounts than the source had: {wrong}")
    if count < before:
        yield Violation("undone", f"{where} had {before} before")


def _end(end: Applied, wanted: dict[int, Committed]) -> Iterable[Violation]:
    there = {each.number: each for each in end.there}
    for number, each in wanted.items():
        if number not in there:
            yield Violation("lost", f"{end.replica} has no transaction {number}")
        elif there[number] != each:
            yield Violation("invented", f"{end.replica} has {there[number]}, and not {each}")
    for number in there.keys() - wanted.keys():
        yield Violation("invented", f"{end.replica} has {number}, which was not committed")
    yield from _in_order(end.replica, "applied", end.numbers)


def _store(store: Stored, count: int) -> Iterable[Violation]:
    """Yield the differences between a store and all changesets up to that number."""
    there, wanted = set(store.numbers), set(range(1, count + 1))
    for number in sorted(wanted - there):
        yield Violation("lost", f"the event store has no changeset {number}")
    for number in sorted(there - wanted):
        yield Violation("invented", f"the event store has a changeset {number}")
    yield from _in_order("the event store", "stored", store.numbers)


def _in_order(who: str, what: str, numbers: Sequence[int]) -> Iterable[Violation]:
    for number, times in Counter(numbers).items():
        if times > 1:
            yield Violation("doubled", f"{who} has {what} {number} {times} times")
    for before, number in pairwise(numbers):
        if number < before:
            yield Violation("order", f"{who} has {what} {number} behind {before}")
