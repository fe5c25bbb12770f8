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

    def _drop_stored(self, sub_queue: SubQueue[MessageReference], stored: StoredMessage) -> bool:
        """Drop a message read for that; return False if that is no longer necessary."""
        raise NotImplementedError

    # The window of stored messages.

    def _load_low_sub_queues(self) -> bool:
        """Fill the windows as far as there is room; return True if reads are in progress."""
        for sub_queue in self.sub_queues:
            if sub_queue.stored:
                self._load_if_low(sub_queue)
        return any(sub_queue.is_loading for sub_queue in self.sub_queues)

    def refill(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Load more of a sub-queue if its window has run low."""
        if sub_queue.stored:
            self._load_if_low(sub_queue)

    def _load_if_low(self, sub_queue: SubQueue[MessageReference]) -> None:
        config = self.host.broker.config
        if (
            not sub_queue.is_loading
            and len(sub_queue.ready) * 2 <= config.window_messages
            and sub_queue.window_octets * 2 <= config.window_bytes
        ):
            self._load(sub_queue)

    def _load(self, sub_queue: SubQueue[MessageReference]) -> None:
        broker = self.host.broker
        commit_queue = broker.scheduler.commit_queue
        sub_queue.is_loading = True

        def did(stored: Sequence[StoredMessage]) -> None:
            octets = 0
            for each in stored:
                octets += each.size
                if sub_queue.owed and self._drop_stored(sub_queue, each):
                    continue
                entry = MessageReference(Message.from_store(each), self, each.place)
                entry.deliveries = each.deliveries
                entry.sub_queue = sub_queue
                self._dispatcher.notice(entry.message)
                sub_queue.append(entry)
                if entry.message.expires:
                    self._expiry.expect(entry)
            sub_queue.take_stored(len(stored), octets)
            if not stored:
                sub_queue.nothing_stored()
            self.loaded(sub_queue)

        def failed(_: StoreError) -> None:
            broker.scheduler.later(_RETRY_S, partial(self.loaded, sub_queue))

        commit_queue.read(
            sub_queue.number,
            sub_queue.seen,
            max(1, broker.config.window_messages - len(sub_queue.ready)) + sub_queue.owed,
            max(1, broker.config.window_bytes - sub_queue.window_octets)
            + min(sub_queue.owed_octets, _DROPPED_OCTETS),
            did,
            failed,
        )

    def loaded(self, sub_queue: SubQueue[MessageReference]) -> None:
        """Continue after a sub-queue has been read."""
        sub_queue.is_loading = False
        self._made_room()
        self.host.scheduler.touch(self)

    def returned(self, entries: Iterable[MessageReference]) -> None:
        """Take messages back; they return to their old places before anything else is delivered."""
        for entry in entries:
            entry.subscription = None
            self._stop_timeout(entry)
            sub_queue = entry.sub_queue
            assert sub_queue is not None  # every entry of a queue has one
            sub_queue.back.append(entry)
            self._dispatcher.look_again(sub_queue.index, entry.place)
            if entry.message.expires:
                self._expiry.expect(entry)
            if sub_queue.number:
                self.host.scheduler.commit_queue.lazily(
                    Mark(sub_queue.number, entry.place, entry.deliveries)
                )

    def given_back(self, entries: Iterable[MessageReference]) -> None:
        """Take back a part of an ended connection's messages, the newest part first."""
        self.returned(entries)
        for sub_queue in self.sub_queues:
            if sub_queue.back:
                sub_queue.restore()

    def taken_back(self, entry: MessageReference) -> None:
        """Take back a message whose settlement could not be applied."""
        self.messages += 1
        self.octets += entry.message.size
        sub_queue = entry.sub_queue
        if sub_queue is not None and sub_queue.number and entry.place > sub_queue.seen:
            # It was removed from the store, by an operator or since it had expired, ahead of
            # messages that are still only there.
            sub_queue.leave_stored(entry.message.size)
            if entry.message.expires:
                self._expiry.put_off_stored(sub_queue, entry.message.expires)
        elif entry.message.is_expired(self.host.scheduler.wall):
            self._expiry.put_off(entry)
        else:
            self.returned([entry])
        self.host.scheduler.touch(self)

    def _mark(self, sub_queue: SubQueue[MessageReference], entry: MessageReference) -> None:
        """Record in the store how often a message was delivered."""
        mark = Mark(sub_queue.number, entry.place, entry.deliveries)
        self.host.scheduler.commit_queue.lazily(mark)
