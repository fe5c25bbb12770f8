"""Jobs as messages: headers hold beanstalkd's attributes of a job, and the id its number.

===================== ==============================================================
``beanstalk-pri``     the priority, 0 to 4294967295; 0 is the most urgent
``beanstalk-ttr``     seconds that a worker has
``beanstalk-delay``   its last delay in seconds; left out if it had none
``beanstalk-created`` when it was put, milliseconds since the epoch
``beanstalk-counts``  how often it was reserved, timed out, was released, buried and
                      kicked before it was last written; left out if all are 0
``priority``          the nearest of STOMP's priorities
===================== ==============================================================
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.messages import Message

__all__ = [
    "DEFAULT_TUBE",
    "QUEUE",
    "Job",
    "Reservation",
    "delay_of",
    "job_message",
    "nearest_priority",
    "pri_of",
    "queue_of",
    "rewritten",
    "since_created",
    "state_headers",
    "ttr_of",
]

QUEUE: Final = "/queue/"
DEFAULT_TUBE: Final = "default"

#: The most urgent priority for each of STOMP's, from 9 down to 0. The usual priorities of clients
#: are separate: 1024, 65536 (STOMP's 4) and 2147483648.
_BOUNDS: Final = (0, 1, 16, 128, 1024, 65_536, 1_048_576, 16_777_216, 2**31, 2**31 + 1)
_HIGHEST: Final = 9
_USUAL: Final = 4
_MOST_DIGITS: Final = 10


class Job:
    """A remembered job: its location and its counters since it was last written."""

    __slots__ = ("buries", "kicks", "message_id", "number", "releases", "timeouts", "tube")

    def __init__(self, number: int, message_id: str, tube: str) -> None:
        """Start with zero counters for a job whose message has just been written."""
        self.number = number
        self.message_id = message_id
        self.tube = tube
        self.timeouts = self.releases = self.buries = self.kicks = 0

    def counts(self, message: Message, deliveries: int) -> tuple[int, int, int, int, int]:
        """Return the total counts of reserves, timeouts, releases, buries and kicks."""
        before = _counts_before(message)
        since = (deliveries, self.timeouts, self.releases, self.buries, self.kicks)
        reserves, timeouts, releases, buries, kicks = (
            a + b for a, b in zip(before, since, strict=True)
        )
        return reserves, timeouts, releases, buries, kicks

    def written(self) -> None:
        """Reset the counters: the message's header now contains them."""
        self.timeouts = self.releases = self.buries = self.kicks = 0


class Reservation:
    """A job that a worker has reserved until a deadline."""

    __slots__ = ("deadline", "entry", "job", "pri", "ttr")

    def __init__(self, job: Job, entry: MessageReference, pri: int, ttr: int) -> None:
        """Record the reservation; its time starts at :meth:`Reservations.touch`."""
        self.job = job
        self.entry = entry
        self.pri = pri
        self.ttr = ttr
        #: Time when the reservation ends.
        self.deadline = 0.0


def queue_of(tube: str) -> str:
    """Return the name of a tube's queue."""
    return QUEUE + tube


def nearest_priority(pri: int) -> int:
    """Return the STOMP priority closest to a priority of beanstalkd."""
    return _HIGHEST + 1 - bisect_right(_BOUNDS, pri)


def pri_of(message: Message, *, has_priorities: bool) -> int:
    """Return the priority of a job, or that of a message's header if its queue has priorities."""
    pri = _number(message, "beanstalk-pri")
    if pri is not None:
        return pri
    return _BOUNDS[_HIGHEST - (message.priority if has_priorities else _USUAL)]


def ttr_of(message: Message, usual: int) -> int:
    """Return the time-to-run in seconds."""
    return max(1, _number(message, "beanstalk-ttr") or usual)


def delay_of(message: Message) -> int:
    """Return the last delay of the job in seconds."""
    return _number(message, "beanstalk-delay") or 0


def since_created(message: Message, now: float) -> int:
    """Return whole seconds since a job was put; 0 for other messages."""
    value = message.headers.get("beanstalk-created", "")
    if not (value.isascii() and value.isdigit() and len(value) <= 15):
        return 0
    return max(0, int(now - int(value) / 1000))


def _number(message: Message, name: str) -> int | None:
    value = message.headers.get(name)
    if value is None or not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        return None
    return min(int(value), 2**32 - 1)


def _counts_before(message: Message) -> list[int]:
    words = message.headers.get("beanstalk-counts", "").split(" ")
    if len(words) == 5 and all(w.isascii() and w.isdigit() and len(w) <= 10 for w in words):
        return list(map(int, words))
    return [0] * 5


def job_message(
    message_id: str, tube: str, numbers: tuple[int, ...], body: bytes, now: float
) -> Message:
    """Return the message for a ``put`` with its priority, delay, time-to-run and length."""
    pri, delay, ttr, _ = numbers
    headers = {
        "destination": queue_of(tube),
        "content-length": str(len(body)),
        "priority": str(nearest_priority(pri)),
        "beanstalk-pri": str(pri),
        "beanstalk-ttr": str(max(1, ttr)),
        "beanstalk-created": str(round(now * 1000)),
    }
    if delay:
        headers["beanstalk-delay"] = str(delay)
    return _made(message_id, headers, body, now + delay if delay else 0.0)


def rewritten(
    message: Message,
    counts: tuple[int, ...],
    pri: int,
    *,
    delay: int = 0,
    now: float = 0.0,
) -> Message:
    """Return the same job with another priority or delay, and the same identifier and expiry."""
    headers = message.headers | state_headers(message, counts, pri)
    headers.pop("beanstalk-delay", None)
    if delay:
        headers["beanstalk-delay"] = str(delay)
    made = _made(message.id, headers, message.body, now + delay if delay else 0.0)
    made.group, made.expires = message.group, message.expires
    return made


def state_headers(message: Message, counts: tuple[int, ...], pri: int) -> dict[str, str]:
    """Return the headers that store the state of a job."""
    return {
        "content-length": str(len(message.body)),
        "priority": str(nearest_priority(pri)),
        "beanstalk-pri": str(pri),
        "beanstalk-counts": " ".join(map(str, counts)),
    }


def _made(message_id: str, headers: dict[str, str], body: bytes, due: float) -> Message:
    size = sum(len(name) + len(value) for name, value in headers.items()) + len(body)
    message = Message(message_id, headers["destination"], headers, None, body, size)
    message.priority = int(headers["priority"])
    message.due = due
    return message
