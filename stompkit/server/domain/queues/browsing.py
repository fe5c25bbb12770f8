"""Position of a browser in its queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from stompkit.server.domain.deliveries import MessageReference
from stompkit.server.domain.sub_queue import SubQueue

__all__ = ["Browsing"]

#: Maximum number of messages of a page.
_PAGE_MESSAGES: Final = 250


class Browsing:
    """Goes through the messages in memory that wait when a browser starts.

    It keeps places, and no messages: those that leave the queue meanwhile are not shown. A browser
    that does not read would keep them in memory otherwise, beyond all limits of the queue.
    """

    __slots__ = ("_parts", "place")

    def __init__(self, sub_queues: Iterable[SubQueue[MessageReference]]) -> None:
        """Start in front of the first message."""
        #: The remaining sub-queues, each with the place of the last message to show.
        self._parts: deque[tuple[SubQueue[MessageReference], int]] = deque()
        #: Place of the last message of the first one that has been passed.
        self.place = 0
        for sub_queue in sub_queues:
            if sub_queue.back:
                sub_queue.restore()
            if sub_queue.ready:
                self._parts.append((sub_queue, sub_queue.ready[-1].place))

    def page(self) -> list[MessageReference]:
        """Return the messages behind the place, up to a limit; none at the end."""
        while self._parts:
            sub_queue, end = self._parts[0]
            if sub_queue.back:
                sub_queue.restore()
            some = sub_queue.behind(self.place, _PAGE_MESSAGES)
            found = [each for each in some if each.place <= end]
            if found:
                return found
            self._parts.popleft()
            self.place = 0
        return []
