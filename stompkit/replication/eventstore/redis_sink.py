"""Stores the events of sessions in Redis. Needs the extra ``redis``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from stompkit.replication.eventstore.redis_prepare import RedisPrepareCommit
from stompkit.replication.eventstore.redis_store import RedisEventStore
from stompkit.replication.eventstore.sink import es_sub
from stompkit.replication.eventstore.store import DEFAULT_TTL_S, Namespace

__all__ = ["redis_es_sub"]


def redis_es_sub(
    session_factory: object,
    tables: Collection[str],
    redis_dsn: str,
    strict: bool = False,  # noqa: FBT001, FBT002 - as Meepo has it
    namespace: Namespace | None = None,
    ttl: float | None = DEFAULT_TTL_S,
    socket_timeout: float = 1,
    *,
    history: bool = False,
    **options: Any,
) -> tuple[RedisEventStore, RedisPrepareCommit]:
    """Store the events of sessions in Redis; see ``es_sub`` in the subscriber module.

    Both the store and the notes get ``strict``, ``namespace``, ``ttl``, ``socket_timeout`` and
    ``options``. Raises ``ValueError`` unless ``tables`` is a list or a set.
    """
    store = RedisEventStore(
        redis_dsn, namespace, ttl, socket_timeout, strict=strict, history=history, **options
    )
    prepare_commit = RedisPrepareCommit(
        redis_dsn, strict, namespace, ttl, socket_timeout, **options
    )
    es_sub(store, prepare_commit, session_factory, tables)
    return store, prepare_commit
