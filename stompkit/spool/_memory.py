"""Deduplication of messages that a broker redelivers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import repeat
from operator import itemgetter

from stompkit.spool.segments.blocks import Block
from stompkit.spool.segments.records import Record

__all__ = ["Memory"]


class Memory:
    """Keys of the last *most* messages: destination and event id, or message id without event id.

    A message without either id is always new.
    """

    def __init__(self, most: int) -> None:
        """Start empty; raises ValueError for a number below 0."""
        if most < 0:
            raise ValueError(f"{most} messages cannot be remembered")
        self._most = most
        self._keys: OrderedDict[str, None] = OrderedDict()

    def fresh(
        self, records: Sequence[Record], suspected: Sequence[bool] | None = None
    ) -> tuple[list[Record], list[str]]:
        """Return the messages that are not remembered, without duplicates, and their keys.

        If it is given, only the *suspected* messages are compared.
        """
        known = self._keys
        fresh: list[Record] = []
        keys: dict[str, None] = {}
        marks = repeat(True) if suspected is None else suspected
        for record, is_suspected in zip(records, marks, strict=False):
            key = _key(record.destination, record.event_id, record.message_id)
            if key:
                if is_suspected and (key in known or key in keys):
                    continue
                keys[key] = None
            fresh.append(record)
        return fresh, list(keys)

    def add(self, keys: Iterable[str]) -> None:
        """Remember keys, and evict the oldest beyond the limit."""
        known = self._keys
        known.update(zip(keys, repeat(None), strict=False))
        for _ in range(len(known) - self._most):
            known.popitem(last=False)

    def rebuild(self, partitions: Iterable[Iterable[Block]]) -> None:
        """Remember the messages in these blocks of each partition."""
        timed = merge(*map(_timed_keys, partitions), key=itemgetter(0))
        self.add(key for _, key in timed if key)


def _timed_keys(blocks: Iterable[Block]) -> Iterable[tuple[int, str]]:
    for block in blocks:
        columns = (block.text(name).strings() for name in ("destination", "event_id", "message_id"))
        yield from zip(block.received, map(_key, *columns), strict=True)


def _key(destination: str, event_id: str, message_id: str) -> str:
    if event_id:
        return f"{destination}\0e{event_id}"
    return f"{destination}\0m{message_id}" if message_id else ""
