"""A search index: OpenSearch or Elasticsearch, over HTTP."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec

from stompkit._common.moved import renamed
from stompkit.replication.model.events import Changeset, RowChange
from stompkit.replication.model.tables import Tables
from stompkit.replication.model.values import InvalidValueError, Row
from stompkit.replication.sinks import ApplyError, Refuse, Refused, sifted
from stompkit.replication.sinks._rows import Outcome, Place, Rows, describe, key_text, unapplied
from stompkit.replication.sinks.search._api import (
    CONFLICT,
    NOT_FOUND,
    Action,
    Document,
    HttpTransport,
    SearchApi,
    SearchError,
    TooLargeError,
    Transport,
    batches,
    shown,
    versioned,
)
from stompkit.replication.sinks.search._documents import document, encode
from stompkit.replication.sinks.search._offsets import SearchOffsets

__all__ = ["SearchError", "SearchSink", "Transport"]

#: Number of bits for an origin's sequence numbers in document versions.
_ORIGIN_BITS: Final = 40
#: Maximum length of a document id in bytes.
_LONGEST_ID: Final = 512
_INDEX_NAME: Final = re.compile(r'(?!\.\.?$)[^-_+\\/*?"<>|\s,#:][^\\/*?"<>|\s,#:]*')
#: Version of a document that a recovered changeset creates: below those of all others.
_LEAST_VERSION: Final = 1
#: Statuses of permanently refused documents: bad request, too large, unprocessable.
_POISON: Final = frozenset({400, 413, 422})
#: Types of temporary errors that have such a status.
_PASSING: Final = frozenset(
    {"circuit_breaking_exception", "cluster_block_exception", "es_rejected_execution_exception"}
)


class SearchSink:
    """Stores rows as documents by their keys; a :class:`~stompkit.replication.sinks.Sink`.

    There are no transactions: documents are written first, then the numbers of the changesets, to a
    separate index. After a crash between the two, the documents are written again without harm:
    each document has the version of its changeset (``external_gte``), and an older one never
    replaces a newer one. Each changeset therefore takes effect exactly once. Between the two a
    search may see a part of a transaction. The versions of deleted documents are kept for a limited
    time only (``index.gc_deletes``); documents of changesets repeated later are deleted again at
    the end of the repetition.

    Versions are relative to an origin. The versions of a new origin are above those of all earlier
    ones, so that a publisher with a new origin may write all rows again. Concurrent origins must
    not share rows. The documents of a recovered changeset (``source.kind`` is ``recovery``) keep
    their versions, because the origins of its rows continue.

    An update is merged into the existing document, so that columns that it does not report are
    unchanged; without a document, one is created from the reported columns. Documents that move to
    another key are first stored with the offsets, so that a crash in the middle of a move loses
    nothing. Several changes of a row in one ``apply`` become one action. Truncating deletes all
    documents of the index, step by step.

    The server creates an index with its first document; to use a mapping, create the index before.
    Values follow that mapping: dates and times are ISO 8601, decimals and UUIDs text, bytes base64,
    intervals microseconds, non-finite numbers null.

    A document that its index refuses raises :class:`~stompkit.replication.sinks.ApplyError` with
    its table and key; the other documents may have been written. Any other error, such as a busy
    server (429, 503) or an unreachable one, may be retried: :class:`SearchError`, ``OSError``,
    ``http.client.HTTPException``.
    """

    def __init__(
        self,
        url: str,
        *,
        index: str | Callable[[RowChange], str] = "{table}",
        id: Callable[[RowChange], str] | None = None,
        refresh: bool | Literal["wait_for"] = False,
        batch_bytes: int = 5 * 1024 * 1024,
        api_key: str | None = None,
        tables: Tables | None = None,
        offsets_index: str = "stompkit-offsets",
        timeout_s: float = 60.0,
        ssl_context: ssl.SSLContext | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Configure; nothing is connected yet.

        ``url`` may have a user and a password; ``api_key`` takes precedence over them. ``index`` is
        the name of a table's index, with ``{table}`` and ``{schema}`` for these in lower case, or a
        function of a change. ``id`` returns a document's id for a change with a key; by default it
        is that of :func:`~stompkit.replication.sinks.cache.cache_key`, and each index is for one
        table. ``refresh`` is that of the API. A request has at most ``batch_bytes`` bytes, unless
        one document has more. ``timeout_s`` is the maximum time in seconds for an answer.
        ``transport`` replaces connections. Raises ``ValueError``.
        """
        if batch_bytes < 1:
            raise ValueError(f"batch_bytes is a number of octets, not {batch_bytes}")
        if refresh not in (True, False, "wait_for"):
            raise ValueError(f"refresh is True, False or 'wait_for', not {refresh!r}")
        if isinstance(index, str):
            try:
                index.format(table="t", schema="s")
            except (LookupError, ValueError):
                raise ValueError(
                    f"index {index!r} has more than {{table}} and {{schema}}"
                ) from None
        self._http = HttpTransport(url, api_key, timeout_s, ssl_context)
        self._api = SearchApi(transport or self._http)
        self._index = index
        self._id = id
        self._refresh = f"?refresh={str(refresh).lower()}" if refresh else ""
        self._batch_bytes = batch_bytes
        self._tables = tables or Tables()
        self._offsets = SearchOffsets(self._api, offsets_index)
        # By indices.
        self._owners: dict[str, str] = {offsets_index: "the offsets"}

    def last(self, origin: str) -> int | None:
        """Return the number of the last changeset of that origin, or ``None``."""
        return self._offsets.last([origin])[origin]

    def apply(self, changesets: Sequence[Changeset]) -> None:
        """Write the changed rows, then the numbers of their changesets."""
        self._apply_all(changesets, None)

    def apply_rows(self, changeset: Changeset, refuse: Refuse) -> None:
        """Write the acceptable changes, then the number; see RowSink."""
        if not unapplied([changeset], self._last([changeset.origin])):
            return
        kept, refused = sifted(changeset.changes, self._check)
        selected = msgspec.structs.replace(changeset, changes=tuple(kept))

        def refuse_all(more: list[Refused]) -> None:
            if refused or more:
                refuse([*refused, *more])

        self._apply_all([selected], refuse_all)

    def _last(self, origins: Sequence[str]) -> dict[str, int | None]:
        """Return the last number of each origin; also read the tables of indices."""
        last = self._offsets.last(origins)
        for origin in origins:
            self._owners.update(self._offsets.owners(origin))
        return last

    def _check(self, change: RowChange) -> None:
        """Raise ApplyError for a change that has no document."""
        if self._tables.wants(change.schema, change.table):
            rows = Rows(self._index_of, self._id_of)
            rows.add(self._tables.shape(change), 0)
            for outcome in rows.outcomes.values():
                _reported(outcome)

    def _apply_all(
        self, changesets: Sequence[Changeset], refuse: Callable[[list[Refused]], None] | None
    ) -> None:
        """Write rows and numbers; refused documents are passed to ``refuse``, or raised."""
        last = self._last(list({changeset.origin: None for changeset in changesets}))
        of_origin: dict[str, list[Changeset]] = {}
        for changeset in unapplied(changesets, last):
            of_origin.setdefault(changeset.origin, []).append(changeset)
        for origin, new in of_origin.items():
            if any(changeset.source.kind == "recovery" for changeset in new):
                self._apply_recovered(origin, new, refuse)
            else:
                with suppress(ApplyError):
                    # Refused documents will be reported with their changeset.
                    self._bulk(self._offsets.moves(origin), {})
                self._apply(origin, new, refuse)
            names = {change.name for each in new for change in each.changes}
            owned = {index: name for index, name in self._owners.items() if name in names}
            self._offsets.store(new[-1], owned if self._id is None else None)

    def skip(self, changeset: Changeset) -> None:
        """Store only the number."""
        self._offsets.store(changeset)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # Rows.

    def _apply(
        self,
        origin: str,
        changesets: Sequence[Changeset],
        refuse: Callable[[list[Refused]], None] | None,
    ) -> None:
        rows = self._rows(changesets)
        if not rows.outcomes and not rows.emptied:
            if refuse is not None:
                refuse([])
            return
        base = self._offsets.number(origin) << _ORIGIN_BITS
        reported = {place: _reported(outcome) for place, outcome in rows.outcomes.items()}
        for index, sequence in rows.emptied.items():
            self._empty(index, base + sequence + 1)
        targets = [place for place, outcome in rows.outcomes.items() if outcome.base]
        stored = self._api.get(list(dict.fromkeys(rows.bases() + targets)))
        actions, moves = [], []
        for place, outcome in rows.outcomes.items():
            version = base + outcome.sequence + 1
            # Documents that this changeset, or a newer one, has written stay: their source may be
            # gone.
            if place not in stored or stored[place].version < version:
                actions.append(versioned(place, version, _source(outcome, reported[place], stored)))
                if outcome.is_moved:
                    moves.append(actions[-1])
        self._offsets.begin(changesets[-1], moves, self._batch_bytes)
        self._bulk(actions, rows.outcomes, refuse)

    def _apply_recovered(
        self,
        origin: str,
        changesets: Sequence[Changeset],
        refuse: Callable[[list[Refused]], None] | None,
    ) -> None:
        """Write rows as they were read from the database, with the versions of their documents.

        The actions are stored first: when they are repeated, later changes have higher versions.
        """
        rows = self._rows(changesets)
        actions = self._offsets.moves(origin)
        if not actions:
            stored = self._api.get(list(rows.outcomes))
            for place, outcome in rows.outcomes.items():
                source = _source(outcome, _reported(outcome), stored)
                if place in stored:
                    actions.append(versioned(place, stored[place].version, source))
                elif source is not None:
                    actions.append(versioned(place, _LEAST_VERSION, source))
            self._offsets.begin(changesets[-1], actions, self._batch_bytes)
        self._bulk(actions, rows.outcomes, refuse)

    def _rows(self, changesets: Sequence[Changeset]) -> Rows:
        rows = Rows(self._index_of, self._id_of)
        for changeset in changesets:
            for change in changeset.changes:
                if self._tables.wants(change.schema, change.table):
                    rows.add(self._tables.shape(change), changeset.sequence)
        return rows

    def _empty(self, index: str, version: int) -> None:
        """Delete documents of an index that are older than a version."""
        for step in self._api.scan(index):
            old = [id for id, found in step if found < version]
            self._bulk([versioned((index, id), version, None) for id in old], {})

    def _bulk(
        self,
        actions: Sequence[Action],
        outcomes: dict[Place, Outcome],
        refuse: Callable[[list[Refused]], None] | None = None,
    ) -> None:
        """Execute actions, in as many requests as needed, even if some are refused."""
        poison = [
            problem
            for batch in batches(actions, self._batch_bytes)
            for problem in self._send(batch, outcomes)
        ]
        if refuse is not None:
            refuse(
                [Refused(outcomes[action.index, action.id].change, text) for action, text in poison]
            )
        elif poison:
            raise ApplyError("; ".join(text for _, text in poison[:3]))

    def _send(
        self, actions: Sequence[Action], outcomes: dict[Place, Outcome]
    ) -> list[tuple[Action, str]]:
        """Send a request; return the errors of refused documents."""
        try:
            results = list(self._api.bulk(actions, self._refresh))
        except TooLargeError as problem:
            if len(actions) == 1:
                return [(actions[0], f"{_name(actions[0], outcomes)}: {problem}")]
            middle = len(actions) // 2
            first = self._send(actions[:middle], outcomes)
            return first + self._send(actions[middle:], outcomes)
        poison = []
        for action, result in results:
            status, error = result["status"], result.get("error")
            if error is None or status == CONFLICT:
                continue
            if action.kind == "delete" and status == NOT_FOUND:
                continue
            if status not in _POISON or error.get("type") in _PASSING:
                raise SearchError(f"{_name(action, outcomes)}: status {status}: {shown(error)}")
            poison.append((action, f"{_name(action, outcomes)}: {shown(error)}"))
        return poison

    # Names.

    def _index_of(self, change: RowChange) -> str:
        if callable(self._index):
            name = self._index(change)
        else:
            table, schema = change.table.lower(), change.schema.lower()
            name = self._index.format(table=table, schema=schema)
        if not _INDEX_NAME.fullmatch(name) or name != name.lower() or len(name.encode()) > 255:
            raise ApplyError(f"table {change.name}: {name!r} cannot be the name of an index")
        owner = self._owners.setdefault(name, change.name)
        if owner != change.name and (self._id is None or name == self._offsets.index):
            raise ApplyError(
                f"table {change.name} has the same index as {owner}, {name}: without a function "
                "for ids their documents cannot be told apart"
            )
        return name

    def _id_of(self, change: RowChange, key: Row) -> str:
        if self._id is None:
            name = key_text(list(key.values()))
        else:
            name = self._id(msgspec.structs.replace(change, key=dict(key), old_key=None))
        if not name:
            raise ApplyError(f"table {change.name}, key {describe(key)}: the id is empty")
        octets = name.encode()
        if len(octets) <= _LONGEST_ID:
            return name
        return f"sha256:{hashlib.sha256(octets).hexdigest()}"


def _reported(outcome: Outcome) -> dict[str, object] | None:
    """Return the columns of a row in the form of a document; ``None`` for a deleted row."""
    if outcome.columns is None:
        return None
    try:
        reported = document(outcome.columns)
        # Check the encoding now, before anything is written.
        encode(reported)
    except InvalidValueError as problem:
        raise ApplyError(f"{_row_name(outcome.change)}: {problem}") from None
    return reported


def _source(
    outcome: Outcome, reported: dict[str, object] | None, stored: dict[Place, Document]
) -> bytes | None:
    """Return a whole document; ``None`` to delete it."""
    if reported is None:
        return None
    before = None if outcome.base is None else stored.get(outcome.base)
    return encode(reported if before is None else {**before.source, **reported})


def _name(action: Action, outcomes: dict[Place, Outcome]) -> str:
    """Return the subject of an action, for a message."""
    outcome = outcomes.get((action.index, action.id))
    if outcome is None:
        return f"index {action.index}, document {action.id!a}"
    return _row_name(outcome.change)


def _row_name(change: RowChange) -> str:
    return f"table {change.name}, key {describe(change.key)}"


renamed(
    __name__,
    SearchProblem="SearchError",
)
