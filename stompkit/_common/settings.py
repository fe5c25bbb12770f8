"""Read configuration files, whose keys may be written with underscores or with hyphens."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from stompkit._common.files import reason_of
from stompkit._common.spelling import did_you_mean

__all__ = ["ConfigurationError", "canonical", "read_toml", "wrong_type"]

#: Types as msgspec names them, and in words.
_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "a table",
    "str": "a string",
}
_WRONG_TYPE: Final = re.compile(
    r"Expected `(?P<wanted>[^`]+)`(?P<limit>[^,]*)(?:, got `(?P<given>[^`]+)`)?"
).fullmatch
_KEY: Final = re.compile(
    r"Object contains unknown field `(?P<unknown>[^`]+)`"
    r"|Object missing required field `(?P<missing>[^`]+)`"
).fullmatch


class ConfigurationError(ValueError):
    """A configuration file cannot be used; the text says why."""


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a TOML file. Raises ConfigurationError, which names the file."""
    try:
        # Editors of Windows write a byte order mark.
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ConfigurationError(f"{path}: tables or arrays are nested too deeply") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8. Save the file as UTF-8.") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: {reason_of(error)}") from None


def canonical(table: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return a table with its keys spelled as in *known*, with underscores or with hyphens.

    Other keys are kept. Raises ConfigurationError if a key is given in both spellings.
    """
    spellings = {_plain(name): name for name in known}
    found: dict[str, Any] = {}
    for name, value in table.items():
        key = spellings.get(_plain(name), name)
        if key in found:
            raise ConfigurationError(f"{name}: {key} is given twice, in two spellings")
        found[key] = value
    return found


def wrong_type(error: Exception, known: Collection[str] = ()) -> str:
    """Return the reason of msgspec's error in plain words: ``must be a string, not a list``.

    Reasons that are not about types and keys are returned as they are. A path within the value
    comes first. One of the *known* keys is suggested for a misspelt one.
    """
    reason, _, place = str(error).partition(" - at ")
    found = _WRONG_TYPE(reason)
    if found is not None:
        wanted = " or ".join(_TYPES.get(each, each) for each in found["wanted"].split(" | "))
        given = f", not {_TYPES.get(found['given'], found['given'])}" if found["given"] else ""
        reason = f"must be {wanted}{found['limit']}{given}"
    elif (key := _KEY(reason)) is not None:
        unknown = key["unknown"]
        reason = (
            f"there is no key {unknown!r}{did_you_mean(unknown, known)}"
            if unknown
            else f"the key {key['missing']!r} is missing"
        )
    place = place.strip("`").removeprefix("$").removeprefix(".")
    return f"{place}: {reason}" if place else reason.replace("`", "")


def _plain(name: str) -> str:
    return name.replace("_", "-")
