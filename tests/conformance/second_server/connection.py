"""A connection: bytes from and to a client, heart-beats, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from tests.conformance.second_server.commands import Session
from tests.conformance.second_server.connecting import agree, connected
from tests.conformance.second_server.destinations import Destinations
from tests.conformance.second_server.escapes import Refusal
from tests.conformance.second_server.frames import Codec, Headers
from tests.conformance.second_server.switches import Switch

#: Time in seconds that the client has to close after the end of the server's stream.
_LINGER_S: Final = 10.0
#: Number of sessions at a time, for one of the switches.
_FEW_SESSIONS: Final = 5


class Handle(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """The part of an event loop that the server needs."""

    def time(self) -> float:
        """Return the time in seconds."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
        """Schedule a call after *delay* seconds."""


class Transport(Protocol):
    """The part of asyncio's transport that the server needs."""

    def write(self, octets: bytes) -> None:
        """Send bytes."""

    def write_eof(self) -> None:
        """End the stream."""

    def abort(self) -> None:
        """Reset the connection."""


class Server:
    """Connections with their destinations, a clock, and a switch."""

    def __init__(self, clock: Clock, switch: str = "") -> None:
        """Create a server with a switch."""
        self.clock = clock
        self.switch = Switch(switch)
        self.destinations = Destinations(self.switch)
        self.connections: set[Connection] = set()


class Connection(asyncio.Protocol):
    """One connection."""

    transport: Transport

    def __init__(self, server: Server) -> None:
        """Start without data."""
        self.server = server
        self.has = server.switch.has
        self.codec = Codec(server.switch)
        self.session = Session(server.destinations, self.codec, self.write, self.later)
        self.is_lost = False
        self.timers: list[Handle] = []
        self.last_heard = 0.0

    def connection_made(self, transport: object) -> None:
        """Store the transport."""
        self.transport = cast("Transport", transport)
        self.server.connections.add(self)
        self.server.destinations.sessions.add(self.session)

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything that belongs to the connection."""
        self.is_lost = True
        self.end()
        self.server.connections.discard(self)
        self.server.destinations.sessions.discard(self.session)
        for timer in self.timers:
            timer.cancel()

    def data_received(self, octets: bytes) -> None:
        """Execute the complete frames."""
        if octets.strip(b"\n") == b"" or not self.has("takes only line ends for signs of life"):
            self.last_heard = self.server.clock.time()
        if self.session.is_over:
            return
        self.codec.feed(octets)
        receipt = b""
        try:
            while not self.session.is_over and (frame := self.codec.next_frame()) is not None:
                command, headers, body = frame
                receipt = headers.get(b"receipt", b"")
                self.execute(command, headers, body)
                if self.has("handles one frame of each packet"):
                    break
        except Refusal as error:
            self.refuse(str(error), receipt)

    def write(self, octets: bytes) -> None:
        """Send bytes."""
        self.transport.write(octets)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Schedule a call, unless the connection ends before."""
        self.timers.append(self.server.clock.call_later(seconds, call))

    def execute(self, command: bytes, headers: Headers, body: bytes) -> None:
        """Execute a frame."""
        kind = command if not self.has("takes commands in lower case") else command.upper()
        if not self.codec.version or kind in (b"CONNECT", b"STOMP"):
            self.connect(kind, headers)
            return
        try:
            self.session.execute(kind, headers, body)
        except Refusal as error:
            is_mild = self.has("stays open after ERROR on 1.0") and self.codec.version == b"1.0"
            is_wrong = self.has("goes on after ERROR about ACK") and kind == b"ACK"
            if not is_mild and not is_wrong:
                raise
            self.session.refuse(str(error), headers.get(b"receipt", b""))
        if kind == b"DISCONNECT" and not self.has("stays after DISCONNECT"):
            self.end()

    def connect(self, command: bytes, headers: Headers) -> None:
        """Start the session."""
        if self.codec.version or command not in (b"CONNECT", b"STOMP"):
            raise Refusal("a session begins with CONNECT, and has one")
        is_served = [bool(each.codec.version) for each in self.server.connections]
        if sum(is_served) >= _FEW_SESSIONS and self.has("serves five sessions at a time"):
            raise Refusal("there are five sessions already")
        agreed = agree(headers, self.server.switch)
        name = next(self.server.destinations.names)
        answer = connected(agreed.version, name, self.server.switch)
        self.session.say(b"CONNECTED", answer)
        self.codec.version = agreed.version
        if agreed.send_s:
            self.beat(agreed.send_s)
        if agreed.receive_s:
            self.listen(agreed.receive_s)

    # Heart-beats.

    def beat(self, seconds: float) -> None:
        """Send heart-beats periodically."""
        if self.session.is_over:
            return
        self.codec.is_beating = True
        self.timers.append(self.server.clock.call_later(seconds, self.beat, seconds))
        is_silent = self.last_heard + 2 * seconds < self.server.clock.time()
        if not is_silent or not self.has("beats only to clients that speak"):
            is_long = self.codec.version == b"1.1" and self.has("beats by CR LF on 1.1")
            self.write(b"\r\n" if is_long else b"\n")

    def listen(self, seconds: float) -> None:
        """Close if the client falls silent."""
        left = self.last_heard + seconds - self.server.clock.time()
        if left <= 0:
            self.refuse("no heart-beat came")
        elif not self.session.is_over:
            self.timers.append(self.server.clock.call_later(left, self.listen, seconds))

    # The end.

    def refuse(self, reason: str, receipt: bytes = b"") -> None:
        """Send ERROR and close."""
        if self.has("ends without ERROR"):
            self.end()
            return
        self.session.refuse(reason, receipt)
        if not self.has("goes on after ERROR"):
            self.end()

    def end(self) -> None:
        """End the session and the stream, and read to the end."""
        if self.session.is_over:
            return
        self.session.end()
        if not self.is_lost:
            self.transport.write_eof()
        self.timers.append(self.server.clock.call_later(_LINGER_S, self.transport.abort))
