"""Deduplication of messages that a broker redelivers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

from stompkit.spool.segments.blocks import Block
from stompkit.spool.segments.records import Record

__all__ = ["Fresh", "Memory"]


class Fresh(NamedTuple):
    """The result of a comparison with the remembered messages."""

    #: Messages that are not remembered, without duplicates.
    records: list[Record]
    #: The CRC-32 of their bodies, by their keys.
    keys: dict[str, int]
    #: Duplicates whose body differs from that of the remembered message.
    differing: list[Record]


class Memory:
    """Keys of the last *most* messages: destination and event id, or message id without event id.

    A message without either id is always new.
    """

    def __init__(self, most: int) -> None:
        """Start empty; raises ValueError for a number below 0."""
        if most < 0:
            raise ValueError(f"{most} messages cannot be remembered")
        self._most = most
        #: CRC-32 of the body by key, oldest first.
        self._keys: OrderedDict[str, int] = OrderedDict()

    def fresh(self, records: Sequence[Record], suspected: Sequence[bool] | None = None) -> Fresh:
        """Return the messages that are not remembered.

        *suspected* marks the messages to compare; by default all are.
        """
        known = self._keys
        fresh = Fresh([], {}, [])
        keys = fresh.keys
        marks = [True] * len(records) if suspected is None else suspected
        for record, is_suspected in zip(records, marks, strict=True):
            key = _key(record.destination, record.event_id, record.message_id)
            if key:
                crc = crc32(record.body)
                if is_suspected and (key in known or key in keys):
                    if crc not in (known.get(key), keys.get(key)):
                        fresh.differing.append(record)
                    continue
                keys[key] = crc
            fresh.records.append(record)
        return fresh

    def add(self, keys: Iterable[tuple[str, int]]) -> None:
        """Remember keys with checksums of bodies, and evict the oldest beyond the limit."""
        known = self._keys
        for key, crc in keys:
            known[key] = crc
            known.move_to_end(key)
        for _ in range(len(known) - self._most):
            known.popitem(last=False)

    def rebuild(self, partitions: Iterable[Iterable[Block]]) -> None:
        """Remember the messages in these blocks of each partition."""
        timed = merge(*map(_timed_keys, partitions), key=itemgetter(0))
        self.add((key, crc) for _, key, crc in timed if key)


def _timed_keys(blocks: Iterable[Block]) -> Iterable[tuple[int, str, int]]:
    for block in blocks:
        columns = (block.text(name).strings() for name in ("destination", "event_id", "message_id"))
        offsets, data = block.body
        crcs = (crc32(data[start:end]) for start, end in pairwise(offsets))
        yield from zip(block.received, map(_key, *columns), crcs, strict=True)


def _key(destination: str, event_id: str, message_id: str) -> str:
    if event_id:
        return f"{destination}\0e{event_id}"
    return f"{destination}\0m{message_id}" if message_id else ""
