"""Where persistent messages are kept, and where the calls of a store are made.

The store for SQL databases is in ``stompkit.server.stores.sqlalchemy``, which needs the extra
``sql``.
"""

from stompkit.server.stores.lmdb import LmdbStore
from stompkit.server.stores.memory import MemoryStore
from stompkit.server.stores.runner import InlineRunner, ThreadRunner

__all__ = ["InlineRunner", "LmdbStore", "MemoryStore", "ThreadRunner"]
