"""Prepare and commit in Redis. Needs the extra ``redis``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from stompkit.replication.eventstore._redis import PROBLEMS, RedisServer, Script
from stompkit.replication.eventstore.prepare import PrepareCommit, Prepared, fixed_namespace
from stompkit.replication.eventstore.store import Namespace, life_s

__all__ = ["RedisPrepareCommit"]

#: Keys: the index, a note. Arguments: the id, the note, its time to live.
_SAVE: Final = Script(
    """
local ttl = ARGV[3]
redis.call('ZADD', KEYS[1], written(now), ARGV[1])
redis.call('HSET', KEYS[2], 'time', written(now), 'body', ARGV[2])
if ttl == 'inf' then
  redis.call('PERSIST', KEYS[1])
  redis.call('PERSIST', KEYS[2])
else
  local last = string.format('%.0f', math.ceil((now + tonumber(ttl)) * 1000))
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', written(now - tonumber(ttl)))
  redis.call('PEXPIREAT', KEYS[1], last)
  redis.call('PEXPIREAT', KEYS[2], last)
end
"""
)
#: Keys: the index, and for each id a note and a claim. Arguments: ids.
_REMOVE: Final = Script(
    """
for _, id in ipairs(ARGV) do
  redis.call('ZREM', KEYS[1], id)
end
for place = 2, #KEYS do
  redis.call('DEL', KEYS[place])
end
"""
)
#: Keys: notes.
_MARK: Final = Script(
    """
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    redis.call('HSET', key, 'committed', 1)
  end
end
"""
)
#: Key: the index. Arguments: the last time, the time to live.
_LIST: Final = Script(
    """
local first = ARGV[2] == 'inf' and '-inf' or '(' .. written(now - tonumber(ARGV[2]))
return redis.call('ZRANGEBYSCORE', KEYS[1], first, ARGV[1], 'WITHSCORES')
"""
)
#: Keys: notes. Arguments: the time to live. Expired notes that Redis has not deleted are skipped.
_LOAD: Final = Script(
    """
local notes = {}
for place, key in ipairs(KEYS) do
  local note = redis.call('HMGET', key, 'time', 'committed', 'body')
  local time = tonumber(note[1] or nil)
  if time and time <= now - number(ARGV[1]) then
    note = {false, false, false}
  end
  notes[place] = note
end
return notes
"""
)


class RedisPrepareCommit(PrepareCommit):
    """Stores notes in a Redis server; prepare and commit take one round trip each."""

    _problems = PROBLEMS

    def __init__(
        self,
        redis_dsn: str,
        strict: bool = False,  # noqa: FBT001, FBT002 - as Meepo has it
        namespace: Namespace | None = None,
        ttl: float | None = 86400,
        socket_timeout: float = 1,
        **options: Any,
    ) -> None:
        """Configure the server; nothing is connected yet.

        ``namespace`` is the prefix of Redis keys, ``stompkit:pc`` by default. A callable is called
        with time 0, because notes must be found on any day. Notes are kept for ``ttl`` seconds,
        which is the maximum delay of :func:`recover`. ``socket_timeout`` is in seconds, ``options``
        are those of ``redis.Redis``.
        """
        super().__init__(strict)
        self._index = f"{fixed_namespace(namespace, 'stompkit:pc')}:session_prepare"
        self._ttl = repr(life_s(ttl))
        self._server = RedisServer(redis_dsn, socket_timeout=socket_timeout, **options)

    def close(self) -> None:
        """Disconnect."""
        self._server.close()

    def _save(self, id: str, body: bytes) -> None:
        self._server.run((_SAVE, (self._index, self._note(id)), (id, body, self._ttl)))

    def _remove(self, ids: Sequence[str]) -> None:
        keys = [self._index, *map(self._note, ids), *map(self._claim_of, ids)]
        self._server.run((_REMOVE, keys, ids))

    def _mark(self, ids: Sequence[str]) -> None:
        self._server.run((_MARK, list(map(self._note, ids)), ()))

    def _list(self, until: float) -> list[tuple[str, float]]:
        last = "+inf" if math.isinf(until) else repr(until)
        (found,) = self._server.run((_LIST, (self._index,), (last, self._ttl)))
        pairs = zip(found[::2], found[1::2], strict=True)
        return [(id.decode(), float(time)) for id, time in pairs]

    def _load(self, ids: Sequence[str]) -> list[Prepared | None]:
        (found,) = self._server.run((_LOAD, list(map(self._note, ids)), (self._ttl,)))
        return [
            None if body is None else self._read(id, float(time), committed is not None, body)
            for id, (time, committed, body) in zip(ids, found, strict=True)
        ]

    def _claim(self, id: str, lease_s: float) -> bool:
        milliseconds = max(1, round(lease_s * 1000))
        taken = self._server.client.set(self._claim_of(id), b"1", px=milliseconds, nx=True)
        return taken is not None

    def _release(self, id: str) -> None:
        self._server.client.delete(self._claim_of(id))

    def _now(self) -> float:
        return self._server.time()

    def _note(self, id: str) -> str:
        return f"{self._index}:{id}"

    def _claim_of(self, id: str) -> str:
        return f"{self._index}:{id}:claim"
