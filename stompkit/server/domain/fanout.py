"""Fan-out destinations: each child queue gets a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stompkit.server.domain.destinations import Destination, HostBase
from stompkit.server.domain.messages import Message
from stompkit.server.settings.broker import Policy

__all__ = ["Fanout"]

#: Header of a copy with the destination that the original was sent to.
_WHENCE: Final = "original-destination"


class Fanout(Destination):
    """Copies messages to its child queues, and keeps none itself."""

    def __init__(self, name: str, policy: Policy, host: HostBase, children: list[str]) -> None:
        """Create a destination with the children that the configuration names."""
        super().__init__(name, policy, host)
        self.children = dict.fromkeys(children)
        #: Time-to-live in seconds of the copies in each child used so far; 0 for the child's own
        #: setting.
        self._ttls: dict[str, float] = {}

    def configure(self, policy: Policy) -> None:
        """Apply new settings."""
        super().configure(policy)
        self._ttls.clear()

    def _ttl_s(self, child: str) -> float:
        """Return the shorter time-to-live of fan-out and child; 0 if the fan-out has none."""
        found = self._ttls.get(child)
        if found is None:
            own = self.host.own_ttl_s(self.name)
            found = self._ttls[child] = min(own, self.host.own_ttl_s(child) or own)
        return found

    @property
    def is_idle(self) -> bool:
        """True if it has no configured children."""
        return not self.children

    def check(self, message: Message) -> None:
        """Raise :class:`RefusedError` for a message that one of the children does not accept."""
        for queue in self._queues():
            queue.check(message)

    def shares(self, message: Message) -> Iterable[tuple[Destination, int]]:
        """Return the children, each with the size of a copy including its origin header."""
        more = len(_WHENCE) + len(self.name)
        return [(queue, message.size + more + len(queue.name)) for queue in self._queues()]

    def check_room(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` unless every child has room."""
        more = len(_WHENCE) + len(self.name)
        for queue in self._queues():
            queue.check_room(messages, size + messages * (more + len(queue.name)))

    def check_delays(self, messages: int, size: int) -> None:
        """Raise :class:`RefusedError` if one of the children has no room for delayed messages."""
        for queue in self._queues():
            queue.check_delays(messages, size)

    def put(self, message: Message) -> None:
        """Put a copy into each child, or into none if the store cannot keep one."""
        self.received += 1
        self.host.together(lambda: self._put_copies(message))

    def _put_copies(self, message: Message) -> None:
        for queue in self._queues():
            copy = message.moved(queue.name, {_WHENCE: self.name})
            copy.expires, copy.due = message.expires, message.due
            ttl_s = self._ttl_s(queue.name)
            if ttl_s and not copy.expires:
                copy.expires = max(self.host.scheduler.wall, copy.due) + ttl_s
            queue.put(copy)
            self.delivered += 1

    def _queues(self) -> list[Destination]:
        queues = []
        for child in self.children:
            queue = self.host.destination(child)
            # The hold keeps it from being removed meanwhile, or from staying behind empty.
            self.host.scheduler.touch(queue)
            queues.append(queue)
        return queues
