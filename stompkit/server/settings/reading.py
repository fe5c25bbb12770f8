"""Read the settings of a broker process, and check them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from stompkit._common.files import reason_of
from stompkit.server.settings.checks import check
from stompkit.server.settings.decoding import Decoder
from stompkit.server.settings.process import Settings
from stompkit.server.settings.schema import fields, table_of, tables_of
from stompkit.server.settings.toml import Document, Place, SettingsError, nested, parse

__all__ = ["SettingsError", "merged", "parse_settings", "read_settings"]


def read_settings(
    path: Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    without: Collection[tuple[str, ...]] = (),
) -> Settings:
    """Read a settings file; ``overrides`` are tables that take precedence over those of the file.

    The tables and keys of ``without`` are ignored in the file. Raises :class:`SettingsError` with
    all problems.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows writes a byte order mark
    except OSError as error:
        raise SettingsError([f"{path}: cannot be read: {reason_of(error)}"]) from None
    except UnicodeDecodeError:
        raise SettingsError([f"{path}: not UTF-8. Save the file as UTF-8."]) from None
    return parse_settings(text, str(path), overrides, without=without)


def parse_settings(
    text: str,
    name: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    without: Collection[tuple[str, ...]] = (),
) -> Settings:
    """Parse the text of the file *name*, as :func:`read_settings` does."""
    for pattern, broker, page in _FOREIGN:
        if re.search(pattern, text, re.MULTILINE):
            raise SettingsError(
                [
                    f"{name}: this is a configuration of {broker}. Write a file in TOML instead:"
                    f' the page "{page}" of the documentation lists the settings that replace it'
                ]
            )
    document = parse(text, name)
    try:
        for each in without:
            document.tables = _without(document.tables, each)
        document.tables = merged(document.tables, overrides or {})
        settings = _decoded(document)
        if settings is not None:
            check(settings, document)
        problems = document.problems
    except RecursionError:
        raise nested(name) from None
    if problems:
        raise SettingsError(problems)
    assert settings is not None  # or there were problems
    return settings


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables; the keys of *above* take precedence."""
    both = dict(below)
    for key, value in above.items():
        known = both.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            both[key] = merged(known, value)
        else:
            both[key] = value
    return both


def _without(tables: Mapping[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = place
    kept = {key: value for key, value in tables.items() if key != first}
    if rest and first in tables:
        inner = tables[first]
        kept[first] = _without(inner, tuple(rest)) if isinstance(inner, Mapping) else inner
    return kept


def _decoded(document: Document) -> Settings | None:
    decoder = Decoder(document, owners=_owners(), elsewhere=_ELSEWHERE)
    settings: Settings | None = decoder.table(Settings)
    return settings


#: Configurations of other brokers: a pattern, the broker, and the page about its settings.
_FOREIGN: Final = (
    (r"^\s*\[coilmq\]", "CoilMQ", "Migration from CoilMQ, radiator or MorbidQ"),
    (r"\A\s*<", "ActiveMQ (XML)", "Migration from ActiveMQ"),
    (
        r"^\s*(listeners|stomp|web_stomp|management|loopback_users)\.[\w.]+ *=",
        "RabbitMQ",
        "Migration from RabbitMQ",
    ),
)
#: Attributes of the structs that the file states elsewhere.
_ELSEWHERE: Final[dict[Place, str]] = {
    ("broker", "destinations"): "write a [[destination]] table for each"
}


def _owners() -> dict[str, list[str]]:
    """Return the keys of every table, by its header."""
    keys: dict[str, list[str]] = {}

    def add(cls: type, name: str, header: str) -> None:
        keys[header] = [each.name for each in fields(cls)]
        for each in fields(cls):
            inner = table_of(each.hint)
            if inner is not None:
                add(inner, f"{name}.{each.name}", f"[{name}.{each.name}]")

    for table in fields(Settings):
        single, several = table_of(table.hint), tables_of(table.hint)
        if single is not None:
            add(single, table.name, f"[{table.name}]")
        elif several is not None:
            add(several, table.name, f"[[{table.name}]]")
    return keys
