"""Message stores, and the runners that execute their calls.

The store for SQL databases is in ``stompkit.server.stores.sqlalchemy``, which needs the extra
``sql``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.runner import InlineRunner, ThreadRunner

if TYPE_CHECKING:
    from stompkit.server.stores.lmdb import LmdbStore

__all__ = ["InlineRunner", "LmdbStore", "MemoryStore", "ThreadRunner"]


def __getattr__(name: str) -> Any:
    # Imported on demand: a broker in memory starts without LMDB.
    return imported(__name__, {"LmdbStore": "lmdb"}, name)
