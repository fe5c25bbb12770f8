"""RabbitMQ's record of the declaration of each queue."""

from __future__ import annotations

from typing import Final, NamedTuple

from stompkit.frames import Frame
from stompkit.server import Connection

__all__ = ["DeclaredQueues"]

_QUEUE: Final = "/queue/"
_PROPERTIES: Final[tuple[str, ...]] = (
    "auto-delete",
    "exclusive",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-message-ttl",
    "x-queue-type",
)


class _Declared(NamedTuple):
    """The declaration of a queue."""

    properties: frozenset[tuple[str, str]]
    owner: Connection | None
    """The connection of an exclusive queue, with which the queue ends."""


class DeclaredQueues:
    """The declared queues, by virtual host and name."""

    def __init__(self) -> None:
        """Start empty."""
        self._queues: dict[tuple[str, str], _Declared] = {}
        #: Queues that a connection has used before; their arguments are not checked again.
        self._known: dict[Connection, set[str]] = {}

    def clear(self) -> None:
        """Remove everything."""
        self._queues.clear()
        self._known.clear()

    def claim(self, connection: Connection, frame: Frame) -> str | None:
        """Declare the queue that a SEND or SUBSCRIBE names, if it does not exist.

        Returns the AMQP error if this connection cannot use the queue with the frame's arguments.
        """
        name, headers = frame.headers["destination"], frame.headers
        known = self._known.setdefault(connection, set())
        if name in known or not name.startswith(_QUEUE):
            return None
        is_durable = headers.get("durable", headers.get("persistent", "true")) != "false"
        properties = {(each, headers[each]) for each in _PROPERTIES if each in headers}
        properties.add(("durable", str(is_durable)))
        is_own = not is_durable or headers.get("exclusive") == "true"
        wanted = _Declared(frozenset(properties), connection if is_own else None)
        found = self._queues.setdefault((connection.host.name, name), wanted)
        if found == wanted:
            known.add(name)
            return None
        is_locked = is_own or found.owner is not None
        return "resource_locked" if is_locked else "precondition_failed"

    def give_up(self, connection: Connection) -> list[str]:
        """Remove a connection and its exclusive queues; return their names."""
        self._known.pop(connection, None)
        own = [key for key, declared in self._queues.items() if declared.owner is connection]
        for key in own:
            del self._queues[key]
        return [name for _, name in own]
