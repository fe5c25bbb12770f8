"""Redis as a cache of rows, which is refreshed or invalidated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec
from redis import Redis, WatchError
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import InvalidValueError, row_to_json
from stompkit.replication.sinks import ApplyError, Refuse, SinkMisconfiguredError, sifted
from stompkit.replication.sinks._rows import Outcome, Place, Rows, describe, key_text, unapplied
from stompkit.replication.sinks.cache._keys import NAMESPACE, cache_key, delete_table, escaped
from stompkit.replication.sinks.cache._replicator import RedisCacheReplicator

__all__ = ["NAMESPACE", "RedisCacheReplicator", "RedisSink", "Serialize", "cache_key"]

#: Function from a row to its stored value; ``None`` to store nothing.
Serialize = Callable[[RowChange], bytes | None]

#: Number of attempts of a transaction whose keys others modify concurrently.
_ATTEMPTS: Final = 20
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class RedisSink:
    """Stores rows in Redis as JSON, by their keys; a :class:`~stompkit.replication.sinks.Sink`.

    A row is a string at :func:`cache_key`: the JSON of its columns, in the form of
    :mod:`stompkit.replication.model.values`. A stored row is always complete, as in the source. An
    incompletely reported row is completed from the stored one. If that is missing, because it has
    expired or was never cached, nothing is stored. The sink learns a table's columns from new rows,
    snapshots and schema changes; a change that alters them empties the table's part of the cache.

    Rows, and the numbers of their changesets, are written in one transaction (``MULTI``) under a
    watch. Each changeset therefore takes effect exactly once, even after a crash. Only the keys of
    a truncated table are deleted before it, in steps: at worst rows are missing for that time. With
    ``mode="invalidate"`` nothing is ever stored, and changed rows are deleted: for a cache that the
    application fills.

    The keys of one namespace are those of rows, ``NAMESPACE:offsets`` and ``NAMESPACE:columns``; no
    other namespace may begin with this one and a colon. In a cluster the namespace needs a hash
    tag, as in ``{cache}``. A server with an eviction policy for all keys may evict the offsets;
    ``volatile-*`` policies do not. Connections are opened on first use, and reopened when they are
    lost. All exceptions of ``redis`` may be retried, including timeouts.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        namespace: str = NAMESPACE,
        serialize: Serialize | None = None,
        mode: Literal["refresh", "invalidate"] = "refresh",
        ttl_s: float | None = None,
        tables: Tables | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """Configure; nothing is connected yet.

        ``serialize`` returns the stored value, in place of JSON, for a change whose ``after`` is
        the whole row; it may raise :class:`~stompkit.replication.sinks.ApplyError`. Incompletely
        reported rows cannot be completed then, and are not stored. Rows expire after ``ttl_s``
        seconds. ``timeout_s`` is the maximum time in seconds for an answer of Redis. Raises
        ``ValueError`` for invalid arguments.
        """
        if mode not in ("refresh", "invalidate"):
            raise ValueError(f"mode is 'refresh' or 'invalidate', not {mode!r}")
        if ttl_s is not None and ttl_s < 0.001:
            raise ValueError(f"ttl_s is a time in seconds, not {ttl_s}")
        if not namespace:
            raise ValueError("the namespace is empty")
        self._redis = Redis.from_url(
            redis_url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
        )
        self._namespace = namespace
        self._serialize = serialize
        self._refreshes = mode == "refresh"
        self._ttl_ms = None if ttl_s is None else round(ttl_s * 1000)
        self._tables = tables or Tables()
        self._offsets = f"{namespace}:offsets"
        self._columns = f"{namespace}:columns"

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of that origin, or ``None``."""
        with _denials():
            return self._last(self._redis, [origin])[origin]

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Write or delete the changed rows.

        Raises :class:`~stompkit.replication.sinks.ApplyError` for a row without a key or with a
        value that has no JSON form, and ``redis.RedisError``.
        """
        self._commit(changesets, self._write)

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Write the acceptable changes; see RowSink.

        Raises ``redis.RedisError``, and the errors of ``refuse``.
        """
        if not unapplied([changeset], {changeset.origin: self.last(changeset.origin)}):
            return
        kept, refused = sifted(changeset.changes, self._check)
        if refused:
            refuse(refused)
        self.apply([msgspec.structs.replace(changeset, changes=tuple(kept))])

    def skip(self, changeset: Changeset) -> None:
        """Store only the number; raises ``redis.RedisError``."""
        self._commit([changeset], lambda pipe, changesets: pipe.multi())

    def close(self) -> None:
        """Close connections."""
        self._redis.close()

    # Inside.

    def _last(self, redis: Any, origins: list[str]) -> dict[str, int | None]:
        found = redis.hmget(self._offsets, origins)
        return {
            origin: None if number is None else int(number)
            for origin, number in zip(origins, found, strict=True)
        }

    def _commit(
        self, changesets: Sequence[Changeset], write: Callable[[Any, list[Changeset]], None]
    ) -> None:
        """Store the numbers of changesets in a transaction that ``write`` begins."""
        origins = list({changeset.origin: None for changeset in changesets})
        if origins:
            with _denials():
                self._try_to_commit(changesets, write, origins)

    def _try_to_commit(
        self,
        changesets: Sequence[Changeset],
        write: Callable[[Any, list[Changeset]], None],
        origins: list[str],
    ) -> None:
        for attempt in range(_ATTEMPTS):
            with self._redis.pipeline() as pipeline:
                # Its methods have type hints for synchronous and asynchronous use at once.
                pipe: Any = pipeline
                pipe.watch(self._offsets, self._columns)
                last = self._last(pipe, origins)
                new = unapplied(changesets, last)
                if not new:
                    return
                write(pipe, new)
                pipe.hset(self._offsets, mapping={each: f"{last[each]}" for each in origins})
                try:
                    pipe.execute()
                except WatchError:
                    # Another client has modified the watched keys.
                    if attempt == _ATTEMPTS - 1:
                        raise
                else:
                    return

    def _write(self, pipe: Any, changesets: list[Changeset]) -> None:
        columns = _Columns(pipe.hgetall(self._columns))
        rows = Rows(self._holder, lambda change, key: key_text(list(key.values())))
        for changeset in changesets:
            for change in changeset.changes:
                if self._tables.wants(change.schema, change.table):
                    shaped = self._tables.shape(change)
                    if self._refreshes and columns.learn(self._holder(shaped), shaped):
                        rows.empty(self._holder(shaped), changeset.sequence)
                    rows.add(shaped, changeset.sequence)
        for holder in rows.emptied:
            delete_table(self._redis, holder)
        stored = self._stored(pipe, rows.bases())
        pipe.multi()
        for place, outcome in rows.outcomes.items():
            text = self._text(outcome, columns.known.get(place[0], frozenset()), stored)
            if text is None:
                pipe.delete(":".join(place))
            else:
                pipe.set(":".join(place), text, px=self._ttl_ms)
        if columns.learnt:
            pipe.hset(self._columns, mapping=columns.learnt)

    def _check(self, change: RowChange) -> None:
        """Raise ApplyError for a change that cannot be stored by itself."""
        if not self._tables.wants(change.schema, change.table):
            return
        rows = Rows(self._holder, lambda change, key: key_text(list(key.values())))
        rows.add(self._tables.shape(change), 0)
        for outcome in rows.outcomes.values():
            self._text(outcome, frozenset(outcome.columns or ()), {})

    def _holder(self, change: RowChange) -> str:
        """Return the prefix of the keys of a table's rows."""
        return f"{self._namespace}:{escaped(change.name)}"

    def _stored(self, pipe: Any, places: list[Place]) -> dict[Place, dict[str, object]]:
        """Return the rows that are stored as JSON."""
        if not places or not self._refreshes or self._serialize is not None:
            return {}
        keys = [":".join(place) for place in places]
        pipe.watch(*keys)
        found = zip(places, pipe.mget(keys), strict=True)
        return {place: row for place, text in found if (row := _row(text)) is not None}

    def _text(
        self, outcome: Outcome, known: frozenset[str], stored: dict[Place, dict[str, object]]
    ) -> bytes | None:
        """Return the value to store, if any."""
        change, columns = outcome.change, outcome.columns
        if columns is None or not self._refreshes:
            return None
        if self._serialize is not None:
            if not known or not known <= columns.keys():
                return None
            return self._serialize(msgspec.structs.replace(change, after=columns))
        try:
            reported = row_to_json(columns)
        except InvalidValueError as problem:
            key = describe(change.key)
            raise ApplyError(f"table {change.name}, key {key}: {problem}") from None
        row = {**stored.get(outcome.base, {}), **reported} if outcome.base else reported
        return _ENCODER.encode(row) if known and known <= row.keys() else None


@contextmanager
def _denials() -> Iterator[None]:
    """Convert permanent errors: missing privileges, or keys of another application."""
    try:
        yield
    except (AuthenticationError, NoPermissionError) as error:
        raise SinkMisconfiguredError(f"Redis refuses this user: {error}") from None
    except ResponseError as error:
        if not str(error).startswith(("WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS")):
            raise
        raise SinkMisconfiguredError(
            f"Redis has other data under the names of this namespace, or refuses this user: {error}"
        ) from None


class _Columns:
    """The names of tables' columns, by the prefix of the keys of their rows."""

    def __init__(self, stored: dict[bytes, bytes]) -> None:
        self.known = {
            holder.decode(): frozenset(msgspec.json.decode(names, type=list[str]))
            for holder, names in stored.items()
        }
        self.learnt: dict[str, bytes] = {}

    def learn(self, holder: str, change: RowChange) -> bool:
        """Learn from a change; return True if earlier rows have other columns."""
        known = self.known.get(holder)
        reported = frozenset(_reported_columns(change))
        # A column that a new row does not report may have been filled by the database.
        names = reported if change.action == "schema" or known is None else reported | known
        if not reported or names == known:
            return False
        self.known[holder] = names
        self.learnt[holder] = _ENCODER.encode(sorted(names))
        return known is not None


def _reported_columns(change: RowChange) -> Iterator[str]:
    """Yield the columns that the table certainly has; none if a change does not report them."""
    if change.after is None:
        return
    if change.action in ("write", "read"):
        yield from change.after
        yield from change.key
    elif change.action == "schema":
        for column in change.after.get("columns") or ():
            yield column["name"]


def _row(text: bytes | None) -> dict[str, object] | None:
    """Return a stored row; None if it is anything else."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
