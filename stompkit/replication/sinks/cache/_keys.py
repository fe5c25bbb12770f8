"""The keys of cached rows in Redis."""

from __future__ import annotations

import re
from typing import Any, Final

from redis import Redis

from stompkit.replication.model.values import Value
from stompkit.replication.sinks._rows import key_text

__all__ = ["NAMESPACE", "cache_key", "delete_table", "escaped"]

#: Default namespace, the prefix of keys.
NAMESPACE: Final = "stompkit:cache"

#: Number of keys in one step of deleting a table.
_STEP: Final = 1000
_GLOB: Final = re.compile(r"([*?\[\]\\^-])")


def cache_key(table: str, *key: Value, namespace: str = NAMESPACE) -> str:
    """Return the key of a row: ``NAMESPACE:TABLE:KEY``.

    ``table`` includes its schema if the events have one, as in ``shop.orders``. ``key`` is the
    value of the single column, or those of several in their order. Text stands for itself, unless
    it is empty or begins with a quotation mark; all other keys are JSON in the form of
    :mod:`stompkit.replication.model.values`, several columns a list. Colons and percent signs in
    the table's name are percent-encoded. Raises ``ValueError`` for a value without a JSON form.
    """
    return f"{namespace}:{escaped(table)}:{key_text(key)}"


def escaped(table: str) -> str:
    """Return the name of a table with colons encoded."""
    return table.replace("%", "%25").replace(":", "%3A")


def delete_table(redis: Redis, holder: str) -> None:
    """Delete all keys that begin with ``holder`` and a colon, step by step."""
    client: Any = redis
    pattern = _GLOB.sub(r"\\\1", holder) + ":*"
    cursor = 0
    while True:
        cursor, keys = client.scan(cursor, match=pattern, count=_STEP)
        if keys:
            client.unlink(*keys)
        if cursor == 0:
            return
