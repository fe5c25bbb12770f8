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


def rules_of(said: object) -> Rules:
    """Return the rules of a file; raises :class:`RuleError`."""
    if isinstance(said, str):
        return _imported(said)
    found = _mapping("rules", said, ("default", "on_delete", "tables"))
    tables = _mapping("rules.tables", found.pop("tables", {}))
    return Rules(
        **_choices("rules", found),
        tables={name: _of_table(f"rules.tables.{name}", each) for name, each in tables.items()},
    )


def _of_table(place: str, said: object) -> TableRules:
    found = _mapping(place, said, ("default", "on_delete", "columns"))
    columns = _mapping(f"{place}.columns", found.pop("columns", {}))
    return TableRules(
        **_choices(place, found),
        columns={name: _rule(f"{place}.columns.{name}", each) for name, each in columns.items()},
    )


def _choices(place: str, found: dict[str, Any]) -> dict[str, Any]:
    if "default" in found:
        found["default"] = _rule(f"{place}.default", found["default"])
    return found


def _mapping(place: str, said: object, known: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(said, Mapping):
        raise RuleError(f"{place} is a table of the file")
    for name in said:
        if known and name not in known:
            raise RuleError(f"{place} has {', '.join(known)}, and not {name!r}")
    return dict(said)


def _rule(place: str, said: object) -> Rule:
    if isinstance(said, str):
        name, *branches = said.split() or [""]
        if name in _NAMED and not branches:
            return _NAMED[name]()
        if name == _PRIORITY:
            return origin_priority(*branches)
    raise RuleError(f"{place} is one of {', '.join(_NAMED)} or '{_PRIORITY} A B', and not {said!r}")


def _imported(said: str) -> Rules:
    module, found, name = said.partition(":")
    if not found or not name:
        raise RuleError(f"rules = {said!r}: it is MODULE:NAME, or a table of the file")
    # The import path of a command lacks the working directory, which users expect.
    sys.path.insert(0, "")
    try:
        rules = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RuleError(f"rules = {said!r}: {error}") from None
    finally:
        sys.path.remove("")
    if not isinstance(rules, Rules):
        raise RuleError(f"rules = {said!r} is a {type(rules).__name__}, and no Rules")
    return rules
