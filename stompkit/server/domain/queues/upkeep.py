"""Operator actions on the messages of a queue: drop them, or move them elsewhere.

A sweep processes the messages that exist when it starts and that no consumer holds, in order. Those
in memory come first, then those that are only in the store; expired ones that wait for room among
the dead letters come last. Each step takes one cycle, so that clients are served in between. The
operations of a step form one write batch: if the broker dies between two steps, no message is lost
or duplicated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import DURABLES, Kind, canonical
from stompkit.server.domain.queues.dead_letters import DeadLetter, moved_message, read_dead_letter
from stompkit.server.domain.queues.durables import DurableQueue
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.interfaces import StoredMessage, StoreError
from stompkit.server.selectors import Selector

if TYPE_CHECKING:
    from stompkit.server.domain.hosts.virtual_host import VirtualHost
    from stompkit.server.domain.sub_queue import SubQueue

__all__ = ["Outcome", "Selection", "Sweep", "drop", "move_to", "put_back"]

#: Maximum number of messages that one step examines, and of bytes that it reads.
_STEP_MESSAGES: Final = 250
_STEP_OCTETS: Final = 4 * 1024 * 1024
#: Spends the time for selectors of all sweeps, so that consumers always have some.
_SPENDER: Final = "sweeps"
#: Delay in seconds before a sub-queue that is being loaded is tried again.
_PATIENCE_S: Final = 0.01


class Selection(NamedTuple):
    """Selected messages: all, or those with one of ``ids``, and matching a selector."""

    ids: frozenset[str] | None = None
    selector: Selector | None = None
    limit: int | None = None

    def takes(self, message: Message) -> bool:
        """Return True if a message is selected."""
        if self.ids is not None and message.id not in self.ids:
            return False
        return self.selector is None or self.selector.takes(message.headers)


class Outcome(NamedTuple):
    """Result of a sweep: the number of processed messages, and of those that had to stay.

    ``refused`` is the reason for an early end or for messages that stayed; ``failure`` is an error
    of the store.
    """

    done: int = 0
    left: int = 0
    refused: RefusedError | None = None
    failure: StoreError | None = None


#: Processes a message, which then leaves its queue; returns False if it has to stay. Raises
#: :class:`RefusedError` if all following ones have to stay, too.
Act = Callable[[Message], bool]


def drop(_: Message) -> bool:
    """Delete a message."""
    return True


def move_to(target: Queue) -> Act:
    """Return an action that moves messages to another queue, within its limits."""

    def act(message: Message) -> bool:
        copy = moved_message(message, target.name, target.host.scheduler.wall)
        target.check_room(1, copy.size)
        target.put(copy)
        target.host.scheduler.touch(target)
        return True

    return act


def put_back(host: VirtualHost) -> Act:
    """Return an action that puts dead letters back into their source, as the original messages."""

    def act(message: Message) -> bool:
        letter = read_dead_letter(message)
        if letter is None or letter.first.is_expired(host.scheduler.wall):
            return False
        try:
            target = _home(host, letter.source)
            if target is None or not _belongs(letter, target):
                return False
            first = _as_sent(letter, target)
            target.check_room(1, first.size)
        except RefusedError:
            return False
        target.put(first)
        host.scheduler.touch(target)
        return True

    return act


class Sweep:
    """Processes the messages of one queue once."""

    def __init__(
        self, queue: Queue, selection: Selection, act: Act, report: Callable[[Outcome], None]
    ) -> None:
        """Prepare a sweep; ``report`` is called with its result, when everything is stored."""
        self._queue = queue
        self._broker = queue.host.broker
        self._selection = selection
        self._act = act
        self._report = report
        self._outcome = Outcome()
        #: Remaining sub-queues, each with the place up to which it is processed.
        self._sub_queues = [(sub_queue, sub_queue.last_place) for sub_queue in queue.sub_queues]
        self._cursor = 0
        #: Number of messages examined so far, and of those that the next step reads.
        self._looks = 0
        self._most_read = _STEP_MESSAGES
        self._is_over = False
        #: The sub-queue that must not load messages, since they are being moved, if any.
        self._locked: SubQueue[MessageReference] | None = None

    def start(self) -> None:
        """Start in a later cycle; the queue is not removed before the end."""
        self._queue.holds += 1
        self._broker.scheduler.later(0.0, self._step)

    def _step(self) -> None:
        if self._is_over or self._is_satisfied:
            self._finish()
            return
        if not self._has_time():
            self._broker.selector_time.wait(self._step)
            return
        if not self._sub_queues:
            self._take_overdue()
            return
        sub_queue, end = self._sub_queues[0]
        commit_queue = self._broker.scheduler.commit_queue
        if sub_queue.is_loading:
            if commit_queue.failure is not None:
                self._fail(commit_queue.failure)
                return
            self._broker.scheduler.later(_PATIENCE_S, self._step)
            return
        if sub_queue.back:
            sub_queue.restore()
        index = bisect_right(sub_queue.ready, self._cursor, key=_place)
        if index < len(sub_queue.ready) and sub_queue.ready[index].place <= end:
            self._take_from_window(sub_queue, index, end)
        elif sub_queue.stored and max(self._cursor, sub_queue.seen) < end:
            self._take_from_store(sub_queue, end)
        else:
            del self._sub_queues[0]
            self._cursor = 0
            self._broker.scheduler.later(0.0, self._step)

    @property
    def _is_satisfied(self) -> bool:
        limit, ids = self._selection.limit, self._selection.ids
        done = self._outcome.done
        return done == limit or (ids is not None and done >= len(ids))

    # Steps.

    def _take_from_window(
        self, sub_queue: SubQueue[MessageReference], index: int, end: int
    ) -> None:
        self._begin_step()
        ready = sub_queue.ready
        ready.rotate(-index)
        taken: list[MessageReference] = []
        left: list[MessageReference] = []
        for _ in range(min(_STEP_MESSAGES, len(ready) - index)):
            if ready[0].place > end or not self._has_time():
                break
            entry = sub_queue.popleft()
            self._cursor = entry.place
            if self._deal_with(entry.message):
                self._queue.withdraw(entry)
                taken.append(entry)
            else:
                left.append(entry)
        sub_queue.window_octets += sum(entry.message.size for entry in left)
        ready.extendleft(reversed(left))
        ready.rotate(index)
        self._commit(taken)

    def _take_from_store(self, sub_queue: SubQueue[MessageReference], end: int) -> None:
        commit_queue = self._broker.scheduler.commit_queue
        # Prevents loading of messages that are about to leave.
        self._locked = sub_queue
        sub_queue.is_loading = True

        def did(stored: Sequence[StoredMessage]) -> None:
            self._begin_step()
            taken: list[MessageReference] = []
            looks = self._looks
            for entry in self._entries(sub_queue, stored, end):
                if self._deal_with(entry.message):
                    sub_queue.take_stored(1, entry.message.size)
                    self._queue.withdraw(entry)
                    taken.append(entry)
            # Others are read again: they may leave before there is time.
            self._most_read = min(_STEP_MESSAGES, 2 * (self._looks - looks) + 1)
            self._commit(taken)

        after = max(self._cursor, sub_queue.seen)
        commit_queue.read(sub_queue.number, after, self._most_read, _STEP_OCTETS, did, self._fail)

    def _take_overdue(self) -> None:
        overdue = self._queue.overdue
        some = overdue.pop_some(self._cursor, _STEP_MESSAGES)
        if not some:
            self._finish()
            return
        self._begin_step()
        taken: list[MessageReference] = []
        left: list[MessageReference] = []
        unseen = deque(some)
        while unseen and self._has_time():
            entry = unseen.popleft()
            (taken if self._deal_with(entry.message) else left).append(entry)
        overdue.put_back(self._cursor, [*left, *unseen])
        self._cursor += len(left)
        for entry in taken:
            self._queue.withdraw(entry)
        self._commit(taken)

    def _entries(
        self, sub_queue: SubQueue[MessageReference], stored: Sequence[StoredMessage], end: int
    ) -> Iterator[MessageReference]:
        if not stored:
            self._cursor = end
        for each in stored:
            self._cursor = min(end, each.place)
            if each.place <= end:
                entry = MessageReference(Message.from_store(each), self._queue, each.place)
                entry.deliveries = each.deliveries
                entry.sub_queue = sub_queue
                yield entry
            if not self._has_time():
                return

    def _deal_with(self, message: Message) -> bool:
        """Process a message, if it is selected; return True if it leaves the queue."""
        self._looks += 1
        if self._is_over or self._is_satisfied or not self._is_selected(message):
            return False
        outcome = self._outcome
        try:
            is_done = self._act(message)
        except RefusedError as refused:
            self._is_over = True
            self._outcome = outcome._replace(left=outcome.left + 1, refused=refused)
            return False
        if is_done:
            self._outcome = outcome._replace(done=outcome.done + 1)
        else:
            self._outcome = outcome._replace(left=outcome.left + 1)
        return is_done

    def _has_time(self) -> bool:
        """Return True if a selector may be evaluated now: the one of the sweep, or a durable's."""
        return self._broker.selector_time.is_left_for(_SPENDER)

    def _is_selected(self, message: Message) -> bool:
        is_selected = self._selection.takes(message)
        if self._selection.selector is not None:
            self._broker.selector_time.charge(_SPENDER, self._selection.selector.cost)
        return is_selected

    # Write batches.

    def _begin_step(self) -> None:
        self._broker.selector_time.begin()
        self._broker.scheduler.commit_queue.cut()
        self._queue.host.begin_together()

    def _commit(self, taken: list[MessageReference]) -> None:
        commit_queue = self._broker.scheduler.commit_queue
        self._queue.host.end_together()

        def did(error: StoreError | None) -> None:
            if error is not None:
                outcome = self._outcome
                self._outcome = outcome._replace(done=outcome.done - len(taken))
                self._fail(error)
                return
            self._go_on()

        if self._act is not drop:
            # Dropped messages stay dropped: the removal is recorded again.
            commit_queue.take(taken)
        if not commit_queue.cut_for(did):
            self._go_on()

    def _go_on(self) -> None:
        self._unlock()
        self._broker.scheduler.touch(self._queue)
        self._broker.scheduler.later(0.0, self._step)

    def _unlock(self) -> None:
        sub_queue, self._locked = self._locked, None
        if sub_queue is not None:
            sub_queue.is_loading = False

    def _fail(self, error: StoreError) -> None:
        self._outcome = self._outcome._replace(failure=error)
        self._finish()

    def _finish(self) -> None:
        self._unlock()
        queue = self._queue
        queue.holds -= 1
        for sub_queue in queue.sub_queues:
            queue.refill(sub_queue)
        self._broker.scheduler.touch(queue)
        self._report(self._outcome)


def _home(host: VirtualHost, name: str) -> Queue | None:
    """Return the queue or durable subscription that a dead letter comes from, if it can exist."""
    if not name.startswith(Kind.QUEUE.value):
        return host.durable_named(name)
    found = host.destination(name)
    return found if isinstance(found, Queue) else None


def _belongs(letter: DeadLetter, queue: Queue) -> bool:
    """Return True if the source still matches: a durable subscription can get another topic."""
    if not isinstance(queue, DurableQueue) or _is_unknown(letter):
        return True
    headers = letter.first.headers
    topic = canonical(headers["destination"], headers, queue.host.broker.config.dialect)
    if not queue.covers(topic):
        return False
    is_selected = queue.selects(letter.first)
    if queue.selector is not None:
        queue.host.broker.selector_time.charge(_SPENDER, queue.selector.cost)
    return is_selected


def _as_sent(letter: DeadLetter, queue: Queue) -> Message:
    """Return the original message, as far as the dead letter records it."""
    if not isinstance(queue, DurableQueue) or not _is_unknown(letter):
        return letter.first
    name = queue.record.topic if queue.pattern is None else queue.name
    return letter.first.moved(name, {})


def _is_unknown(letter: DeadLetter) -> bool:
    """Return True if the dead letter lacks the destination that the message was sent to."""
    return letter.first.destination.startswith(DURABLES)


def _place(entry: MessageReference) -> int:
    return entry.place
