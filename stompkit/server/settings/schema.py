"""Derive keys, types, defaults and documentation from the settings structs."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from enum import Flag
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import NODEFAULT, Meta, Struct, structs

__all__ = [
    "REQUIRED",
    "Field",
    "described",
    "documentation",
    "fields",
    "flag_names",
    "is_optional",
    "list_item",
    "present",
    "table_of",
    "tables_of",
]


class _Required:
    """Marks the default of a required key."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class Field(NamedTuple):
    """A key of a table: its name in the file and in the struct, type, default and owner."""

    name: str
    attribute: str
    hint: Any
    default: object
    owner: type

    @property
    def text(self) -> str:
        """Documentation of the key, read from the source on demand and never at start-up."""
        return documentation(self.owner).get(self.attribute, "")


@cache
def fields(cls: type) -> tuple[Field, ...]:
    """Return the keys of the table that a struct or dataclass describes, in class order."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        Field(name, attribute, hints[attribute], default, cls)
        for name, attribute, default in _names_and_defaults(cls)
    )


def _names_and_defaults(cls: type) -> list[tuple[str, str, object]]:
    if issubclass(cls, Struct):
        return [
            (each.encode_name, each.name, _default(each.default, each.default_factory, NODEFAULT))
            for each in structs.fields(cls)
        ]
    assert dataclasses.is_dataclass(cls)
    missing = dataclasses.MISSING
    return [
        (each.name, each.name, _default(each.default, each.default_factory, missing))
        for each in dataclasses.fields(cls)
    ]


def _default(value: object, factory: Any, missing: object) -> object:
    if value is not missing:
        return value
    return REQUIRED if factory is missing else factory()


# Documentation.


@cache
def documentation(cls: type) -> dict[str, str]:
    """Return the documentation of each attribute as one line, base classes included.

    The documentation is a string below the attribute, or a ``#:`` comment above it. Attributes
    without either are left out. Without installed source the result is empty.
    """
    texts: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.startswith("stompkit."):
            texts |= _own_documentation(each)
    return texts


def _own_documentation(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except OSError:
        return {}
    lines = source.splitlines()
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, following in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = _string(following) or _comment_above(lines, node.lineno - 1)
            if text:
                texts[node.target.id] = " ".join(text.split())
    return texts


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def _comment_above(lines: list[str], index: int) -> str:
    comment: list[str] = []
    while index > 0 and lines[index - 1].strip().startswith("#:"):
        index -= 1
        comment.insert(0, lines[index].strip().removeprefix("#:"))
    return "\n".join(comment)


# Types.


def is_optional(hint: Any) -> bool:
    """Return True if ``None`` is allowed by the type."""
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def present(hint: Any) -> Any:
    """Return the type without ``None``."""
    if not is_optional(hint):
        return hint
    [inner] = [each for each in get_args(hint) if each is not NoneType]
    return inner


def table_of(hint: Any) -> type | None:
    """Return the class if the type is a struct or dataclass (a table in the file), else None."""
    plain = present(hint)
    if not isinstance(plain, type):
        return None
    return plain if issubclass(plain, Struct) or dataclasses.is_dataclass(plain) else None


def list_item(hint: Any) -> Any:
    """Return the item type if the type is a list of any length, else ``None``."""
    arguments = get_args(hint)
    is_list = get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis
    return arguments[0] if is_list else None


def tables_of(hint: Any) -> type | None:
    """Return the item class if the type is a list of structs (an array of tables), else None."""
    return table_of(list_item(hint))


def flag_names(flag: type[Flag]) -> dict[str, Flag]:
    """Return the members of a flag by their spelling in the file."""
    return {name.lower().replace("_", "-"): each for name, each in flag.__members__.items()}


def described(hint: Any) -> str:
    """Return a description of valid values, as the end of "must be"."""
    hint = present(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return described(arguments[0]) + _range(arguments[1:])
    if origin is Literal:
        return _alternatives([f'"{each}"' for each in arguments])
    if origin is dict:
        return f"a table of {_plural(arguments[1])}"
    if list_item(hint) is not None:
        return f"a list of {_plural(list_item(hint))}"
    if origin is tuple:
        return f"a list of {len(arguments)} {_plural(arguments[0])}"
    if table_of(hint) is not None:
        return "a table"
    if issubclass(hint, Flag):
        return f"a list of {_plural(Literal[tuple(flag_names(hint))])}"
    return _PLAIN[hint]


_PLAIN: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
}


def _plural(hint: Any) -> str:
    """Return a description of several valid values."""
    if get_origin(hint) is Literal:
        return described(hint).replace(" or ", ", ")
    one = described(hint).removeprefix("a ")
    return one.replace("list ", "lists ") if list_item(hint) is not None else f"{one}s"


def _range(metas: tuple[object, ...]) -> str:
    words = ""
    for meta in metas:
        if isinstance(meta, Meta):
            if meta.ge is not None and meta.le is not None:
                words += f" from {meta.ge} to {meta.le}"
            elif meta.ge is not None:
                words += f" of {meta.ge} or more"
            elif meta.gt is not None:
                words += f" above {meta.gt}"
    return words


def _alternatives(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
