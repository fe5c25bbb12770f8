"""One direction of a connection through the proxy: reading, delaying by rules, writing."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from stompkit.testing.frames.events import End
from stompkit.testing.frames.matching import Direction
from stompkit.testing.proxy.contracts import FlowOwner
from stompkit.testing.proxy.pieces import Reader
from stompkit.testing.proxy.rule_filter import RuleFilter
from stompkit.testing.proxy.rules import Passage, Rule
from stompkit.testing.proxy.sockets import READ_BYTES

if TYPE_CHECKING:  # it imports slowly, and only a running proxy needs it
    from asyncio import TimerHandle

__all__ = ["OTHER", "SENDER", "Flow"]

#: Maximum number of delayed or held bytes in one direction of a connection; above it, reading
#: stops.
_MOST_KEPT_BYTES: Final = 16 * 1024 * 1024
#: Maximum number of reads at once of data that has come.
_MOST_READS: Final = 256
#: Duration in seconds of the largest chunk of bytes that ``bandwidth`` sends at once.
_SLICE_S: Final = 0.05
#: The sender of each direction.
SENDER: Final[dict[Direction, End]] = {"received": "client", "sent": "broker"}
OTHER: Final[dict[End, End]] = {"client": "broker", "broker": "client"}


@dataclass(slots=True, eq=False)
class _Item:
    """Data that waits to be written."""

    octets: memoryview
    """The bytes not yet written."""
    passage: Passage
    """The delays of the data, and the actions after it."""
    came: float = 0.0
    """Time of arrival, by the clock of the loop."""
    due: float = 0.0
    """Earliest time of departure."""

    @property
    def is_plain(self) -> bool:
        """True if it can be written together with other items."""
        return not self.due and not self.passage.slice_bytes and self.passage.ending is None


class Flow:
    """One direction of a connection, from one socket to the other."""

    def __init__(self, connection: FlowOwner, direction: Direction, reader: Reader) -> None:
        """Wait for ``start``; ``reader`` parses both directions of the connection."""
        server = connection.server
        self.is_finished = False  # the end has been passed on
        self.filter = RuleFilter(
            direction,
            connection.number,
            reader,
            seed=server.seed,
            log=server.frames,
            out=self._put,
            inject=connection.inject,
            struck=lambda rule: server.struck(rule, connection.number),
        )
        self._connection = connection
        self._loop = server.loop
        self._number = connection.number
        self._direction: Direction = direction
        self._sender = SENDER[direction]
        self._source: socket.socket | None = None
        self._target: socket.socket | None = None
        self._queue: deque[_Item] = deque()
        self._queued_bytes = 0
        self._timer: TimerHandle | None = None
        self._is_reading = False
        self._is_feeding = False
        self._is_blocked = False  # the target is not writable
        self._has_ended = False  # the source has closed its direction
        self._is_discarding = False
        self._is_broken = False  # it will end by a reset
        self._rates: list[Rule] = []
        self._free_at = 0.0  # time at which the bandwidth allows more

    def start(self, source: socket.socket, target: socket.socket) -> None:
        """Start to forward bytes."""
        self._source, self._target = source, target
        self._pump()
        self._choose_reading()

    def change(self, rules: Sequence[Rule]) -> None:
        """Apply these rules from now on."""
        self._rates = [
            rule
            for rule in rules
            if rule.about == "rate"
            and rule.match.direction in (None, self._direction)
            and rule.match.connection in (None, self._number)
        ]
        for item in self._queue:
            if item.passage.keep_effects_of(rules):
                item.due = _due(item)
        if not self._is_discarding:
            self.filter.change(rules)
            self._pump()
        self._choose_reading()

    def discard(self) -> None:
        """Discard all pending data, and all data that still comes."""
        self._is_discarding = True
        self._queue.clear()
        self._queued_bytes = 0
        self._stop_timer()
        if self._is_blocked and self._target is not None:
            self._loop.remove_writer(self._target)
        self._is_blocked = False
        self._target = None
        self._choose_reading()

    def stop(self) -> None:
        """Stop using the sockets."""
        self._has_ended = True
        self.discard()
        self._source = None

    # Reading.

    def _choose_reading(self) -> None:
        """Start or stop reading, as the state requires."""
        if self._source is None:
            return
        wants = (
            not self._has_ended
            and not self._is_blocked
            and self._queued_bytes + self.filter.kept_bytes < _MOST_KEPT_BYTES
            and not self._connection.is_stopped(OTHER[self._sender])
        )
        if wants and not self._is_reading:
            self._loop.add_reader(self._source, self._connection.guarded(self._read))
        elif self._is_reading and not wants:
            self._loop.remove_reader(self._source)
        self._is_reading = wants

    def read_waiting(self) -> None:
        """Read what has come so far, up to a limit: a sender may never stop."""
        for _ in range(_MOST_READS):
            if not self._is_reading or not self._read():
                return

    def _read(self) -> bool:
        """Read once; return False if nothing has come, or the end."""
        assert self._source is not None  # it has become readable
        try:
            octets = self._source.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self._end(is_reset=True)
            return False
        if not octets:
            self._end(is_reset=self._is_broken)
        elif not self._is_discarding:
            self._is_feeding = True  # the results of these bytes go out together
            try:
                self.filter.feed(octets)
            finally:
                self._is_feeding = False
            self._pump()
        return bool(octets)

    def _end(self, *, is_reset: bool) -> None:
        self._has_ended = True
        self._choose_reading()
        if is_reset:
            self._source = None
        self._connection.ended(self._sender, is_reset=is_reset)
        if not self._is_discarding:
            self.filter.finish("reset" if is_reset else "eof")

    def break_off(self) -> None:
        """Handle the loss of the source; data that it sent before is still read."""
        self._is_broken = True
        if self._has_ended and self._source is not None:
            self._end(is_reset=True)

    # Writing.

    def _put(self, passage: Passage) -> None:
        if self._is_discarding:
            return
        item = _Item(memoryview(passage.octets), passage)
        if passage.delays:
            item.came = self._loop.time()
            item.due = _due(item)
        self._queue.append(item)
        self._queued_bytes += len(passage.octets)
        if not self._is_feeding:
            self._pump()

    def _pump(self) -> None:
        """Write the items that are due."""
        self._stop_timer()
        while self._queue and self._target is not None and not self._is_blocked:
            item = self._queue[0]
            due = max(item.due, self._free_at if self._rates and item.octets else 0.0)
            if due > self._loop.time():
                self._timer = self._loop.call_at(due, self._connection.guarded(self._pump))
                break
            if item.is_plain and len(self._queue) > 1:
                self._join()
                item = self._queue[0]
            if item.octets and not self._write(item, self._target):
                continue
            if not item.octets:
                self._queue.popleft()
                self._conclude(item.passage)
            elif item.passage.slice_bytes:
                item.due = self._loop.time() + item.passage.pause_s
                self._timer = self._loop.call_at(item.due, self._connection.guarded(self._pump))
                break
        self._choose_reading()

    def _join(self) -> None:
        """Join the first items into one, as far as they can be written together."""
        plain = list(takewhile(lambda item: item.is_plain, self._queue))
        if len(plain) > 1:
            for _ in plain:
                self._queue.popleft()
            octets = memoryview(b"".join(item.octets for item in plain))
            self._queue.appendleft(_Item(octets, Passage(b"")))

    def _write(self, item: _Item, target: socket.socket) -> bool:
        """Write bytes of an item, and return True if any were written."""
        octets = item.octets
        rate = min((rule.bytes_per_s for rule in self._rates), default=0.0)
        if rate:
            octets = octets[: max(1, int(rate * _SLICE_S))]
        if item.passage.slice_bytes:
            octets = octets[: item.passage.slice_bytes]
        try:
            sent = target.send(octets)
        except (BlockingIOError, InterruptedError):
            self._is_blocked = True
            self._loop.add_writer(target, self._connection.guarded(self._unblocked))
            return False
        except OSError:
            self._connection.lost(OTHER[self._sender])
            return False
        item.octets = item.octets[sent:]
        self._queued_bytes -= sent
        if rate:
            self._free_at = max(self._loop.time(), self._free_at) + sent / rate
            for rule in self._rates:
                if self._queued_bytes and rule.bytes_per_s == rate:
                    rule.happened()
        return True

    def _unblocked(self) -> None:
        assert self._target is not None  # after a blocked write
        self._is_blocked = False
        self._loop.remove_writer(self._target)
        self._pump()

    def _conclude(self, passage: Passage) -> None:
        """Perform the actions after an item."""
        ending = passage.ending
        if ending == "eof":
            self.is_finished = True
            if self._target is not None:
                with suppress(OSError):
                    self._target.shutdown(socket.SHUT_WR)
            self._connection.passed_end()
        elif ending is not None:
            self._connection.end(ending, passage.ended_by)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _due(item: _Item) -> float:
    """Return the time at which the delays of an item are over."""
    delays = item.passage.delays
    return item.came + sum(delays.values()) if delays else 0.0
