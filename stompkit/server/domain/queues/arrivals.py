"""Arrivals at a queue: new messages, now or once they are stored."""

from __future__ import annotations

from typing import Final

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.trimming import TrimmedQueue
from stompkit.server.domain.sub_queue import DELAYED, SubQueue
from stompkit.server.interfaces import (
    CreateLane,
    Put,
    StoreError,
)

__all__ = ["ReceivingQueue"]

_HIGHEST_PRIORITY: Final = 9
_USUAL_PRIORITY: Final = 4


class ReceivingQueue(TrimmedQueue):
    """Accepts messages; those for the store can be delivered once it has them."""

    # Incoming messages.

    def put(self, message: Message) -> None:
        """Append a message; the caller has checked that there is or can be room."""
        self.received += 1
        self.messages += 1
        self.octets += message.size
        now = self.host.scheduler.wall
        if self._ttl_s and not message.expires:
            message.expires = max(now, message.due) + self._ttl_s
        is_delayed = message.due > 0
        is_persistent = self.is_persistent
        # A message in memory waits for the rest of its batch, and for earlier messages.
        waits = not is_persistent and (
            self.host.arriving is not None or (self.following > 0 and not is_delayed)
        )
        if is_persistent or waits:
            self.incoming += 1
            self.incoming_octets += message.size
        if waits:
            self._arrive(self._delays.arriving(message) if is_delayed else self._entry(message))
        elif is_delayed:
            self._delays.put(message)
        elif is_persistent:
            self.enqueue(message)
        else:
            self.take_in(self._entry(message))

    def _arrive(self, entry: MessageReference) -> None:
        """Delay a message in memory until the rest of its write batch is stored."""
        if self.host.arriving is not None:
            self.host.arriving.append((self, entry))
        else:
            self.follow(entry)

    def follow(self, entry: MessageReference) -> None:
        """Delay a message in memory until the store is done; :meth:`put_done` follows."""
        commit_queue = self.host.scheduler.commit_queue
        self.following += 1
        commit_queue.follow(entry)

    def _entry(self, message: Message) -> MessageReference:
        """Return a reference to a message, with the next place of its sub-queue."""
        index = _HIGHEST_PRIORITY
        index -= message.priority if self._has_priorities else _USUAL_PRIORITY
        sub_queue = self._sub_queue(index)
        sub_queue.last_place += 1
        entry = MessageReference(message, self, sub_queue.last_place)
        entry.sub_queue = sub_queue
        if message.group:
            self._dispatcher.notice(message)
        return entry

    def enqueue(self, message: Message) -> None:
        """Append a message that is already counted."""
        entry = self._entry(message)
        if self.is_persistent:
            sub_queue = entry.sub_queue
            assert sub_queue is not None  # _entry() has given it one
            self.keep(sub_queue, entry)
        else:
            self.take_in(entry)

    def take_in(self, entry: MessageReference) -> None:
        """Append a message in memory to its sub-queue, or to the delayed messages."""
        sub_queue = entry.sub_queue
        assert sub_queue is not None  # every entry of a queue has one
        if self._is_trimmed and self.is_over:
            self._make_room()
        if sub_queue.index == DELAYED:
            self._delays.kept(entry)
            return
        if entry.place > sub_queue.seen:
            sub_queue.append(entry)
        else:
            # A later message was faster.
            sub_queue.back.append(entry)
            self._dispatcher.look_again(sub_queue.index, entry.place)
        if entry.message.expires:
            self._expiry.expect(entry)

    def keep(self, sub_queue: SubQueue[MessageReference], entry: MessageReference) -> None:
        """Write a message to the store; :meth:`put_done` follows."""
        broker = self.host.broker
        commit_queue = broker.scheduler.commit_queue
        if not sub_queue.number:
            sub_queue.number = broker.new_lane()
            commit_queue.record(
                CreateLane(sub_queue.number, self.host.stored_name(self.stored_as), sub_queue.index)
            )
            self.host.note_maker(self)
        message = entry.message
        commit_queue.put(
            entry,
            Put(
                sub_queue.number,
                entry.place,
                message.size,
                round(message.expires * 1000) if message.expires else 0,
                round(message.due * 1000) if message.due else 0,
                message.id,
                message.lines,
                message.body,
            ),
        )

    def arrived(self, entry: MessageReference) -> None:
        """Remove a message from the count of incoming ones, before :meth:`put_done`."""
        delays = self._made_delays
        if delays is None or entry.message not in delays.moving:
            self._arrived += 1
            self.count_off(entry)

    def count_off(self, entry: MessageReference) -> None:
        """Remove a message from the count of incoming ones."""
        size = entry.message.size
        self.incoming -= 1
        self.incoming_octets -= size
        if self._awaited:
            self._awaited -= 1
        sub_queue = entry.sub_queue
        if sub_queue is not None and sub_queue.index == DELAYED:
            self._delays.arrived(size)

    def put_done(self, entry: MessageReference, error: StoreError | None) -> None:
        """Deliver a message that is stored, or forget one that could not be stored."""
        sub_queue = entry.sub_queue
        assert sub_queue is not None  # keep() is given one
        delays = self._made_delays
        if delays is not None and delays.moving and entry.message in delays.moving:
            if delays.put_off(entry, error):
                return
        elif self._arrived:
            self._arrived -= 1
        else:
            # As count_off() does: most batches have one message.
            self.incoming -= 1
            self.incoming_octets -= entry.message.size
            if self._awaited:
                self._awaited -= 1
            if sub_queue.index == DELAYED:
                self._delays.arrived(entry.message.size)
        if not self.is_persistent:
            self.following -= 1
        if error is not None:
            self.lost += 1
            self.messages -= 1
            self.octets -= entry.message.size
            self._made_room()
            self.host.scheduler.touch(self)
            return
        if not self.is_persistent:
            self.take_in(entry)
            self.host.scheduler.touch(self)
            return
        if self._is_trimmed and self.is_over:
            self._make_room()
        broker = self.host.broker
        config = broker.config
        if sub_queue.index == DELAYED:
            self._delays.kept(entry)
        elif entry.place > sub_queue.seen and (
            sub_queue.stored
            or sub_queue.is_loading
            or len(sub_queue.ready) >= config.window_messages
            or sub_queue.window_octets >= config.window_bytes
        ):
            sub_queue.stored += 1
            sub_queue.stored_octets += entry.message.size
            if entry.message.expires:
                self._expiry.expect_stored(sub_queue, entry.message.expires)
        else:
            if entry.place > sub_queue.seen:
                sub_queue.append(entry)
            else:
                # The store had failed when the message was due, and a later one was faster.
                sub_queue.back.append(entry)
                self._dispatcher.look_again(sub_queue.index, entry.place)
            if entry.message.expires:
                self._expiry.expect(entry)
        broker.scheduler.touch(self)
