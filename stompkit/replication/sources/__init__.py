"""Sources: watch a database, and publish its changes.

Each is imported on first use, because each needs its own library.
"""

from __future__ import annotations

from typing import Any

from stompkit._common.lazy import imported

__all__ = ["Outbox", "OutboxRelay", "mysql_pub", "postgres_pub", "sqlalchemy_pub"]

_MODULES = {
    "Outbox": "outbox",
    "OutboxRelay": "relay",
    "mysql_pub": "mysql",
    "postgres_pub": "postgres",
    "sqlalchemy_pub": "session",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _MODULES, name)
