"""Contracts of the proxy: calls of a connection to the server, and of a flow to its connection."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stompkit.testing.frames.events import End
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.proxy.rules import Ending, Injection, Rule
from stompkit.testing.proxy.sockets import Address

if TYPE_CHECKING:  # it imports slowly, and only a running proxy needs it
    from asyncio import AbstractEventLoop

__all__ = ["ConnectionOwner", "FlowOwner"]


class ConnectionOwner(ABC):
    """A server, as its connections see it."""

    loop: AbstractEventLoop
    seed: int
    frames: FrameLog | None
    upstream: Sequence[Address]
    """The addresses of the broker, in the order in which to try them."""
    rules: list[Rule]
    """The active rules."""

    @abstractmethod
    def struck(self, rule: Rule, connection: int | None = None) -> None:
        """Report that a rule has acted."""

    @abstractmethod
    def failed(self, failure: BaseException) -> None:
        """Keep an error of the proxy itself."""

    @abstractmethod
    def forget(self, number: int, reason: str, by: End | None) -> None:
        """Remove the connection with this number, which has ended."""

    @abstractmethod
    def linger(self, closed: socket.socket) -> None:
        """Close a socket after the other end has closed it, or after a timeout."""


class FlowOwner(ABC):
    """A connection, as the flows of its two directions see it."""

    number: int
    server: ConnectionOwner

    @abstractmethod
    def guarded(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls *callback*; its failure ends this connection only."""

    @abstractmethod
    def is_stopped(self, reader: End) -> bool:
        """Return True if reading for this end is stopped."""

    @abstractmethod
    def inject(self, injection: Injection) -> None:
        """Inject a frame or bytes."""

    @abstractmethod
    def ended(self, sender: End, *, is_reset: bool) -> None:
        """Handle the end of one direction, or a reset."""

    @abstractmethod
    def lost(self, end: End) -> None:
        """Handle an end that accepts no more data; its earlier data is still read."""

    @abstractmethod
    def passed_end(self) -> None:
        """Handle the delivery of an end of stream to the other end."""

    @abstractmethod
    def end(self, ending: Ending, why: Rule | None = None) -> None:
        """End the connection, or one of its sides."""
