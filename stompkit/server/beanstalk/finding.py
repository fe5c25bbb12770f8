"""Find a job: in memory, reserved by a worker, or only in the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred

from stompkit.server.beanstalk.hub import Hub
from stompkit.server.beanstalk.jobs import QUEUE, Job
from stompkit.server.beanstalk.loading import loaded
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.sub_queue import DELAYED, SubQueue
from stompkit.server.interfaces import StoredMessage, StoreError

__all__ = ["Cursor", "DeadLetter", "Found", "find", "first_delayed", "next_dead_letters"]

#: Maximum number of messages, and of their bytes, read at a time.
_PAGE_MESSAGES: Final = 1_000
_PAGE_OCTETS: Final = 4 * 1024 * 1024
#: Number of buried jobs examined before other clients are served.
_PAGE_BURIED: Final = 250
#: Number of messages in memory that a search examines before other clients are served.
_MOST_EXAMINED: Final = 2_500


class Found(NamedTuple):
    """A job with its state and location.

    ``state`` is one of beanstalkd's: ready, delayed, reserved, buried. A message that waits in
    memory, or is reserved, has an ``entry``. A delayed one has a place and a time. One that is only
    in the store has ``stored`` and its ``sub_queue`` there, delayed or not.
    """

    state: str
    job: Job
    message: Message
    queue: Queue
    deliveries: int = 0
    entry: MessageReference | None = None
    place: int = 0
    due: float = 0.0
    sub_queue: SubQueue[MessageReference] | None = None
    stored: StoredMessage | None = None


class _Turns:
    """Serves other clients after each part of a search."""

    __slots__ = ("_hub", "_left")

    def __init__(self, hub: Hub) -> None:
        """Start with a whole part."""
        self._hub = hub
        self._left = _MOST_EXAMINED

    async def spend(self, examined: int) -> None:
        """Count messages that have been examined without success; wait at the end of a part."""
        self._left -= examined
        if self._left <= 0:
            self._left = _MOST_EXAMINED
            turn: Deferred[None] = Deferred()
            self._hub.broker.later(0.0, lambda: None if turn.called else turn.callback(None))
            await turn


async def find(hub: Hub, number: int) -> Found | None:
    """Return the job with an id; raises ``StoreError`` if the store cannot be read.

    The caller may act on it until it waits for something.
    """
    found = _reserved(hub, number)
    if found is not None:
        return found
    known = hub.known(number)
    if known is None and not hub.may_exist(number):
        return None
    message_id = hub.numbers.message_id(number) if known is None else known.message_id
    if message_id is None:
        return None
    tubes = [known.tube] if known is not None else list(hub.tubes())
    turns = _Turns(hub)
    for tube in tubes:
        found = await _in_memory(hub, tube, message_id, turns)
        if found is not None:
            return found
    for tube in tubes:
        found = await _in_store(hub, tube, message_id, turns)
        if found is not None:
            return found
    # It may have been reserved meanwhile.
    return _reserved(hub, number) or await _with_consumer(hub, tubes, message_id, turns)


def _reserved(hub: Hub, number: int) -> Found | None:
    reservation = hub.reserved.get(number)
    if reservation is None:
        return None
    entry = reservation.entry
    assert isinstance(entry.home, Queue)  # only queues have reserved messages
    job = reservation.job
    return Found("reserved", job, entry.message, entry.home, entry.deliveries, entry)


def _queues(hub: Hub, tube: str) -> Iterator[tuple[str, Queue]]:
    for state, queue in (("ready", hub.queue(tube)), ("buried", hub.dead_letters(tube))):
        if queue is not None:
            yield state, queue


async def _in_memory(hub: Hub, tube: str, message_id: str, turns: _Turns) -> Found | None:
    for state, queue in _queues(hub, tube):
        entry = await _waiting(queue, message_id, turns)
        if entry is not None:
            job = hub.learn(entry.message, tube)
            return Found(state, job, entry.message, queue, entry.deliveries, entry)
        waiting = queue.delays.find(message_id)
        if waiting is not None:
            due, place, message = waiting
            job = hub.learn(message, tube)
            return Found("delayed", job, message, queue, place=place, due=due)
    return None


async def _waiting(queue: Queue, message_id: str, turns: _Turns) -> MessageReference | None:
    """Return a message that waits in memory."""
    for sub_queue in list(queue.sub_queues):
        place = 0
        while True:
            if sub_queue.back:
                sub_queue.restore()
            page = sub_queue.behind(place, _MOST_EXAMINED)
            for entry in page:
                if entry.message.id == message_id:
                    return entry
            await turns.spend(len(page) + 1)
            if not page:
                break
            place = page[-1].place
    return None


async def _in_store(hub: Hub, tube: str, message_id: str, turns: _Turns) -> Found | None:
    for state, queue in _queues(hub, tube):
        if not queue.is_persistent:
            continue
        for sub_queue in [*queue.delays.sub_queues, *queue.sub_queues]:
            after = 0 if sub_queue.index == DELAYED else sub_queue.seen
            while sub_queue.number and (
                sub_queue.index == DELAYED or sub_queue.stored or sub_queue.is_loading
            ):
                page = await _read(hub, sub_queue, after, _PAGE_MESSAGES)
                for each in page:
                    if each.id == message_id:
                        return await _stored(hub, state, tube, queue, sub_queue, each, turns)
                if not page:
                    break
                after = page[-1].place
    # It may have been loaded into memory meanwhile.
    return await _in_memory(hub, tube, message_id, turns)


async def _stored(
    hub: Hub,
    state: str,
    tube: str,
    queue: Queue,
    sub_queue: SubQueue[MessageReference],
    stored: StoredMessage,
    turns: _Turns,
) -> Found | None:
    """Return a message found in the store, if it is still only there."""
    if sub_queue.index == DELAYED:
        due = queue.delays.due_at(stored.place)
        if due is None:
            return None
        return _of_store("delayed", hub, tube, queue, sub_queue, stored, due)
    if stored.place <= sub_queue.seen or sub_queue.is_loading:
        return await _in_memory(hub, tube, stored.id, turns)
    return _of_store(state, hub, tube, queue, sub_queue, stored, 0.0)


def _of_store(
    state: str,
    hub: Hub,
    tube: str,
    queue: Queue,
    sub_queue: SubQueue[MessageReference],
    stored: StoredMessage,
    due: float,
) -> Found:
    message = Message.from_store(stored)
    return Found(
        state,
        hub.learn(message, tube),
        message,
        queue,
        stored.deliveries,
        place=stored.place,
        due=due,
        sub_queue=sub_queue,
        stored=stored,
    )


async def _with_consumer(
    hub: Hub, tubes: Sequence[str], message_id: str, turns: _Turns
) -> Found | None:
    """Return a message that a STOMP consumer has not acknowledged."""
    names = {QUEUE + tube for tube in tubes if hub.is_allowed(tube)}
    for connection in list(hub.broker.connections):
        await turns.spend(len(connection.ledger) + 1)
        for entry in connection.ledger:
            home = entry.home
            if entry.message.id == message_id and home.name in names and isinstance(home, Queue):
                job = hub.learn(entry.message, home.name.removeprefix(QUEUE))
                return Found("reserved", job, entry.message, home, entry.deliveries, entry)
    return None


async def first_delayed(hub: Hub, tube: str) -> Found | None:
    """Return the job of a tube that is due next."""
    queue = hub.queue(tube)
    first = None if queue is None else queue.delays.first
    if queue is None or first is None:
        return None
    due, place, message = first
    if message is not None:
        return Found("delayed", hub.learn(message, tube), message, queue, place=place, due=due)
    for sub_queue in queue.delays.sub_queues:
        for each in await _read(hub, sub_queue, place - 1, 1):
            if each.place == place and queue.delays.due_at(place) is not None:
                return _of_store("delayed", hub, tube, queue, sub_queue, each, due)
    return None


class Cursor:
    """Position of a scan over the messages of a queue."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        """Start at the front."""
        #: The places already scanned, by the indices of sub-queues.
        self.places: dict[int, int] = {}


class DeadLetter(NamedTuple):
    """A message of a dead-letter queue: in memory with an ``entry``, otherwise only ``stored``."""

    message: Message
    queue: Queue
    deliveries: int
    entry: MessageReference | None = None
    sub_queue: SubQueue[MessageReference] | None = None
    stored: StoredMessage | None = None


async def next_dead_letters(hub: Hub, queue: Queue | None, cursor: Cursor) -> list[DeadLetter]:
    """Return the next page of messages of a queue, wherever they are; empty at the end.

    The caller may act on them until it waits for something. Raises ``StoreError``.
    """
    if queue is None:
        return []
    for sub_queue in list(queue.sub_queues):
        while True:
            after = cursor.places.get(sub_queue.index, 0)
            if sub_queue.is_loading:
                await loaded(hub.broker, queue)
                continue
            if sub_queue.back:
                sub_queue.restore()
            entries = sub_queue.behind(after, _PAGE_BURIED)
            if entries:
                cursor.places[sub_queue.index] = entries[-1].place
                return [DeadLetter(each.message, queue, each.deliveries, each) for each in entries]
            if not sub_queue.stored:
                break
            seen = max(after, sub_queue.seen)
            page = await _read(hub, sub_queue, seen, _PAGE_BURIED)
            if sub_queue.is_loading or sub_queue.seen > seen:
                # It has been loaded into memory meanwhile.
                continue
            if not page:
                break
            cursor.places[sub_queue.index] = page[-1].place
            return [
                DeadLetter(
                    Message.from_store(each),
                    queue,
                    each.deliveries,
                    sub_queue=sub_queue,
                    stored=each,
                )
                for each in page
            ]
    return []


async def _read(
    hub: Hub, sub_queue: SubQueue[MessageReference], after: int, most: int
) -> Sequence[StoredMessage]:
    """Return messages of a sub-queue with places above ``after``; raises ``StoreError``."""
    read = hub.broker.commit_queue.read
    answer: Deferred[Sequence[StoredMessage] | StoreError] = Deferred()
    read(sub_queue.number, after, most, _PAGE_OCTETS, answer.callback, answer.callback)
    result = await answer
    if isinstance(result, StoreError):
        raise result
    return result
