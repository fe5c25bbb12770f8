"""The broker's ways of saying no."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompkit.server.domain.destinations import Destination

__all__ = ["Blocked", "Refused"]


class Refused(Exception):
    """A frame that the broker can't or won't process; its sender gets ERROR and is closed.

    ``code`` is the value of the ERROR frame's ``stompkit-code`` header.
    """

    def __init__(self, message: str, code: str) -> None:
        """Keep the sentence for people and the word for programs."""
        super().__init__(message)
        self.message = message
        self.code = code


class Blocked(Refused):
    """A message that a full destination has no room for now; its sender can wait for room."""

    def __init__(self, message: str, destination: Destination) -> None:
        """Keep whom to wait for."""
        super().__init__(message, "queue-full")
        self.destination = destination
