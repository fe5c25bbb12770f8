"""A database of the shared server for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replication.sources.mysql.reading import Database
from tests.servers import MariaDb


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[Database]:
    """An empty database."""
    database = Database(mariadb)
    yield database
    database.close()
