"""From MariaDB over a queue to PostgreSQL."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from stompkit.testing import RunningBroker
from tests.integration.replication.chain import (
    CHANGES,
    SEED,
    Chain,
    check,
    started,
    tables_of,
    url_of,
)
from tests.integration.replication.conftest import Open
from tests.integration.replication.workload import Workload


def test_mariadb_and_postgresql_are_equal_in_the_end_whatever_is_killed(
    database: Open, broker: RunningBroker, tmp_path: Path
) -> None:
    source, target = database("mariadb"), database("postgresql")
    workload = Workload(source, SEED)
    workload.run(CHANGES // 10)  # found by the snapshot
    queue = f"{broker.url}/queue/changes"
    with ExitStack() as stack:
        make = partial(started, tmp_path, stack)
        chain = Chain(
            workload,
            broker,
            make("publisher", "--from", url_of(source), "--to", queue, *tables_of(source)),
            make("consumer", "--from", queue, "--to", url_of(target), "--create"),
        )
        chain.run(CHANGES * 9 // 10)
        chain.wait(lambda: check(source, target))
        chain.stop()
        check(source, target)
