"""Answers to requests: changesets in their original bytes, and pages of a snapshot."""

from __future__ import annotations

from collections import deque

from stompkit.replica.engine._core import Core
from stompkit.replica.engine._facts import Gone, Page, PageWant, Sent, Want
from stompkit.replica.engine._snapshots import row_item
from stompkit.replica.messages import Message
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import ChangesetRecord
from stompkit.replica.vectors import Vector

__all__ = ["Answers", "changes_message"]

#: Limits of the answer to one request, in changesets and bytes.
_MOST = 10_000
_MOST_BYTES = 16 * 1024 * 1024
#: Maximum number of waiting requests; unanswered nodes ask again.
_MOST_WAITING = 100


def changes_message(origin: str, records: list[ChangesetRecord]) -> Message:
    """Return changesets as one message."""
    items = []
    for record in records:
        assert record.body is not None
        items.append(SignedChangeset(record.body, record.signature).encode())
    return Message("changes", origin, {}, items)


class Answers:
    """A queue of requests of other nodes."""

    def __init__(self, core: Core) -> None:
        """Start empty."""
        self._core = core
        self._waiting: deque[tuple[int, str, Want | PageWant]] = deque()

    def add(self, port: int, sender: str, request: Want | PageWant) -> None:
        """Add a request; it replaces an earlier one of the same node."""
        self._waiting = deque(each for each in self._waiting if each[1] != sender)
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append((port, sender, request))

    def forget(self, port: int) -> None:
        """Drop the requests of a disconnected channel."""
        self._waiting = deque(each for each in self._waiting if each[0] != port)

    @property
    def is_due(self) -> bool:
        """True if requests are waiting."""
        return bool(self._waiting)

    def poll(self) -> None:
        """Answer the oldest request."""
        if not self._waiting:
            return
        port, sender, request = self._waiting.popleft()
        if isinstance(request, Want):
            self._send_changes(port, sender, request)
        else:
            self._send_page(port, sender, request)

    def _send_changes(self, port: int, sender: str, want: Want) -> None:
        core = self._core
        most_bytes = min(want.most_bytes, _MOST_BYTES)
        with core.store.reading() as reader:
            floor = reader.floor()
            if any(first <= floor.get(name, 0) for name, (first, _) in want.ranges.items()):
                gone = {name: floor[name] for name in want.ranges if name in floor}
                core.say(port, Gone(number=want.number, floor=gone), to=sender)
                return
            records = reader.ranges(
                dict(want.ranges), limit=min(want.most, _MOST), max_bytes=most_bytes
            )
        group: list[ChangesetRecord] = []
        size = 0
        for record in records:
            if group and size + record.size > core.settings.max_body_bytes * 3 // 4:
                core.send(port, changes_message(core.origin, group), to=sender)
                group, size = [], 0
            group.append(record)
            size += record.size
        if group:
            core.send(port, changes_message(core.origin, group), to=sender)
        core.counts["served"] += len(records)
        core.say(port, Sent(number=want.number, count=len(records)), to=sender)

    def _send_page(self, port: int, sender: str, want: PageWant) -> None:
        core = self._core
        after = bytes.fromhex(want.after) if want.after else None
        with core.store.reading() as reader:
            most_bytes = min(want.most_bytes, core.settings.max_body_bytes * 4)
            records = reader.row_page(after, limit=1000, max_bytes=most_bytes)
            vector: Vector = reader.vector()
            # A row that itself came with a page may include more than the others.
            pages = reader.page_vectors()
            clocks = {name: each.clock for name, each in reader.origins().items()}
            tip = reader.meta("tip") or {"heads": [], "hlc": 0}
        page = Page(
            number=want.number,
            after=want.after,
            upto=records[-1].id.hex() if records else "",
            vector=dict(vector),
            clocks=clocks,
            heads=tip["heads"],
            hlc=tip["hlc"],
        )
        items = [
            row_item(record, {} if record.page is None else pages.get(record.page, {}))
            for record in records
        ]
        core.counts["pages_served"] += 1
        core.say(port, page, items, to=sender)
