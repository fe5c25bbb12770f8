"""Servers that the tests of replicas share."""

from __future__ import annotations

from tests.servers import mariadb, postgresql

__all__ = ["mariadb", "postgresql"]
