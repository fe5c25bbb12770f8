"""Lua scripts of the event store in Redis.

For each namespace and event there are two sorted sets:

``NAMESPACE:EVENT``
    keys of rows by their last times
``NAMESPACE:EVENT::expires``
    the same keys by their expiry times

For the history of a namespace there are ``NAMESPACE::history``, of changesets by their times,
``NAMESPACE::history:expires``, and the hash ``NAMESPACE::history:bodies``. The hash
``stompkit:namespaces`` has the namespaces that callables have made, each with its expiry time
and a time that it is for.
"""

from __future__ import annotations

from typing import Final

from stompkit.replication.eventstore._redis import Script

__all__ = ["ADD", "APPEND", "CLEAR", "NAMESPACES", "PRUNE", "PRUNE_HISTORY", "QUERY", "RANGE"]

_FORGET: Final = """
local function forget(events, expiries)
  local members = dead(expiries)
  for _, member in ipairs(members) do
    redis.call('ZREM', events, member)
    redis.call('ZREM', expiries, member)
  end
  return #members
end
"""

_REGISTER: Final = """
local function register(namespaces, namespace, expiry, time)
  if not namespaces then
    return
  end
  local known = redis.call('HGET', namespaces, namespace)
  if not known or number(known:match('^%S+')) < number(expiry) then
    redis.call('HSET', namespaces, namespace, expiry .. ' ' .. time)
  end
end
"""

#: Keys: events, expiries, and namespaces if the namespace is to be registered. Arguments: the time,
#: or nothing for now; the time to live; the namespace; members.
ADD: Final = Script(
    _FORGET
    + _REGISTER
    + """
forget(KEYS[1], KEYS[2])
local time = ARGV[1] ~= '' and ARGV[1] or written(now)
local expiry = end_of_life(ARGV[2])
for place = 4, #ARGV do
  local known = redis.call('ZSCORE', KEYS[1], ARGV[place])
  if not known or tonumber(time) >= tonumber(known) then
    redis.call('ZADD', KEYS[1], time, ARGV[place])
    redis.call('ZADD', KEYS[2], expiry, ARGV[place])
  end
end
expire(KEYS[2], KEYS[1])
register(KEYS[3], ARGV[3], expiry, time)
"""
)

#: Keys: events, expiries. Arguments: the first and the last score. Also for the history.
RANGE: Final = Script(
    """
local buried = {}
for _, member in ipairs(dead(KEYS[2])) do
  buried[member] = true
end
local found = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES')
local given = {}
for place = 1, #found, 2 do
  if not buried[found[place]] then
    given[#given + 1] = found[place]
    given[#given + 1] = found[place + 1]
  end
end
return given
"""
)

#: Keys: events, expiries. Argument: the member.
QUERY: Final = Script(
    """
local expiry = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not expiry or number(expiry) <= now then
  return false
end
return redis.call('ZSCORE', KEYS[1], ARGV[1])
"""
)

#: Keys: events, expiries.
CLEAR: Final = Script(
    _FORGET
    + """
forget(KEYS[1], KEYS[2])
local count = redis.call('ZCARD', KEYS[1])
redis.call('DEL', KEYS[1], KEYS[2])
return count
"""
)

#: Keys: events, expiries.
PRUNE: Final = Script(_FORGET + "return forget(KEYS[1], KEYS[2])")

_FORGET_CHANGESETS: Final = """
local function forget(history, expiries, bodies)
  local members = dead(expiries)
  for _, member in ipairs(members) do
    redis.call('ZREM', history, member)
    redis.call('ZREM', expiries, member)
    redis.call('HDEL', bodies, 'id ' .. member:sub(21))
  end
  return #members
end
"""

#: Keys: history, expiries, bodies, and namespaces if the namespace is to be registered. Arguments:
#: as those of ``ADD``, with the id and the body at the end. Members are numbered, because Redis
#: orders members with equal scores by their bytes.
APPEND: Final = Script(
    _FORGET_CHANGESETS
    + _REGISTER
    + """
forget(KEYS[1], KEYS[2], KEYS[3])
if redis.call('HEXISTS', KEYS[3], 'id ' .. ARGV[4]) == 1 then
  return
end
local time = ARGV[1] ~= '' and ARGV[1] or written(now)
local expiry = end_of_life(ARGV[2])
local count = redis.call('HINCRBY', KEYS[3], 'count', 1)
local member = string.format('%020d', count) .. ARGV[4]
redis.call('ZADD', KEYS[1], time, member)
redis.call('ZADD', KEYS[2], expiry, member)
redis.call('HSET', KEYS[3], 'id ' .. ARGV[4], ARGV[5])
expire(KEYS[2], KEYS[1], KEYS[3])
register(KEYS[4], ARGV[3], expiry, time)
"""
)

#: Keys: history, expiries, bodies.
PRUNE_HISTORY: Final = Script(_FORGET_CHANGESETS + "return forget(KEYS[1], KEYS[2], KEYS[3])")

#: Key: namespaces. Returns the unexpired ones, and the time of each.
NAMESPACES: Final = Script(
    """
local all = redis.call('HGETALL', KEYS[1])
local living = {}
for place = 1, #all, 2 do
  local expiry, time = all[place + 1]:match('^(%S+) (%S+)$')
  if number(expiry) > now then
    living[#living + 1] = all[place]
    living[#living + 1] = time
  else
    redis.call('HDEL', KEYS[1], all[place])
  end
end
return living
"""
)
