"""Keys of rows as text, and back: JSON in a form in which equal keys have equal text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stompkit.replication.model.values import InvalidValueError, from_json, to_json

__all__ = ["key_from_text", "key_to_text", "keys_from_texts", "keys_to_texts"]

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder()


def key_to_text(key: Any) -> str:
    """Return a signal's key as JSON: ``7``, ``"a"``, ``[7,"a"]`` for a key of two columns.

    Raises :class:`~stompkit.replication.InvalidValueError` for a value without a JSON form.
    """
    value = [to_json(each) for each in key] if isinstance(key, tuple) else to_json(key)
    try:
        return _ENCODER.encode(value).decode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"a key is no text of Unicode: {error}") from None


def key_from_text(text: str | bytes) -> Any:
    """Return the key for its JSON text; raises ``ValueError`` for any other text."""
    value = _DECODER.decode(text)
    if isinstance(value, list):
        return tuple(from_json(each) for each in value)
    return from_json(value)


def keys_to_texts(event: Mapping[str, Iterable[Any]]) -> dict[str, list[str]]:
    """Return the keys of each kind of event as text, without duplicates, in order."""
    return {name: list(dict.fromkeys(map(key_to_text, keys))) for name, keys in event.items()}


def keys_from_texts(event: Mapping[str, Iterable[str]]) -> dict[str, list[Any]]:
    """Return the keys of each kind of event for their texts."""
    return {name: [key_from_text(text) for text in texts] for name, texts in event.items()}
