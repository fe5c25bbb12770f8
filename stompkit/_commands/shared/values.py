"""Parsing and output of keys and values.

Printed values can be parsed again: ``parse_value(shown_value(value)) == value``. The output
contains no terminal control sequences, because texts come from other nodes.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence

import msgspec

from stompkit._common.text import escaped, shown
from stompkit.replication.model.values import InvalidValueError, Value, from_json, to_json

__all__ = [
    "parse_assignment",
    "parse_key",
    "parse_value",
    "shown_key",
    "shown_row",
    "shown_value",
]


# Values.


def parse_value(text: str) -> Value:
    """Parse a typed-in value: JSON, including the forms of ``values``; anything else is text.

    Raises ``ValueError`` for JSON that represents no value.
    """
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text
    return _from_typed(found)


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _from_typed(found: object) -> Value:
    if isinstance(found, dict) and _is_typed(found):
        return from_json(found)
    if isinstance(found, (dict, list)):
        return from_json({"$json": found})
    if isinstance(found, int) and not isinstance(found, bool):
        return int(found)
    return from_json(found)


def _is_typed(found: Mapping[str, object]) -> bool:
    """Return True for a typed object as in ``values``, such as ``{"$date": ...}``."""
    return len(found) == 1 and next(iter(found)).startswith("$")


def shown_value(value: Value) -> str:
    """Return a value as JSON in one line; a document without its type wrapper."""
    try:
        found = to_json(value)
    except InvalidValueError:
        return shown(repr(value))
    if isinstance(found, dict):
        inner = found.get("$json")
        if isinstance(inner, list) or (isinstance(inner, dict) and not _is_typed(inner)):
            found = inner
    return escaped(json.dumps(found, ensure_ascii=False))


def parse_assignment(text: str) -> tuple[str, Value]:
    """Parse ``NAME=VALUE``; raises ``ValueError``."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, parse_value(value)


def shown_row(row: Mapping[str, Value]) -> str:
    """Return columns and their values in one line."""
    return "  ".join(f"{shown(name)}={shown_value(value)}" for name, value in row.items())


# Keys.


def parse_key(text: str, columns: Sequence[str], texts: Container[str] = ()) -> dict[str, Value]:
    """Parse the key of a row: ``5``, ``id=5`` or ``{"shop": 1, "id": 5}``.

    ``columns`` are the key columns of the table, or empty if unknown; a value without a name
    belongs to the only one. Columns in ``texts`` hold text, which needs no quotation marks. Raises
    ``ValueError`` that says what to type.
    """
    name, found, value = text.partition("=")
    if text.startswith("{"):
        try:
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except msgspec.DecodeError as error:
            raise ValueError(f"{text!r} is no key: {error}") from None
        if not members:
            raise ValueError("{} is no key: it has no columns")
        given = {each: bytes(raw).decode() for each, raw in members.items()}
    elif found and name.isidentifier() and (not columns or name in columns):
        given = {name: value}
    elif len(columns) == 1:
        given = {columns[0]: text}
    elif columns:
        names = ", ".join(f'"{each}": ...' for each in columns)
        raise ValueError(f"the key has {len(columns)} columns: type it as {{{names}}}")
    else:
        raise ValueError(f"{text!r} does not say of which column it is: type it as NAME=VALUE")
    if columns and given.keys() != set(columns):
        raise ValueError(f"the key of the table is {', '.join(columns)}, not {', '.join(given)}")
    return {each: _parse_of(value, is_text=each in texts) for each, value in given.items()}


def _parse_of(text: str, *, is_text: bool) -> Value:
    value = parse_value(text)
    return text if is_text and not isinstance(value, str) else value


def shown_key(key: Mapping[str, Value]) -> str:
    """Return a key in the form that :func:`parse_key` accepts."""
    if len(key) == 1:
        ((name, value),) = key.items()
        if name.isidentifier():
            return f"{name}={shown_value(value)}"
    members = (f"{escaped(json.dumps(name))}: {shown_value(value)}" for name, value in key.items())
    return "{" + ", ".join(members) + "}"
