"""Servers that the tests of replication share."""

from __future__ import annotations

import pytest

from tests.servers import MySql, mariadb, mariadb_type, postgresql, redis, redis_server

__all__ = ["mariadb", "postgresql", "redis", "redis_server"]


@pytest.fixture(autouse=True)
def _mariadb_only(request: pytest.FixtureRequest) -> None:
    """Skip tests marked ``mariadb_only`` if MySQL takes the place of MariaDB.

    A test for several kinds of databases still runs on the others.
    """
    if mariadb_type() is not MySql or not request.node.get_closest_marker("mariadb_only"):
        return
    values = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    if not any(value in ("postgresql", "sqlite") for value in values):
        pytest.skip("MySQL has no such thing")
