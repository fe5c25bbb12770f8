"""Arrays of PostgreSQL in a copy of text: as PostgreSQL writes them, or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy.types import ARRAY

from stompkit.replication.sql import TargetColumn
from stompkit.replication.sql.families import family_of
from stompkit.spark.jobs.comparison.json_numbers import parsed, written

__all__ = ["array_text", "has_numbers"]

#: A brace, a comma, a quoted member, or another one.
_TOKEN: Final = re.compile(
    r'\s*(?:([{},])|"((?:[^"\\]|\\.)*)"|([^{},"\s](?:[^{},"]*[^{},"\s])?))\s*', re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def has_numbers(column: TargetColumn) -> bool:
    """Return True if the members of an array are numbers."""
    kind = column.type_
    return isinstance(kind, ARRAY) and family_of(kind.item_type) in ("int", "decimal", "float")


def array_text(value: Any, item: Callable[[str], Any]) -> str:
    """Return an array as JSON, with normalised members; raises ValueError for other texts."""
    if isinstance(value, str):
        try:
            value = parsed(value) if value.startswith("[") else _members(value)
        except json.JSONDecodeError:
            # The bounds of an array that does not begin with 1.
            value = _members(value.partition("=")[2])
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return json.dumps(_normalised(value, item))


def _members(text: str) -> Any:
    """Return the members of an array as PostgreSQL writes it."""
    found: list[Any] = []
    stack = [found]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None or not stack:
            raise ValueError(f"no array: {text[:40]}")
        at = token.end()
        sign, quoted, bare = token.groups()
        if sign == "{":
            stack[-1].append([])
            stack.append(stack[-1][-1])
        elif sign == "}":
            stack.pop()
        elif quoted is not None:
            stack[-1].append(_ESCAPED.sub(r"\1", quoted))
        elif bare is not None:
            stack[-1].append(None if bare.upper() == "NULL" else bare)
    if len(stack) != 1 or len(found) != 1 or not isinstance(found[0], list):
        raise ValueError(f"no array: {text[:40]}")
    return found[0]


def _normalised(value: Any, item: Callable[[str], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_normalised(each, item) for each in value]
    if value is None:
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, dict):
        return written(value, str)
    return str(item(str(value)))
