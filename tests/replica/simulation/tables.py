"""The tables of a simulation, the rules of their columns, and the written values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from stompkit.replica.rules import (
    Rules,
    TableRules,
    counter,
    first_writer,
    members,
    origin_priority,
)
from stompkit.replication.model.events import RowChange

__all__ = ["COLLECTIONS", "KINDS", "RULES", "Look", "changes_of"]

#: Collections of documents, which are tables named ``doc.<collection>``.
COLLECTIONS: Final = ("notes", "counters", "tags", "strict", "latest")

RULES: Final = Rules(
    tables={
        "doc.notes": TableRules(
            columns={"state": first_writer(), "owner": origin_priority("B", "A")}
        ),
        "doc.counters": TableRules(columns={"total": counter()}),
        "doc.tags": TableRules(columns={"tags": members()}),
        "doc.strict": TableRules(on_delete="delete-wins", columns={"total": counter()}),
        "doc.latest": TableRules(on_delete="last-writer", columns={"tags": members()}),
    }
)

#: The same for the oracle.
KINDS: Final[dict[str, dict[str, str]]] = {
    "doc.notes": {"state": "first", "owner": "priority B A"},
    "doc.counters": {"total": "counter"},
    "doc.tags": {"tags": "members"},
    "doc.strict": {"": "delete-wins", "total": "counter"},
    "doc.latest": {"": "last-writer", "tags": "members"},
}

#: Returns the current document of a collection and id.
Look = Callable[[str, str], Mapping[str, Any] | None]

_TEXTS: Final = ("red", "green", "blue")
_REGISTERS: Final = {
    "notes": ("title", "body", "state", "owner"),
    "counters": ("title",),
    "tags": ("title",),
    "strict": ("title", "body"),
    "latest": ("title", "body"),
}


def changes_of(random: Random, look: Look, *, weight: int = 0) -> list[RowChange]:
    """Return changes of one to three documents, mostly one; ``weight`` is the size of some texts.

    There are few values, so that identical edits happen. Counters are never deleted, so that their
    final values are the sums of all increments.
    """
    rows = random.choices((1, 2, 3), (6, 2, 1))[0]
    made: dict[tuple[str, str], RowChange] = {}
    for _ in range(rows):
        collection = random.choice(COLLECTIONS)
        id = f"{collection[0]}{random.randrange(2 if collection == 'counters' else 3)}"
        made.setdefault((collection, id), _change(random, collection, id, look, weight))
    return list(made.values())


def _change(random: Random, collection: str, id: str, look: Look, weight: int) -> RowChange:
    known = look(collection, id)
    if known is None:
        return _told(collection, id, "write", None, _document(random, collection, weight))
    if collection != "counters" and random.random() < 0.25:
        return _told(collection, id, "delete", dict(known), None)
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for name in _some(random, _columns(collection)):
        before[name] = known.get(name)
        after[name] = _value(random, name, known.get(name), weight)
    return _told(collection, id, "update", before, after)


def _told(
    collection: str, id: str, action: Any, before: dict[str, Any] | None, after: Any
) -> RowChange:
    return RowChange(
        schema="doc", table=collection, action=action, key={"id": id}, before=before, after=after
    )


def _columns(collection: str) -> list[str]:
    columns = list(_REGISTERS[collection])
    if collection in ("counters", "strict"):
        columns.append("total")
    if collection in ("tags", "latest"):
        columns.append("tags")
    return columns


def _some(random: Random, columns: list[str]) -> list[str]:
    return random.sample(columns, random.randint(1, min(2, len(columns))))


def _document(random: Random, collection: str, weight: int) -> dict[str, Any]:
    return {name: _value(random, name, None, weight) for name in _columns(collection)}


def _value(random: Random, name: str, known: Any, weight: int) -> Any:
    if name == "total":
        return 0 if known is None else known + random.randint(-3, 9)
    if name == "tags":
        tags = set(known or ())
        tags ^= {random.choice("abcd")}
        return sorted(tags)
    text = random.choice(_TEXTS)
    return text * weight if weight and random.random() < 0.3 else text
