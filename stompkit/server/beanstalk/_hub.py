"""What all clients of beanstalkd share: tubes, jobs that are known, and counts."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from stompkit.server.beanstalk._jobs import (
    QUEUE,
    Job,
    pri_of,
    queue_of,
)
from stompkit.server.beanstalk._numbers import Numbers
from stompkit.server.beanstalk._parser import is_tube
from stompkit.server.domain.alarm import Alarm
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deadlines import Deadlines
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import DEAD_LETTERS, Pattern, dead_letter_source, dead_letters_of
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.queues.references import MessageReference
from stompkit.server.settings.beanstalk import BeanstalkSettings

if TYPE_CHECKING:
    from stompkit.server.beanstalk._session import Session

__all__ = ["DEFAULT_TUBE", "Hub", "Pause", "Rank", "Reservation"]

DEFAULT_TUBE: Final = "default"

#: Messages at the front of a queue among which the most urgent is looked for.
_MOST_RANKED: Final = 1_000
#: Tubes of which something is counted before it is looked whether they are still there.
_COUNTED_TUBES: Final = 1_000
#: Fewer messages are ranked anew each time.
_FEW: Final = 32

#: The order of jobs: by priority, and the oldest first.
Rank = tuple[int, int]


class Pause(NamedTuple):
    """A tube of which no job is reserved for so many seconds, until a time."""

    seconds: int
    until: float


class Reservation:
    """A job that a worker has, until a time."""

    __slots__ = ("deadline", "entry", "job", "pri", "session", "ttr")

    def __init__(
        self, session: Session, job: Job, entry: MessageReference, pri: int, ttr: int
    ) -> None:
        """Note who has what; the time begins with the worker's next look at the clock."""
        self.session = session
        self.job = job
        self.entry = entry
        self.pri = pri
        self.ttr = ttr
        #: When its time ends.
        self.deadline = 0.0


class Hub:
    """The tubes of a broker's first virtual host."""

    def __init__(self, broker: Broker, settings: BeanstalkSettings) -> None:
        """Begin without clients; the broker is open."""
        self.broker = broker
        self.host = next(iter(broker.hosts.values()))
        self.numbers = Numbers(broker)
        self.sessions: set[Session] = set()
        self.reserved: dict[int, Reservation] = {}
        self.using: Counter[str] = Counter()
        self.watching: Counter[str] = Counter()
        self.pauses: dict[str, Pause] = {}
        self._pause_ends: Deadlines[str] = Deadlines()
        self._alarm = Alarm(broker, self._end_pauses)
        #: How often each command was given, and of each tube, what happened to it; see count().
        self.commands: Counter[str] = Counter()
        self.puts: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        self.pausings: Counter[str] = Counter()
        #: Jobs that were put into any tube.
        self.jobs = 0
        self._most_counted = self._most_paused = _COUNTED_TUBES
        self.timeouts = 0
        self.connections = 0
        self.started = broker.clock.seconds()
        self.id = secrets.token_hex(8)
        self._known: OrderedDict[int, Job] = OrderedDict()
        self._has_forgotten = False
        self.configure(settings)

    def configure(self, settings: BeanstalkSettings) -> None:
        """Go by other settings from now on; those who wait for a job look again."""
        self.settings = settings
        self._allowed = [Pattern(queue_of(each)) for each in settings.tubes]
        for session in list(self.sessions):
            session.look_again()

    # Tubes.

    def is_allowed(self, tube: str) -> bool:
        """Whether there is such a tube for these clients."""
        if not self._allowed:
            return True
        return any(each.matches(queue_of(tube)) for each in self._allowed)

    def queue(self, tube: str) -> Queue | None:
        """A tube's queue, if there is one now, and clients may use it."""
        found = self.host.destinations.get(queue_of(tube)) if self.is_allowed(tube) else None
        return found if isinstance(found, Queue) else None

    def dead_letters(self, tube: str) -> Queue | None:
        """The queue of a tube's buried jobs, if there are any, and clients may use it."""
        name = dead_letters_of(queue_of(tube))
        found = self.host.destinations.get(name) if self.is_allowed(tube) else None
        return found if isinstance(found, Queue) else None

    def tubes(self) -> Iterator[str]:
        """The tubes that there are: those in use, and those with messages or consumers."""
        seen = {DEFAULT_TUBE, *self.using, *self.watching}
        yield from seen
        for name, destination in self.host.destinations.items():
            source = dead_letter_source(name) if name.startswith(DEAD_LETTERS) else name
            tube = source.removeprefix(QUEUE)
            if tube == source or tube in seen or destination.is_idle:
                continue
            if is_tube(tube) and self.is_allowed(tube):
                seen.add(tube)
                yield tube

    def exists(self, tube: str) -> bool:
        """Whether there is a tube now."""
        if tube == DEFAULT_TUBE or tube in self.using or tube in self.watching:
            return True
        found = [each for each in (self.queue(tube), self.dead_letters(tube)) if each is not None]
        return any(not each.is_idle for each in found)

    def begin(self, tube: str) -> None:
        """Have a tube that is about to be used count from nothing, and not pause, if it is new."""
        if not self.exists(tube):
            for counts in (self.puts, self.deletes, self.pausings):
                counts.pop(tube, None)
            self._end_pause(tube)

    def pause(self, tube: str, seconds: int) -> None:
        """Have no job of a tube reserved for so many seconds, in place of an earlier pause."""
        until = self.broker.now + seconds
        self.pauses[tube] = Pause(seconds, until)
        self._pause_ends.set(tube, until)
        if len(self.pauses) > self._most_paused:
            for each in [each for each in self.pauses if not self.exists(each)]:
                self._end_pause(each)
            self._most_paused = max(_COUNTED_TUBES, 2 * len(self.pauses))
        self._end_pauses()

    def _end_pauses(self) -> None:
        """Have those looked at who wait for a job of a tube whose pause is over."""
        while (tube := self._pause_ends.pop_due(self.broker.now)) is not None:
            self._end_pause(tube)
        first = self._pause_ends.first()
        if first is not None:
            self._alarm.set(first[0])

    def _end_pause(self, tube: str) -> None:
        self._pause_ends.discard(tube)
        if self.pauses.pop(tube, None) is not None:
            queue = self.queue(tube)
            if queue is not None:
                self.broker.touch(queue)

    def count(self, counts: Counter[str], tube: str) -> None:
        """Count something that has happened to a tube; forget tubes that are gone, now and then."""
        counts[tube] += 1
        if len(counts) > self._most_counted:
            for each in [each for each in counts if not self.exists(each)]:
                del counts[each]
            # So that looking at all of them costs little for each.
            self._most_counted = max(_COUNTED_TUBES, 2 * len(counts))

    def paused_until(self, tube: str) -> float:
        """When the next job of a tube can be reserved; 0 for at once."""
        pause = self.pauses.get(tube)
        return 0.0 if pause is None or pause.until <= self.broker.now else pause.until

    # Jobs.

    def best(self, tube: str) -> tuple[Rank, MessageReference] | None:
        """The most urgent job of a tube that waits in memory, and its rank."""
        queue = self.queue(tube)
        entries = [] if queue is None else pulling.front(queue, _MOST_RANKED)
        if queue is None:
            return None
        has_priorities = queue.policy.priority
        known = queue.ranks
        ranks: dict[str, Rank] = {}
        for entry in entries:
            message = entry.message
            rank = known.get(message.id)
            if rank is None:
                pri = pri_of(message, has_priorities=has_priorities)
                rank = (pri, self.numbers.of(message.id))
            ranks[message.id] = rank
        # With the queue, which goes when the tube does, and without the messages.
        queue.ranks = ranks if len(ranks) > _FEW else {}
        if not entries:
            return None
        first = min(entries, key=lambda entry: ranks[entry.message.id])
        return ranks[first.message.id], first

    def learn(self, message: Message, tube: str) -> Job:
        """Remember a job, since a client is told of it."""
        number = self.numbers.of(message.id)
        job = self._known.get(number)
        if job is not None and job.tube != tube:
            # Copies that a fan-out destination has made are jobs apart.
            number = self.numbers.other(f"{message.id} {tube}")
            job = self._known.get(number)
        if job is None:
            job = self._known[number] = Job(number, message.id, tube)
            if len(self._known) > self.settings.max_known_jobs:
                self._has_forgotten = True
                self._known.popitem(last=False)
        return job

    def known(self, number: int) -> Job | None:
        """What is remembered of a job."""
        return self._known.get(number)

    def forget(self, job: Job) -> None:
        """A job is gone."""
        self._known.pop(job.number, None)

    def may_exist(self, number: int) -> bool:
        """Whether a client can have been told of a job that is not remembered."""
        return self._has_forgotten or not self.numbers.is_own(number)
