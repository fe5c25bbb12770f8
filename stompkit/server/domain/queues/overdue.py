"""Expired messages that wait until they can become dead letters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from stompkit.server.domain.deliveries import MessageReference

__all__ = ["Overdue"]


class Overdue:
    """Expired messages for which the dead letters had no room, oldest first."""

    __slots__ = ("_entries", "octets")

    def __init__(self) -> None:
        """Start empty."""
        self._entries: deque[MessageReference] = deque()
        #: Size of all messages, in bytes.
        self.octets = 0

    def __len__(self) -> int:
        """Return their number."""
        return len(self._entries)

    def __iter__(self) -> Iterator[MessageReference]:
        """Iterate over the messages, oldest first."""
        return iter(self._entries)

    def append(self, entry: MessageReference) -> None:
        """Add the newest message."""
        self._entries.append(entry)
        self.octets += entry.message.size

    def popleft(self) -> MessageReference | None:
        """Remove and return the oldest message; None if there is none."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self.octets -= entry.message.size
        return entry

    def pop_some(self, start: int, most: int) -> list[MessageReference]:
        """Remove and return up to *most* messages that follow the first *start* ones."""
        entries = self._entries
        entries.rotate(-start)
        some = [entries.popleft() for _ in range(min(most, len(entries) - start))]
        entries.rotate(start)
        self.octets -= sum(entry.message.size for entry in some)
        return some

    def put_back(self, start: int, some: Sequence[MessageReference]) -> None:
        """Insert messages behind the first *start* ones."""
        entries = self._entries
        entries.rotate(-start)
        entries.extendleft(reversed(some))
        entries.rotate(start)
        self.octets += sum(entry.message.size for entry in some)
