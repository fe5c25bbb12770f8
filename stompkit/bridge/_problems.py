"""Errors of the bridge."""

from __future__ import annotations

from stompkit.client import ClientError

__all__ = ["BridgeProblem", "MessageDropped", "MessageRefused", "RouteStopped"]


class BridgeProblem(Exception):
    """Invalid settings; ``str()`` has a line for each mistake."""


class MessageRefused(ClientError):
    """The destination refuses a message permanently; sending it again does not help."""


class RouteStopped(ClientError):
    """A route has stopped and needs intervention; ``str()`` gives the reason."""


class MessageDropped(ClientError):
    """A message was withdrawn because the source redelivers it."""
