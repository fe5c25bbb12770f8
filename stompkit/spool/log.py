"""Writing to a spool."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from stompkit._common.files import make_directory
from stompkit._common.spelling import amount
from stompkit.spool._epochs import begin_epoch, ensure_epochs
from stompkit.spool._errors import BrokenSpoolError, SpoolError, SpoolInUseError
from stompkit.spool._files import LOCK, locked, part_folder
from stompkit.spool._head import Head, check_partitions, ensure_floor, read_head
from stompkit.spool._identity import Identity, create, identity_of, is_spool, upgrade
from stompkit.spool._memory import Memory
from stompkit.spool._reading import SpoolReader
from stompkit.spool._tail import Tail
from stompkit.spool.segments.blocks import DamagedBlockError
from stompkit.spool.segments.place import Place
from stompkit.spool.segments.records import Record, partition_of

__all__ = ["SpoolWriter"]

_log: Final = logging.getLogger(__name__)

#: Approximate maximum size in bytes of a block's bodies, which limits the memory of readers.
_BLOCK_OCTETS: Final = 16 << 20
_BLOCK_MESSAGES: Final = 1 << 16
#: Shortest interval of warnings about duplicates, in seconds.
_WARN_EVERY_S: Final = 60.0


class SpoolWriter:
    """The exclusive writer of a spool, for as long as it is open.

    Use it in one thread at a time.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        partitions: int | None = None,
        segment_bytes: int = 64 << 20,
        segment_s: float = 86_400.0,
        remembered: int = 100_000,
        sync: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the spool in a folder, or create one.

        A segment ends at ``segment_bytes``, or when its oldest message is ``segment_s`` seconds
        older than the next one. Retention can only remove ended segments. ``remembered`` is the
        number of recent messages that are recognised when they are redelivered. Without ``sync`` a
        power failure can lose acknowledged messages. ``partitions`` defaults to 1 for a new spool,
        and never changes.

        Raises :class:`~stompkit.spool.SpoolInUseError` if another writer has the spool open,
        :class:`~stompkit.spool.BrokenSpoolError` if it is damaged, ValueError if ``partitions``
        differs from the existing number, and OSError.
        """
        if partitions is not None and partitions < 1:
            raise ValueError(f"a spool has one partition at least, not {partitions}")
        self.folder: Final = Path(folder)
        self._segment_bytes = segment_bytes
        self._segment_s = segment_s
        self._sync = sync
        self._clock = clock
        self._memory = Memory(remembered)
        self._tails: list[Tail] = []
        self._head: Head | None = None
        self._is_open = True
        self._has_epoch = False
        self._warns_s = 0.0
        make_directory(self.folder, mode=0o700)
        self._lock = locked(self.folder)
        try:
            identity = self._identity(partitions)
            self.id: Final = identity.id
            self.partitions: Final = identity.partitions
            self._open(remembered)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def head(self) -> tuple[int, ...]:
        """Return the ordinal after the last message of each partition."""
        return tuple(tail.end for tail in self._tails)

    def append(
        self, records: Sequence[Record], *, redelivered: Sequence[bool] | None = None
    ) -> int:
        """Append messages, and return the number of new ones; these are on disk on return.

        A message is a duplicate if another one with the same destination and event id is among the
        remembered ones or earlier in this call. Without event id the message id is compared. With
        ``redelivered``, which marks each of the messages, only the marked ones can be duplicates. A
        duplicate with another body is logged. Raises OSError, and ValueError for a message that is
        too large; then no message is kept, and the call can be repeated. Raises
        :class:`~stompkit.spool.SpoolInUseError` if the lock was removed meanwhile.
        """
        if self._head is None or not self._is_open:
            raise SpoolError(f"{self.folder} is closed")
        if not self._lock.is_in_place:
            raise SpoolInUseError(
                f"{self.folder / LOCK} was removed or replaced while the spool is written to, so"
                " another process may write to it as well. Stop that one, and start this one again"
            )
        fresh, keys, differing = self._memory.fresh(records, redelivered)
        self._warn_of(differing)
        if not fresh:
            return 0
        tails = self._tails
        try:
            if not self._has_epoch:
                begin_epoch(self.folder, self.head, sync=self._sync)
                self._has_epoch = True
            touched = self._write(fresh)
            for tail in touched:
                tail.sync()
            self._head.publish(tuple(tail.pending_end for tail in tails))
            for tail in touched:
                tail.keep()
            self._memory.add(keys.items())
        except (OSError, ValueError):
            for tail in tails:
                tail.drop()
            raise
        except BaseException:
            # It is unknown whether the head was published; the next writer to open the spool
            # determines it.
            self._release()
            raise
        return len(fresh)

    def _warn_of(self, differing: Sequence[Record]) -> None:
        """Warn of duplicates with another body, at most once a minute."""
        now = time.monotonic()
        if not differing or now < self._warns_s:
            return
        self._warns_s = now + _WARN_EVERY_S
        record = differing[0]
        name = "event-id" if record.event_id else "message-id"
        _log.warning(
            "%s not stored, with the id of an earlier message but another body, such as %s %.100s"
            " for %s: if they are different messages, give each producer its own ids, or each"
            " broker its own spool",
            amount(len(differing), "message"),
            name,
            record.event_id or record.message_id,
            record.destination,
        )

    def close(self) -> None:
        """Close the spool for the next writer; a second call does nothing."""
        if self._is_open:
            self._release(sync=self._sync)

    def _identity(self, partitions: int | None) -> Identity:
        if not is_spool(self.folder):
            return create(self.folder, partitions or 1, self._clock())
        identity = identity_of(self.folder)
        if partitions not in (None, identity.partitions):
            raise ValueError(
                f"{self.folder} has {identity.partitions} partitions, not {partitions}: make"
                " another spool for another number"
            )
        return identity

    def _open(self, remembered: int) -> None:
        published: tuple[int, ...] | None = None
        try:
            published = read_head(self.folder)
        except BrokenSpoolError as error:
            _log.warning("%s", error)
        else:
            check_partitions(self.folder, self.partitions, published)
        upgrade(self.folder)
        ensure_floor(self.folder, self.partitions)
        for number in range(self.partitions):
            folder, place = part_folder(self.folder, number), Place(self.id, number)
            end = None if published is None else published[number]
            self._tails.append(Tail(folder, place, end, sync=self._sync))
        ensure_epochs(self.folder, self.head)
        self._head = Head(self.folder, self.head, sync=self._sync)
        reader = SpoolReader(self.folder)
        try:
            self._memory.rebuild(
                reader.blocks(number, max(floor, head - remembered), head)
                for number, (floor, head) in enumerate(zip(reader.floor(), self.head, strict=True))
            )
        except DamagedBlockError as error:
            raise BrokenSpoolError(self.folder, 0, str(error)) from None

    def _write(self, records: list[Record]) -> list[Tail]:
        """Write the messages of each partition, and return the partitions that received any."""
        groups: dict[int, list[Record]] = {0: records}
        if self.partitions > 1:
            groups = {}
            for record in records:
                groups.setdefault(partition_of(record, self.partitions), []).append(record)
        touched: list[Tail] = []
        for number, group in groups.items():
            tail = self._tails[number]
            oldest_us = group[0].received_us - self._segment_s * 1e6
            if tail.is_full(self._segment_bytes, oldest_us):
                tail.roll()
            touched.append(tail)
            for some in _blocks_of(group):
                tail.write(some)
        return touched

    def _release(self, *, sync: bool = False) -> None:
        self._is_open = False
        for tail in self._tails:
            tail.close()
        try:
            if self._head is not None:
                self._head.close(sync=sync)
        finally:
            self._lock.release()


def _blocks_of(records: list[Record]) -> Iterator[list[Record]]:
    """Yield the messages in blocks of limited size."""
    if len(records) <= _BLOCK_MESSAGES and sum(len(r.body) for r in records) <= _BLOCK_OCTETS:
        yield records
        return
    some: list[Record] = []
    octets = 0
    for record in records:
        if some and (octets + len(record.body) > _BLOCK_OCTETS or len(some) == _BLOCK_MESSAGES):
            yield some
            some, octets = [], 0
        some.append(record)
        octets += len(record.body)
    yield some
