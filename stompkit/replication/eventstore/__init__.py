"""Event sourcing: records which rows have changed and when, without losing events in a crash.

``sqlalchemy_es_pub`` publishes the commits of sessions, and announces them before the commit.
``redis_es_sub`` and ``sql_es_sub`` store these announcements, and then the events. ``recover``
handles processes that have died between the commit and the publication. ``store_sub`` stores the
changesets of any publisher.
"""

from typing import TYPE_CHECKING, Any

from stompkit._common.lazy import imported
from stompkit._common.moved import renamed
from stompkit.replication.eventstore.prepare import (
    PrepareCommit,
    Prepared,
    forget_session,
    session_id,
)
from stompkit.replication.eventstore.recovery import Recovered, RecoveryError, recover
from stompkit.replication.eventstore.sink import (
    es_sub,
    sql_es_sub,
    store_changeset,
    store_sub,
)
from stompkit.replication.eventstore.source import sqlalchemy_es_pub
from stompkit.replication.eventstore.sql_prepare import SqlPrepareCommit
from stompkit.replication.eventstore.sql_store import SqlEventStore
from stompkit.replication.eventstore.store import EventStore, Namespace

if TYPE_CHECKING:
    from stompkit.replication.eventstore.redis_prepare import RedisPrepareCommit
    from stompkit.replication.eventstore.redis_sink import redis_es_sub
    from stompkit.replication.eventstore.redis_store import RedisEventStore

__all__ = [
    "EventStore",
    "Namespace",
    "PrepareCommit",
    "Prepared",
    "Recovered",
    "RecoveryError",
    "RedisEventStore",
    "RedisPrepareCommit",
    "SqlEventStore",
    "SqlPrepareCommit",
    "es_sub",
    "forget_session",
    "recover",
    "redis_es_sub",
    "session_id",
    "sql_es_sub",
    "sqlalchemy_es_pub",
    "store_changeset",
    "store_sub",
]

#: Names that need redis-py, and their modules; they are imported on first use.
_OF_REDIS = {
    "RedisEventStore": "redis_store",
    "RedisPrepareCommit": "redis_prepare",
    "redis_es_sub": "redis_sink",
}


def __getattr__(name: str) -> Any:
    return imported(__name__, _OF_REDIS, name)


renamed(
    __name__,
    RecoveryProblem="RecoveryError",
)
