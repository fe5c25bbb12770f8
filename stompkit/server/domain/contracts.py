"""Base classes on the ground: connections and destinations as the scheduler sees them."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from stompkit.frames import Version
from stompkit.server.interfaces import User
from stompkit.server.settings.broker import Policy

__all__ = ["ScheduledConnection", "ScheduledDestination"]


class ScheduledDestination:
    """A destination as the scheduler sees it."""

    name: str
    policy: Policy

    @property
    def is_idle(self) -> bool:
        """True if nothing would be lost if it were removed."""
        return True

    def pump(self) -> None:
        """Deliver everything deliverable now."""

    def let_in(self) -> None:
        """Resume the senders that wait for it."""

    def forget_if_idle(self) -> None:
        """Remove it from its host if nothing would be lost."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ScheduledConnection:
    """A connection as the scheduler sees it."""

    id: str
    connected_at: float
    peer: str
    #: The address and port of the client, for people.
    address: str
    user: User
    version: Version
    #: True if messages can be written now; replies always can.
    has_room: bool
    #: True if the number of unacknowledged messages from queues is limited.
    is_limited: bool
    slots: int
    #: True if a line feed follows the NUL of each frame; the end of a frame without body follows.
    has_eol: bool
    end_of_frame: bytes
    is_logged: bool

    @property
    def is_closing(self) -> bool:
        """True if no more input is processed."""
        raise NotImplementedError

    @property
    def has_input_waiting(self) -> bool:
        """True if input of the client waits to be processed."""
        raise NotImplementedError

    def emit(self, head: bytes, lines: bytes = b"", tail: bytes = b"") -> None:
        """Write bytes at the end of the cycle, or as soon as there are enough for one write."""
        raise NotImplementedError

    def write_out(self) -> None:
        """Write the output."""
        raise NotImplementedError

    def feed(self) -> None:
        """Schedule all subscriptions to receive messages at the end of the cycle."""
        raise NotImplementedError

    def pull(self) -> None:
        """Fill the free slots, from one queue after the other."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Resume after a wait for the store."""
        raise NotImplementedError

    def did_part(self) -> None:
        """Delay the reply to a frame until this part of its effect is stored, too."""
        raise NotImplementedError

    def fail(self, message: str, code: str, *, receipt: str | None = None) -> None:
        """Send ERROR and close (1.2, "ERROR")."""
        raise NotImplementedError

    def lost(self) -> None:
        """Record the end of the stream, and return unsettled messages to their destinations."""
        raise NotImplementedError
