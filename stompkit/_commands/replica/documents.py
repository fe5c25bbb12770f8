"""Documents among the rows of a replica, for input and output of ``stompkit replica``.

A collection is the table ``doc.<collection>``, and the members of a document are its columns; see
:mod:`stompkit.replica.data.documents`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stompkit._commands.shared.values import parse_value, shown_value
from stompkit.replica.data.documents import members_of, values_of
from stompkit.replication.model.values import Value

__all__ = [
    "as_columns",
    "as_members",
    "document_as_json",
    "document_text",
    "is_document",
    "parse_document",
]

_BEGINNING: Final = "doc."


def is_document(table: str) -> bool:
    """Return True if rows of a table are documents."""
    return table.startswith(_BEGINNING)


def as_members(table: str, row: Mapping[str, Value]) -> dict[str, Value]:
    """Return the columns of a row for display: of a document, its members."""
    if not is_document(table):
        return dict(row)
    return members_of(row)


def as_columns(table: str, members: Mapping[str, Value]) -> dict[str, Value]:
    """Return the columns for displayed members."""
    if not is_document(table):
        return dict(members)
    return values_of(members)


def parse_document(text: str) -> dict[str, Any]:
    """Parse a document in JSON; raises ``ValueError``."""
    found = parse_value(text)
    if not isinstance(found, dict):
        try:
            json.loads(text)
        except ValueError as error:
            raise ValueError(f"a document is an object of JSON: {error}") from None
        raise ValueError('a document is an object of JSON, as in {"title": "Milk"}')
    return found


def document_text(document: Mapping[str, Any], *, is_short: bool = False) -> str:
    """Return a document as JSON without control characters, in one line or several."""
    members = (f"{shown_value(name)}: {shown_value(each)}" for name, each in document.items())
    text = "{" + ", ".join(members) + "}"
    return text if is_short else msgspec.json.format(text, indent=2)


def document_as_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as data for a JSON encoder."""
    found: dict[str, Any] = json.loads(document_text(document, is_short=True))
    return found
