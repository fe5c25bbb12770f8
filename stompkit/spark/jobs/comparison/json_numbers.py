"""JSON with all digits of its numbers, as far as databases and the replication keep them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

__all__ = ["parsed", "written"]


def parsed(text: str | bytes) -> Any:
    """Return a document whose numbers are exact: a float would hide differences.

    Numbers are decimals, since Python limits the digits of integers in texts.
    """
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def written(value: Any, number: Callable[[Any], Any]) -> str:
    """Return a document as JSON in one form, with numbers as ``number`` normalises them."""
    if isinstance(value, dict):
        members = [f"{json.dumps(name)}: {written(value[name], number)}" for name in sorted(value)]
        return f"{{{', '.join(members)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join([written(each, number) for each in value])}]"
    if value is None or isinstance(value, (str, bool)):
        return json.dumps(value)
    if isinstance(value, (int, float, Decimal)):
        return str(number(value))
    # Members of arrays that are no JSON.
    return json.dumps(str(value))
