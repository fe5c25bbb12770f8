"""What a bridge can report."""

from __future__ import annotations

from stompkit.client import ClientError

__all__ = ["BridgeProblem", "MessageDropped", "MessageRefused", "RouteStopped"]


class BridgeProblem(Exception):
    """Settings that can't be used; ``str()`` has a line for each mistake."""


class MessageRefused(ClientError):
    """The destination does not take a message, and will not take it when it is sent again."""


class RouteStopped(ClientError):
    """A route can't go on until somebody has changed something; ``str()`` says what."""


class MessageDropped(ClientError):
    """A message was taken back, because the source delivers it again."""
