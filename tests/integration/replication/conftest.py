"""Servers that these tests share."""

from __future__ import annotations

from tests.servers import mariadb, postgresql, redis, redis_server

__all__ = ["mariadb", "postgresql", "redis", "redis_server"]
