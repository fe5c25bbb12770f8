"""One ordered part of a queue, with messages in memory and in the store."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import islice
from math import inf
from typing import Final, Generic, TypeVar

from stompkit.server.domain.messages import Message
from stompkit.server.interfaces import LaneState

__all__ = ["DELAYED", "Placed", "SubQueue"]

#: Index of the sub-queue for delayed messages; those of priorities are lower.
DELAYED: Final = 10


class Placed:
    """A message at a place of a sub-queue."""

    __slots__ = ("message", "place")
    message: Message
    #: A number that increases with each message of the destination.
    place: int


_P = TypeVar("_P", bound=Placed)


def _place(entry: Placed) -> int:
    return entry.place


class SubQueue(Generic[_P]):
    """A first-in, first-out part of a queue; a queue with priorities has one for each.

    Only a window at the front of a persistent queue is in memory. The rest is counted in
    ``stored``, and read from the store when the window runs low.
    """

    __slots__ = (
        "back",
        "delivered",
        "index",
        "is_loading",
        "last_place",
        "number",
        "owed",
        "owed_octets",
        "ready",
        "scan_at",
        "seen",
        "stored",
        "stored_expires",
        "stored_octets",
        "window_octets",
    )

    def __init__(self, index: int) -> None:
        """Create an empty sub-queue without a lane in the store."""
        self.index = index
        #: Number of its lane in the store; 0 without a lane.
        self.number = 0
        self.ready: deque[_P] = deque()
        #: Delivered messages that were returned; they get their old places.
        self.back: list[_P] = []
        self.last_place = 0
        #: Number of messages behind the window; their bytes, and the place where the window ends,
        #: follow.
        self.stored = 0
        self.stored_octets = 0
        #: Number of these, from the front, to be dropped once they are read; their estimated bytes
        #: follow.
        self.owed = 0
        self.owed_octets = 0
        self.seen = 0
        #: Lower bound of the first expiry time among them; the time before which they are not
        #: scanned for it follows.
        self.stored_expires = inf
        self.scan_at = 0.0
        self.window_octets = 0
        self.is_loading = False
        #: Place up to which everything has been delivered once, as recorded in the store.
        self.delivered = 0

    @classmethod
    def of(cls, state: LaneState) -> SubQueue[_P]:
        """Create a sub-queue from its lane in the store, with nothing in memory yet."""
        sub_queue = cls(state.part)
        sub_queue.number = state.lane
        sub_queue.stored = state.messages
        sub_queue.stored_octets = state.octets
        # The expiry times are unknown until they are read.
        sub_queue.stored_expires = 0.0
        sub_queue.last_place = state.last_place
        sub_queue.delivered = state.delivered_place
        return sub_queue

    @property
    def waiting(self) -> int:
        """Number of messages that no consumer holds, in memory or only in the store."""
        return len(self.ready) + len(self.back) + self.stored

    @property
    def waiting_octets(self) -> int:
        """Number of bytes of these messages."""
        back = sum(entry.message.size for entry in self.back)
        return self.window_octets + back + self.stored_octets

    def leave_stored(self, size: int) -> None:
        """Count a message that stays behind the window."""
        self.stored += 1
        self.stored_octets += size

    def take_stored(self, messages: int, octets: int) -> None:
        """Subtract messages that are no longer behind the window."""
        self.stored = max(0, self.stored - messages)
        self.stored_octets = max(0, self.stored_octets - octets)
        if self.owed > self.stored:
            self.owed, self.owed_octets = self.stored, self.stored_octets

    def nothing_stored(self) -> None:
        """Record that no messages are behind the window."""
        self.stored = self.stored_octets = self.owed = self.owed_octets = 0

    def append(self, entry: _P) -> None:
        """Append a message to the window."""
        self.ready.append(entry)
        self.seen = entry.place
        self.window_octets += entry.message.size

    def popleft(self) -> _P:
        """Remove and return the message at the front."""
        entry = self.ready.popleft()
        self.window_octets -= entry.message.size
        return entry

    def behind(self, place: int, most: int) -> list[_P]:
        """Return up to *most* messages of the window, from the first one behind a place."""
        ready = self.ready
        index = bisect_right(ready, place, key=_place)
        # Faster than access by index in the middle of a long deque.
        ready.rotate(-index)
        some = list(islice(ready, min(most, len(ready) - index)))
        ready.rotate(index)
        return some

    def restore(self) -> None:
        """Put returned messages back in place, moving only messages delivered before."""
        back, ready = self.back, self.ready
        self.window_octets += sum(entry.message.size for entry in back)
        last = max(map(_place, back))
        while ready and ready[0].place < last:
            back.append(ready.popleft())
        back.sort(key=_place)
        ready.extendleft(reversed(back))
        back.clear()
        self.seen = max(self.seen, ready[-1].place)
