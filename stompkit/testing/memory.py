"""A broker in memory, for tests of what talks to one: no sockets, no threads, no waiting.

:class:`MemoryBroker` is the real broker, on a clock that moves only when it is told to; its
clients speak to it through the real protocol, over streams that a test can fill up, drain, half
close and cut::

    broker = MemoryBroker()
    producer, consumer = broker.client(), broker.client("1.1")
    consumer.subscribe("/queue/a", ack="client")
    producer.publish("/queue/a", b"hello", content_type="text/plain")
    [message] = consumer.take("MESSAGE")
    consumer.ack(message)
    assert message.body == b"hello"

Everything has happened when a call returns, except what waits for a time: that happens in
``broker.clock.advance(seconds)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IHalfCloseableProtocol,
    IProducer,
    IProtocol,
    IPushProducer,
    IReactorTime,
    ITransport,
)
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from stompkit.frames import AFTER_LOGIN, Frame, FrameDecoder, Version, encode
from stompkit.server import (
    Authenticator,
    Authoriser,
    Broker,
    BrokerConfig,
    BrokerFactory,
    Destination,
    InlineRunner,
    MessageStore,
    StoreRunner,
)

__all__ = ["MemoryBroker", "MemoryClient", "MemoryTransport"]

_FIRST_PORT = 50_000


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers given as keyword arguments, which can't have a hyphen."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


class MemoryBroker:
    """A broker whose clients live in the same process and whose time stands still.

    ``clock`` is the :class:`twisted.internet.task.Clock` that heart-beats and deadlines go by;
    ``broker`` is the domain object behind the protocol.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        half_close: bool = True,
        clock: Clock | None = None,
        store: MessageStore | None = None,
        runner: StoreRunner | None = None,
        authenticator: Authenticator | None = None,
        authoriser: Authoriser | None = None,
        make: Callable[..., BrokerFactory] = BrokerFactory,
    ) -> None:
        """Make a broker without clients; one with a ``store`` opens it.

        ``half_close`` says whether its transports can close one way only, as those of TCP can
        and those of TLS can't.  ``runner`` is one that calls the store at once if not given.  A
        broker that begins where another has ended is given the other's ``clock``. ``make`` is
        called as :class:`stompkit.server.BrokerFactory` is, and may make another one.
        """
        self.clock = Clock() if clock is None else clock
        if store is not None and runner is None:
            runner = InlineRunner()
        self._factory = make(
            config,
            cast("IReactorTime", self.clock),
            store=store,
            runner=runner,
            authenticator=authenticator,
            authoriser=authoriser,
        )
        self._factory.broker.open()
        self._transport = _HalfCloseableTransport if half_close else MemoryTransport
        self._last_port = _FIRST_PORT

    @property
    def broker(self) -> Broker:
        """The broker's domain: destinations, connections, configuration."""
        return self._factory.broker

    @property
    def destinations(self) -> dict[str, Destination]:
        """The destinations of the first virtual host, by their names."""
        return next(iter(self.broker.hosts.values())).destinations

    def connect(self, address: str = "127.0.0.1") -> MemoryClient:
        """Open a connection on which nothing has been sent yet; ``address`` is the client's."""
        self._last_port += 1
        peer = IPv4Address("TCP", address, self._last_port)
        return MemoryClient(self._factory.buildProtocol(peer), self._transport(self.clock, peer))

    def client(self, version: str = "1.2", /, **headers: str) -> MemoryClient:
        """Open a connection and log in.

        ``version`` is the value of ``accept-version``; ``headers`` are further ones of the
        CONNECT frame, with ``_`` for ``-`` in their names. Raises ``ConnectionRefusedError``
        with what the ERROR frame says if the broker answers with one.
        """
        client = self.connect()
        own = {"accept-version": version, "host": "memory"}
        client.send("CONNECT", own | _named(headers))
        if client.version is None:
            error = client.error
            raise ConnectionRefusedError(error.headers["message"] if error else "no answer")
        return client


@implementer(ITransport, IPushProducer)
class MemoryTransport:
    """The broker's end of a client's stream.

    It has two buffers, as a socket has: octets from the broker that the client has not read,
    and octets from the client that the broker does not want to read now.
    """

    disconnecting = False

    def __init__(self, clock: Clock, peer: IPv4Address) -> None:
        """Open a stream whose client reads all that comes."""
        self._clock = clock
        self._peer = peer
        self._protocol: IProtocol | None = None
        self._producer: IPushProducer | None = None
        self._producer_paused = False
        self._taken = bytearray()
        self._waiting = bytearray()
        self._inbound = bytearray()
        self._room_bytes: int | None = None
        self._write_closed = False
        self._delivering = False
        self._is_ending = False
        self._read_closed = False
        #: Whether the broker reads what the client sends.
        self.is_read = True
        #: Whether the client has read the end of the broker's stream.
        self.eof = False
        #: Whether the connection is gone, both ways, and whether it was the broker that cut it.
        self.lost = False
        self.aborted = False
        #: How often the broker has handed octets to the transport.
        self.writes = 0

    # The client's side.

    @property
    def unread_bytes(self) -> int:
        """Octets written by the broker that the client has not read."""
        return len(self._waiting)

    def open(self, protocol: IProtocol) -> None:
        """Tell the broker's protocol that it is connected."""
        self._protocol = protocol
        protocol.makeConnection(self)

    def deliver(self, data: bytes) -> None:
        """Take octets from the client, and hand on what the broker wants to read."""
        self._inbound += data
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._inbound and self.is_read and self._protocol is not None:
                chunk = bytes(self._inbound)
                self._inbound.clear()
                self._protocol.dataReceived(chunk)
        finally:
            self._delivering = False
        if self._is_ending and self.is_read and self._protocol is not None:
            self._is_ending = False
            self._read_closed = True
            self._end_read(self._protocol)

    def end(self) -> None:
        """Have the broker see the end of what the client sends, behind all of it."""
        self._is_ending = not self._read_closed
        self.deliver(b"")

    def take(self) -> bytes:
        """The octets that the client has read since the last call."""
        data = bytes(self._taken)
        self._taken.clear()
        return data

    def stop_reading(self, room_bytes: int) -> None:
        """Read no more; ``room_bytes`` waiting octets fill the transport."""
        self._room_bytes = room_bytes
        self._pause_if_full()

    def read_waiting(self) -> None:
        """Read all that waits, which empties the transport's buffer."""
        self._taken += self._waiting
        self._waiting.clear()
        if self._producer is not None and self._producer_paused:
            # As Twisted's, which does not end as long as there is a producer to be asked for more.
            self._producer_paused = False
            self._producer.resumeProducing()
        elif self._write_closed and not self.eof:
            self._ended()
        self.deliver(b"")

    def start_reading(self) -> None:
        """Read all that waits and all that comes."""
        self._room_bytes = None
        self.read_waiting()

    def lose(self, reason: Exception) -> None:
        """End the connection now, both ways."""
        protocol, self._protocol = self._protocol, None
        if protocol is None:
            return
        self.lost = True
        self._inbound.clear()
        if self._producer is not None:
            self._producer.stopProducing()
            self._producer = None
        protocol.connectionLost(Failure(reason))  # type: ignore[no-untyped-call]  # Twisted's

    def _end_read(self, protocol: IProtocol) -> None:
        """Tell the protocol that nothing more comes: here, that both ways are closed."""
        self.lose(ConnectionDone())

    def _pause_if_full(self) -> None:
        if self._room_bytes is None or len(self._waiting) < self._room_bytes:
            return
        if self._producer is not None:
            self._producer_paused = True
            self._producer.pauseProducing()

    def _ended(self) -> None:
        """Let the client see the end of the stream, once it has read what was before it."""
        self.eof = True
        if self.disconnecting or self._read_closed:
            self._lose_soon(ConnectionDone())

    def _lose_soon(self, reason: Exception) -> None:
        # No transport calls connectionLost from within the call that asked for it.
        self._clock.callLater(0, self.lose, reason)

    # The broker's side: what Twisted's transports have.

    def write(self, data: bytes) -> None:
        """Buffer octets for the client; pauses the producer before it returns if that is full."""
        if self.lost or self.eof or not data:
            return
        self.writes += 1
        if self._room_bytes is None:
            self._taken += data
        else:
            self._waiting += data
            self._pause_if_full()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Write several pieces."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close both ways once the client has read what was written."""
        self.disconnecting = True
        self.is_read = False
        if self.eof:
            self._lose_soon(ConnectionDone())
        else:
            self._close_write()

    def abortConnection(self) -> None:
        """Close both ways at once."""
        if not self.lost:
            self.disconnecting = self.aborted = True
            self._waiting.clear()
            self._lose_soon(ConnectionAborted())

    def _close_write(self) -> None:
        if not self._write_closed:
            self._write_closed = True
            if not self._waiting:
                self._ended()

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:  # noqa: FBT001 (Twisted's)
        """Have a producer paused while the transport is full."""
        assert streaming, "only push producers"
        self._producer = cast("IPushProducer", producer)

    def unregisterProducer(self) -> None:
        """Pause nobody any more."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Stop reading what the client sends."""
        self.is_read = False

    def resumeProducing(self) -> None:
        """Read on; what has waited comes with the next thing that the client does."""
        self.is_read = True

    def stopProducing(self) -> None:
        """Close."""
        self.loseConnection()

    def getPeer(self) -> IPv4Address:
        """The client's address, a made-up one."""
        return self._peer

    def getHost(self) -> IPv4Address:
        """The broker's address, a made-up one."""
        return IPv4Address("TCP", "127.0.0.1", 61613)


@implementer(IHalfCloseableDescriptor)
class _HalfCloseableTransport(MemoryTransport):
    """A stream of which one direction can be closed."""

    def loseWriteConnection(self) -> None:
        """Close the direction to the client once it has read what was written."""
        self._close_write()

    def _end_read(self, protocol: IProtocol) -> None:
        """Tell the protocol, which has to close the other direction, as with Twisted's."""
        IHalfCloseableProtocol(protocol).readConnectionLost()

    def readConnectionLost(self, reason: Failure) -> None:
        """Not called: this is what Twisted's reactor tells a transport."""

    def writeConnectionLost(self, reason: Failure) -> None:
        """Not called: nobody closes only the client's end of this direction."""


class MemoryClient:
    """One connection to a :class:`MemoryBroker`, seen from the client.

    What the broker answers is read at once, unless :meth:`stop_reading` was called. ``octets``
    is all that has been read, ``frames`` the same as frames, and :meth:`take` gives the frames
    that are new.
    """

    def __init__(self, protocol: IProtocol, transport: MemoryTransport) -> None:
        """Connect; :meth:`MemoryBroker.connect` does it."""
        #: The transport, for what has no method here.
        self.transport = transport
        self._octets = bytearray()
        self._frames: list[Frame] = []
        self._given = 0
        self._decoder = FrameDecoder(limits=AFTER_LOGIN)
        self._headers: dict[str, str] = {}
        transport.open(protocol)

    # Sending.

    def send(
        self,
        command: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        /,
        **more: str,
    ) -> None:
        """Send one frame.

        Headers are given by mapping, by keyword with ``_`` for ``-``, or both; the encoder adds
        ``content-length`` to a body and refuses what the version can't express.
        """
        entries = dict(headers or {}) | _named(more)
        self.write(encode(Frame(command, entries, body), self.version))

    def publish(self, destination: str, /, body: bytes = b"", **headers: str) -> None:
        """Send SEND."""
        self.send("SEND", {"destination": destination}, body, **headers)

    def subscribe(
        self, destination: str, /, id: str | None = "0", ack: str = "auto", **headers: str
    ) -> None:
        """Send SUBSCRIBE; only 1.0 can do without an ``id``."""
        entries = {"destination": destination, "ack": ack}
        if id is not None:
            entries["id"] = id
        self.send("SUBSCRIBE", entries, **headers)

    def ack(self, message: Frame, /, **headers: str) -> None:
        """Send ACK of a MESSAGE, named as the session's version wants it."""
        self.send("ACK", self._name_of(message), **headers)

    def nack(self, message: Frame, /, **headers: str) -> None:
        """Send NACK of a MESSAGE, named as the session's version wants it."""
        self.send("NACK", self._name_of(message), **headers)

    def _name_of(self, message: Frame) -> dict[str, str]:
        if self.version == "1.2":
            return {"id": message.headers["ack"]}
        names = ("message-id", "subscription") if self.version == "1.1" else ("message-id",)
        return {name: message.headers[name] for name in names}

    def write(self, data: bytes) -> None:
        """Send octets, whatever they are; the broker gets each call's as one chunk."""
        self.transport.deliver(data)

    def close(self) -> None:
        """Close the connection, without DISCONNECT."""
        self.transport.lose(ConnectionDone())

    def end(self) -> None:
        """Close the client's end only: it sends no more, and reads what still comes."""
        self.transport.end()

    def drop(self) -> None:
        """Have the network fail."""
        self.transport.lose(ConnectionLost())

    # Reading.

    def stop_reading(self, room_bytes: int = 0) -> None:
        """Leave what the broker writes in the transport's buffer from now on.

        The buffer is full, and the broker told so, when it holds ``room_bytes``; with 0 at once.
        """
        self.transport.stop_reading(room_bytes)

    def read_waiting(self) -> None:
        """Read what waits in the transport's buffer now, and no more."""
        self.transport.read_waiting()

    def start_reading(self) -> None:
        """Read all that waits and all that will come."""
        self.transport.start_reading()

    @property
    def octets(self) -> bytes:
        """All octets read so far."""
        self._read()
        return bytes(self._octets)

    @property
    def frames(self) -> list[Frame]:
        """All frames read so far."""
        self._read()
        return list(self._frames)

    def take(self, command: str | None = None) -> list[Frame]:
        """The frames read since the last call; of those, the ones of ``command`` if it is given."""
        self._read()
        new = self._frames[self._given :]
        self._given = len(self._frames)
        return [frame for frame in new if command is None or frame.command == command]

    def bodies(self) -> list[bytes]:
        """The bodies of the MESSAGE frames read since the last call of this or of take()."""
        return [frame.body for frame in self.take("MESSAGE")]

    @property
    def beats(self) -> int:
        """Line ends read between frames: heart-beats."""
        self._read()
        return self._decoder.eols

    def _read(self) -> None:
        data = self.transport.take()
        self._octets += data
        while frames := self._decoder.feed(data):
            data = b""
            self._frames += frames
            if frames[0].command == "CONNECTED":
                self._headers = frames[0].headers
                self._decoder.negotiated(self._version(), AFTER_LOGIN)

    def _version(self) -> Version:
        return cast("Version", self._headers.get("version", "1.0"))

    # What became of the connection.

    @property
    def version(self) -> Version | None:
        """The version of the session; ``None`` before CONNECTED."""
        self._read()
        return self._version() if self._headers else None

    @property
    def connected(self) -> dict[str, str]:
        """The headers of CONNECTED; empty before it."""
        self._read()
        return self._headers

    @property
    def error(self) -> Frame | None:
        """The ERROR frame, if one has come."""
        return next((frame for frame in self.frames if frame.command == "ERROR"), None)

    @property
    def eof(self) -> bool:
        """Whether the end of the broker's stream has been read."""
        return self.transport.eof

    @property
    def lost(self) -> bool:
        """Whether the connection is gone, both ways."""
        return self.transport.lost

    @property
    def aborted(self) -> bool:
        """Whether the broker has cut it."""
        return self.transport.aborted
