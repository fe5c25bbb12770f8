"""Values of options of the command line, as tables of the configuration file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from stompkit.frames import AFTER_LOGIN, parse_heart_beat
from stompkit.server.settings.checks import check_sync

__all__ = ["TABLES", "Tables"]

Tables: TypeAlias = dict[str, Any]

_HEADROOM_BYTES: Final = AFTER_LOGIN.max_frame_bytes - AFTER_LOGIN.max_body_bytes


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number <= 0:
        raise ValueError(f"takes a positive whole number, not {text!r}")
    return number


def _heart_beat(text: str) -> Tables:
    try:
        return {"broker": {"heart_beat_ms": list(parse_heart_beat(text))}}
    except ValueError as error:
        raise ValueError(f"is wrong: {error}") from None


def _lock_timeout(text: str) -> Tables:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"takes a number of seconds, 0 or more, not {text!r}")
    return {"store": {"lock_timeout_s": seconds}}


def _max_body(text: str) -> Tables:
    octets = _positive(text)
    limits = {"max_body_bytes": octets, "max_frame_bytes": octets + _HEADROOM_BYTES}
    return {"broker": {"limits": limits}}


def _data(text: str) -> Tables:
    if not text:
        raise ValueError("takes a directory")
    return {"store": {"kind": "lmdb", "path": text}}


def _sync(text: str) -> Tables:
    check_sync(text)
    return {"store": {"sync": text}}


def _log_format(text: str) -> Tables:
    if text not in ("text", "json"):
        raise ValueError(f"takes text or json, not {text!r}")
    return {"log": {"format": text}}


#: Functions that turn an option's value into tables of the file; ValueError for an invalid value.
TABLES: Final[dict[str, Callable[[str], Tables]]] = {
    "data": _data,
    "sync": _sync,
    "lock-timeout": _lock_timeout,
    "heart-beat": _heart_beat,
    "max-connections": lambda text: {"broker": {"max_connections": _positive(text)}},
    "max-body": _max_body,
    "prefetch": lambda text: {"broker": {"prefetch": _positive(text)}},
    "log-format": _log_format,
}
