"""Publishers: they watch a database, and tell what has changed.

Each is imported when it is asked for, since each needs a library of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Outbox", "OutboxRelay", "mysql_pub", "postgres_pub", "sqlalchemy_pub"]

_MODULES = {
    "Outbox": "outbox",
    "OutboxRelay": "relay",
    "mysql_pub": "mysql",
    "postgres_pub": "postgres",
    "sqlalchemy_pub": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
