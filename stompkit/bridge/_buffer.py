"""The buffer of a route: a spool that the source fills and the destination empties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from twisted.internet.defer import Deferred

from stompkit.bridge._headers import DeliveryKey
from stompkit.client import Message
from stompkit.spool import Record, SpoolReader, SpoolWriter
from stompkit.spool.readers import listed, progress, register
from stompkit.spool.retention import retain

__all__ = ["Buffer", "InThread", "record_of", "waiting_in"]

_READER: Final = "bridge"
_SEGMENT_BYTES: Final = 8 << 20
#: Confirmed messages, and octets of their bodies, after which disk space is reclaimed.
_RETAIN_MESSAGES: Final = 10_000
_RETAIN_OCTETS: Final = 2 * _SEGMENT_BYTES

_T = TypeVar("_T")


class InThread:
    """Runs blocking functions one after the other."""

    def __init__(self, run: Callable[[Callable[[], object]], Deferred[object]]) -> None:
        """Take a function such as Twisted's ``deferToThread``."""
        self._run = run
        self._last: Deferred[None] | None = None

    async def __call__(self, work: Callable[[], _T]) -> _T:
        """Run *work* after all earlier calls; return its result or raise its exception."""
        before, mine = self._last, Deferred[None]()
        self._last = mine
        if before is not None:
            await before
        try:
            found: list[_T] = []
            await self._run(lambda: found.append(work()))
            return found[0]
        finally:
            if self._last is mine:
                self._last = None
            mine.callback(None)


class Buffer:
    """Messages on disk, and the position up to which the destination has confirmed them.

    The methods block; call one at a time, in any thread. They raise OSError and SpoolError.
    """

    def __init__(self, folder: Path, remembered: int) -> None:
        """Open or create the buffer; the last ``remembered`` messages detect duplicates."""
        # First of all, because opening needs room on a disk that the buffer may have filled.
        if folder.is_dir() and _READER in listed(folder):
            _reclaim(folder)
        self._writer = SpoolWriter(
            folder, partitions=1, segment_bytes=_SEGMENT_BYTES, remembered=remembered
        )
        self._reader = SpoolReader(folder)
        self._folder = folder
        (self.position,) = register(folder, _READER, (0,)).positions
        self._retained = self.position
        self._octets = 0

    @property
    def head(self) -> int:
        """Ordinal after the last message."""
        return self._writer.head[0]

    def append(self, records: Sequence[Record], redelivered: Sequence[bool] | None = None) -> int:
        """Append messages and sync them to disk; return the number of new messages.

        With *redelivered*, only those that it marks may be known already.
        """
        return self._writer.append(records, redelivered=redelivered)

    def read(self, start: int, end: int) -> list[Record]:
        """Return the messages with ordinals from *start* to *end*, exclusive."""
        blocks = self._reader.blocks(0, start, end)
        found = [each for some in blocks for each in some.records()]
        self._octets += sum(len(each.body) for each in found)
        return found

    def confirm(self, position: int) -> None:
        """Record that the destination has confirmed all messages before *position*."""
        progress(self._folder, _READER, (position,))
        self.position = position
        is_much = self._octets >= _RETAIN_OCTETS or position - self._retained >= _RETAIN_MESSAGES
        if is_much:
            self._retained = position
            self._octets = 0
            _reclaim(self._writer)

    def close(self) -> None:
        """Close it."""
        self._writer.close()


def waiting_in(folder: Path) -> int:
    """Return the number of messages in a buffer that the destination has not confirmed.

    The buffer may not exist yet. Raises OSError and SpoolError.
    """
    reader = listed(folder).get(_READER)
    return 0 if reader is None else SpoolReader(folder).head()[0] - reader.positions[0]


def _reclaim(where: SpoolWriter | Path) -> None:
    """Remove segments whose messages the destination has all confirmed."""
    # By size, because the clock may have been wrong when messages came. Retention keeps what the
    # reader has not confirmed.
    retain(where, max_bytes=0, whole_changesets=False)


def record_of(
    message: Message, key: DeliveryKey, to: str, headers: Mapping[str, str], now_s: float
) -> Record:
    """Return the record of a message to forward; the buffer recognises redeliveries by *key*."""
    return Record(
        received_us=round(now_s * 1e6),
        destination=to,
        message_id=message.id,
        event_id=key,
        content_type=headers.get("content-type", ""),
        headers=tuple(headers.items()),
        body=message.body,
    )
