"""Conversion of documents to columns and to text, and validation of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stompkit.replication.model.values import Value, from_json, to_json

__all__ = [
    "LONGEST_COLLECTION",
    "LONGEST_ID",
    "body_of",
    "document_in",
    "document_of",
    "end_of",
    "json_copy",
    "members_of",
    "name_problem",
    "values_of",
]

#: Maximum length of names in characters, because MySQL indexes no more.
LONGEST_COLLECTION: Final = 100
LONGEST_ID: Final = 255

#: Column value of a member that is ``null``: a column without a value is no member.
_NULL: Final = b"null"

_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
#: Types that JSON represents unchanged.
_PLAIN: Final = frozenset((str, bool, type(None)))


def values_of(document: Mapping[str, Any]) -> dict[str, Value]:
    """Return the columns that represent the members of a document."""
    return {_escaped(name): _NULL if value is None else value for name, value in document.items()}


def document_of(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the document that columns represent."""
    return members_of({name: value for name, value in values.items() if value is not None})


def members_of(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return the members that columns represent; a missing one is like null."""
    return {_unescaped(name): None if value == _NULL else value for name, value in values.items()}


def _is_reserved(name: str) -> bool:
    """Return True if a member name must be escaped, because ``id`` is the key's column."""
    return name[-2:] == "id" and not name[:-2].strip("~")


def _escaped(name: str) -> str:
    return f"~{name}" if _is_reserved(name) else name


def _unescaped(name: str) -> str:
    return name[1:] if name[:1] == "~" and _is_reserved(name) else name


def body_of(values: Mapping[str, Value]) -> str:
    """Return the JSON of the document that columns represent.

    Raises :class:`~stompkit.replication.model.values.InvalidValueError`, ``UnicodeEncodeError`` or
    ``RecursionError`` for values without a JSON form.
    """
    members = {}
    for name, value in values.items():
        if type(value) not in _PLAIN:
            value = _untyped(value)
        elif value is None:
            continue
        members[_unescaped(name) if name[:1] == "~" else name] = value
    return _ENCODER.encode(members).decode()


def _untyped(value: Value) -> object:
    """Return a value without its type wrapper, unless it would become ambiguous."""
    if value == _NULL:
        return None
    typed = to_json(value)
    if type(typed) is dict:
        bare = typed.get("$json")
        return typed if bare is None or _looks_typed(bare) else bare
    return typed


def _looks_typed(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value))[:1] == "$"


def json_copy(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a document reduced to JSON types; raises as :func:`body_of` does."""
    typed = to_json(document)
    assert isinstance(typed, dict)
    return _DECODER.decode(_ENCODER.encode(typed["$json"]))


def document_in(body: str) -> dict[str, Any]:
    """Return the document in a JSON body."""
    members = _DECODER.decode(body)
    for name, value in members.items():
        if type(value) is dict and _looks_typed(value):
            members[name] = from_json(value)
    return members


# Names.


def name_problem(kind: str, name: object) -> str:
    """Return the problem with the name of a ``collection`` or an ``id``; empty if valid."""
    longest = LONGEST_COLLECTION if kind == "collection" else LONGEST_ID
    if isinstance(name, str) and 0 < len(name) <= longest and "\0" not in name:
        try:
            name.encode()
        except UnicodeEncodeError:
            pass
        else:
            return ""
    what = "a collection's name" if kind == "collection" else "a document's id"
    return f"{what} is text of 1 to {longest} characters without NUL"


def end_of(prefix: str) -> str:
    """Return the first text after all that begin with the prefix; empty if there is none."""
    stem = prefix.rstrip(chr(0x10FFFF))
    if not stem:
        return ""
    following = ord(stem[-1]) + 1
    # A text cannot contain surrogate halves.
    return stem[:-1] + chr(0xE000 if following == 0xD800 else following)
