"""Partial updates of JSON documents, which MySQL logs with ``binlog_row_value_options``.

The format is that of ``PARTIAL_UPDATE_ROWS_EVENT``. Each change is a byte for the operation, the
path, and, if there is one, the new value in MySQL's binary form of JSON. Lengths are
length-encoded integers of the protocol.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from stompkit.replication.model import values
from stompkit.replication.model.values import Json, Value
from stompkit.replication.sources.mysql._binlog.numbers import number_at
from stompkit.replication.sources.mysql._binlog.values import binary_document, json_text

__all__ = ["patched"]

_REPLACE, _INSERT, _REMOVE = range(3)
#: A step of a path: a member, whose name may be a JSON string, or an array index.
_STEP: Final = re.compile(r'\.("(?:[^"\\]|\\.)*"|[^.\["]+)|\[(\d+)\]')

_Step = str | int


def patched(document: Value, changes: bytes) -> Value:
    """Return a document after *changes*, with the digits of its numbers unchanged.

    Raises ``ValueError`` if a change does not fit the document, which then differs from the
    server's document.
    """
    found = _tree(document)
    at = 0
    while at < len(changes):
        verb = changes[at]
        length, at = number_at(changes, at + 1)
        path = _steps(changes[at : at + length].decode())
        at += length
        part: Any = None
        if verb != _REMOVE:
            length, at = number_at(changes, at)
            part = _tree(binary_document(changes[at : at + length]))
            at += length
        found = _changed(found, verb, path, part)
    return values.document(json_text(found))


def _tree(document: Value) -> Any:
    """Return a document as dicts and lists, in which numbers keep their text."""
    text = document.text if isinstance(document, Json) else json_text(document)
    return json.loads(text, parse_int=Json, parse_float=Json)


def _steps(path: str) -> list[_Step]:
    """Return the steps of a path such as ``$.a[0]."b c"``."""
    steps: list[_Step] = []
    at = 1 if path.startswith("$") else 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(f"the path {path!r} of a part of a document cannot be read")
        name, number = step.groups()
        if number is not None:
            steps.append(int(number))
        else:
            steps.append(json.loads(name) if name.startswith('"') else name)
        at = step.end()
    return steps


def _changed(document: Any, verb: int, path: list[_Step], part: Any) -> Any:
    """Apply one change in place and return the document; a change of the root replaces it."""
    if not path:
        if verb != _REPLACE:
            raise ValueError("a whole document is neither inserted nor removed")
        return part
    *way, last = path
    try:
        place = document
        for step in way:
            place = place[step]
        if verb == _REMOVE:
            del place[last]
        elif verb == _REPLACE:
            place[last]  # The replaced item must exist.
            place[last] = part
        elif isinstance(place, list) and isinstance(last, int):
            place.insert(last, part)
        else:
            place[last] = part
            members = sorted(place.items(), key=lambda each: _place_of(each[0]))
            place.clear()
            place.update(members)
    except (AttributeError, LookupError, TypeError):
        raise ValueError(
            f"a document has no place {path} for the part that was logged of it"
        ) from None
    return document


def _place_of(name: str) -> tuple[int, bytes]:
    """Return the sort key of a member in MySQL's order."""
    octets = name.encode()
    return len(octets), octets
