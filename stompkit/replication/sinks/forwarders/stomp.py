"""Publishing to a broker: sends each changeset of this process's publishers as frames."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, Final, Self

import msgspec
from blinker import Signal

from stompkit._common.futures import all_of
from stompkit.client.blocking import BrokerUrl, Link
from stompkit.replication.model.events import Changeset, EncodedChangeset, RowChange
from stompkit.replication.model.frames import MAX_BODY_BYTES, Packet, packets
from stompkit.replication.model.signals import CHANGESET
from stompkit.replication.model.tables import Tables

__all__ = ["StompSub", "partition_of", "partitioned", "stomp_sub"]

#: A destination, with ``{origin}`` for that of the changeset, or a function that returns one.
Destination = str | Callable[[Changeset], str]

#: Characters with a meaning in the destination names of some broker.
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]")


def stomp_sub(
    url_or_hosts: str | Sequence[str],
    destination: Destination | None = None,
    *,
    tables: Tables | Iterable[str] | None = None,
    receipts: bool = True,
    partitions: int = 1,
    max_body_bytes: int = MAX_BODY_BYTES,
    persistent: bool = True,
    changesets: Signal = CHANGESET,
    **settings: Any,
) -> StompSub:
    """Connect to a broker, and send it each changeset from now on.

    ``url_or_hosts`` is ``stomp://login:passcode@a:61613,b:61613/queue/x``, see
    :class:`~stompkit.client.blocking.BrokerUrl`, or ``["a:61613", "b:61613"]``: further hosts are
    for failover. ``settings`` are further ones of :class:`~stompkit.client.blocking.Link`, among
    them ``login``, ``passcode`` and ``virtual_host`` for those without a URL.

    ``destination`` takes precedence over that of the URL. In a text, ``{origin}`` stands for the
    origin, in which other characters than letters, digits, hyphens and underscores become hyphens.

    ``tables`` are patterns of tables, or :class:`~stompkit.replication.model.tables.Tables`; a
    changeset without any of them is sent empty, so that numbers have no gaps. Without ``receipts``,
    for brokers that do not support them, frames can be lost. ``max_body_bytes`` bounds a frame.
    ``persistent`` asks the broker to keep frames over a restart.

    ``partitions`` is for several consumers, see :func:`partitioned`. ``changesets`` is the signal
    to connect to: that of one publisher, or of all.

    Raises ``ValueError`` for invalid arguments, and if there is no destination.
    """
    if isinstance(url_or_hosts, str):
        url = BrokerUrl.parse(url_or_hosts)
        where = destination or url.destination
    else:
        where = destination or ""
    if not where:
        raise ValueError("no destination: neither the URL names one nor the argument")
    if partitions < 1 or max_body_bytes < 1:
        raise ValueError("partitions and max_body_bytes are at least 1")
    if tables is not None and not isinstance(tables, Tables):
        tables = Tables(tables)
    if isinstance(url_or_hosts, str):
        link = url.link(receipts=receipts, **settings)
    else:
        link = Link(url_or_hosts, receipts=receipts, **settings)
    return StompSub(
        link,
        where,
        tables=tables,
        partitions=partitions,
        max_body_bytes=max_body_bytes,
        persistent=persistent,
        changesets=changesets,
    )


class StompSub:
    """Receives changesets, and sends them; as a context manager it is closed at the end."""

    def __init__(
        self,
        link: Link,
        destination: Destination,
        *,
        tables: Tables | None = None,
        partitions: int = 1,
        max_body_bytes: int = MAX_BODY_BYTES,
        persistent: bool = True,
        changesets: Signal = CHANGESET,
    ) -> None:
        """Start receiving; the arguments are those of :func:`stomp_sub`."""
        #: The connection, which :meth:`close` closes.
        self.link: Final = link
        self._destination = destination
        self._tables = tables
        self._partitions = partitions
        self._max_body_bytes = max_body_bytes
        self._persistent = persistent
        self._signal = changesets
        # Frames of two publishers in two threads must not interleave.
        self._lock = Lock()
        self._signal.connect(self.send, weak=False)

    def __repr__(self) -> str:
        """Show the destination and the link."""
        return f"<StompSub to {self._destination!a} by {self.link!r}>"

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close it; after an exception, without waiting for confirmations."""
        self.close(timeout_s=10.0 if kind is None else 0.5)

    def send(self, changeset: Changeset) -> Future[None]:
        """Send a changeset; return a future that is done when a broker has confirmed all frames.

        It fails with the first error of their sending. Successive changesets of one origin may
        share a future, which is then done when all are confirmed. Blocks while the link's buffer is
        full. Raises :class:`~stompkit.client.blocking.LinkClosedError`.
        """
        base = self._base(changeset)
        if self._tables is not None:
            changeset = _selected(changeset, self._tables)
        if self._partitions == 1:
            pieces = [(base, changeset)]
        else:
            parts = partitioned(changeset, self._partitions)
            pieces = [(f"{base}.{number}", part) for number, part in enumerate(parts)]
        # All are made before the first is sent, so that a value without a JSON form sends nothing.
        made = [(where, self._packets(piece)) for where, piece in pieces]
        return self._send(made, changeset.origin)

    def send_encoded(self, changesets: Sequence[EncodedChangeset]) -> Future[None]:
        """Send changesets as :meth:`send` does, with one future for all of them.

        Their changes are decoded only to select tables, to distribute them to partitions, or for a
        function that returns the destination.
        """
        if self._tables is not None or self._partitions > 1 or callable(self._destination):
            return all_of([self.send(each.decoded()) for each in changesets])
        made: list[tuple[str, list[Packet]]] = []
        for changeset in changesets:
            base = self._base(changeset)
            if not made or made[-1][0] != base:
                made.append((base, []))
            made[-1][1].extend(self._packets(changeset))
        return self._send(made)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all sent frames are confirmed or have failed; raises TimeoutError."""
        self.link.flush(timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop receiving, wait at most ``timeout_s`` seconds for confirmations, and disconnect."""
        self._signal.disconnect(self.send)
        self.link.close(timeout_s)

    def _base(self, changeset: Changeset | EncodedChangeset) -> str:
        """Return the destination, without a partition."""
        template = self._destination
        if callable(template):
            assert isinstance(changeset, Changeset)
            return template(changeset)
        if "{origin}" not in template:
            return template
        return template.replace("{origin}", _PLAIN.sub("-", changeset.origin))

    def _send(self, made: Iterable[tuple[str, list[Packet]]], group: str = "") -> Future[None]:
        with self._lock:
            futures = [self.link.send(where, each, group=group) for where, each in made]
        return futures[0] if len(futures) == 1 else all_of(futures)

    def _packets(self, changeset: Changeset | EncodedChangeset) -> list[Packet]:
        made = list(packets(changeset, max_body_bytes=self._max_body_bytes))
        if not self._persistent:
            for packet in made:
                packet.headers["persistent"] = "false"
        return made


def _selected(changeset: Changeset, tables: Tables) -> Changeset:
    changes = [
        tables.shape(change)
        for change in changeset.changes
        if tables.wants(change.schema, change.table)
    ]
    return msgspec.structs.replace(changeset, changes=tuple(changes))


# Partitions.


def partition_of(change: RowChange, partitions: int) -> int:
    """Return the partition of a change, from 0: the same for the same row, on every machine."""
    digest = hashlib.blake2b(change.identity, digest_size=8).digest()
    return int.from_bytes(digest) % partitions


def partitioned(changeset: Changeset, partitions: int) -> list[Changeset]:
    """Return a changeset for each partition, with the changes of its rows in order.

    Each has the sequence number of the whole, even if it is empty, and its own origin and id: those
    of the whole with ``/0``, ``/1`` and so on appended. The changes of one row are always in the
    same partition, also in a table without a key. A reader of one partition does not receive whole
    transactions, and the order of rows in different partitions is undefined.

    An update that moves a row to a key in another partition is a delete in the one and a write in
    the other. The write lacks columns that are neither in the update's ``after`` nor in its
    ``before``. ``truncate`` and ``schema`` are in every partition. If several partitions are
    applied to one table, and one of them lags behind, its ``truncate`` also deletes rows that the
    others have written since. Synchronise the partitions, or give each its own table.
    """
    found: list[list[RowChange]] = [[] for _ in range(partitions)]
    for change in changeset.changes:
        if change.action in ("truncate", "schema"):
            for each in found:
                each.append(change)
            continue
        number = partition_of(change, partitions)
        if change.old_key is None:
            found[number].append(change)
            continue
        gone = msgspec.structs.replace(
            change, action="delete", key=change.old_key, after=None, old_key=None
        )
        was = partition_of(gone, partitions)
        if was == number:
            found[number].append(change)
            continue
        found[was].append(gone)
        known = {**(change.before or {}), **(change.after or {})}
        # The old row has the old key among its columns.
        row = {name: change.key.get(name, value) for name, value in known.items()}
        new = msgspec.structs.replace(change, action="write", before=None, after=row, old_key=None)
        found[number].append(new)
    return [
        msgspec.structs.replace(
            changeset,
            id=f"{changeset.id}/{number}",
            origin=f"{changeset.origin}/{number}",
            changes=tuple(each),
        )
        for number, each in enumerate(found)
    ]
