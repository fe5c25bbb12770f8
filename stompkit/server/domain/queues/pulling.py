"""Take single messages of a queue by choice, without a subscription."""

from __future__ import annotations

from itertools import islice

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.queues.queue import Puller, Queue
from stompkit.server.interfaces import Mark

__all__ = ["Puller", "drop", "front", "is_loading", "take"]


def front(queue: Queue, most: int) -> list[MessageReference]:
    """Return the messages that can be taken now: up to ``most`` from the front of each sub-queue.

    For a queue with priorities, only those of the highest present priority are returned. Stored
    messages are loaded into memory if necessary, and offered then.
    """
    now = queue.host.scheduler.wall
    found: list[MessageReference] = []
    if queue.is_held_back:
        return found
    for sub_queue in queue.sub_queues:
        if sub_queue.back:
            sub_queue.restore()
        queue.refill(sub_queue)
        for entry in islice(sub_queue.ready, most):
            if not entry.message.is_expired(now):
                found.append(entry)
        if found and queue.policy.priority:
            break
    return found


def is_loading(queue: Queue) -> bool:
    """Return True if messages due for delivery are in the store and not in memory yet."""
    return queue.is_held_back or any(
        sub_queue.is_loading or (sub_queue.stored and not sub_queue.ready)
        for sub_queue in queue.sub_queues
    )


def take(queue: Queue, entry: MessageReference) -> None:
    """Take a message that waits in memory; settle or return it like a delivered one."""
    _take_out(queue, entry)
    entry.deliveries += 1
    sub_queue, commit_queue = entry.sub_queue, queue.host.scheduler.commit_queue
    if sub_queue is not None and sub_queue.number:
        commit_queue.lazily(Mark(sub_queue.number, entry.place, entry.deliveries))


def drop(queue: Queue, entry: MessageReference) -> None:
    """Delete a message that waits in memory."""
    _take_out(queue, entry)
    queue.settled(entry)


def _take_out(queue: Queue, entry: MessageReference) -> None:
    sub_queue = entry.sub_queue
    assert sub_queue is not None  # every entry of a queue has one
    sub_queue.ready.remove(entry)
    sub_queue.window_octets -= entry.message.size
    queue.refill(sub_queue)
