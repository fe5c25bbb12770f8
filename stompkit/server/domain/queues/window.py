"""Window of a queue: the messages at its front, which are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.content import QueueContent
from stompkit.server.domain.sub_queue import SubQueue
from stompkit.server.interfaces import (
    Mark,
    StoredMessage,
    StoreError,
)

__all__ = ["WindowedQueue"]

#: Delay in seconds before a failed read of the store is retried.
_RETRY_S: Final = 1.0
#: Maximum number of bytes of messages read at a time in order to drop them. It exceeds the default
#: limit of uncommitted bytes, so that drops keep up with new messages.
_DROPPED_OCTETS: Final = 16 * 1024 * 1024


class WindowedQueue(QueueContent):
    """Loads messages from the store into the window, and takes back unacknowledged ones."""

    def purge(self) -> int:
        """Drop all messages not held by consumers; return their number."""
        raise NotImplementedError

    def _drop_stored(self, lane: SubQueue[MessageReference], stored: StoredMessage) -> bool:
        """Drop a message read for that; return False if that is no longer necessary."""
        raise NotImplementedError

    # The window of stored messages.

    def _load_low_lanes(self) -> bool:
        """Fill the windows as far as there is room; return True if reads are in progress."""
        for lane in self.lanes:
            if lane.stored:
                self._load_if_low(lane)
        return any(lane.is_loading for lane in self.lanes)

    def refill(self, lane: SubQueue[MessageReference]) -> None:
        """Load more of a sub-queue if its window has run low."""
        if lane.stored:
            self._load_if_low(lane)

    def _load_if_low(self, lane: SubQueue[MessageReference]) -> None:
        config = self.host.broker.config
        if (
            not lane.is_loading
            and len(lane.ready) * 2 <= config.window_messages
            and lane.window_octets * 2 <= config.window_bytes
        ):
            self._load(lane)

    def _load(self, lane: SubQueue[MessageReference]) -> None:
        broker = self.host.broker
        commit_queue = broker.scheduler.commit_queue
        lane.is_loading = True

        def did(stored: Sequence[StoredMessage]) -> None:
            octets = 0
            for each in stored:
                octets += each.size
                if lane.owed and self._drop_stored(lane, each):
                    continue
                entry = MessageReference(Message.from_store(each), self, each.place)
                entry.deliveries = each.deliveries
                entry.lane = lane
                self._sharing.notice(entry.message)
                lane.append(entry)
                if entry.message.expires:
                    self._expiry.expect(entry)
            lane.take_stored(len(stored), octets)
            if not stored:
                lane.nothing_stored()
            self.loaded(lane)

        def failed(_: StoreError) -> None:
            broker.scheduler.later(_RETRY_S, partial(self.loaded, lane))

        commit_queue.read(
            lane.number,
            lane.seen,
            max(1, broker.config.window_messages - len(lane.ready)) + lane.owed,
            max(1, broker.config.window_bytes - lane.window_octets)
            + min(lane.owed_octets, _DROPPED_OCTETS),
            did,
            failed,
        )

    def loaded(self, lane: SubQueue[MessageReference]) -> None:
        """Continue after a sub-queue has been read."""
        lane.is_loading = False
        if lane.is_purged:
            lane.is_purged = False
            self.purge()
        self._made_room()
        self.host.scheduler.touch(self)

    def returned(self, entries: Iterable[MessageReference]) -> None:
        """Take messages back; they return to their old places before anything else is delivered."""
        for entry in entries:
            entry.subscription = None
            self._timeouts.forget(entry)
            lane = entry.lane
            assert lane is not None  # every entry of a queue has one
            lane.back.append(entry)
            self._sharing.look_again(lane.index, entry.place)
            if entry.message.expires:
                self._expiry.expect(entry)
            if lane.number:
                self.host.scheduler.commit_queue.lazily(
                    Mark(lane.number, entry.place, entry.deliveries)
                )

    def given_back(self, entries: Iterable[MessageReference]) -> None:
        """Take back a part of an ended connection's messages, the newest part first."""
        self.returned(entries)
        for lane in self.lanes:
            if lane.back:
                lane.restore()

    def taken_back(self, entry: MessageReference) -> None:
        """Take back a message whose settlement could not be applied."""
        self.messages += 1
        self.octets += entry.message.size
        lane = entry.lane
        if lane is not None and lane.number and entry.place > lane.seen:
            # An operator has removed it from the store, ahead of messages that are still only
            # there.
            lane.leave_stored(entry.message.size)
        else:
            self.returned([entry])
        self.host.scheduler.touch(self)

    def _mark(self, lane: SubQueue[MessageReference], entry: MessageReference) -> None:
        """Record in the store how often a message was delivered."""
        mark = Mark(lane.number, entry.place, entry.deliveries)
        self.host.scheduler.commit_queue.lazily(mark)
