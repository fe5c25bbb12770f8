"""The listener of the proxy, and the rules that apply to all connections."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

from stompkit.testing.frames.events import End
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.proxy.connection import Connection
from stompkit.testing.proxy.contracts import ConnectionOwner
from stompkit.testing.proxy.rules import Rule
from stompkit.testing.proxy.sockets import (
    READ_BYTES,
    Address,
    owned,
    reset,
    resolved,
    stop_listening,
)

if TYPE_CHECKING:  # it imports slowly, and only a running proxy needs it
    from asyncio import AbstractEventLoop, TimerHandle

__all__ = ["Server"]

#: Rules about new connections do not use random numbers.
_NO_RANDOM: Final = Random(0)
#: Time in seconds for which a closed connection is still read: unread data would turn the close
#: into a reset.
_LINGER_S: Final = 2.0
_BACKLOG: Final = 128
#: Time in seconds until clients are accepted again after an error: retrying at once would loop.
_RETRY_S: Final = 0.1


class Server(ConnectionOwner):
    """The listener of the proxy. After the start, only the thread of the loop uses it."""

    def __init__(
        self, seed: int, frames: FrameLog | None, on_event: Callable[[str], None] | None
    ) -> None:
        """Start without rules; set ``upstream`` before a client connects."""
        self.seed = seed
        self.frames = frames
        self.upstream = ()
        self.rules = []
        #: The first error in a callback.
        self.failure: BaseException | None = None
        self._on_event = on_event
        self._made = 0  # number of rules so far
        self._accepted = 0  # number of connections so far
        self._connections: dict[int, Connection] = {}
        self._lingering: dict[socket.socket, TimerHandle] = {}
        self._listener: socket.socket | None = None
        self._address: Address | None = None

    def start(self, loop: AbstractEventLoop, host: str, port: int) -> None:
        """Listen, unless a rule forbids it; raises OSError on failure."""
        self.loop = loop
        loop.set_exception_handler(self._failed)
        self._address = resolved(host, port)[0]
        if self._may_listen():
            self._listen()

    def stop(self) -> None:
        """Close all connections, and stop the loop."""
        self._address = None
        self._stop_listening()
        for connection in list(self._connections.values()):
            connection.over("the proxy was stopped")
        for each in list(self._lingering):
            self._stop_lingering(each)
        self.loop.stop()

    def _failed(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """Keep an error that would go unnoticed otherwise."""
        self.failed(context.get("exception") or RuntimeError(context["message"]))

    def failed(self, failure: BaseException) -> None:
        """Keep the first error of the proxy itself."""
        self.failure = self.failure or failure

    def report(self, line: str) -> None:
        """Call ``on_event``, if it is set; an exception that it raises is kept in ``failure``."""
        if self._on_event is not None:
            try:
                self._on_event(line)
            except Exception as error:  # no error in the callback may affect the connections
                self.failed(error)

    # New connections.

    def _may_listen(self) -> bool:
        return not any(rule.about == "listening" and rule.times is None for rule in self.rules)

    def _listen(self) -> None:
        if self._address is None or self._listener is not None:
            return
        family, address = self._address
        listener = owned(socket.socket(family, socket.SOCK_STREAM))
        try:
            if sys.platform != "win32":  # there it would share the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self.loop.add_reader(listener, self.accept)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self.loop.remove_reader(self._listener)
            stop_listening(self._listener)
            self._listener = None

    def accept(self) -> None:
        """Accept the clients that have connected."""
        while self._listener is not None:
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has gone already
                continue
            except OSError as error:  # no more descriptors, for example
                self.failed(error)
                self.loop.remove_reader(self._listener)
                self.loop.call_later(_RETRY_S, self._accept_again)
                return
            self._take(owned(client))

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add_reader(self._listener, self.accept)

    def _take(self, client: socket.socket) -> None:
        for rule in self.rules:
            if rule.about == "listening" and rule.times is not None and rule.strikes(_NO_RANDOM):
                self.struck(rule)
                reset(client)
                return
        self._accepted += 1
        connection = Connection(self, self._accepted, client)
        self._connections[connection.number] = connection
        connection.guarded(lambda: self._begin(connection))()

    def _begin(self, connection: Connection) -> None:
        self.report(f"#{connection.number} opened")
        if self.frames is not None:
            self.frames.opened(connection.number)
        connection.connect()

    def catch_up(self) -> None:
        """Accept and read what has come so far, so that the log has it."""
        self.accept()
        for connection in list(self._connections.values()):
            connection.guarded(connection.read_waiting)()

    def forget(self, number: int, reason: str, by: End | None) -> None:
        """Remove a connection that has ended."""
        del self._connections[number]
        by_whom = f" by the {by}" if by is not None else ""
        self.report(f"#{number} closed{by_whom}" + f": {reason}" * bool(reason))
        if self.frames is not None:
            self.frames.closed(number, reason, by=by)

    # Rules.

    def put(self, rule: Rule) -> None:
        """Activate a rule."""
        self.accept()  # clients that have connected exist, even if not accepted yet
        self._made += 1
        rule.number = self._made
        self.rules.append(rule)
        if rule.about == "listening" and rule.times is None:
            self._stop_listening()
            rule.happened()
            self.struck(rule)
        for connection in list(self._connections.values()):
            connection.strike(rule)
        self._changed()

    def remove(self, rule: Rule) -> None:
        """Deactivate a rule."""
        if rule in self.rules:
            self._remove([rule])

    def remove_all(self) -> None:
        """Deactivate all rules."""
        self._remove(list(self.rules))

    def _remove(self, rules: Sequence[Rule]) -> None:
        """Deactivate rules; those that forbid to listen remain if that is impossible."""
        self.accept()
        before = self.rules
        self.rules = [rule for rule in before if rule not in rules]
        try:
            if self._may_listen():
                self._listen()
        except OSError:
            rules = [rule for rule in rules if rule.about != "listening"]
            self.rules = [rule for rule in before if rule not in rules]
            raise
        finally:
            for connection in list(self._connections.values()):
                for rule in rules:
                    connection.heal(rule)
            self._changed()

    def _changed(self) -> None:
        for connection in list(self._connections.values()):
            connection.change()

    def struck(self, rule: Rule, connection: int | None = None) -> None:
        """Report that a rule has acted."""
        self.report(f"#{connection} {rule}" if connection is not None else str(rule))

    # Lingering connections: closed, but the other end has not seen that yet.

    def linger(self, closed: socket.socket) -> None:
        """Close a socket after the other end has closed it, or after a timeout."""
        with suppress(OSError):
            closed.shutdown(socket.SHUT_WR)
        timer = self.loop.call_later(_LINGER_S, self._stop_lingering, closed)
        self._lingering[closed] = timer
        self.loop.add_reader(closed, self._drain, closed)

    def _drain(self, closed: socket.socket) -> None:
        try:
            is_open = bool(closed.recv(READ_BYTES))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_open = False
        if not is_open:
            self._stop_lingering(closed)

    def _stop_lingering(self, closed: socket.socket) -> None:
        self._lingering.pop(closed).cancel()
        self.loop.remove_reader(closed)
        closed.close()
