"""Interfaces between the broker's domain and its environment, including plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from stompkit._common.moved import renamed

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
    "FencedError",
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
    "StoreFullError",
    "StoreRunner",
    "StoredMessage",
    "Timer",
    "User",
]


class Outlet(Protocol):
    """The output side of one client's connection: a transport, or a list in a test.

    It may have an attribute ``address``, the client's address and port for logs, and
    ``has_unread``, True if bytes of the client wait in the kernel. It may have a method
    ``write_pieces``, which does the same as ``write`` with a list of pieces.
    """

    @property
    def peer(self) -> str:
        """The address that counts for the client's limits, such as an IP address."""

    @property
    def is_reading(self) -> bool:
        """True if the client's bytes are read as they arrive."""

    def logged_in(self) -> None:
        """Called when CONNECT has been answered, and heart-beats begin."""

    def certificate(self) -> bytes | None:
        """Return the client's verified TLS certificate as DER, or None if it presented none."""

    def write(self, data: bytes) -> None:
        """Send bytes, in order, without blocking.

        May call the connection's ``set_writable(False)`` before it returns.
        """

    def pause(self) -> None:
        """Stop passing on the client's bytes, until :meth:`resume`."""

    def resume(self) -> None:
        """Resume passing on the client's bytes."""

    def close(self) -> None:
        """Close the stream once everything written has been sent."""


class Timer(Protocol):
    """A scheduled call, as returned by ``callLater`` of a reactor."""

    def cancel(self) -> None:
        """Cancel the call; raises an error if it has already been made."""

    def active(self) -> bool:
        """Return True if the call has neither been made nor cancelled."""


class Clock(Protocol):
    """Time for the domain: a Twisted reactor, or ``twisted.internet.task.Clock``.

    A clock that does not follow changes of the system's time also has a method ``time_of_day``,
    which does: see :func:`stompkit.server.process.steady_time.make_steady`.
    """

    def seconds(self) -> float:
        """Return the time in seconds since the epoch."""

    def callLater(self, delay: float, callable: Callable[..., object], /) -> Timer:
        """Call a function after a delay in seconds."""


class User(NamedTuple):
    """The user of a client. ``name`` is empty for an unauthenticated client."""

    name: str = ""
    groups: frozenset[str] = frozenset()


class Credentials(NamedTuple):
    """Identity that a client claims in CONNECT, and that its transport knows.

    ``certificate`` is the client's TLS certificate as DER, verified by the endpoint, or ``None``.
    The passcode is not part of the ``repr``.
    """

    login: str | None
    passcode: str | None
    host: str
    peer: str
    certificate: bytes | None = None

    def __repr__(self) -> str:
        """Show everything but the passcode."""
        return f"Credentials(login={self.login!r}, host={self.host!r}, peer={self.peer!r})"


class Authenticator(Protocol):
    """Identifies the user of a client."""

    def authenticate(self, credentials: Credentials, answer: Callable[[User | None], None]) -> None:
        """Call ``answer`` once with the user, or with ``None`` to reject the client.

        The call may be immediate or later, from the broker's thread.
        """


class Action(Enum):
    """An action that requires a right."""

    CREATE = "create"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Request(NamedTuple):
    """A client's request to use a destination.

    ``destination`` is the broker's name for it, without dialect, and may be a pattern if ``action``
    is READ. ``headers`` and ``body`` are those of the SEND or SUBSCRIBE frame.
    """

    user: User
    host: str
    action: Action
    destination: str
    headers: Mapping[str, str]
    body: bytes


class Decision(NamedTuple):
    """Decision of an authoriser; for a SEND it may replace the body."""

    allowed: bool
    body: bytes | None = None


class Authoriser(Protocol):
    """Decides which user may do what."""

    def authorise(self, request: Request, answer: Callable[[Decision], None]) -> None:
        """Call ``answer`` once, immediately or later, from the broker's thread."""


class StoreError(Exception):
    """The store could not execute a call; it has applied nothing of it."""


class StoreFullError(StoreError):
    """There is no space, on the disk or within the store's own limit."""


class FencedError(StoreError):
    """Another broker has written to the store, or may have: what is known of it is out of date."""


class Put(NamedTuple):
    """Store a message at a place of a lane.

    ``size`` counts against the limits of the queue; ``LaneState.octets`` is the sum of the sizes.
    ``expires_ms`` and ``due_ms`` are times in milliseconds since the epoch, 0 for none. ``lines``
    are the header lines of the MESSAGE frame, escaped as in 1.2, each with its line feed.
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
    """Delete the message at a place of a lane, if it exists."""

    lane: int
    place: int


class Mark(NamedTuple):
    """Set the delivery count of the message at a place."""

    lane: int
    place: int
    deliveries: int


class Delivered(NamedTuple):
    """Record that every message of a lane up to this place has been delivered at least once."""

    lane: int
    place: int


class CreateLane(NamedTuple):
    """Create an empty lane: one ordered part of a queue, identified by ``part``."""

    lane: int
    queue: str
    part: int


class DropLane(NamedTuple):
    """Delete a lane with all its messages."""

    lane: int


class SetRecord(NamedTuple):
    """Store a small value under a key, or delete the key if ``value`` is ``None``."""

    key: str
    value: bytes | None


Operation = Put | Remove | Mark | Delivered | CreateLane | DropLane | SetRecord


class StoredMessage(NamedTuple):
    """A message as read from the store.

    ``deliveries`` is the count set by the last :class:`Mark`, and at least 1 at or below the lane's
    delivered place. The other fields are those of :class:`Put`.
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
    """Totals of a lane that a store keeps without reading its messages.

    ``messages`` and ``octets`` are the number and the total size of the messages present.
    ``last_place`` is the highest place ever used, 0 at first.
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

    All methods block and are called from one thread at a time, not always the same one. Any of them
    may raise :class:`StoreError`.
    """

    def open(self) -> None:
        """Open or create the store; raises StoreError for an unknown version."""

    def lanes(self) -> list[LaneState]:
        """Return all lanes, in time proportional to their number, not to their content."""

    def records(self) -> Mapping[str, bytes]:
        """Return all records."""

    def apply(self, operations: Sequence[Operation]) -> None:
        """Apply all operations in order, or none.

        When this returns, the changes survive a crash of the process. If the store is synchronous,
        they also survive a crash of the machine.
        """

    def read(
        self, lane: int, after: int, max_messages: int, max_octets: int
    ) -> Sequence[StoredMessage]:
        """Return the first messages of a lane with a place above ``after``, in order.

        Return as many as fit into both limits by their sizes, but at least one if there is one.
        """

    def sync(self) -> None:
        """Flush everything applied so far, so that it survives a crash of the machine."""

    def close(self) -> None:
        """Sync and close. The store can be opened again."""


@runtime_checkable
class BriefStore(MessageStore, Protocol):
    """A store for which a few operations may cost a single write to the disk."""

    def is_brief(self, operations: Sequence[Operation]) -> bool:
        """Return True if :meth:`apply` would cost a single write for these operations."""


class StoreRunner(Protocol):
    """Runs the calls of a store one after the other, in the order of the requests."""

    def run(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Call ``work``, then ``done`` or ``failed`` with its result, from the broker's thread.

        The callback may run before ``run`` returns.
        """

    def stop(self) -> None:
        """Wait for pending calls, and accept no more."""


@runtime_checkable
class BriefRunner(StoreRunner, Protocol):
    """A runner that can make brief calls in the broker's thread instead of another one."""

    def run_brief(
        self,
        work: Callable[[], object],
        done: Callable[[object], None],
        failed: Callable[[StoreError], None],
    ) -> None:
        """Run as :meth:`run`; ``work`` is brief, and no other task waits for this thread."""


renamed(
    __name__,
    StoreFull="StoreFullError",
)
