"""Common parts of the tests of replays: a client, and transcripts written by hand."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from stompkit.frames import Frame, FrameDecoder, Version, encode
from stompkit.testing import RunningBroker
from stompkit.testing.frames.log import FrameLog
from stompkit.testing.frames.matching import Direction
from stompkit.testing.transcripts import Closed, Event, ReplayServer, SeenFrame, Transcript

LONG_S = 60.0
SHORT_S = 0.2


class Client:
    """A connection that records its frames in a log, as a proxy would."""

    def __init__(self, address: tuple[str, int], log: FrameLog, number: int = 1) -> None:
        """Connect, without logging in."""
        self.version: Version | None = None
        self.number = number
        self.log = log
        self._decoder = FrameDecoder()
        self._arrived: list[Frame] = []
        self._socket = socket.create_connection(address, LONG_S)
        log.opened(number)

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame, with ``_`` for ``-`` in the names of headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        frame = Frame(command, named, body)
        self.log.record("received", self.number, frame)
        self._socket.sendall(encode(frame, self.version))

    def receive(self, command: str) -> Frame:
        """Return the next frame with this command, which must arrive before the server closes."""
        while True:
            for index, frame in enumerate(self._arrived):
                if frame.command == command:
                    return self._arrived.pop(index)
            octets = self._socket.recv(65_536)
            assert octets, f"the server has closed, after {self._arrived}"
            while frames := self._decoder.feed(octets):
                octets = b""
                self._arrived += frames
                for frame in frames:
                    self.log.record("sent", self.number, frame)
                if self.version is None and frames[0].command == "CONNECTED":
                    said = frames[0].headers.get("version")
                    self.version = "1.2" if said == "1.2" else "1.1" if said == "1.1" else "1.0"
                    self._decoder.negotiated(self.version)

    def call(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame and wait for its receipt."""
        self.send(command, body, **headers)
        assert self.receive("RECEIPT").headers["receipt-id"] == headers["receipt"]

    def connect(self, version: Version = "1.2", **headers: str) -> None:
        """Log in."""
        if version != "1.0":
            headers["accept-version"] = version
        self.send("CONNECT", host="localhost", **headers)
        self.receive("CONNECTED")

    def ack(self, message: Frame, **headers: str) -> None:
        """Acknowledge a message with the headers of its version, and wait for the receipt."""
        if self.version == "1.2":
            self.call("ACK", id=message.headers["ack"], **headers)
        else:
            named = {name: message.headers[name] for name in ("message-id", "subscription")}
            self.call("ACK", **named, **headers)

    def write(self, octets: bytes) -> None:
        """Send raw bytes."""
        self._socket.sendall(octets)

    def read(self) -> bytes:
        """Return some bytes, or none if the server has closed."""
        return self._socket.recv(65_536)

    def disturbed(self, timeout_s: float) -> bool:
        """Return True if data arrives within this time."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def reset(self) -> None:
        """Close with a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        """Close."""
        self._socket.close()
        self.log.closed(self.number, by="client")


@contextmanager
def client_of(server: RunningBroker | ReplayServer) -> Iterator[Client]:
    """Return a client that is not logged in."""
    client = Client((server.host, server.port), FrameLog())
    try:
        yield client
    finally:
        client.close()


def work_of_two(server: RunningBroker | ReplayServer, log: FrameLog, destination: str) -> None:
    """Send a message from one client to another, which acknowledges it."""
    consumer = Client((server.host, server.port), log, 1)
    consumer.connect()
    consumer.call("SUBSCRIBE", id="s", destination=destination, ack="client", receipt="r1")
    producer = Client((server.host, server.port), log, 2)
    producer.connect()
    producer.send("SEND", b"hello", destination=destination)
    consumer.ack(consumer.receive("MESSAGE"), receipt="r2")
    producer.call("DISCONNECT", receipt="r1")
    producer.close()
    consumer.call("DISCONNECT", receipt="r3")
    consumer.close()


def written(text: str) -> Transcript:
    """Return a transcript from blocks, each with a connection and its events.

    That is ``<-`` or ``->`` with the lines of a frame, the last one of which may be ``body TEXT``,
    or ``closed`` or ``closed-by-broker``.
    """
    events: list[Event] = []
    for block in text.strip().split("\n\n"):
        mark, *lines = [line.strip() for line in block.strip().split("\n")]
        number, word = mark.split()
        if word == "closed":
            events.append(Closed(int(number)))
        elif word == "closed-by-broker":
            events.append(Closed(int(number), by="broker"))
        else:
            body = lines.pop().removeprefix("body ") if lines[-1].startswith("body ") else ""
            headers = dict(line.split(":", 1) for line in lines[1:])
            frame = Frame(lines[0], headers, body.encode())
            direction: Direction = "received" if word == "<-" else "sent"
            events.append(SeenFrame(direction, int(number), 0.0, frame))
    return Transcript(tuple(events))


LOGIN = """
    1 <-
    CONNECT
    accept-version:1.2
    host:localhost

    1 ->
    CONNECTED
    version:1.2
"""


def commands(transcript: Transcript) -> list[str]:
    """Return the commands of all frames, in their order."""
    return [event.command for event in transcript.events if isinstance(event, SeenFrame)]
