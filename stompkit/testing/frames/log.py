"""A log of the frames between clients and a broker, for tests to inspect and wait for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeVar

from stompkit._common.clock import monotonic
from stompkit.frames import Frame
from stompkit.testing.frames.events import Closed, End, Event, Octets, Opened, SeenFrame, size_bytes
from stompkit.testing.frames.evidence import (
    FrameNotSeenError,
    UnexpectedFrameError,
    check_answerable,
    is_of_kind,
    is_what_was_wanted,
    may_have_been,
)
from stompkit.testing.frames.matching import Direction, HeaderMatch, Match, match_of_call
from stompkit.testing.frames.report import not_seen, timed_lines, unexpected, unknown
from stompkit.testing.frames.timeouts import seconds
from stompkit.testing.frames.words import Secrets
from stompkit.testing.transcripts.transcript import Transcript

__all__ = ["FrameLog", "FrameNotSeenError", "SeenFrame", "UnexpectedFrameError"]

_T = TypeVar("_T")

_MOST_EVENTS: Final = 10_000
_MOST_BODY_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
#: Maximum number of bytes kept of data that is not a frame, per direction of a connection.
_MOST_OCTETS: Final = 4_096


class FrameLog:
    """All events between clients and a broker, in the order in which they were seen.

    Passcodes are masked when they are recorded. So is each of ``secrets`` that has four characters
    or more, in any header value and anywhere in a body. The log is bounded: it holds the latest
    ``max_events``, with ``max_bytes`` bytes of headers and bodies, and of each body
    ``max_body_bytes``. Messages and texts say if events are missing.

    All methods are thread-safe. Those with ``command`` and ``**match`` take the arguments of
    ``Match.of``: ``command`` is ``None`` for any, and further keywords are headers, with ``_`` for
    ``-``. Besides the errors of ``Match`` they raise ValueError for a passcode or another secret,
    which the log does not store; use a pattern to check that there is one.
    """

    def __init__(
        self,
        *,
        secrets: Iterable[str] = (),
        max_events: int = _MOST_EVENTS,
        max_body_bytes: int = _MOST_BODY_BYTES,
        max_bytes: int = _MOST_BYTES,
    ) -> None:
        """Start an empty log at 0 seconds."""
        self._changed = threading.Condition()
        self._secrets = Secrets(secrets)
        self._max_events = max_events
        self._max_body_bytes = max_body_bytes
        self._max_bytes = max_bytes
        self.filled_by(None)
        self._open: set[int] = set()
        self._leaving: set[int] = set()  # open connections whose clients have closed them
        self._last = 0  # number of the latest connection
        self._ignored = 0  # number of the latest connection that is not recorded any more
        self._next = 0  # number of the next event
        self._take: Callable[[Event], None] | None = None  # takes dropped events
        self._begin()

    def _begin(self) -> None:
        """Clear the log, except for the set of open connections."""
        self._began = monotonic()
        self._events: deque[Event] = deque()
        self._bytes = 0  # bytes of headers and bodies, of all events
        self._forgotten = 0  # number of dropped events
        self._gone: set[tuple[Direction, str]] = set()  # directions and commands of dropped frames
        self._beats: dict[Direction, int] = {"received": 0, "sent": 0}
        #: Number of the event with data that is not a frame, and its bytes before masking.
        self._rests: dict[tuple[Direction, int], tuple[int, bytearray]] = {}
        self._recorded: set[int] = set()  # connections with events, even forgotten ones
        self._before = self._last  # number of the latest connection before the log began
        self._kept = frozenset(self._open)  # connections from before that were still open

    # Called by a proxy.

    def filled_by(self, catch_up: Callable[[], None] | None) -> None:
        """Set the function that records what has come so far; it takes the lock in a thread."""
        self._catch_up: Callable[[], None] = catch_up or (lambda: None)

    def opened(self, connection: int) -> None:
        """Record that a client has connected; ``connection`` is a new number, from 1."""
        with self._changed:
            self._open.add(connection)
            self._last = max(self._last, connection)
            self._append(Opened(connection, self._now()))

    def leaving(self, connection: int) -> None:
        """Note that a client has closed a connection, whose end follows."""
        with self._changed:
            self._leaving.add(connection)

    def closed(self, connection: int, reason: str = "", *, by: End | None = None) -> None:
        """Record the end of a connection, its reason, and the end that closed it, if known."""
        with self._changed:
            self._open.discard(connection)
            self._leaving.discard(connection)
            if connection <= self._ignored or connection not in self._recorded:
                # It belongs to an earlier test, and its end came after that test.
                return
            self._rests = {key: rest for key, rest in self._rests.items() if key[1] != connection}
            self._append(Closed(connection, self._now(), by, self._secrets.text(reason)))

    def record(self, direction: Direction, connection: int, frame: Frame) -> None:
        """Record a copy of a frame."""
        masked = self._secrets.frame(frame)
        cut_bytes = max(0, len(masked.body) - self._max_body_bytes)
        if cut_bytes:
            masked.body = masked.body[: self._max_body_bytes]
        with self._changed:
            if connection > self._ignored:
                self._append(
                    SeenFrame(direction, connection, self._now(), masked, cut_bytes, self._next)
                )

    def beat(self, direction: Direction, connection: int) -> None:
        """Record an end of line between frames: a heart-beat."""
        with self._changed:
            if connection > self._ignored:
                self._beats[direction] += 1
                self._changed.notify_all()

    def injected(self, direction: Direction, connection: int, frame: Frame) -> None:
        """Ignore a frame that a fault injects: neither end has sent it."""

    def undecodable(self, direction: Direction, connection: int, octets: bytes) -> None:
        """Record bytes that are not a frame; no frame can follow them in this direction."""
        most = _MOST_OCTETS + self._secrets.longest_bytes
        with self._changed:
            if connection <= self._ignored:
                return
            key = direction, connection
            if key not in self._rests:
                self._rests[key] = self._next, bytearray()
                self._append(Octets(direction, connection, b"", self._now()))
            number, rest = self._rests[key]
            rest += octets[: most - len(rest)]
            # A secret may have come in pieces, so all of it is masked again.
            index = number - self._first
            event = self._events[index] if index >= 0 else None
            if isinstance(event, Octets):
                masked = self._secrets.octets(bytes(rest))
                if len(rest) == most:  # its end may be an incomplete secret
                    masked = masked[: len(masked) - self._secrets.longest_bytes]
                self._events[index] = replace(event, octets=masked[:_MOST_OCTETS])
            self._changed.notify_all()

    # Called by tests.

    @property
    def received(self) -> list[SeenFrame]:
        """The frames that the broker received, oldest first."""
        return self.find(direction="received")

    @property
    def sent(self) -> list[SeenFrame]:
        """The frames that the broker sent, oldest first."""
        return self.find(direction="sent")

    @property
    def all(self) -> list[SeenFrame]:
        """The frames of both directions, oldest first."""
        return self.find()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        with self._changed:
            return len(self._open)

    def beats(self, direction: Direction) -> int:
        """Return the number of heart-beats in one direction."""
        with self._changed:
            return self._beats[direction]

    def find(self, command: str | None = None, /, **match: Any) -> list[SeenFrame]:
        """Return the frames that match, oldest first.

        Dropped frames are missing in the list: :meth:`expect_none` notices that, and fails.
        """
        wanted = self._match(command, match)
        with self._changed:
            frames = list(self._frames())
        return [seen for seen in frames if is_what_was_wanted(wanted, seen)]

    def wait_for(
        self,
        command: str | None = None,
        /,
        *,
        count: int = 1,
        timeout_s: float = 5.0,
        timeout: float | HeaderMatch = None,
        after: SeenFrame | None = None,
        **match: Any,
    ) -> SeenFrame:
        """Wait until ``count`` frames match, and return the last of them.

        Frames that were seen before the call count too: all since the log began or was cleared, or
        those after ``after``. Raises FrameNotSeenError after ``timeout_s`` seconds. ``timeout`` is
        another name for ``timeout_s``, unless it is a text: then it matches a header.
        """
        if isinstance(timeout, int | float):
            timeout_s = timeout
        elif timeout is not None:
            match["timeout"] = timeout
        if count < 1:
            raise ValueError(f"count is {count}: a frame that is not to come cannot be waited for")
        wanted = self._match(command, match, ("count", "timeout_s", "after"))
        found = 0
        number = 0 if after is None else after.number + 1

        def enough() -> SeenFrame | None:
            nonlocal found, number
            for seen in self._frames(number):
                found += is_what_was_wanted(wanted, seen)
                if found == count:
                    return seen
            number = self._next
            return None

        with self._changed:
            seen = self._wait(enough, timeout_s)
            if seen is not None:
                return seen
            first = 0 if after is None else after.number + 1
            frames, gone = list(self._frames(first)), self._forgotten
        message = not_seen(wanted, count, found, timeout_s, frames, gone)
        raise FrameNotSeenError(self._secrets.text(message))

    def wait_for_connections(
        self, number: int, timeout_s: float = 5.0, *, timeout: float | None = None
    ) -> None:
        """Wait until exactly ``number`` connections are open.

        Raises FrameNotSeenError after ``timeout_s`` (or ``timeout``) seconds.
        """
        timeout_s = seconds(timeout_s, timeout)
        with self._changed:
            if self._wait(lambda: len(self._open) == number or None, timeout_s) is None:
                raise FrameNotSeenError(
                    f"wanted {number} open connections within {timeout_s:g} s,"
                    f" but there are {len(self._open)}; the last that happened:\n"
                    + "\n".join(timed_lines(list(self._events)[-10:]))
                )

    def settle(self, timeout_s: float = 5.0, *, timeout: float | None = None) -> None:
        """Wait until all connections have ended that clients have closed or sent DISCONNECT on.

        Their ends follow immediately, and belong to a complete log. The method waits at most
        ``timeout_s`` (or ``timeout``) seconds.
        """

        def settled() -> bool | None:
            leaving = {
                seen.connection
                for seen in self._frames()
                if seen.direction == "received" and seen.frame.command == "DISCONNECT"
            }
            return self._open.isdisjoint(leaving | self._leaving) or None

        self._catch_up()
        with self._changed:
            self._wait(settled, seconds(timeout_s, timeout))

    def expect_none(self, command: str | None = None, /, **match: Any) -> None:
        """Raise UnexpectedFrameError if a matching frame was sent; does not wait for one.

        Raises it as well if this cannot be known: a frame with the command was dropped, or a secret
        or the end of a body is missing that may have matched.
        """
        wanted = self._match(command, match)
        self._catch_up()
        with self._changed:
            frames, gone = list(self._frames()), set(self._gone)
        found = [seen for seen in frames if is_what_was_wanted(wanted, seen)]
        if found:
            raise UnexpectedFrameError(self._secrets.text(unexpected(wanted, found)))
        possible = [seen for seen in frames if may_have_been(wanted, seen, self._secrets)]
        is_gone = any(is_of_kind(wanted, *kind) for kind in gone)
        if possible or is_gone:
            message = unknown(wanted, possible, is_gone=is_gone)
            raise UnexpectedFrameError(self._secrets.text(message))

    def clear(self) -> None:
        """Clear the frames and restart at 0 seconds; connection numbers continue."""
        self._catch_up()
        with self._changed:
            self._begin()
            self._changed.notify_all()

    def start_over(self) -> None:
        """Clear the log, and record nothing more of connections that are about to be closed.

        A client can send more frames before it notices the end of its connection.
        """
        with self._changed:
            self._ignored = self._last
            self._open.clear()
            self._begin()
            self._changed.notify_all()

    def transcript(self) -> Transcript:
        """Return the recorded events, to be saved, compared or replayed."""
        with self._changed:
            return Transcript(tuple(self._events), forgotten=self._forgotten)

    def hand_on(self, take: Callable[[Event], None] | None) -> Transcript:
        """Call a function for each event that is dropped from now on; return those not dropped."""
        with self._changed:
            self._take = take
            return self.transcript()

    def text(self, last: int | None = None) -> str:
        """Return the recorded events, one per line; ``last`` limits them to the latest ones."""
        with self._changed:
            events, gone, beats = list(self._events), self._forgotten, dict(self._beats)
        if last is not None and len(events) > last:
            gone += len(events) - last
            events = events[len(events) - last :]
        lines = [f"({gone} earlier events are not shown)"] if gone else []
        lines += timed_lines(events)
        if any(beats.values()):
            lines.append(f"(heart-beats: {beats['received']} received, {beats['sent']} sent)")
        return "\n".join(lines)

    # Shared helpers; the lock is held, except in _match.

    def _now(self) -> float:
        # With the precision of a transcript.
        return round(monotonic() - self._began, 6)

    @property
    def _first(self) -> int:
        """Number of the oldest event still in the log."""
        return self._next - len(self._events)

    def _append(self, event: Event) -> None:
        """Append an event, drop the oldest ones if the log is full, and wake waiting threads."""
        self._events.append(event)
        self._recorded.add(event.connection)
        self._next += 1
        self._bytes += size_bytes(event)
        while len(self._events) > self._max_events or self._bytes > self._max_bytes:
            oldest = self._events.popleft()
            self._bytes -= size_bytes(oldest)
            self._forgotten += 1
            if self._take is not None:
                self._take(oldest)
            if isinstance(oldest, SeenFrame):
                self._gone.add((oldest.direction, oldest.command))
        self._changed.notify_all()

    def _frames(self, number: int = 0) -> Iterator[SeenFrame]:
        """Yield the frames from a number on."""
        for event in islice(self._events, max(0, number - self._first), None):
            if isinstance(event, SeenFrame):
                yield event

    def _match(
        self, command: str | None, match: dict[str, Any], parameters: Collection[str] = ()
    ) -> Match:
        """Create a match that the log can answer, from a call with these other parameters."""
        wanted = match_of_call(command, match, parameters)
        check_answerable(wanted, self._secrets)
        number = wanted.connection
        if number is not None and number <= self._before and number not in self._kept:
            raise ValueError(
                f"connection is {number}, which had ended when the log began; the next connection"
                f" since then has the number {self._before + 1}, and numbers continue in each test."
                " Take it from a frame, as from find('CONNECT')[0].connection"
            )
        return wanted

    def _wait(self, condition: Callable[[], _T | None], timeout_s: float) -> _T | None:
        """Wait until a condition returns a value, and return it, or ``None`` after the timeout."""
        deadline = monotonic() + timeout_s
        while True:
            value = condition()
            remaining_s = deadline - monotonic()
            if value is not None or remaining_s <= 0:
                return value
            self._changed.wait(remaining_s)
