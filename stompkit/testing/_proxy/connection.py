"""One connection through the proxy: its beginning, what rules do to the whole of it, its end."""

from __future__ import annotations

import errno
import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from stompkit.testing._frames.events import End
from stompkit.testing._frames.matching import Direction
from stompkit.testing._proxy.flow import OTHER, SENDER, Flow
from stompkit.testing._proxy.pieces import Reader
from stompkit.testing._proxy.rules import Ending, Injection, Rule
from stompkit.testing._proxy.sockets import is_loop, reset

if TYPE_CHECKING:  # asyncio takes a while to import, and the server makes connections
    from asyncio import TimerHandle

    from stompkit.testing._proxy.server import Server

__all__ = ["Connection"]

#: How long the broker may take to accept a connection, in seconds.
_CONNECT_S: Final = 10.0


class Connection:
    """A client, the broker, and what passes between them."""

    def __init__(self, server: Server, number: int, client: socket.socket) -> None:
        """Begin with a client that the server has accepted; ``connect`` comes next."""
        self.number = number
        self.server = server
        self.is_over = False
        self._sockets: dict[End, socket.socket] = {"client": client}
        self._addresses = deque(server.upstream)
        self._timer: TimerHandle | None = None
        #: Why and by whom it is ended, as far as that is known.
        self._cause: tuple[str, End | None] = "", None
        #: The rule by which one of its ends is gone, without the other one's knowledge.
        self._half_open_by: Rule | None = None
        self._stops: dict[Rule, End] = {}
        #: Rules that are to take effect as soon as the broker has accepted the connection.
        self._postponed: list[Rule] = []
        self._reader = Reader()
        self._flows: dict[Direction, Flow] = {
            "received": Flow(self, "received", self._reader),
            "sent": Flow(self, "sent", self._reader),
        }
        client.setblocking(False)
        self.change()

    # The way to the broker.

    def connect(self) -> None:
        """Connect to the next of the broker's addresses."""
        loop = self.server.loop
        if self._timer is None:
            self._timer = loop.call_later(_CONNECT_S, self._refused, "the broker did not answer")
        while self._addresses:
            family, address = self._addresses.popleft()
            try:
                broker = socket.socket(family, socket.SOCK_STREAM)
            except OSError:  # no IPv6 here, for example
                continue
            broker.setblocking(False)
            status = broker.connect_ex(address)
            if status in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                self._sockets["broker"] = broker
                loop.add_writer(broker, self._tried)
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
        """Whether the broker has accepted it."""
        return self._timer is None

    # Faults.

    def strike(self, rule: Rule) -> None:
        """Have a rule about connections take effect, if it means this one."""
        if self.is_over or rule.act_on is None or rule.match.connection not in (None, self.number):
            return
        if not self._is_through and (rule.later or rule.kind == "half_open"):
            self._postponed.append(rule)  # there has to be something whose end is not seen
        elif rule.strikes(self._flows["sent"].lane.random(rule)):
            self.server.struck(rule, self.number)
            rule.act_on(self, rule)

    def heal(self, rule: Rule) -> None:
        """Undo what a rule about connections has done."""
        self._stops.pop(rule, None)
        if rule is self._half_open_by:
            self.end("reset", rule)

    def change(self) -> None:
        """Go by the rules of the proxy as they are now."""
        for flow in self._flows.values():
            flow.change(self.server.rules)

    def stop_reading(self, side: End, why: Rule) -> None:
        """Read nothing any more that is sent to ``side``."""
        self._stops[why] = side

    def is_stopped(self, reader: End) -> bool:
        """Whether one end seems not to read."""
        return reader in self._stops.values()

    def inject(self, injection: Injection) -> None:
        """Put something in."""
        self._flows[injection.direction].lane.inject(injection.octets(self._reader.version))

    # The end.

    def ended(self, sender: End, *, is_reset: bool) -> None:
        """Know that one end has closed its direction, or has cut everything off."""
        if self._cause == ("", None):
            self._cause = "reset" if is_reset else "", sender
        if is_reset:
            self._flow_to(sender).discard()
            self._close(sender, "reset")
        if self._half_open_by is not None:
            self.over()

    def lost(self, end: End) -> None:
        """Know that one end takes nothing any more; what it has said before is still read."""
        self._flow_to(end).discard()
        self._flow_to(OTHER[end]).break_off()

    def _flow_to(self, end: End) -> Flow:
        return self._flows["received" if end == "broker" else "sent"]

    def passed_end(self) -> None:
        """Know that one end has got the end of what the other one sent."""
        if all(flow.is_finished for flow in self._flows.values()):
            self.over()

    def end(self, ending: Ending, why: Rule | None = None) -> None:
        """End it, or one of its sides."""
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
        """Let go of everything."""
        if self.is_over:
            return
        self.is_over = True
        self._stop_timer()
        for flow in self._flows.values():
            flow.stop()
        for end in list(self._sockets):
            self._close(end, None)
        cause, by = self._cause
        self.server.forget(self, *((cause, by) if reason is None else (reason, None)))

    def _close(self, end: End, ending: Ending | None) -> None:
        """Close one socket: by a reset, or with patience, or simply."""
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
