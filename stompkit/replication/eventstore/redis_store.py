"""An event store in Redis. Needs the extra ``redis``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from stompkit.replication.eventstore import _redis_scripts as scripts
from stompkit.replication.eventstore._redis import PROBLEMS, Call, RedisServer
from stompkit.replication.eventstore.store import DEFAULT_TTL_S, EventStore, Namespace

__all__ = ["RedisEventStore"]

_T = TypeVar("_T")

_REGISTRY: Final = "stompkit:namespaces"
#: Number of changesets that are read at a time.
_CHUNK: Final = 200
#: Maximum number of keys in one command; Redis accepts a million.
_MOST_KEYS: Final = 10_000


class RedisEventStore(EventStore):
    """Stores events in one Redis server, version 5 or later.

    Adding takes one round trip. It takes two if the namespace is a callable and no time is given,
    because the server's time is needed first. Redis removes expired members when the next one is
    added, and expired keys by itself.
    """

    _problems = PROBLEMS

    def __init__(
        self,
        redis_dsn: str,
        namespace: Namespace | None = None,
        ttl: float | None = DEFAULT_TTL_S,
        socket_timeout: float = 1,
        *,
        strict: bool = False,
        history: bool = False,
        **options: Any,
    ) -> None:
        """Configure a store; nothing is connected yet.

        ``namespace`` is the prefix of Redis keys, ``stompkit:es`` by default. ``socket_timeout``
        is in seconds, ``options`` are those of ``redis.Redis``; see
        :class:`~stompkit.replication.eventstore.store.EventStore` for the others.
        """
        name = "stompkit:es" if namespace is None else namespace
        super().__init__(name, ttl, strict=strict, history=history)
        self._server = RedisServer(redis_dsn, socket_timeout=socket_timeout, **options)

    def clear(self, event: str, ts: float | None = None) -> int:
        """Delete all keys of an event, or with ``ts`` those in the namespace of that time."""
        names = self._names() if ts is None else [self._name(ts)]
        return sum(self._run((scripts.CLEAR, _of(name, event), ()) for name in names))

    def prune(self) -> int:
        """Remove expired data; Redis also does so by itself eventually."""
        calls: list[Call] = []
        for name in self._names():
            pattern = f"{_escaped(name)}:*::expires"
            for key in self._server.client.scan_iter(match=pattern, count=1000):
                events = key.decode().removesuffix("::expires")
                calls.append((scripts.PRUNE, (events, key.decode()), ()))
            calls.append((scripts.PRUNE_HISTORY, _history_of(name), ()))
        return sum(self._run(calls))

    def _disconnect(self) -> None:
        self._server.close()

    def _add(self, events: dict[str, list[str]], ts: float | None, ttl: float) -> None:
        time, name, registry = self._place(ts)
        self._run(
            (scripts.ADD, (*_of(name, event), *registry), (time, repr(ttl), name, *some))
            for event, texts in events.items()
            for some in _parts(texts, _MOST_KEYS)
        )

    def _read(self, event: str, ts: float, end_ts: float) -> Iterable[tuple[str, float]]:
        for name in self._names():
            ((*found,),) = self._run([(scripts.RANGE, _of(name, event), _range(ts, end_ts))])
            for text, score in _pairs(found):
                yield text.decode(), float(score)

    def _query(self, event: str, text: str, ts: float | None) -> float | None:
        names = self._names() if ts is None else [self._name(ts)]
        found = self._run((scripts.QUERY, _of(name, event), (text,)) for name in names)
        return max((float(score) for score in found if score is not None), default=None)

    def _append(self, id: str, body: bytes, ts: float | None) -> None:
        time, name, registry = self._place(ts)
        keys = (*_history_of(name), *registry)
        self._run([(scripts.APPEND, keys, (time, repr(self._ttl), name, id, body))])

    def _bodies(self, since: float, until: float) -> Iterator[tuple[float, bytes]]:
        found: list[tuple[float, bytes, str]] = []
        for name in self._names():
            keys = _history_of(name)
            ((*members,),) = self._run([(scripts.RANGE, keys[:2], _range(since, until))])
            found += [(float(score), member, keys[2]) for member, score in _pairs(members)]
        found.sort()
        for chunk in _parts(found, _CHUNK):
            with self._server.client.pipeline(transaction=False) as pipeline:
                for _, member, bodies in chunk:
                    pipeline.hget(bodies, b"id " + member[20:])
                given = pipeline.execute()
            # A missing one has expired meanwhile.
            yield from (
                (time, body)
                for (time, _, _), body in zip(chunk, given, strict=True)
                if body is not None
            )

    def _run(self, calls: Iterable[Call]) -> list[Any]:
        each = list(calls)
        return self._server.run(*each) if each else []

    def _place(self, ts: float | None) -> tuple[str, str, Sequence[str]]:
        """Return the time (empty for the server's), the namespace, and the key of the registry."""
        if isinstance(self._namespace, str):
            return "" if ts is None else repr(ts), self._namespace, ()
        time = self._server.time() if ts is None else ts
        return repr(time), self._namespace(time), (_REGISTRY,)

    def _names(self) -> list[str]:
        """Return the namespaces of this store that contain data."""
        if isinstance(self._namespace, str):
            return [self._namespace]
        ((*found,),) = self._run([(scripts.NAMESPACES, (_REGISTRY,), ())])
        named = [(name.decode(), float(time)) for name, time in _pairs(found)]
        # Namespaces of other stores are listed, too.
        return [name for name, time in named if self._namespace(time) == name]


def _of(namespace: str, event: str) -> tuple[str, str]:
    """Return the Redis keys of an event."""
    return f"{namespace}:{event}", f"{namespace}:{event}::expires"


def _history_of(namespace: str) -> tuple[str, str, str]:
    """Return the Redis keys of a history."""
    history = f"{namespace}::history"
    return history, f"{history}:expires", f"{history}:bodies"


def _parts(whole: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    """Split a sequence into parts of a given size."""
    for start in range(0, len(whole), most):
        yield whole[start : start + most]


def _range(first: float, last: float) -> tuple[str, str]:
    return repr(first), "+inf" if math.isinf(last) else repr(last)


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _escaped(text: str) -> str:
    """Escape text for a Redis pattern."""
    return "".join(f"\\{each}" if each in "*?[]\\^-" else each for each in text)
