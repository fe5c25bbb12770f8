"""Read configuration files, whose keys may be written with underscores or with hyphens."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

__all__ = ["ConfigurationError", "canonical", "read_toml"]


class ConfigurationError(ValueError):
    """A configuration file cannot be used; the text says why."""


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a TOML file. Raises ConfigurationError, which names the file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise ConfigurationError(f"{path}: tables or arrays are nested too deeply") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: not UTF-8, as TOML has to be") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path}: {reason}") from None


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


def _plain(name: str) -> str:
    return name.replace("_", "-")
