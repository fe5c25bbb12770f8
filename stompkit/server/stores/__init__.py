"""Message stores, and the runners that execute their calls.

The store for SQL databases is in ``stompkit.server.stores.sqlalchemy``, which needs the extra
``sql``.
"""

from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.runner import InlineRunner, ThreadRunner

__all__ = ["InlineRunner", "LmdbStore", "MemoryStore", "ThreadRunner"]
