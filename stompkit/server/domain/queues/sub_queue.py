"""One ordered part of a queue: what is in memory, and what is only in the store."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Final

from stompkit.server.domain.queues.references import MessageReference

if TYPE_CHECKING:
    from stompkit.server.interfaces import LaneState

__all__ = ["DELAYED", "SubQueue"]

#: The index of the lane for messages whose time has not come; those of priorities are below.
DELAYED: Final = 10


def _place(entry: MessageReference) -> int:
    return entry.place


class SubQueue:
    """First in, first out; a queue with priorities has one for each.

    Of a persistent queue only a window is in memory: what is at the front. The rest is counted
    in ``stored``, and read from the store when the window runs low.
    """

    __slots__ = (
        "back",
        "delivered",
        "index",
        "is_loading",
        "is_purged",
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
        """Make an empty lane that the store does not know."""
        self.index = index
        #: The lane's number in the store; 0 while the store does not know it.
        self.number = 0
        self.ready: deque[MessageReference] = deque()
        #: Entries that were delivered and came back; they get their old places.
        self.back: list[MessageReference] = []
        self.last_place = 0
        #: Messages behind the window, their octets, and the place at which it ends.
        self.stored = 0
        self.stored_octets = 0
        #: How many of these, from the front, are to be dropped once they are read, and their octets
        #: about.
        self.owed = 0
        self.owed_octets = 0
        self.seen = 0
        #: When the first of them expires, as far as is known, and no later than it does; and the
        #: time before which they are not read for that.
        self.stored_expires = inf
        self.scan_at = 0.0
        self.window_octets = 0
        self.is_loading = False
        #: Whether what is being loaded is to be dropped.
        self.is_purged = False
        #: The place up to which everything has been delivered once, as far as the store knows.
        self.delivered = 0

    @classmethod
    def of(cls, state: LaneState) -> SubQueue:
        """Make a lane of what the store knows of it, with nothing in memory yet."""
        lane = cls(state.part)
        lane.number = state.lane
        lane.stored = state.messages
        lane.stored_octets = state.octets
        # Nobody knows what there is until it has been read.
        lane.stored_expires = 0.0
        lane.last_place = state.last_place
        lane.delivered = state.delivered_place
        return lane

    @property
    def waiting(self) -> int:
        """Messages that no consumer has, in memory or only in the store."""
        return len(self.ready) + len(self.back) + self.stored

    @property
    def waiting_octets(self) -> int:
        """Octets of these messages."""
        back = sum(entry.message.size for entry in self.back)
        return self.window_octets + back + self.stored_octets

    def leave_stored(self, size: int) -> None:
        """Count a message that is behind the window."""
        self.stored += 1
        self.stored_octets += size

    def take_stored(self, messages: int, octets: int) -> None:
        """Count messages that are no longer behind the window."""
        self.stored = max(0, self.stored - messages)
        self.stored_octets = max(0, self.stored_octets - octets)
        if self.owed > self.stored:
            self.owed, self.owed_octets = self.stored, self.stored_octets

    def nothing_stored(self) -> None:
        """Note that nothing is behind the window."""
        self.stored = self.stored_octets = self.owed = self.owed_octets = 0

    def append(self, entry: MessageReference) -> None:
        """Put an entry at the end of the window."""
        self.ready.append(entry)
        self.seen = entry.place
        self.window_octets += entry.message.size

    def popleft(self) -> MessageReference:
        """Take the entry at the front."""
        entry = self.ready.popleft()
        self.window_octets -= entry.message.size
        return entry

    def restore(self) -> None:
        """Put back what came back, by moving no more than what has been delivered before."""
        back, ready = self.back, self.ready
        self.window_octets += sum(entry.message.size for entry in back)
        last = max(map(_place, back))
        while ready and ready[0].place < last:
            back.append(ready.popleft())
        back.sort(key=_place)
        ready.extendleft(reversed(back))
        back.clear()
        self.seen = max(self.seen, ready[-1].place)
