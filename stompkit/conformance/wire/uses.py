"""Features that a case relies on, whatever it is about: of queues, and of connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stompkit.conformance.wire.octets import Headers

__all__ = ["Uses"]


@dataclass
class Uses:
    """The use that a case makes of queues and connections, by the frames that it sends."""

    #: True if a queue has to keep messages for a subscription that comes later.
    is_kept: bool = False
    #: True if two connections subscribe to one queue.
    is_shared: bool = False
    #: Maximum number of connections at the same time.
    most_open: int = 0
    #: The queues of the case; those with messages; and the connections that subscribe to each.
    queues: set[str] = field(default_factory=set)
    _filled: set[str] = field(default_factory=set)
    _subscribed: dict[str, set[int]] = field(default_factory=dict)

    def note(self, connection: int, command: str, headers: Headers) -> None:
        """Record a frame that is about to be sent on a connection."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        queue = next((value for name, value in pairs if name == "destination"), "")
        if queue not in self.queues:
            return
        if command == "SEND":
            self._filled.add(queue)
        elif command == "SUBSCRIBE":
            self.is_kept |= queue in self._filled
            connections = self._subscribed.setdefault(queue, set())
            connections.add(connection)
            self.is_shared |= len(connections) > 1
