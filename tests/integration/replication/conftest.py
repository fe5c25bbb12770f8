"""Fixtures for these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from stompkit.testing import LaunchConfig, RunningBroker, launch
from tests.servers import SqlServer, mariadb, postgresql, redis, redis_server

__all__ = ["Open", "broker", "database", "mariadb", "postgresql", "redis", "redis_server"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker whose messages survive a kill."""
    directory = tmp_path / "broker"
    directory.mkdir()
    arguments = ("--data", str(directory / "data"))
    with launch(LaunchConfig(directory=directory, arguments=arguments)) as broker:
        yield broker


Open = Callable[[str], Engine]


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A function that creates a database of a kind."""
    with ExitStack() as stack:

        def make(kind: str) -> Engine:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path}/target.db"
            else:
                server: SqlServer = request.getfixturevalue(kind)
                url = server.url(server.new_database())
            engine = create_engine(url)
            stack.callback(engine.dispose)
            return engine

        yield make
