"""Decoding of settings into structs, with a report of all errors, not only the first."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import msgspec

from stompkit._common.settings import ConfigurationError, canonical, wrong_type
from stompkit._common.spelling import suggestion

__all__ = ["convert"]

_T = TypeVar("_T", bound=msgspec.Struct)


def convert(found: Mapping[str, Any], kind: type[_T], mistakes: list[str]) -> _T | None:
    """Return a struct with its nested structs; add errors to ``mistakes`` and return ``None``."""
    return _table(found, kind, "", mistakes)


def _table(found: Mapping[str, Any], kind: type[_T], place: str, mistakes: list[str]) -> _T | None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    count = len(mistakes)
    try:
        found = canonical(found, fields)
    except ConfigurationError as error:
        mistakes.append(f"{place}{error}")
    for name in found:
        if name not in fields:
            what = "table" if isinstance(found[name], dict) and not place else "setting"
            advice = suggestion(name, fields)
            mistakes.append(f"{place}{name}: there is no such {what}; {advice}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in found:
            if field.required:
                mistakes.append(f"{place}{name}: this is needed")
            continue
        inner = _struct_of(field.type)
        if inner is not None and isinstance(found[name], dict):
            values[field.name] = _table(found[name], inner, f"{place}{name}.", mistakes)
            continue
        try:
            values[field.name] = msgspec.convert(found[name], field.type)
        except msgspec.ValidationError as error:
            mistakes.append(f"{place}{name}: {wrong_type(error)}")
    return None if len(mistakes) > count else kind(**values)


def _struct_of(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct type of a field, possibly from a union."""
    choices = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for each in choices:
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None
