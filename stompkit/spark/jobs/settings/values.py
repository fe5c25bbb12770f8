"""Values of settings: times, references to secrets, and options for Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from stompkit._common.secrets import SecretError, resolve

__all__ = ["SECRET_OPTIONS", "PipelineError", "life", "options_of", "resolved", "seconds"]

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
#: Secret options, in lower case.
SECRET_OPTIONS: Final = ("passcode", "spooltoken")
#: Options that may be in an environment variable, or a separate file.
_REFERENCES: Final = ("login", *SECRET_OPTIONS)


class PipelineError(Exception):
    """Invalid pipeline settings; ``str()`` has a line for each error."""


def seconds(text: str) -> float:
    """Return the seconds in a time such as ``500ms``, ``1s`` or ``7d``; raises PipelineError."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise PipelineError("this is a time such as 500ms, 1s, 5m, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def life(text: str) -> float | None:
    """Return a retention time in seconds; ``None`` for ever. Raises PipelineError."""
    if text.strip() == "forever":
        return None
    try:
        found = seconds(text)
    except PipelineError:
        found = 0
    if not found:
        raise PipelineError("this is a time such as 12h or 90d, or forever")
    return found


def options_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return TOML values as Spark options."""
    return {
        name: (resolved(_text(name, value)) if name.lower() in _REFERENCES else _text(name, value))
        for name, value in found.items()
    }


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise PipelineError(f"the option {name} is a text, a number, a truth value, or several texts")


def resolved(text: str) -> str:
    """Return a text with its reference to a secret resolved; raises PipelineError."""
    try:
        return resolve(text)
    except SecretError as error:
        raise PipelineError(str(error)) from None
