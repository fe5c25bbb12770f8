"""One beanstalkd client: its commands in order, and the deadlines of its jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from stompkit._common import LOOK_S, MOST_GRACE_S
from stompkit.frames import RemoteProtocolError, State, Version
from stompkit.server.beanstalk.commands import COMMANDS, OVERLAPPING
from stompkit.server.beanstalk.hub import DEFAULT_TUBE, Hub, Rank, Reservation
from stompkit.server.beanstalk.jobs import Job, pri_of, queue_of, ttr_of
from stompkit.server.beanstalk.parser import Command, Mistake, Parser
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deadlines import Deadlines
from stompkit.server.domain.destinations import BlockedError
from stompkit.server.domain.errors import RefusedError
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.domain.session.acks import PendingAcks
from stompkit.server.domain.session.connection import Connection
from stompkit.server.domain.session.subscriptions import AckMode, Subscription
from stompkit.server.interfaces import Outlet, StoreError, StoreFullError, Timer

if TYPE_CHECKING:
    from stompkit.frames import Frame

__all__ = ["Session"]

_log: Final = Logger()

#: Time in seconds before a job's deadline during which its worker cannot wait for another job.
_MARGIN_S: Final = 1.0
#: Maximum time in seconds for one client's commands before others are served.
_TURN_S: Final = 0.01
#: Maximum number of bytes buffered while a command runs.
_MOST_UNREAD: Final = 65_536
#: Interval in seconds at which a client that waits for the store retries after a failure.
_LOOK_S: Final = 1.0

_INTERNAL_ERROR: Final = b"INTERNAL_ERROR\r\n"
_OUT_OF_MEMORY: Final = b"OUT_OF_MEMORY\r\n"
_REFUSALS: Final = {
    "bad-header": b"BAD_FORMAT\r\n",
    "bad-destination": b"BAD_FORMAT\r\n",
    "queue-full": _OUT_OF_MEMORY,
    "too-many-destinations": _OUT_OF_MEMORY,
    "unknown-destination": b"NOT_FOUND\r\n",
}


class _Slot:
    """The place of a reply in the order of replies."""

    __slots__ = ("is_done", "reply")

    def __init__(self, reply: bytes, *, is_done: bool) -> None:
        """Create a slot; an incomplete reply waits for the store."""
        self.reply = reply
        self.is_done = is_done


class _Waiter(pulling.Puller):
    """Notifies a session when a queue may have messages."""

    def __init__(self, session: Session) -> None:
        """Wait for one session."""
        self._session = session

    def offered(self, queue: Queue) -> None:
        """Check the queue for a job."""
        self._session.look(queue)


class _Load(pulling.Puller):
    """Resumes when a queue may have been loaded into memory."""

    def __init__(self, done: Deferred[None]) -> None:
        """Call ``done`` once."""
        self._done = done

    def offered(self, queue: Queue) -> None:
        """Resume."""
        queue.pullers.pop(self, None)
        if not self._done.called:
            self._done.callback(None)


class Session(Connection):
    """A beanstalkd client as a connection of the broker.

    Its reservations are pending acknowledgements of the connection, and return to their queues when
    it ends. Replies are sent in the order of the commands. ``put``, ``delete`` and similar commands
    overlap while they wait for the store; all other commands wait for them.
    """

    def __init__(self, hub: Hub, broker: Broker, outlet: Outlet, now: float) -> None:
        """Start with the tube ``default``."""
        super().__init__(broker, outlet, now)
        # There is no login.
        self.session.state = State.CONNECTED
        self.version = cast("Version", "beanstalk")
        self.ledger = PendingAcks("1.2", most_octets=broker.config.max_unacknowledged_bytes)
        self.hub = hub
        self.used = DEFAULT_TUBE
        self.watched: dict[str, None] = {DEFAULT_TUBE: None}
        self.is_producer = self.is_worker = False
        #: True while a ``reserve`` waits; the deadline follows, or None without a timeout.
        self.is_waiting = False
        self._until: float | None = None
        self._offers: dict[Queue, None] = {}
        #: Tubes waited for whose queues could not be created for lack of room.
        self._expected: list[str] = []
        self._waiter = _Waiter(self)
        self._taken = Subscription(self, None, AckMode.CLIENT_INDIVIDUAL, 1, "1.2")
        self._reservations: dict[int, Reservation] = {}
        self._deadlines: Deadlines[Reservation] = Deadlines()
        self._timer: Timer | None = None
        self._armed_for = 0.0
        self._parser = Parser(hub.settings.max_job_octets)
        self._slots: deque[_Slot] = deque()
        self._unkept: dict[str, _Slot] = {}
        self._barriers: dict[str, Deferred[StoreError | None]] = {}
        self._last_slot = 0
        self._next: Command | None = None
        self._task: Deferred[bytes] | None = None
        self._refused: Command | None = None
        self._is_stalled = self._is_working = self._is_slow = False
        self._is_counted = False

    # Input.

    def opened(self) -> None:
        """Start the session; close it if there are too many clients."""
        super().opened()
        if not self._closing:
            self._is_counted = True
            self.hub.sessions.add(self)
            self.hub.connections += 1
            self.hub.using[self.used] += 1
            self.hub.watching[DEFAULT_TUBE] += 1

    def receive(self, data: bytes, now: float) -> None:
        """Process bytes from the client."""
        self.broker.now = now
        if not self._closing:
            self._parser.feed(data)
            self._work_on()

    def ended(self, now: float) -> None:
        """Record that the client sends no more; a waiting ``reserve`` times out."""
        self.broker.now = now
        self._at_end = True
        if self.is_waiting:
            self._stop_waiting(b"TIMED_OUT\r\n")
        self._work_on()

    def _work_on(self) -> None:
        """Run as many of the received commands as possible."""
        if self._is_working:
            return
        self._is_working = True
        began = self.broker.clock.seconds()
        try:
            while self._is_free and (command := self._next_command()) is not None:
                if not self._may_begin(command):
                    self._next = command
                    break
                self._do(command)
                self._yield_turn(began)
        finally:
            self._is_working = False
        if self._closing:
            return
        if self._at_end and self._is_free and self._next is None and not self._slots:
            self._leave()
            return
        # Input is read for as long as possible, since only reading detects a closed connection.
        is_slow = self._parser.buffered > _MOST_UNREAD and not self._is_free
        if is_slow != self._is_slow:
            self._is_slow = is_slow
            (self.outlet.pause if is_slow else self.outlet.resume)()

    def _yield_turn(self, began: float) -> None:
        """Defer the remaining commands until others are served, if these took too long."""
        broker = self.broker
        if broker.clock.seconds() - began > _TURN_S and not self._is_stalled:
            self._is_stalled = True
            broker.later(0.0, self.go_on)

    @property
    def _is_free(self) -> bool:
        """True if the next command can be started."""
        return self.has_room and not (
            self._closing
            or self.is_waiting
            or self._is_stalled
            or self._task is not None
            or self._refused is not None
        )

    def _next_command(self) -> Command | None:
        command, self._next = self._next, None
        if command is not None:
            return command
        found = self._parser.next()
        while isinstance(found, Mistake):
            self._slots.append(_Slot(found.reply, is_done=True))
            self._flush_slots()
            found = self._parser.next() if self._is_free else None
        return found

    def _may_begin(self, command: Command) -> bool:
        return not self._slots or command.name in OVERLAPPING

    def _do(self, command: Command) -> None:
        """Run a command; its changes and its reply wait for the store together."""
        self.hub.commands[command.name] += 1
        try:
            answer = COMMANDS[command.name](self, command)
        except BlockedError as blocked:
            self._wait_for_space(command, blocked)
            return
        except RefusedError as refused:
            answer = _REFUSALS.get(refused.code, _INTERNAL_ERROR)
        if answer is None:
            return
        if isinstance(answer, bytes):
            self.answer(answer)
            return
        self._begin(answer)

    def _begin(self, work: Coroutine[Any, Any, bytes]) -> None:
        """Start a command that waits for the store."""
        task: Deferred[bytes] = Deferred.fromCoroutine(work)
        self._task = task
        task.addCallbacks(self._done, self._failed)

    def _done(self, reply: bytes) -> None:
        self._task = None
        self.answer(reply)
        self._work_on()
        self.broker.flush()

    def _failed(self, failure: Failure) -> None:
        self._task = None
        error = failure.value
        if isinstance(error, CancelledError):
            return
        if isinstance(error, RefusedError):
            self.answer(_REFUSALS.get(error.code, _INTERNAL_ERROR))
        else:
            if not isinstance(error, StoreError):
                _log.failure("a command of beanstalkd failed", failure)
            self.answer(_INTERNAL_ERROR)
        self._work_on()
        self.broker.flush()

    def _wait_for_space(self, command: Command, blocked: BlockedError) -> None:
        queue = blocked.destination
        assert isinstance(queue, Queue)  # only queues can be full
        self._refused, self._blocked_by = command, queue
        queue.blocked.append(self)

    def try_again(self) -> bool:
        """Put the job that has waited for room; return False if there is still none."""
        command = self._admitted()
        if command is None or self._closing:
            return True
        self.hub.commands[command.name] -= 1
        self._do(command)
        if self._refused is not None:
            return False
        self._work_on()
        return True

    def _admitted(self) -> Command | None:
        """Return the command that has waited for room, and stop its wait."""
        command, self._refused, self._blocked_by = self._refused, None, None
        return command

    def go_on(self) -> None:
        """Resume after a wait for the store."""
        self._is_stalled = False
        self._work_on()

    # Output.

    def answer(self, reply: bytes) -> None:
        """Reply to a command, once the store has its changes."""
        if self._closing:
            return
        slot = _Slot(reply, is_done=True)
        self._slots.append(slot)
        journal = self.broker.journal
        if journal is not None:
            key = str(self._last_slot + 1)
            if journal.cut(self, key):
                self._last_slot += 1
                slot.is_done = False
                self._unkept[key] = slot
                if self.broker.wait_for_store(self):
                    self._is_stalled = True
        self._flush_slots()

    async def barrier(self) -> None:
        """Wait until the store has all changes made so far."""
        journal = self.broker.journal
        assert journal is not None  # only a store makes clients wait
        self._last_slot += 1
        key = str(self._last_slot)
        done: Deferred[StoreError | None] = Deferred()
        self._barriers[key] = done
        journal.barrier(self, key)
        error = await done
        if error is not None:
            raise error

    def committed(self, receipt: str | None, error: StoreError | None) -> None:
        """Send the reply that has waited for the store."""
        key = receipt or ""
        barrier = self._barriers.pop(key, None)
        if barrier is not None and not barrier.called:
            barrier.callback(error)
            return
        slot = self._unkept.pop(key, None)
        if slot is None:
            return
        slot.is_done = True
        if error is not None:
            slot.reply = _OUT_OF_MEMORY if isinstance(error, StoreFullError) else _INTERNAL_ERROR
        self._flush_slots()
        self._work_on()

    def _flush_slots(self) -> None:
        while self._slots and self._slots[0].is_done:
            reply = self._slots.popleft().reply
            if not self._closing:
                self.emit(reply)

    def set_writable(self, writable: bool, now: float) -> None:  # noqa: FBT001 (a state, not a choice)
        """Record if the transport accepts more bytes; no commands run while it does not."""
        self.broker.now = now
        self.has_room = writable and not self._closing
        if self.has_room:
            self._work_on()

    def next_deadline(self) -> float | None:
        """Return None: there are no heart-beats."""
        return None

    # Closing.

    def quit(self) -> None:
        """Close at the client's request."""
        self._leave()

    def _leave(self) -> None:
        if not self._closing:
            self._closing = True
            self._end()

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Close; the protocol has no error message for this."""
        self.refuse(RemoteProtocolError(message, code=code))

    def leave(self, frame: Frame) -> None:
        """Close."""
        self._leave()

    def release(self) -> None:
        """Return all reservations, and cancel all waits."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._stop_offers()
        self.is_waiting = False
        if self._timer is not None:
            self.broker.cancel(self._timer)
            self._timer = None
        for number in self._reservations:
            del self.hub.reserved[number]
        self._reservations.clear()
        self._deadlines.clear()
        self._refused = None
        super().release()
        if self._is_counted:
            self._is_counted = False
            self.hub.sessions.discard(self)
            _less(self.hub.using, self.used)
            for tube in self.watched:
                _less(self.hub.watching, tube)

    # Tubes.

    def use(self, tube: str) -> None:
        """Put future jobs into another tube."""
        self.hub.begin(tube)
        self.hub.using[tube] += 1
        _less(self.hub.using, self.used)
        self.used = tube

    def watch(self, tube: str) -> None:
        """Watch one more tube."""
        if tube not in self.watched:
            self.hub.begin(tube)
            self.watched[tube] = None
            self.hub.watching[tube] += 1

    def ignore(self, tube: str) -> None:
        """Stop watching a tube."""
        if tube in self.watched:
            del self.watched[tube]
            _less(self.hub.watching, tube)

    # Jobs.

    def reservation(self, number: int) -> Reservation | None:
        """Return a reservation of this client."""
        return self._reservations.get(number)

    def reserve(self, queue: Queue, entry: MessageReference, job: Job) -> bytes:
        """Reserve a job that waits in memory; return the reply."""
        pulling.take(queue, entry)
        self.ledger.add(entry, self._taken)
        message = entry.message
        pri = pri_of(message, has_priorities=queue.policy.priority)
        ttr = ttr_of(message, self.hub.settings.default_ttr_s)
        made = Reservation(self, job, entry, pri, ttr)
        self._reservations[job.number] = self.hub.reserved[job.number] = made
        self.touch(made)
        return b"RESERVED %d %d\r\n%b\r\n" % (job.number, len(message.body), message.body)

    def touch(self, reservation: Reservation) -> None:
        """Restart the time-to-run of a job."""
        reservation.deadline = self.broker.now + reservation.ttr
        self._deadlines.set(reservation, reservation.deadline)
        self.arm()

    def let_go(self, reservation: Reservation) -> MessageReference:
        """Remove a reservation; the caller settles the message or returns it."""
        del self._reservations[reservation.job.number]
        del self.hub.reserved[reservation.job.number]
        self._deadlines.discard(reservation)
        self.ledger.discard(reservation.entry)
        self.broker.touch(reservation.entry.home)
        return reservation.entry

    def give_back(self, reservation: Reservation) -> None:
        """Return a job to its queue."""
        entry = self.let_go(reservation)
        entry.home.returned([entry])

    @property
    def is_deadline_soon(self) -> bool:
        """True if the deadline of a reserved job is near."""
        soonest = self._deadlines.first()
        return soonest is not None and self.broker.now >= soonest[0] - _MARGIN_S

    # Waiting for a job.

    def reserve_next(self) -> bytes | None:
        """Reserve the most urgent job of the watched tubes, if there is one."""
        best: tuple[Rank, MessageReference] | None = None
        tube_of_best = ""
        if self.ledger.is_full or len(self._reservations) >= self.hub.settings.max_reserved:
            return None
        for tube in self.watched:
            queue = self.hub.queue(tube)
            if queue is None or queue.is_paused or self.hub.paused_until(tube):
                continue
            found = self.hub.best(tube)
            if found is not None and (best is None or found[0] < best[0]):
                best, tube_of_best = found, tube
        if best is None:
            return None
        entry = best[1]
        return self.reserve(
            cast("Queue", entry.home), entry, self.hub.learn(entry.message, tube_of_best)
        )

    def wait(self, seconds: int | None) -> None:
        """Wait for a job, until :meth:`look` ends the wait."""
        self.is_waiting = True
        self._until = None if seconds is None else self.broker.now + seconds
        self._look()

    def look(self, queue: Queue) -> None:
        """Check for a job; a queue that has been removed is created again."""
        if self._waiter in queue.pullers:
            self._offers[queue] = None
        else:
            self._offers.pop(queue, None)
        self.look_again()

    def look_again(self) -> None:
        """Check for a job, if the client waits for one."""
        if self.is_waiting:
            self._look()

    def _look(self) -> None:
        reply = self.reserve_next()
        if reply is not None:
            self._stop_waiting(reply)
        elif self.is_deadline_soon:
            self._stop_waiting(b"DEADLINE_SOON\r\n")
        elif self._until is not None and self._until <= self.broker.now and not self._is_loading():
            self._stop_waiting(b"TIMED_OUT\r\n")
        else:
            self._expect_offers()
            self.arm()

    def _is_loading(self) -> bool:
        queues = map(self.hub.queue, self.watched)
        return any(queue is not None and pulling.is_loading(queue) for queue in queues)

    def _expect_offers(self) -> None:
        """Register for notifications of jobs, also from queues that cannot be created now."""
        for tube in filter(self.hub.is_allowed, self.watched):
            queue = self.hub.queue(tube)
            if queue is None:
                try:
                    made = self.hub.host.destination(queue_of(tube), self)
                except RefusedError:
                    self.hub.host.expect(queue_of(tube), self._waiter)
                    self._expected.append(tube)
                    continue
                queue = cast("Queue", made)
            queue.pullers[self._waiter] = None
            self._offers[queue] = None

    def _stop_offers(self) -> None:
        for queue in self._offers:
            queue.pullers.pop(self._waiter, None)
            self.broker.touch(queue)
        self._offers.clear()
        for tube in self._expected:
            self.hub.host.expect_no_more(queue_of(tube), self._waiter)
        self._expected.clear()

    def _stop_waiting(self, reply: bytes) -> None:
        self.is_waiting = False
        self._until = None
        self._stop_offers()
        self.answer(reply)
        self._work_on()

    # Timers.

    @property
    def has_input_waiting(self) -> bool:
        """Return True if a command of the client waits to be run."""
        waits = self._next is not None or self._task is not None or self._refused is not None
        return waits or bool(self._parser.buffered) or self._has_unread

    def arm(self) -> None:
        """Set the timer to the next deadline."""
        moments = []
        soonest = self._deadlines.first()
        if soonest is not None:
            moments.append(soonest[0] - (_MARGIN_S if self.is_waiting else 0.0))
        if self.is_waiting and self._until is not None:
            moments.append(self.broker.now + _LOOK_S if self._is_loading() else self._until)
        if not moments:
            return
        first = min(moments)
        if self._timer is not None:
            if self._armed_for <= first:
                return
            self.broker.cancel(self._timer)
        self._armed_for = first
        self._timer = self.broker.later(
            max(0.0, first - self.broker.clock.seconds()), self._on_time
        )

    def _on_time(self) -> None:
        self._timer = None
        if self._closing:
            return
        was_soon = self.is_waiting and self.is_deadline_soon
        while (late := self._deadlines.pop_due(self.broker.now)) is not None:
            self._end_time_of(late)
        if was_soon:
            self._stop_waiting(b"DEADLINE_SOON\r\n")
        elif self.is_waiting:
            self._look()
        self.arm()

    def _end_time_of(self, late: Reservation) -> None:
        """Return an expired job to its queue, unless unread input may concern it."""
        if self.has_input_waiting and self.broker.now < late.deadline + MOST_GRACE_S:
            self._deadlines.set(late, self.broker.now + LOOK_S)
            return
        self.hub.timeouts += 1
        late.job.timeouts += 1
        self.give_back(late)

    async def loaded(self, queue: Queue) -> None:
        """Wait until the front of a queue may have been loaded."""
        done: Deferred[None] = Deferred()
        load = _Load(done)
        queue.pullers[load] = None
        timer = self.broker.later(_LOOK_S, lambda: load.offered(queue))
        try:
            await done
        finally:
            queue.pullers.pop(load, None)
            self.broker.cancel(timer)


def _less(counts: dict[str, int], tube: str) -> None:
    """Decrement a count, and remove it at zero."""
    counts[tube] -= 1
    if not counts[tube]:
        del counts[tube]
