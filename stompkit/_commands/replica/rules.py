"""Merge rules in a file for ``stompkit replica --config``.

They are a table of the file::

    [rules]
    default = "last-writer"
    on_delete = "update-wins"

    [rules.tables.accounts]
    on_delete = "delete-wins"
    columns = {balance = "counter", tags = "members", owner = "origin-priority A B"}

Or ``rules = "shop.replication:RULES"``: a name in a Python module, as custom rules require.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from stompkit.replica.rules import (
    Rule,
    RuleError,
    Rules,
    TableRules,
    counter,
    first_writer,
    last_writer,
    members,
    origin_priority,
)

__all__ = ["rules_of"]

_NAMED: Final[Mapping[str, Callable[[], Rule]]] = {
    "last-writer": last_writer,
    "first-writer": first_writer,
    "counter": counter,
    "members": members,
}
_PRIORITY: Final = "origin-priority"


def rules_of(given: object) -> Rules:
    """Return the rules of a file; raises :class:`RuleError`."""
    if isinstance(given, str):
        return _imported(given)
    found = _mapping("rules", given, ("default", "on_delete", "tables"))
    tables = _mapping("rules.tables", found.pop("tables", {}))
    return Rules(
        **_choices("rules", found),
        tables={name: _of_table(f"rules.tables.{name}", each) for name, each in tables.items()},
    )


def _of_table(place: str, given: object) -> TableRules:
    found = _mapping(place, given, ("default", "on_delete", "columns"))
    columns = _mapping(f"{place}.columns", found.pop("columns", {}))
    return TableRules(
        **_choices(place, found),
        columns={name: _rule(f"{place}.columns.{name}", each) for name, each in columns.items()},
    )


def _choices(place: str, found: dict[str, Any]) -> dict[str, Any]:
    if "default" in found:
        found["default"] = _rule(f"{place}.default", found["default"])
    return found


def _mapping(place: str, given: object, known: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise RuleError(f"{place} is a table of the file")
    for name in given:
        if known and name not in known:
            raise RuleError(f"{place} has {', '.join(known)}, and not {name!r}")
    return dict(given)


def _rule(place: str, given: object) -> Rule:
    if isinstance(given, str):
        name, *branches = given.split() or [""]
        if name in _NAMED and not branches:
            return _NAMED[name]()
        if name == _PRIORITY:
            return origin_priority(*branches)
    raise RuleError(
        f"{place} is one of {', '.join(_NAMED)} or '{_PRIORITY} A B', and not {given!r}"
    )


def _imported(given: str) -> Rules:
    module, found, name = given.partition(":")
    if not found or not name:
        raise RuleError(f"rules = {given!r}: it is MODULE:NAME, or a table of the file")
    # The import path of a command lacks the working directory, which users expect.
    sys.path.insert(0, "")
    try:
        rules = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RuleError(f"rules = {given!r}: {error}") from None
    finally:
        sys.path.remove("")
    if not isinstance(rules, Rules):
        raise RuleError(f"rules = {given!r} is a {type(rules).__name__}, and no Rules")
    return rules
