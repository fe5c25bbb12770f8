"""From PostgreSQL over a topic to SQLite and to Redis."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from stompkit.client.blocking import durable_subscription
from stompkit.replication.sinks.cache import cache_key
from stompkit.testing import RunningBroker
from tests.integration.replication.chain import (
    CHANGES,
    SEED,
    Chain,
    check,
    check_contents,
    started,
    tables_of,
    url_of,
)
from tests.integration.replication.conftest import Open
from tests.integration.replication.workload import Workload, cached, contents
from tests.servers import RedisServer


@pytest.mark.matrix
def test_postgresql_sqlite_and_redis_are_equal_in_the_end_whatever_is_killed(
    database: Open, broker: RunningBroker, redis: RedisServer, tmp_path: Path
) -> None:
    """They use a topic with two durable subscriptions."""
    source, target = database("postgresql"), database("sqlite")
    workload = Workload(source, SEED)
    workload.run(CHANGES // 10)
    topic = f"{broker.url}/topic/changes"
    for name in ("sqlite", "redis"):
        with broker.client(client_id=name) as client:
            client.subscribe("/topic/changes", id=name, headers=durable_subscription(name))
    with ExitStack() as stack:
        cache = stack.enter_context(Redis.from_url(redis.url))
        make = partial(started, tmp_path, stack)
        ends = (("sqlite", url_of(target), "--create"), ("redis", redis.url))
        chain = Chain(
            workload,
            broker,
            make("publisher", "--from", url_of(source), "--to", topic, *tables_of(source)),
            *(
                make(name, "--from", topic, "--durable", name, "--to", *more)
                for name, *more in ends
            ),
        )
        chain.run(CHANGES * 9 // 10)
        last = cache_key("public.items", -1)

        def check_both() -> None:
            assert cache.exists(last)
            check(source, target)
            wanted, found = contents(source), cached(cache)
            # Rows of a table with a new column are cached again only when they change.
            is_cached = set(found["orders"]).__contains__
            assert len(found["orders"]) > CHANGES // 20
            orders = list(filter(is_cached, wanted["orders"]))
            check_contents({**wanted, "orders": orders}, found)

        chain.wait(check_both)
        chain.stop()
        check_both()
