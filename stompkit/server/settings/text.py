"""Write settings as a file that lists every setting with its documentation."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Flag
from typing import Final

from stompkit.server.settings.process import Settings
from stompkit.server.settings.schema import (
    REQUIRED,
    Field,
    described,
    fields,
    flag_names,
    table_of,
    tables_of,
)

__all__ = ["literal", "settings_text"]

_WIDTH: Final = 100
_INTRODUCTION: Final = """\
# The settings of a stompkit broker, all of them. What is commented out shows the default.
"""


def settings_text(settings: Settings) -> str:
    """Return a file that gives the same settings when it is read.

    Settings that differ from their defaults are set; all others are comments.
    """
    lines = [_INTRODUCTION]
    for table in fields(Settings):
        value = getattr(settings, table.attribute)
        single, several = table_of(table.hint), tables_of(table.hint)
        if single is not None:
            lines += _table(single, table.name, _meaning(single), value, table.default)
        elif several is not None:
            lines += _array(several, table.name, value)
    return "\n".join(lines).rstrip("\n") + "\n"


def _array(cls: type, name: str, items: Sequence[object]) -> Iterator[str]:
    """Yield an array of tables, or a template for one if it is empty."""
    yield from _comment(_meaning(cls))
    if not items:
        yield f"#[[{name}]]"
        yield from _keys(cls, None, None)
        yield ""
    for index, item in enumerate(items):
        yield f"[[{name}]]"
        # Only the first table includes the documentation of the keys.
        yield from _keys(cls, item, None, with_texts=index == 0)
        yield ""


def _table(cls: type, name: str, text: str, value: object, default: object) -> Iterator[str]:
    """Yield a table and its inner tables."""
    yield from _comment(text)
    yield f"[{name}]" if value is not None else f"#[{name}]"
    yield from _keys(cls, value, default)
    yield ""
    for each in fields(cls):
        inner = table_of(each.hint)
        if inner is not None:
            own = getattr(value, each.attribute)
            yield from _table(inner, f"{name}.{each.name}", each.text, own, each.default)


def _keys(cls: type, value: object, default: object, *, with_texts: bool = True) -> Iterator[str]:
    """Yield the keys of a table that are not tables; ``value`` is ``None`` for an unset table."""
    for each in fields(cls):
        if table_of(each.hint) is not None or tables_of(each.hint) is not None:
            continue
        usual = each.default if default is None else getattr(default, each.attribute)
        now = usual if value is None else getattr(value, each.attribute)
        is_set = value is not None and now != usual
        if with_texts:
            yield from _comment(each.text)
        if is_set or with_texts:
            yield _line(each, now, is_set=is_set)


def _line(each: Field, value: object, *, is_set: bool) -> str:
    if is_set:
        return f"{each.name} = {literal(value)}"
    if value is None or value is REQUIRED:
        return f"#{each.name} =    # {described(each.hint)}"
    return f"#{each.name} = {literal(value)}"


def _meaning(cls: type) -> str:
    """Return the first paragraph of a class's documentation."""
    return " ".join((cls.__doc__ or "").partition("\n\n")[0].split())


def _comment(text: str) -> Iterable[str]:
    return textwrap.wrap(
        text.replace("``", "`"), _WIDTH, initial_indent="# ", subsequent_indent="# "
    )


def literal(value: object) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON strings are valid TOML strings, except for one control character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return f"{value:_}"
    if isinstance(value, Flag):
        return literal(
            [name for name, each in flag_names(type(value)).items() if each in list(value)]
        )
    if isinstance(value, Mapping):
        inner = ", ".join(f"{literal(key)} = {literal(each)}" for key, each in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(literal, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__}")
