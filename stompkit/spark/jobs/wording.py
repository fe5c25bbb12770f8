"""Rewording of error advice for pipeline files."""

from __future__ import annotations

from typing import Final

__all__ = ["in_words_of_the_file"]

_WORDS: Final = {
    "open the target with create=True": "set create = true in [target]",
    "open the target with evolve=True": "set evolve = true in [target]",
    "name in `tables` those": "name under tables in [apply] those",
    "name the key in `keys`": "name the key under keys in [apply]",
    "name them in `except_column_list`": "name them under except-column-list in [apply]",
    "name it in `except_column_list`": "name it under except-column-list in [apply]",
    "by --table-map or --schema-map": "by table-map or schema-map in [target]",
}


def in_words_of_the_file(text: str, *, create: str = "set create = true in [target]") -> str:
    """Return an error text with advice for the file; ``create`` is the advice to create tables."""
    for told, meant in {**_WORDS, "open the target with create=True": create}.items():
        text = text.replace(told, meant)
    return text
