"""State shared by all beanstalkd clients: tubes, known jobs and counters."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from stompkit.server.beanstalk.client import Client
from stompkit.server.beanstalk.jobs import (
    DEFAULT_TUBE,
    QUEUE,
    Job,
    Reservation,
    pri_of,
    queue_of,
)
from stompkit.server.beanstalk.numbers import Numbers
from stompkit.server.beanstalk.parser import is_tube
from stompkit.server.domain.broker import Broker
from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message
from stompkit.server.domain.names import DEAD_LETTERS, Pattern, dead_letter_source, dead_letters_of
from stompkit.server.domain.queues import pulling
from stompkit.server.domain.queues.queue import Queue
from stompkit.server.domain.scheduling.alarm import Alarm
from stompkit.server.domain.scheduling.deadlines import Deadlines
from stompkit.server.settings.beanstalk import BeanstalkSettings

__all__ = ["Hub", "Pause", "Rank"]

#: Number of messages at the front of a queue that are ranked to find the most urgent one.
_MOST_RANKED: Final = 1_000
#: Number of tubes with counters above which those of removed tubes are dropped.
_COUNTED_TUBES: Final = 1_000
#: Up to this many messages are ranked again each time.
_FEW: Final = 32

#: The order of jobs: by priority, then by age.
Rank = tuple[int, int]


class Pause(NamedTuple):
    """A paused tube: the duration in seconds, and the time when the pause ends."""

    seconds: int
    until: float


class Hub:
    """The tubes of a broker's first virtual host."""

    def __init__(self, broker: Broker, settings: BeanstalkSettings) -> None:
        """Start without clients; the broker is open."""
        self.broker = broker
        self.host = next(iter(broker.hosts.values()))
        self.numbers = Numbers(broker)
        self.clients: set[Client] = set()
        self.reserved: dict[int, Reservation] = {}
        self.using: Counter[str] = Counter()
        self.watching: Counter[str] = Counter()
        self.pauses: dict[str, Pause] = {}
        self._pause_ends: Deadlines[str] = Deadlines()
        self._alarm = Alarm(broker.scheduler, self._end_pauses)
        #: Number of calls of each command, and of events of each tube; see count().
        self.commands: Counter[str] = Counter()
        self.puts: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        self.pausings: Counter[str] = Counter()
        #: Number of jobs put into any tube.
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
        """Apply new settings; waiting clients check again for jobs."""
        self.settings = settings
        self._allowed = [Pattern(queue_of(each)) for each in settings.tubes]
        for client in list(self.clients):
            client.look_again()

    # Clients.

    def add(self, client: Client) -> None:
        """Count a new client and its tubes."""
        self.clients.add(client)
        self.connections += 1
        self.using[client.used] += 1
        self.watching.update(list(client.watched))

    def remove(self, client: Client) -> None:
        """Stop counting a client, if it was counted."""
        if client in self.clients:
            self.clients.remove(client)
            _less(self.using, client.used)
            for tube in client.watched:
                _less(self.watching, tube)

    def use(self, client: Client, tube: str) -> None:
        """Put the future jobs of a client into another tube."""
        self.begin(tube)
        self.using[tube] += 1
        _less(self.using, client.used)
        client.used = tube

    def watch(self, client: Client, tube: str) -> None:
        """Add a tube to those that a client watches."""
        if tube not in client.watched:
            self.begin(tube)
            client.watched[tube] = None
            self.watching[tube] += 1

    def ignore(self, client: Client, tube: str) -> None:
        """Remove a tube from those that a client watches."""
        if tube in client.watched:
            del client.watched[tube]
            _less(self.watching, tube)

    # Tubes.

    def is_allowed(self, tube: str) -> bool:
        """Return True if these clients may use a tube."""
        if not self._allowed:
            return True
        return any(each.matches(queue_of(tube)) for each in self._allowed)

    def queue(self, tube: str) -> Queue | None:
        """Return the queue of a tube, if it exists and clients may use it."""
        found = self.host.destinations.get(queue_of(tube)) if self.is_allowed(tube) else None
        return found if isinstance(found, Queue) else None

    def dead_letters(self, tube: str) -> Queue | None:
        """Return the queue of a tube's buried jobs, if it exists and clients may use it."""
        name = dead_letters_of(queue_of(tube))
        found = self.host.destinations.get(name) if self.is_allowed(tube) else None
        return found if isinstance(found, Queue) else None

    def tubes(self) -> Iterator[str]:
        """Yield the existing tubes: those used or watched, and those with messages or consumers."""
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
        """Return True if a tube exists."""
        if tube == DEFAULT_TUBE or tube in self.using or tube in self.watching:
            return True
        found = [each for each in (self.queue(tube), self.dead_letters(tube)) if each is not None]
        return any(not each.is_idle for each in found)

    def begin(self, tube: str) -> None:
        """Reset the counters and the pause of a new tube before its first use."""
        if not self.exists(tube):
            for counts in (self.puts, self.deletes, self.pausings):
                counts.pop(tube, None)
            self._end_pause(tube)

    def pause(self, tube: str, seconds: int) -> None:
        """Pause a tube for a time in seconds, replacing an earlier pause."""
        until = self.broker.now + seconds
        self.pauses[tube] = Pause(seconds, until)
        self._pause_ends.set(tube, until)
        if len(self.pauses) > self._most_paused:
            for each in [each for each in self.pauses if not self.exists(each)]:
                self._end_pause(each)
            self._most_paused = max(_COUNTED_TUBES, 2 * len(self.pauses))
        self._end_pauses()

    def _end_pauses(self) -> None:
        """End the pauses that are due, and wake the clients that wait for these tubes."""
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
        """Count an event of a tube; occasionally drop the counters of removed tubes."""
        counts[tube] += 1
        if len(counts) > self._most_counted:
            for each in [each for each in counts if not self.exists(each)]:
                del counts[each]
            # The threshold grows, so that the cost for each event stays small.
            self._most_counted = max(_COUNTED_TUBES, 2 * len(counts))

    def paused_until(self, tube: str) -> float:
        """Return the time when a paused tube resumes; 0 if it is not paused."""
        pause = self.pauses.get(tube)
        return 0.0 if pause is None or pause.until <= self.broker.now else pause.until

    # Jobs.

    def best(self, tube: str) -> tuple[Rank, MessageReference] | None:
        """Return the most urgent job of a tube that waits in memory, and its rank."""
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
        # Cached with the queue, which is removed with the tube, and without the messages.
        queue.ranks = ranks if len(ranks) > _FEW else {}
        if not entries:
            return None
        first = min(entries, key=lambda entry: ranks[entry.message.id])
        return ranks[first.message.id], first

    def learn(self, message: Message, tube: str) -> Job:
        """Remember a waiting job whose id a client receives."""
        number = self.numbers.of(message.id)
        job = self._known.get(number)
        copy = 0
        # Copies made by a fan-out destination are separate jobs, in several tubes or, if an
        # operator has moved one, in the same. What is reserved is another one than this.
        while number in self.reserved or (job is not None and job.tube != tube):
            number = self.numbers.other(f"{message.id} {tube} {copy}")
            job = self._known.get(number)
            copy += 1
        if job is None:
            job = self._known[number] = Job(number, message.id, tube)
            if len(self._known) > self.settings.max_known_jobs:
                self._has_forgotten = True
                self._known.popitem(last=False)
        return job

    def known(self, number: int) -> Job | None:
        """Return a remembered job."""
        return self._known.get(number)

    def forget(self, job: Job) -> None:
        """Forget a deleted job."""
        self._known.pop(job.number, None)

    def may_exist(self, number: int) -> bool:
        """Return True if a client may know the id of a job that is not remembered."""
        return self._has_forgotten or not self.numbers.is_own(number)


def _less(counts: Counter[str], tube: str) -> None:
    """Decrement a count, and remove it at zero."""
    counts[tube] -= 1
    if not counts[tube]:
        del counts[tube]
