"""Databases for the tests of the publisher of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replication.sources.postgres.postgres_made import Database
from tests.servers import SqlServer


@pytest.fixture(scope="session")
def database_name(postgresql: SqlServer) -> str:
    """A database that tests use in turn, since its creation is slow."""
    return postgresql.new_database()


@pytest.fixture
def database(postgresql: SqlServer, database_name: str) -> Iterator[Database]:
    """An empty database."""
    made = Database(postgresql, database_name)
    try:
        yield made
    finally:
        made.clear()
