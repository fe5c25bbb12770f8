"""Names of destinations: translation between the spellings of sites."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Final

__all__ = ["FIELDS", "canonical", "is_pattern", "is_queue", "named", "spelled", "template_mistake"]

#: Fields that a name template can contain.
FIELDS: Final = ("destination", "kind", "name", "site")
_QUEUE: Final = "/queue/"


def spelled(name: str, prefixes: Mapping[str, str]) -> str:
    """Return a name in the site's spelling: the site's prefix replaces the usual one."""
    for usual in sorted(prefixes, key=len, reverse=True):
        if name.startswith(usual):
            return prefixes[usual] + name[len(usual) :]
    return name


def canonical(name: str, prefixes: Mapping[str, str]) -> str:
    """Return a name in the usual spelling: the usual prefix replaces the site's."""
    for usual, own in sorted(prefixes.items(), key=lambda item: len(item[1]), reverse=True):
        if name.startswith(own):
            return usual + name[len(own) :]
    return name


def named(template: str, destination: str, site: str) -> str:
    """Return the target of messages from a site's destination; all names in the usual spelling."""
    kind, name = _split(destination)
    return template.format(destination=destination, kind=kind, name=name, site=site)


def template_mistake(template: str) -> str:
    """Return the error in a template, or "" if it is valid."""
    fields = ", ".join(f"{{{each}}}" for each in FIELDS)
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        return f"this is no template: {error}; there are {fields}"
    for _, field, form, conversion in parts:
        if field is not None and (field not in FIELDS or form or conversion):
            return f"this is no field of a template: {{{field}}}; there are {fields}"
    if not named(template, "/queue/a", "b"):
        return "this names no destination"
    return ""


def is_queue(name: str) -> bool:
    """Return True if each message of the destination goes to only one reader."""
    return not name.startswith(("/topic/", "/fanout/", "/exchange/"))


def is_pattern(name: str) -> bool:
    """Return True if the name matches several destinations."""
    return any(level in ("*", ">", "#") for level in _split(name)[1].split("."))


def _split(destination: str) -> tuple[str, str]:
    """Return the prefix with both its slashes, and the rest."""
    end = destination.find("/", 1)
    if destination.startswith("/") and end > 0:
        return destination[: end + 1], destination[end + 1 :]
    return _QUEUE, destination
