"""The scheduler: the cycle in which one chunk of input takes effect.

First, all input of one chunk is applied. Then :meth:`Scheduler.flush` pumps each destination that
changed once, passes pending operations to the store, and writes once to each connection with
output. If there are many connections, the remaining ones are written to in later reactor
iterations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from stompkit.server.domain.commits.commit_queue import CommitQueue
from stompkit.server.domain.deliveries import ConnectionBase, DestinationBase, Subscription
from stompkit.server.domain.errors import RefusedError
from stompkit.server.interfaces import Clock, Timer
from stompkit.server.log import process_events

__all__ = ["Scheduler"]

#: Maximum time in seconds of deferrable work in one cycle, and number of queues that a subscription
#: examines between two checks of the clock.
_TURN_S: Final = 0.01
_QUEUES_FED: Final = 32
#: Maximum number of connections written to in one reactor iteration. Most of the cost of a write is
#: the reactor's, and delays all other connections.
_MOST_WRITTEN: Final = 50
#: Interval in seconds between two checks of the system's time, and the change that is a step.
_WATCH_S: Final = 1.0
_STEP_S: Final = 0.1


class AlarmBase:
    """An alarm that is set to a time of day."""

    __slots__ = ()

    def ring(self) -> None:
        """Call the function of the alarm now."""
        raise NotImplementedError


class Scheduler:
    """The pending work of the current cycle, and the timers that begin other cycles."""

    def __init__(self, clock: Clock, max_uncommitted_bytes: int) -> None:
        """Start with nothing pending.

        Connections wait for the store while it has yet to commit more than
        *max_uncommitted_bytes*.
        """
        self.clock = clock
        #: Time of the current cycle, for durations: the clock's, which may not follow changes of
        #: the system's time.
        self.now = clock.seconds()
        self._has_time_of_day = hasattr(clock, "time_of_day")
        #: The present time of day: the system's time, or that of the clock.
        self.time_of_day: Callable[[], float] = getattr(clock, "time_of_day", clock.seconds)
        #: Time of day of the current cycle, for times that senders set or that are stored.
        self.wall = self.now
        self.start_cycle(self.now)
        #: Alarms that are set to a time of day, if that is not the time of the clock.
        self._wall_alarms: dict[AlarmBase, None] = {}
        #: Difference of the two times when all of these alarms last rang, or the first was set.
        self._offset = self.wall - self.now
        self._is_watching = False
        #: The operations for the store; the broker replaces it when it is reset.
        self.commit_queue = CommitQueue()
        self.max_uncommitted_bytes = max_uncommitted_bytes
        #: True while a check runs during which nothing may change.
        self.is_checking = False
        #: Returns False once this broker may not deliver any more, since another one may have taken
        #: over; ``None`` if there is no other one.
        self.guard: Callable[[], bool] | None = None
        #: Called with the reason when all work is discarded, which is not called back then.
        self.when_discarded: list[Callable[[RefusedError], object]] = []
        self._is_flushing = False
        self._timers: set[Timer] = set()
        self._to_pump: dict[DestinationBase, None] = {}
        self._to_write: dict[ConnectionBase, None] = {}
        #: Connections to write to in later reactor iterations, since there are many.
        self._late: deque[ConnectionBase] = deque()
        self._is_late = False
        self._to_pull: dict[ConnectionBase, None] = {}
        self._to_feed: dict[Subscription, None] = {}
        self._to_begin: dict[Subscription, None] = {}
        self._to_unblock: dict[DestinationBase, None] = {}
        self._to_resume: dict[ConnectionBase, None] = {}
        self._awaiting_store: dict[ConnectionBase, None] = {}
        self._to_disconnect: list[tuple[ConnectionBase, str, str]] = []

    def start_cycle(self, now: float) -> None:
        """Set the time of the current cycle."""
        self.now = now
        self.wall = self.time_of_day() if self._has_time_of_day else now

    def date_of(self, moment: float) -> float:
        """Return the time of day of a time of the clock, by the present time of day."""
        if not self._has_time_of_day:
            return moment
        return moment + self.time_of_day() - self.clock.seconds()

    # Timers.

    def until(self, wall: float) -> float:
        """Return the seconds from now until a time of day, or 0 if it is past."""
        return max(0.0, wall - self.time_of_day())

    def watch(self, alarm: AlarmBase) -> None:
        """Ring an alarm earlier or later if the system's time changes."""
        if not self._has_time_of_day:
            return
        self._wall_alarms[alarm] = None
        if not self._is_watching:
            self._is_watching = True
            self._offset = self.wall - self.now
            self.later(_WATCH_S, self._watch_time)

    def unwatch(self, alarm: AlarmBase) -> None:
        """Stop to watch an alarm: it has rung, or is cancelled."""
        self._wall_alarms.pop(alarm, None)

    def _watch_time(self) -> None:
        """Ring all alarms if the system's time has changed; their owners set them again."""
        self._is_watching = False
        change_s = self.wall - self.now - self._offset
        # Small changes add up, for instance while the system's time is slowly corrected.
        if abs(change_s) >= _STEP_S:
            self._offset += change_s
            process_events.time_changed(seconds=round(change_s, 3))
            for alarm in list(self._wall_alarms):
                alarm.ring()
        if self._wall_alarms and not self._is_watching:
            self._is_watching = True
            self.later(_WATCH_S, self._watch_time)

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        """Call a function after a delay in seconds, in a separate cycle."""

        def fire() -> None:
            self._timers.discard(timer)
            self.start_cycle(self.clock.seconds())
            call()
            self.flush()

        timer = self.clock.callLater(delay_s, fire)
        self._timers.add(timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a delayed call."""
        self._timers.discard(timer)
        if timer.active():
            timer.cancel()

    def cancel_all(self) -> None:
        """Cancel all delayed calls: the broker ends, or is reset."""
        for timer in self._timers:
            if timer.active():
                timer.cancel()
        self._timers.clear()
        self._wall_alarms.clear()
        self._is_watching = False
        # The connections that the timer would have written to are gone.
        self._late.clear()
        self._is_late = False

    def discard(self, reason: RefusedError) -> None:
        """Discard everything that waits for a timer or the store, and notify its callers."""
        self.cancel_all()
        self.commit_queue.abandon()
        for call in self.when_discarded:
            call(reason)

    # Work for the end of the cycle.

    def touch(self, destination: DestinationBase) -> None:
        """Schedule a destination to be pumped at the end of the cycle."""
        self._to_pump[destination] = None

    def is_touched(self, destination: DestinationBase) -> bool:
        """Return True if a destination will be pumped at the end of the cycle."""
        return destination in self._to_pump

    def feed(self, subscription: Subscription) -> None:
        """Schedule a subscription to receive messages at the end of the cycle."""
        self._to_feed[subscription] = None

    def begin(self, subscription: Subscription) -> None:
        """Schedule a new pattern subscription to get existing messages at the end of the cycle."""
        self._to_begin[subscription] = None

    def pull(self, connection: ConnectionBase) -> None:
        """Schedule a connection with a slot limit to fill its free slots."""
        if connection.is_limited:
            self._to_pull[connection] = None

    def has_room(self, destination: DestinationBase) -> None:
        """Schedule the connections that wait for room in a destination to resume."""
        self._to_unblock[destination] = None

    def wrote(self, connection: ConnectionBase) -> None:
        """Schedule the output of a connection to be written at the end of the cycle."""
        self._to_write[connection] = None

    def wait_for_store(self, connection: ConnectionBase) -> bool:
        """Return True if a connection must wait for the store, which will resume it."""
        if self.commit_queue.octets <= self.max_uncommitted_bytes:
            return False
        self._awaiting_store[connection] = None
        return True

    def disconnect(self, connection: ConnectionBase, text: str, code: str) -> None:
        """Schedule a connection to be closed with an ERROR at the end of the cycle."""
        self._to_disconnect.append((connection, text, code))

    # The end of the cycle.

    def flush(self) -> None:
        """End the cycle: deliver, store and write until nothing more can be done now."""
        if self._is_flushing or self.is_checking:
            return
        if self.guard is not None and not self.guard():
            return
        self._is_flushing = True
        self.start_cycle(self.clock.seconds())
        commit_queue = self.commit_queue
        try:
            while True:
                if self._to_pull:
                    to_pull, self._to_pull = self._to_pull, {}
                    for connection in to_pull:
                        connection.pull()
                elif self._to_begin:
                    to_begin, self._to_begin = self._to_begin, {}
                    for subscription in to_begin:
                        self._feed_first(subscription)
                elif self._to_feed:
                    to_feed, self._to_feed = self._to_feed, {}
                    for subscription in to_feed:
                        self._feed(subscription)
                elif self._to_pump:
                    to_pump, self._to_pump = self._to_pump, {}
                    for destination in to_pump:
                        self._pump(destination)
                elif commit_queue.has_work:
                    commit_queue.flush()
                elif self._to_write:
                    to_write, self._to_write = self._to_write, {}
                    if len(to_write) > _MOST_WRITTEN:
                        self._write_to_many(to_write)
                    else:
                        for connection in to_write:
                            connection.write_out()
                elif self._to_disconnect:
                    to_disconnect, self._to_disconnect = self._to_disconnect, []
                    for connection, text, code in to_disconnect:
                        connection.fail(text, code)
                elif self._to_resume:
                    to_resume, self._to_resume = self._to_resume, {}
                    for connection in to_resume:
                        connection.go_on()
                elif self._to_unblock:
                    to_unblock, self._to_unblock = self._to_unblock, {}
                    for destination in to_unblock:
                        destination.let_in()
                elif self._awaiting_store and commit_queue.octets <= self.max_uncommitted_bytes:
                    self._to_resume, self._awaiting_store = self._awaiting_store, {}
                else:
                    break
            commit_queue.flush()
        finally:
            self._is_flushing = False

    def _write_to_many(self, connections: Iterable[ConnectionBase]) -> None:
        """Write to the first of many connections now, and to the rest in later iterations."""
        # Connections left over from earlier cycles are written to first, so that their delay never
        # exceeds one cycle.
        self._write_late(len(self._late))
        self._late.extend(connections)
        self._write_late(_MOST_WRITTEN)

    def _write_late(self, most: int) -> None:
        """Write to at most *most* of the remaining connections, and to the rest later."""
        late = self._late
        for _ in range(min(most, len(late))):
            connection = late.popleft()
            if not connection.is_closing:
                connection.write_out()
        if late and not self._is_late:
            self._is_late = True
            self.later(0.0, self._write_more)

    def _write_more(self) -> None:
        self._is_late = False
        self._write_late(_MOST_WRITTEN)

    def _feed_first(self, subscription: Subscription) -> None:
        """Deliver from the first queue of a pattern, and move it to the end if it has more."""
        if subscription.connection.is_limited:
            self.pull(subscription.connection)
        for queue in subscription.waiting:
            self._pump(queue)
            break
        self._to_feed[subscription] = None

    def _feed(self, subscription: Subscription) -> None:
        subscription.catch_up(self.wall)
        waiting = subscription.waiting
        for count in range(len(waiting)):
            if not subscription.wants():
                break
            if count % _QUEUES_FED == _QUEUES_FED - 1 and self._has_taken_long:
                # Others are served before the rest.
                self.later(0.0, partial(self.feed, subscription))
                break
            queue = next(iter(waiting))
            # It is re-added as the last one if it has more messages.
            del waiting[queue]
            self._to_pump.pop(queue, None)
            self._pump(queue)

    @property
    def _has_taken_long(self) -> bool:
        return self.clock.seconds() - self.now > _TURN_S

    @staticmethod
    def _pump(destination: DestinationBase) -> None:
        destination.pump()
        destination.forget_if_idle()
