"""Redis as a cache of rows: refreshed, or only kept from holding what is not so any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec
from redis import Redis, WatchError
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from stompkit.replication.events import Changeset, RowChange
from stompkit.replication.sinks import ApplyProblem, Refuse, SinkMisconfigured, sifted
from stompkit.replication.sinks._rows import Outcome, Place, Rows, describe, key_text, unapplied
from stompkit.replication.sinks.cache._keys import NAMESPACE, cache_key, delete_table, escaped
from stompkit.replication.sinks.cache._replicator import RedisCacheReplicator
from stompkit.replication.tables import Tables
from stompkit.replication.values import ValueProblem, row_to_json

__all__ = ["NAMESPACE", "RedisCacheReplicator", "RedisSink", "Serialize", "cache_key"]

#: Makes of a row what is stored; ``None`` for nothing.
Serialize = Callable[[RowChange], bytes | None]

#: How often others may write what a transaction has read before it is given up for now.
_ATTEMPTS: Final = 20
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class RedisSink:
    """Keeps rows in Redis as JSON, by their keys; a :class:`~stompkit.replication.sinks.Sink`.

    A row is a string at :func:`cache_key`: the JSON of its columns, in the form of
    :mod:`stompkit.replication.values`. What is there is always a whole row as it is in the source.
    A row that is not told wholly is completed from what is stored; where that is not there, since
    it has expired, or since the cache was begun in the middle of a row's life, nothing is stored.
    Which columns a table has is learnt from rows that are new or in a snapshot, and from changes of
    schemas; a change that alters them empties the table's part of the cache.

    Rows, and the numbers of the changesets that they come from, are written in one transaction
    (``MULTI``) under a watch: whatever crashes, the effect is that of each changeset once. Only the
    keys of a truncated table go before it, in steps: at worst rows are lacking for that. With
    ``mode="invalidate"`` nothing is ever stored, and what has changed is deleted: for a cache that
    the application fills.

    The keys of one namespace are those of rows, ``NAMESPACE:offsets`` and ``NAMESPACE:columns``;
    no other namespace may begin with this one and a colon. In a cluster the namespace needs a hash
    tag, as in ``{cache}``. A server that evicts keys at will may forget the offsets: with
    ``volatile-*`` it does not. Connections are made when they are needed, and again when they are
    lost; all exceptions of ``redis`` are worth another try, those of time limits, too.
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
        """Nothing is connected yet.

        ``serialize`` makes of a change, whose ``after`` is the whole row, what is stored in place
        of JSON; it may raise :class:`~stompkit.replication.sinks.ApplyProblem`. Rows that are not
        told wholly can't be completed then, and are not stored. Rows expire after ``ttl_s``
        seconds. ``timeout_s`` is how long Redis may take for an answer. Raises ``ValueError`` for
        arguments that are not as they should be.
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
        """The number of the last changeset of that origin, or ``None``."""
        with _denials():
            return self._last(self._redis, [origin])[origin]

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Write what has become of rows.

        Raises :class:`~stompkit.replication.sinks.ApplyProblem` for a row without a key or with a
        value that has no JSON, and ``redis.RedisError``.
        """
        self._commit(changesets, self._write)

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Write what can be written; see RowSink.

        Raises ``redis.RedisError``, and what ``refuse`` raises.
        """
        if not unapplied([changeset], {changeset.origin: self.last(changeset.origin)}):
            return
        kept, refused = sifted(changeset.changes, self._check)
        if refused:
            refuse(refused)
        self.apply([msgspec.structs.replace(changeset, changes=tuple(kept))])

    def skip(self, changeset: Changeset) -> None:
        """Only store the number; raises ``redis.RedisError``."""
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
                # Its methods are typed for programs with and without asyncio at once.
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
                    # Somebody else has written what was read.
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
        """Raise ApplyProblem for a change that can't be stored by itself."""
        if not self._tables.wants(change.schema, change.table):
            return
        rows = Rows(self._holder, lambda change, key: key_text(list(key.values())))
        rows.add(self._tables.shape(change), 0)
        for outcome in rows.outcomes.values():
            self._text(outcome, frozenset(outcome.columns or ()), {})

    def _holder(self, change: RowChange) -> str:
        """What the keys of a table's rows begin with."""
        return f"{self._namespace}:{escaped(change.name)}"

    def _stored(self, pipe: Any, places: list[Place]) -> dict[Place, dict[str, object]]:
        """The rows that are stored as JSON."""
        if not places or not self._refreshes or self._serialize is not None:
            return {}
        keys = [":".join(place) for place in places]
        pipe.watch(*keys)
        found = zip(places, pipe.mget(keys), strict=True)
        return {place: row for place, text in found if (row := _row(text)) is not None}

    def _text(
        self, outcome: Outcome, known: frozenset[str], stored: dict[Place, dict[str, object]]
    ) -> bytes | None:
        """What is to be stored, if anything."""
        change, columns = outcome.change, outcome.columns
        if columns is None or not self._refreshes:
            return None
        if self._serialize is not None:
            if not known or not known <= columns.keys():
                return None
            return self._serialize(msgspec.structs.replace(change, after=columns))
        try:
            told = row_to_json(columns)
        except ValueProblem as problem:
            key = describe(change.key)
            raise ApplyProblem(f"table {change.name}, key {key}: {problem}") from None
        row = {**stored.get(outcome.base, {}), **told} if outcome.base else told
        return _ENCODER.encode(row) if known and known <= row.keys() else None


@contextmanager
def _denials() -> Iterator[None]:
    """Tell what no other try helps against: the user may not, or keys are somebody else's."""
    try:
        yield
    except (AuthenticationError, NoPermissionError) as error:
        raise SinkMisconfigured(f"Redis refuses this user: {error}") from None
    except ResponseError as error:
        if not str(error).startswith(("WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS")):
            raise
        raise SinkMisconfigured(
            f"Redis has other data under the names of this namespace, or refuses this user: {error}"
        ) from None


class _Columns:
    """The names of the columns that tables have, by what the keys of their rows begin with."""

    def __init__(self, stored: dict[bytes, bytes]) -> None:
        self.known = {
            holder.decode(): frozenset(msgspec.json.decode(names, type=list[str]))
            for holder, names in stored.items()
        }
        self.learnt: dict[str, bytes] = {}

    def learn(self, holder: str, change: RowChange) -> bool:
        """Learn from a change; gives whether rows of before are not what rows are now."""
        known = self.known.get(holder)
        told = frozenset(_told_columns(change))
        # What a new row does not tell may be a column that the database has filled.
        names = told if change.action == "schema" or known is None else told | known
        if not told or names == known:
            return False
        self.known[holder] = names
        self.learnt[holder] = _ENCODER.encode(sorted(names))
        return known is not None


def _told_columns(change: RowChange) -> Iterator[str]:
    """The columns that the table surely has; none where a change does not tell."""
    if change.after is None:
        return
    if change.action in ("write", "read"):
        yield from change.after
        yield from change.key
    elif change.action == "schema":
        for column in change.after.get("columns") or ():
            yield column["name"]


def _row(text: bytes | None) -> dict[str, object] | None:
    """A row that is stored; none if it is anything else."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
