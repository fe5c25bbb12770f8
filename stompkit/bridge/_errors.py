"""Errors of the bridge."""

from __future__ import annotations

from stompkit.client import ClientError

__all__ = ["BridgeError", "MessageDroppedError", "MessageRefusedError", "RouteStoppedError"]


class BridgeError(Exception):
    """Invalid settings; ``str()`` has a line for each mistake."""


class MessageRefusedError(ClientError):
    """The destination refuses a message permanently; sending it again does not help."""


class RouteStoppedError(ClientError):
    """A route has stopped and needs intervention; ``str()`` gives the reason."""


class MessageDroppedError(ClientError):
    """A message was withdrawn because the source redelivers it."""
