"""JSON documents that stay distinct from text, numbers and NULL, without loss."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

__all__ = ["Json", "document", "document_in", "is_faithful", "same_document"]

#: Deeper documents stay text, because JSON parsers limit the depth.
_MAX_DEPTH: Final = 100
_INT64: Final = range(-(2**63), 2**63)
_BRACKETS: Final = ("{", "[")


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON document that is neither object nor list, or whose text Python would change.

    Objects and lists that Python keeps unchanged are plain dicts and lists. ``Json("null")`` is the
    JSON value, and ``None`` is NULL; ``Json('"5"')`` is JSON, and ``"5"`` is text.
    """

    #: JSON text as :func:`document` produces it.
    text: str

    @property
    def value(self) -> Any:
        """The document as a Python value; numbers may lose digits."""
        return json.loads(self.text)


class _UnfaithfulError(ValueError):
    """A document that Python cannot represent without loss."""


def document(text: str) -> Any:
    """Return the value for a JSON document: a dict or a list if nothing is lost, otherwise a Json.

    Raises ``ValueError`` for text that is not JSON.
    """
    try:
        found = _faithful(text)
    except (_UnfaithfulError, RecursionError):
        return Json(text.strip(" \t\r\n"))
    if isinstance(found, (dict, list)):
        return found
    # Of a number, the digits count: 1.50 is not written as 1.5.
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return Json(text.strip(" \t\r\n")) if is_number else document_in(found)


def document_in(value: object) -> Json:
    """Return the document for a text, a number, a boolean or JSON's null.

    Raises ``ValueError`` for a number that is not finite.
    """
    return Json(json.dumps(value, ensure_ascii=False, allow_nan=False))


def same_document(one: Json, other: Any) -> bool:
    """Return True if two documents are equal; *other* may be a Python value."""
    mine = json.loads(one.text, parse_float=Decimal)
    theirs = json.loads(other.text, parse_float=Decimal) if type(other) is Json else other
    return isinstance(mine, bool) is isinstance(theirs, bool) and bool(mine == theirs)


def is_faithful(found: Json) -> bool:
    """Return True if a document is a scalar that Python represents without loss."""
    if found.text[:1] in _BRACKETS:
        return False
    try:
        return json.dumps(_faithful(found.text), ensure_ascii=False) == found.text
    except ValueError:
        return False


def _faithful(text: str) -> Any:
    """Parse a document without loss; raise :class:`_UnfaithfulError` if that is impossible."""
    found = json.loads(
        text,
        parse_int=_whole,
        parse_float=_fractional,
        parse_constant=_refuse,
        object_pairs_hook=_object,
    )
    if "\\ud" in text or "\\uD" in text:
        try:
            # An unpaired surrogate is not a character, although PostgreSQL accepts it.
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _UnfaithfulError from None
    if not _is_shallow(found, _MAX_DEPTH):
        raise _UnfaithfulError
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _UnfaithfulError
    return made


def _whole(text: str) -> int:
    # A number with thousands of digits is not parsed.
    if text == "-0" or len(text) > 20 or (value := int(text)) not in _INT64:
        raise _UnfaithfulError
    return value


def _fractional(text: str) -> float:
    value = float(text)
    # The digits count: 1.50 is not written as 1.5.
    if repr(value) != text:
        raise _UnfaithfulError
    return value


def _refuse(text: str) -> float:
    raise json.JSONDecodeError("no number of JSON", text, 0)


def _is_shallow(document: Any, depth: int) -> bool:
    if isinstance(document, dict):
        inner = list(document.values())
    elif isinstance(document, list):
        inner = document
    else:
        return True
    return depth > 0 and all(_is_shallow(each, depth - 1) for each in inner)
