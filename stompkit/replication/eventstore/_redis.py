"""Access to Redis by scripts, which do related operations in one round trip."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

__all__ = ["PROBLEMS", "Call", "RedisServer", "Script"]

#: A timeout is not a ``ConnectionError`` of redis-py; and a server may be full, or still loading.
PROBLEMS: Final[tuple[type[Exception], ...]] = (RedisError, OSError)

#: Prologue of all scripts: ``now``, by the server's clock, and shared functions.
_BEGIN: Final = """
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

-- Lua would write numbers with 14 digits, which is not enough for a time.
local function written(time)
  return string.format('%.6f', time)
end

local function number(text)
  return text == 'inf' and math.huge or tonumber(text)
end

local function end_of_life(ttl)
  return ttl == 'inf' and 'inf' or written(now + tonumber(ttl))
end

-- Keys live as long as the member of theirs that lives longest.
local function expire(expiries, ...)
  local last = redis.call('ZREVRANGE', expiries, 0, 0, 'WITHSCORES')[2]
  for _, key in ipairs({expiries, ...}) do
    if last == 'inf' then
      redis.call('PERSIST', key)
    elseif last then
      redis.call('PEXPIREAT', key, string.format('%.0f', math.ceil(tonumber(last) * 1000)))
    end
  end
end

local function dead(expiries)
  return redis.call('ZRANGEBYSCORE', expiries, '-inf', written(now))
end
"""


class Script:
    """A Lua script that servers know by its hash."""

    def __init__(self, text: str) -> None:
        """Prepend the prologue."""
        self.text: Final = _BEGIN + text
        self.sha: Final = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


#: A script, its keys and its arguments.
Call = tuple[Script, Sequence[str], Sequence[str | bytes]]


class RedisServer:
    """A Redis server that runs scripts."""

    def __init__(self, redis_dsn: str, *, socket_timeout: float, **options: Any) -> None:
        """Configure a server by its URL; ``options`` are those of ``redis.Redis``.

        ``decode_responses``, as an option or in the URL, has no effect: stored values are bytes,
        and are returned unchanged.

        A lost connection is reopened once, immediately: scripts can be run again. There are no
        further retries, because the caller waits.
        """
        settings = {
            "socket_timeout": socket_timeout,
            "socket_connect_timeout": socket_timeout,
            "retry": Retry(NoBackoff(), 1),
            **options,
        }
        # Settings in the URL take precedence over arguments.
        pool = ConnectionPool.from_url(redis_dsn, **settings)
        pool.connection_kwargs["decode_responses"] = False
        self.client: Final[Any] = Redis.from_pool(pool)

    def run(self, *calls: Call) -> list[Any]:
        """Run scripts in one round trip, and return their results.

        Raises one of ``PROBLEMS``; some of the scripts may have run then.
        """
        results = self._run(calls)
        if any(isinstance(result, NoScriptError) for result in results):
            # Run all of them again: the scripts are idempotent.
            self._load(script for script, _, _ in calls)
            results = self._run(calls)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    def time(self) -> float:
        """Return the server's time."""
        seconds, microseconds = self.client.time()
        return float(seconds + microseconds / 1e6)

    def close(self) -> None:
        """Disconnect."""
        self.client.close()

    def _run(self, calls: Iterable[Call]) -> list[Any]:
        with self.client.pipeline(transaction=False) as pipeline:
            for script, keys, arguments in calls:
                pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            results: list[Any] = pipeline.execute(raise_on_error=False)
        return results

    def _load(self, scripts: Iterable[Script]) -> None:
        for text in {script.sha: script.text for script in scripts}.values():
            self.client.script_load(text)
