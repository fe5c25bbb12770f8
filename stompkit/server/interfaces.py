"""What the broker's domain needs of the world outside, and what a plug-in has to provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = [
    "Action",
    "Authenticator",
    "Authoriser",
    "BriefRunner",
    "BriefStore",
    "Clock",
    "CreateLane",
    "Credentials",
    "Decision",
    "Delivered",
    "DropLane",
    "LaneState",
    "Mark",
    "MessageStore",
    "Operation",
    "Outlet",
    "Put",
    "Remove",
    "Request",
    "SetRecord",
    "StoreError",
    "StoreFull",
    "StoreRunner",
    "StoredMessage",
    "Timer",
    "User",
]


class Outlet(Protocol):
    """The way out to one client: a transport, or a list in a test."""

    @property
    def peer(self) -> str:
        """The address that the client is counted under, such as an IP address."""

    @property
    def is_reading(self) -> bool:
        """Whether the client's octets are read as they come."""

    def logged_in(self) -> None:
        """Hear that CONNECT has been answered, and that heart-beats begin."""

    def certificate(self) -> bytes | None:
        """The client's verified TLS certificate as DER, if it has shown one."""

    def write(self, data: bytes) -> None:
        """Send octets, in order, without blocking.

        May call the connection's ``set_writable(False)`` before it returns.
        """

    def pause(self) -> None:
        """Hand over no more of what the client sends, until :meth:`resume`."""

    def resume(self) -> None:
        """Hand over what the client sends again."""

    def close(self) -> None:
        """Close the stream once everything written has been sent."""


class Timer(Protocol):
    """A call that will happen; what ``callLater`` of a reactor gives."""

    def cancel(self) -> None:
        """Have it not happen; an error once it has."""

    def active(self) -> bool:
        """Whether it has neither happened nor been cancelled."""


class Clock(Protocol):
    """Time for the domain: a Twisted reactor, or ``twisted.internet.task.Clock``."""

    def seconds(self) -> float:
        """Seconds since the epoch."""

    def callLater(self, delay: float, callable: Callable[..., object], /) -> Timer:
        """Have a function called after a delay in seconds."""


class User(NamedTuple):
    """Who a client is. ``name`` is empty for somebody whom nobody has asked."""

    name: str = ""
    groups: frozenset[str] = frozenset()


class Credentials(NamedTuple):
    """What a client says of itself in CONNECT, and what its transport knows.

    ``certificate`` is the client's TLS certificate as DER, verified by the endpoint, or ``None``.
    The passcode is not part of the ``repr``.
    """

    login: str | None
    passcode: str | None
    host: str
    peer: str
    certificate: bytes | None = None

    def __repr__(self) -> str:
        """All but the passcode."""
        return f"Credentials(login={self.login!r}, host={self.host!r}, peer={self.peer!r})"


class Authenticator(Protocol):
    """Finds out who a client is."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Call ``answer`` with the user, or with ``None`` for one to be turned away.

        At once or later, from the broker's thread, once.
        """


class Action(Enum):
    """What a right is needed for."""

    CREATE = "create"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Request(NamedTuple):
    """A client that wants to do something with a destination.

    ``destination`` is the name as the broker knows it, without dialect, and may be a pattern
    where ``action`` is READ. ``headers`` and ``body`` are those of the SEND or SUBSCRIBE frame.
    """

    user: User
    host: str
    action: Action
    destination: str
    headers: Mapping[str, str]
    body: bytes


class Decision(NamedTuple):
    """What an authoriser says: whether, and for a SEND perhaps with another body."""

    allowed: bool
    body: bytes | None = None


class Authoriser(Protocol):
    """Says who may do what."""

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Call ``answer``, at once or later, from the broker's thread, once."""


class StoreError(Exception):
    """The store could not do what it was asked to; nothing of it has happened."""


class StoreFull(StoreError):
    """There is no room, on the disk or within the store's own limit."""


class Put(NamedTuple):
    """Keep a message at a place of a lane.

    ``size`` counts against the limits of the queue, and is given back by ``LaneState.octets``
    as a sum; ``expires_ms`` and ``due_ms`` are times since the epoch, 0 for none; ``lines`` are
    the header lines of the MESSAGE frame, escaped as 1.2 does, each with its line feed.
    """

    lane: int
    place: int
    size: int
    expires_ms: int
    due_ms: int
    id: str
    lines: bytes
    body: bytes


class Remove(NamedTuple):
    """Forget the message at a place of a lane, if it is there."""

    lane: int
    place: int


class Mark(NamedTuple):
    """Note how often the message at a place has been delivered."""

    lane: int
    place: int
    deliveries: int


class Delivered(NamedTuple):
    """Note that every message of a lane up to this place has been delivered once or more."""

    lane: int
    place: int


class CreateLane(NamedTuple):
    """Make an empty lane: one ordered part of a queue, told from its others by ``part``."""

    lane: int
    queue: str
    part: int


class DropLane(NamedTuple):
    """Forget a lane with all its messages."""

    lane: int


class SetRecord(NamedTuple):
    """Keep a small value under a key, or forget the key where ``value`` is ``None``."""

    key: str
    value: bytes | None


Operation = Put | Remove | Mark | Delivered | CreateLane | DropLane | SetRecord


class StoredMessage(NamedTuple):
    """A message as the store gives it back.

    ``deliveries`` is what the last :class:`Mark` said, and at least 1 at or below the lane's
    delivered place; the other fields are those of :class:`Put`.
    """

    place: int
    deliveries: int
    size: int
    expires_ms: int
    due_ms: int
    id: str
    lines: bytes
    body: bytes


class LaneState(NamedTuple):
    """What a store knows of a lane without looking at its messages.

    ``messages`` and ``octets`` are the number and the sum of the sizes of what is there now;
    ``last_place`` is the highest place that was ever used, 0 at first.
    """

    lane: int
    queue: str
    part: int
    messages: int
    octets: int
    last_place: int
    delivered_place: int


class MessageStore(Protocol):
    """Keeps the messages of persistent queues.

    All methods block and are called from one thread at a time, not always the same one. Any of
    them may raise :class:`StoreError`.
    """

    def open(self) -> None:
        """Open or make the store; refuses one of a version that it does not know."""

    def lanes(self) -> list[LaneState]:
        """All lanes. Takes time by their number, not by what is in them."""

    def records(self) -> Mapping[str, bytes]:
        """All records."""

    def apply(self, operations: Sequence[Operation]) -> None:
        """Do all of it, in order, or nothing.

        When it returns, what was done survives the death of the process, and that of the
        machine where the store is set to be synchronous.
        """

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """The first messages of a lane with a place above ``after``, in order.

        As many as fit into both bounds by their sizes, but one at least, if there is one.
        """

    def sync(self) -> None:
        """Have everything applied so far survive the death of the machine."""

    def close(self) -> None:
        """Sync and close. The store can be opened again."""


@runtime_checkable
class BriefStore(MessageStore, Protocol):
    """A store for which few operations can be a matter of one write to the disk."""

    def is_brief(self, operations: Sequence[Operation]) -> bool:
        """Whether :meth:`apply` would be no more than that for these operations."""


class StoreRunner(Protocol):
    """Runs the calls of a store, one after the other, in the order in which they were asked for."""

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call ``work``, then one of the others with what it gave, from the broker's thread.

        Those two may be called before ``run`` returns.
        """

    def stop(self) -> None:
        """Wait for what has been asked for; take no more."""


@runtime_checkable
class BriefRunner(StoreRunner, Protocol):
    """A runner that need not have another thread do what takes no longer than to ask it to."""

    def run_brief(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """As :meth:`run`, where ``work`` is brief, and nobody else waits for this thread."""
