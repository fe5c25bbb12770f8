"""Masks, which hide the values of columns; each states what its column is afterwards."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from stompkit.replication.model.values import Value, to_json

__all__ = ["Drop", "Hash", "Mask", "mask_named"]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
#: What a schema change says of a column's values. Nothing of it is true of a mask's text.
_OF_VALUES: Final = frozenset({"precision", "scale", "length", "unsigned", "native"})


class Mask(Protocol):
    """Hides every value that it returns for; it never returns a value that it cannot hide."""

    def value(self, value: Value) -> Value:
        """Return the value to publish; raises ValueError for one that this mask cannot hide."""

    def column(self, column: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return how a schema change describes the masked column.

        Raises ValueError for a type whose values this mask cannot hide.
        """


class Drop:
    """Marks a column that is left out."""

    def value(self, value: Value) -> Value:
        """Fail: there is no value to publish."""
        raise AssertionError("a column that is left out has no value")

    def column(self, column: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fail: there is no column to describe."""
        raise AssertionError("a column that is left out has no description")


class Hash:
    """HMAC-SHA-256 of a value in hexadecimal."""

    def __init__(self, secret: str) -> None:
        """Use this secret."""
        self._secret = secret.encode()

    def value(self, value: Value) -> Value:
        """Return the same text for equal values only."""
        return hmac.digest(self._secret, _ENCODER.encode(to_json(value)), hashlib.sha256).hex()

    def column(self, column: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a column of text that holds a hash."""
        return {**_as_text(column), "length": 2 * hashlib.sha256().digest_size}


class _Null:
    def value(self, value: Value) -> Value:
        return None

    def column(self, column: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**column, "nullable": True} if "nullable" in column else column


class _Constant:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, value: Value) -> Value:
        return self._text

    def column(self, column: Mapping[str, Any]) -> Mapping[str, Any]:
        return _as_text(column)


class _Truncate:
    def __init__(self, length: int) -> None:
        self._length = length

    def value(self, value: Value) -> Value:
        if not isinstance(value, (str, bytes)):
            raise ValueError(_cannot_truncate(type(value).__name__))
        return value[: self._length]

    def column(self, column: Mapping[str, Any]) -> Mapping[str, Any]:
        if column.get("type") not in ("text", "bytes"):
            raise ValueError(_cannot_truncate(str(column.get("type"))))
        # The start of an array or of an address is only text.
        return {name: said for name, said in column.items() if name != "native"}


def mask_named(pattern: str, text: str) -> Mask:
    """Return the mask that *text* describes; raises ValueError, with the pattern of its columns."""
    kind, _, argument = text.partition(":")
    match kind:
        case "drop" if not argument:
            return Drop()
        case "null" if not argument:
            return _Null()
        case "constant":
            return _Constant(argument)
        case "hash" if argument:
            return Hash(argument)
        case "truncate" if argument.isascii() and argument.isdecimal():
            return _Truncate(int(argument))
    # The mask may be a misspelt secret, so it is not shown.
    raise ValueError(
        f"the mask of {pattern} is none of hash:SECRET, null, constant:TEXT, truncate:N and drop"
    )


def _as_text(column: Mapping[str, Any]) -> dict[str, Any]:
    return {name: said for name, said in column.items() if name not in _OF_VALUES} | {
        "type": "text"
    }


def _cannot_truncate(kind: str) -> str:
    return (
        f"truncate hides text and bytes only, and this is of the type {kind}: use the mask null,"
        " constant, hash or drop for it"
    )
