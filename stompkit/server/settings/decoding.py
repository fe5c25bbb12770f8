"""Decode the tables of a file into structs, and report each problem with its place and remedy."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from enum import Flag
from typing import Any, Final, Literal, get_args, get_origin

import msgspec

from stompkit._common.spelling import did_you_mean
from stompkit.server.settings.schema import (
    REQUIRED,
    described,
    fields,
    flag_names,
    list_item,
    present,
    table_of,
    tables_of,
)
from stompkit.server.settings.toml import Document, Place

__all__ = ["Decoder"]

#: Maximum number of keys of a table that an error message lists.
_MOST_LISTED: Final = 8
_LONGEST_SHOWN: Final = 40


class _WrongError(Exception):
    """A value of the wrong type; the message says what is expected."""


class Decoder:
    """Converts a document's tables into structs, and reports values that cannot be converted."""

    def __init__(
        self,
        document: Document,
        *,
        owners: Mapping[str, Collection[str]],
        elsewhere: Mapping[Place, str],
    ) -> None:
        """Start with a document.

        ``owners`` maps other tables to their keys, to say where a misplaced key belongs.
        ``elsewhere`` maps keys that the structs have but the file must not to the advice to give.
        """
        self._document = document
        self._owners = owners
        self._elsewhere = elsewhere

    def table(self, cls: type, place: Place = (), base: object = None) -> Any:
        """Decode the table at a place into a struct or dataclass.

        Missing and invalid values are taken from ``base``, if given, or from the class's defaults.
        Return ``None`` if a required value is missing.
        """
        table = self._document.at(place)
        every = {each.name: each for each in fields(cls)}
        own = [name for name in every if (*place, name) not in self._elsewhere]
        for key in table:
            if key not in own:
                what = self._elsewhere.get((*place, key)) or self._unknown(key, own)
                self._document.add((*place, key), what)
        values: dict[str, object] = {}
        for name, each in every.items():
            value = each.default if base is None else getattr(base, each.attribute)
            if name in table and name in own:
                made = self._value(each.hint, (*place, name), value)
                value = value if made is None else made
            elif value is REQUIRED:
                self._document.add(place, f"{name} is missing: it must be {described(each.hint)}")
            values[each.attribute] = value
        return None if REQUIRED in values.values() else cls(**values)

    def _value(self, hint: Any, place: Place, default: object) -> Any:
        """Return a value of the type, or report the problem and return ``None``."""
        raw = self._document.at(place)
        table, tables = table_of(hint), tables_of(hint)
        if table is not None:
            if isinstance(raw, dict):
                return self.table(table, place, default if isinstance(default, table) else None)
            self._document.add(place, _not_a_table(place, raw))
            return None
        if tables is not None:
            if isinstance(raw, list) and all(isinstance(each, dict) for each in raw):
                places = [(*place, index) for index in range(len(raw))]
                made = {each: self.table(tables, each) for each in places}
                self._document.unmade.update(each for each in places if made[each] is None)
                return tuple(each for each in made.values() if each is not None)
            self._document.add(place, f"write [[{place[-1]}]], once for each")
            return None
        try:
            return _leaf(present(hint), raw)
        except _WrongError as wrong:
            self._document.add(place, str(wrong))
            return None

    def _unknown(self, key: str, own: Collection[str]) -> str:
        """Return the message for an unknown key."""
        for owner, keys in self._owners.items():
            if key in keys:
                return f"unknown here; it belongs into {owner}"
        close = did_you_mean(key, own)
        if close:
            return f"unknown{close}"
        if len(own) <= _MOST_LISTED:
            return f"unknown; there are {', '.join(own)}"
        return "unknown; `stompkit show-config` lists all that there is"


def _not_a_table(place: Place, raw: object) -> str:
    header = f"[{'.'.join(map(str, place))}]"
    if isinstance(raw, list) and raw and isinstance(raw[0], dict):
        return f"there is only one: write {header}"
    return f"must be a table, {header}, not {_kind(raw)}"


def _leaf(hint: Any, raw: object) -> object:
    item = list_item(hint)
    if get_origin(hint) is dict and isinstance(raw, dict):
        return {key: _named(key, get_args(hint)[1], value) for key, value in raw.items()}
    if item is not None and isinstance(raw, list):
        return tuple(_named(f"item {n}", item, value) for n, value in enumerate(raw, 1))
    if isinstance(hint, type) and issubclass(hint, Flag) and isinstance(raw, list):
        return _flags(hint, raw)
    if get_origin(hint) is Literal and isinstance(raw, str):
        return _choice(hint, raw)
    try:
        if isinstance(raw, float) and not math.isfinite(raw):
            raise msgspec.ValidationError
        return msgspec.convert(raw, hint)
    except msgspec.ValidationError:
        raise _WrongError(f"must be {described(hint)}, not {_kind(raw)}") from None


def _named(name: str, hint: Any, raw: object) -> object:
    try:
        return _leaf(hint, raw)
    except _WrongError as wrong:
        raise _WrongError(f"{name} {wrong}") from None


def _choice(hint: Any, word: str) -> str:
    words = get_args(hint)
    if word in words:
        return word
    shown = word[:_LONGEST_SHOWN]
    raise _WrongError(f'must be {described(hint)}, not "{shown}"{did_you_mean(word, words)}')


def _flags(flag: type[Flag], raw: Iterable[object]) -> Flag:
    names = flag_names(flag)
    value = flag(0)
    for number, name in enumerate(raw, 1):
        value |= names[str(_named(f"item {number}", Literal[tuple(names)], name))]
    return value


def _kind(raw: object) -> str:
    """Return a number as text, and only the type of any other value, which may be a passcode."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int | float):
        return str(raw)
    kinds = ((str, "a string"), (dict, "a table"))
    if isinstance(raw, list):
        return f"a list of {len(raw)}"
    return next((name for kind, name in kinds if isinstance(raw, kind)), "a date or time")
