"""Fixtures with a database for leases."""

from __future__ import annotations

import pytest

from tests.servers import SqlServer, postgresql

__all__ = ["postgresql", "url"]


@pytest.fixture
def url(postgresql: SqlServer) -> str:
    """The URL of an empty database."""
    return postgresql.url(postgresql.new_database())
