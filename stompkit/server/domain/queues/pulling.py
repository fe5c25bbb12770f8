"""Take single messages of a queue by choice, without a subscription."""

from __future__ import annotations

from itertools import islice

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.queues.queue import Puller, Queue
from stompkit.server.interfaces import Mark

__all__ = ["Puller", "drop", "find", "front", "is_loading", "take"]


def front(queue: Queue, most: int) -> list[MessageReference]:
    """Return the messages that can be taken now: up to ``most`` from the front of each sub-queue.

    For a queue with priorities, only those of the highest present priority are returned. Stored
    messages are loaded into memory if necessary, and offered then.
    """
    now = queue.host.scheduler.now
    found: list[MessageReference] = []
    if queue.is_held_back:
        return found
    for lane in queue.lanes:
        if lane.back:
            lane.restore()
        queue.refill(lane)
        for entry in islice(lane.ready, most):
            if not entry.message.is_expired(now):
                found.append(entry)
        if found and queue.policy.priority:
            break
    return found


def is_loading(queue: Queue) -> bool:
    """Return True if messages due for delivery are in the store and not in memory yet."""
    return queue.is_held_back or any(
        lane.is_loading or (lane.stored and not lane.ready) for lane in queue.lanes
    )


def find(queue: Queue, message_id: str) -> MessageReference | None:
    """Return the message with an identifier, if it waits in memory."""
    for lane in queue.lanes:
        if lane.back:
            lane.restore()
        for entry in lane.ready:
            if entry.message.id == message_id:
                return entry
    return None


def take(queue: Queue, entry: MessageReference) -> None:
    """Take a message that waits in memory; settle or return it like a delivered one."""
    _take_out(queue, entry)
    entry.deliveries += 1
    lane, commit_queue = entry.lane, queue.host.scheduler.commit_queue
    if lane is not None and lane.number:
        commit_queue.lazily(Mark(lane.number, entry.place, entry.deliveries))


def drop(queue: Queue, entry: MessageReference) -> None:
    """Delete a message that waits in memory."""
    _take_out(queue, entry)
    queue.settled(entry)


def _take_out(queue: Queue, entry: MessageReference) -> None:
    lane = entry.lane
    assert lane is not None  # every entry of a queue has one
    lane.ready.remove(entry)
    lane.window_octets -= entry.message.size
    queue.refill(lane)
