"""One connection through the proxy: its start, the rules that act on all of it, and its end."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stompkit.frames import Frame
from stompkit.testing.frames.events import End
from stompkit.testing.frames.matching import Direction
from stompkit.testing.proxy.contracts import ConnectionOwner, FlowOwner
from stompkit.testing.proxy.flow import OTHER, SENDER, Flow
from stompkit.testing.proxy.pieces import Reader
from stompkit.testing.proxy.rules import Ending, Injection, Rule
from stompkit.testing.proxy.sockets import is_loop, is_writable, owned, reset

if TYPE_CHECKING:  # it imports slowly, and only a running proxy needs it
    from asyncio import TimerHandle

__all__ = ["Connection"]

#: Timeout in seconds for the connection to the broker.
_CONNECT_S: Final = 10.0


class Connection(FlowOwner):
    """A client connection, its connection to the broker, and the traffic between them."""

    def __init__(self, server: ConnectionOwner, number: int, client: socket.socket) -> None:
        """Take a client that the server has accepted; ``connect`` comes next."""
        self.number = number
        self.server = server
        self.is_over = False
        self._sockets: dict[End, socket.socket] = {"client": client}
        self._addresses = deque(server.upstream)
        self._timer: TimerHandle | None = None
        #: The known reason for the end, and which end caused it.
        self._cause: tuple[str, End | None] = "", None
        #: The rule that disconnected one end without notifying the other one.
        self._half_open_by: Rule | None = None
        self._stops: dict[Rule, End] = {}
        #: Rules that take effect as soon as the broker has accepted the connection.
        self._postponed: list[Rule] = []
        self._reader = Reader()
        self._flows: dict[Direction, Flow] = {
            "received": Flow(self, "received", self._reader),
            "sent": Flow(self, "sent", self._reader),
        }
        client.setblocking(False)
        self.change()

    def guarded(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Return a function that calls *callback*; its failure ends this connection only.

        Both ends notice that, and the cause is in the log. Without it they would wait for data that
        the proxy has read but not passed on.
        """

        def call() -> None:
            try:
                callback()
            except Exception as error:
                self.server.failed(error)
                self._cause = f"the proxy has failed: {error!r}", None
                with suppress(Exception):  # what has failed is perhaps told of the end, too
                    self.end("reset")

        return call

    # Connecting to the broker.

    def connect(self) -> None:
        """Connect to the next of the broker's addresses."""
        loop = self.server.loop
        if self._timer is None:
            self._timer = loop.call_later(_CONNECT_S, self._refused, "the broker did not answer")
        while self._addresses:
            family, address = self._addresses.popleft()
            try:
                broker = owned(socket.socket(family, socket.SOCK_STREAM))
            except OSError:  # no IPv6 here, for example
                continue
            broker.setblocking(False)
            status = broker.connect_ex(address)
            if status in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                self._sockets["broker"] = broker
                loop.add_writer(broker, self.guarded(self._tried))
                return
            broker.close()
        self._refused("the broker refused the connection")

    def _tried(self) -> None:
        broker = self._sockets["broker"]
        self.server.loop.remove_writer(broker)
        if broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or is_loop(broker):
            self._sockets.pop("broker").close()
            self.connect()
            return
        self._stop_timer()
        for each in self._sockets.values():
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction, flow in self._flows.items():
            sender = SENDER[direction]
            flow.start(self._sockets[sender], self._sockets[OTHER[sender]])
        for rule in self.server.rules:
            if rule.later or rule in self._postponed:
                self.strike(rule)
        self.change()

    def _refused(self, reason: str) -> None:
        self._cause = reason, "broker"
        self.end("reset")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _is_through(self) -> bool:
        """True if the broker has accepted the connection."""
        return self._timer is None

    # Faults.

    def strike(self, rule: Rule) -> None:
        """Apply a rule about connections if it matches this one."""
        if self.is_over or rule.act_on is None or rule.match.connection not in (None, self.number):
            return
        if not self._is_through and (rule.later or rule.kind == "half_open"):
            self._postponed.append(rule)  # the broker must have accepted it
        elif rule.strikes(self._flows["sent"].filter.random(rule)):
            self.server.struck(rule, self.number)
            rule.act_on(self, rule)

    def heal(self, rule: Rule) -> None:
        """Undo the effect of a rule about connections."""
        self._stops.pop(rule, None)
        if rule is self._half_open_by:
            self.end("reset", rule)

    def change(self) -> None:
        """Apply the current rules of the proxy."""
        for flow in self._flows.values():
            flow.change(self.server.rules)

    def stop_reading(self, side: End, why: Rule) -> None:
        """Stop reading the data that is sent to ``side``."""
        self._stops[why] = side

    def is_stopped(self, reader: End) -> bool:
        """Return True if reading for this end is stopped."""
        return reader in self._stops.values()

    def inject(self, injection: Injection) -> None:
        """Inject a frame or bytes."""
        log = self.server.frames
        if log is not None and isinstance(injection.what, Frame):
            log.injected(injection.direction, self.number, injection.what)
        self._flows[injection.direction].filter.inject(injection.octets(self._reader.version))

    def read_waiting(self) -> None:
        """Read what both ends have sent so far."""
        broker = self._sockets.get("broker")
        if not self._is_through and broker is not None and is_writable(broker):
            self._tried()
        for flow in self._flows.values():
            flow.read_waiting()

    # The end.

    def ended(self, sender: End, *, is_reset: bool) -> None:
        """Handle the end of one direction, or a reset."""
        if sender == "client" and self.server.frames is not None:
            self.server.frames.leaving(self.number)
        if self._cause == ("", None):
            self._cause = "reset" if is_reset else "", sender
        if is_reset:
            self._flow_to(sender).discard()
            self._close(sender, "reset")
        if self._half_open_by is not None:
            self.over()

    def lost(self, end: End) -> None:
        """Handle an end that accepts no more data; its earlier data is still read."""
        self._flow_to(end).discard()
        self._flow_to(OTHER[end]).break_off()

    def _flow_to(self, end: End) -> Flow:
        return self._flows["received" if end == "broker" else "sent"]

    def passed_end(self) -> None:
        """Handle the delivery of an end of stream to the other end."""
        if all(flow.is_finished for flow in self._flows.values()):
            self.over()

    def end(self, ending: Ending, why: Rule | None = None) -> None:
        """End the connection, or one of its sides."""
        if self.is_over:
            return
        if why is not None:
            self._cause = f"fault: {why.kind}", None
        if ending in ("client gone", "broker gone"):
            gone: End = "client" if ending == "client gone" else "broker"
            self._half_open_by = why
            self._flow_to(gone).discard()
            self._flow_to(OTHER[gone]).stop()
            self._close(gone, "reset")
            return
        for flow in self._flows.values():
            flow.stop()
        for end in list(self._sockets):
            self._close(end, ending)
        self.over()

    def over(self, reason: str | None = None) -> None:
        """Release all resources and report the end."""
        if self.is_over:
            return
        self.is_over = True
        self._stop_timer()
        for flow in self._flows.values():
            flow.stop()
        for end in list(self._sockets):
            self._close(end, None)
        cause, by = self._cause
        self.server.forget(self.number, *((cause, by) if reason is None else (reason, None)))

    def _close(self, end: End, ending: Ending | None) -> None:
        """Close one socket: by a reset, after lingering, or directly."""
        closed = self._sockets.pop(end, None)
        if closed is None:
            return
        self.server.loop.remove_reader(closed)
        self.server.loop.remove_writer(closed)
        if ending == "reset":
            reset(closed)
        elif ending == "close" and self._is_through:
            self.server.linger(closed)
        else:
            closed.close()
