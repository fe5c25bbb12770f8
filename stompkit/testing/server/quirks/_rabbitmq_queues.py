"""RabbitMQ's memory of how each queue was made."""

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
    """How a queue was made."""

    properties: frozenset[tuple[str, str]]
    owner: Connection | None
    """The connection whose own it is, and with which it ends."""


class DeclaredQueues:
    """The queues that have been named, by virtual host and name."""

    def __init__(self) -> None:
        """Begin without any."""
        self._queues: dict[tuple[str, str], _Declared] = {}
        #: Those that a connection has used before; nobody asks how it names them now.
        self._known: dict[Connection, set[str]] = {}

    def clear(self) -> None:
        """Forget everything."""
        self._queues.clear()
        self._known.clear()

    def claim(self, connection: Connection, frame: Frame) -> str | None:
        """Make the queue that a SEND or SUBSCRIBE names, if it is not there.

        Gives what AMQP calls the error if this connection can't use it as the frame has it.
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
        """Forget a connection and its own queues; gives their names."""
        self._known.pop(connection, None)
        own = [key for key, declared in self._queues.items() if declared.owner is connection]
        for key in own:
            del self._queues[key]
        return [name for _, name in own]
