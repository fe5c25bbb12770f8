"""What the broker's domain needs of the world outside."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Outlet"]


class Outlet(Protocol):
    """The way out to one client: a transport, or a list in a test."""

    def write(self, data: bytes) -> None:
        """Send octets, in order, without blocking.

        May call the connection's ``set_writable(False)`` before it returns.
        """

    def close(self) -> None:
        """Close the stream once everything written has been sent."""
