"""Check the guarantees of a spool and of a bridge.

``docs/reference/spool.rst`` and ``docs/howto/bridge.rst`` list them.

A violation is one of these:

``lost``      a message that the broker had confirmed is not in the spool
``undone``    an ordinal that was read has another message, or none any more
``invented``  a message that no sender sends, or not to that destination
``torn``      the spool is damaged
``order``     messages of one sender to one destination overtook each other in a partition
``doubled``   a message is in the spool twice

A bridge may deliver marked duplicates, but not too many; others are ``doubled``. Its order is not
guaranteed after a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

from msgspec import Struct

from tests.campaign.accounts import Violation
from tests.campaign.checker import Finding

__all__ = ["Came", "Confirmed", "Kept", "Looked", "check_bridge", "check_spool"]


class Confirmed(Struct, frozen=True, tag=True):
    """A message of a sender, confirmed by the broker."""

    sender: int
    number: int


class Kept(Struct, frozen=True):
    """A message as the spool has it; ``sender`` is -1 for a message that no sender has sent."""

    sender: int
    number: int
    destination: str


class Looked(Struct, frozen=True, tag=True):
    """The view of a reader on a partition, from an ordinal on, and its damage if any.

    The last look at each partition covers the whole partition.
    """

    partition: int
    first: int
    messages: tuple[Kept, ...]
    damage: str = ""


class Came(Struct, frozen=True, tag=True):
    """A message that has come out of a bridge, with the mark that its copies share."""

    message: Kept
    mark: str


def check_spool(
    confirmed: Iterable[Confirmed], looks: Iterable[Looked], sent: Container[Kept]
) -> Finding:
    """Check the views of readers; ``sent`` has all messages of all senders."""
    violations: list[Violation] = []
    counts: Counter[str] = Counter()
    partitions: dict[int, dict[int, Kept]] = {}
    last: dict[int, Looked] = {}
    for look in looks:
        last[look.partition] = look
        seen = partitions.setdefault(look.partition, {})
        for ordinal, message in enumerate(look.messages, look.first):
            if seen.setdefault(ordinal, message) != message:
                before = seen[ordinal]
                text = f"{_place(look, ordinal)} was {before}, and is {message}"
                violations.append(Violation("undone", text))
    there: Counter[tuple[int, int]] = Counter()
    for look in last.values():
        violations += _complete(look, partitions[look.partition])
        violations += _ordered(look)
        for message in look.messages:
            there[message.sender, message.number] += 1
            if message not in sent:
                text = f"partition {look.partition} has {message}"
                violations.append(Violation("invented", text))
    for (sender, number), times in there.items():
        if times > 1 and sender >= 0:
            text = f"{number} of sender {sender} is there {times} times"
            violations.append(Violation("doubled", text))
    violations += _lost(confirmed, there, counts)
    counts["drained"] = there.total()
    return Finding(violations, counts)


def _place(look: Looked, ordinal: int) -> str:
    return f"ordinal {ordinal} of partition {look.partition}"


def _complete(look: Looked, seen: dict[int, Kept]) -> Iterator[Violation]:
    """Yield the messages that the last look lacks."""
    if look.damage:
        yield Violation("torn", f"partition {look.partition}: {look.damage}")
    end = look.first + len(look.messages)
    for ordinal in sorted(seen):
        if not look.first <= ordinal < end:
            yield Violation("undone", f"{_place(look, ordinal)} was {seen[ordinal]}, and is gone")


def _ordered(look: Looked) -> Iterator[Violation]:
    """Yield the messages that came after later ones."""
    latest: dict[tuple[int, str], int] = {}
    for ordinal, message in enumerate(look.messages, look.first):
        line = message.sender, message.destination
        if message.number < latest.get(line, -1):
            text = f"{_place(look, ordinal)} is {message}, behind {latest[line]}"
            yield Violation("order", text)
        latest[line] = max(message.number, latest.get(line, -1))


def _lost(
    confirmed: Iterable[Confirmed], there: Container[tuple[int, int]], counts: Counter[str]
) -> Iterator[Violation]:
    """Yield the confirmed messages that are missing; count the others as settled."""
    for each in confirmed:
        counts["receipted"] += 1
        if (each.sender, each.number) in there:
            counts["settled"] += 1
        else:
            text = f"{each.number} of sender {each.sender} was confirmed, and is gone"
            yield Violation("lost", text)


def check_bridge(
    confirmed: Iterable[Confirmed], came: Iterable[Came], sent: Container[Kept], most_twice: int
) -> Finding:
    """Check all messages from a bridge; up to ``most_twice`` duplicates are permitted."""
    violations: list[Violation] = []
    counts: Counter[str] = Counter()
    marks: dict[Kept, str] = {}
    for each in came:
        counts["drained"] += 1
        if each.message not in sent:
            violations.append(Violation("invented", f"{each.message} has come"))
        before = marks.setdefault(each.message, each.mark)
        if before != each.mark:
            text = f"{each.message} came as {before!r} and as {each.mark!r}"
            violations.append(Violation("doubled", text))
    counts["redelivered"] = counts["drained"] - len(marks)
    if counts["redelivered"] > most_twice:
        text = f"{counts['redelivered']} copies are too many, and not {most_twice} at most"
        violations.append(Violation("doubled", text))
    for other, count in Counter(marks.values()).items():
        if count > 1:
            violations.append(Violation("doubled", f"{count} messages have the mark {other!r}"))
    there = {(each.sender, each.number) for each in marks}
    violations += _lost(confirmed, there, counts)
    return Finding(violations, counts)
