"""Load on a broker that will be killed, and an account of its confirmations.

One connection sends numbered messages to a queue, each with a receipt; another receives them and
acknowledges some, each with a receipt. After the broker has ended, the account determines which
messages must exist and which must not.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections import deque
from typing import Protocol

from stompkit.frames import Frame, Role, Session, encode

__all__ = ["Account", "Load", "drain"]

QUEUE = "/queue/crash"
#: SENDs without their receipt at a time.
WINDOW = 64
_TIMEOUT_S = 30.0


class Account:
    """Sent, confirmed, delivered and acknowledged messages, by number."""

    def __init__(self) -> None:
        """Start empty."""
        self.last_sent = 0
        #: SENDs whose receipt arrived, and ACKs that were sent and whose receipt arrived.
        self.promised: set[int] = set()
        self.ack_sent: set[int] = set()
        self.settled: set[int] = set()
        #: Messages that were delivered after the confirmation of their acknowledgement.
        self.undone: set[int] = set()

    def received(self, number: int) -> None:
        """Record a delivery."""
        if number in self.settled:
            self.undone.add(number)

    def missing(self, there: set[int]) -> set[int]:
        """Return confirmed messages that were not acknowledged and are missing."""
        return self.promised - self.ack_sent - there


class Peer:
    """A client's end of one connection, non-blocking except for connecting."""

    def __init__(self, port: int) -> None:
        """Connect and log in."""
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self.session = Session(Role.CLIENT)
        self.out = bytearray(self.session.connect({"host": "crash"}, 0.0))
        self.frames: deque[Frame] = deque()
        self.is_over = False
        while not self.frames:
            self.socket.sendall(self.out)
            self.out.clear()
            self.frames.extend(self.session.receive(self.socket.recv(65_536), 0.0))
        assert self.frames.popleft().command == "CONNECTED"
        self.socket.setblocking(False)

    def send(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Queue a frame for writing."""
        self.out += encode(Frame(command, headers, body), "1.2")

    def write(self) -> None:
        """Write as much as the socket takes."""
        try:
            while self.out:
                del self.out[: self.socket.send(self.out)]
        except BlockingIOError:
            pass
        except OSError:
            self.out.clear()

    def read(self) -> None:
        """Read the available data, or note the end."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_over = True
        while frames := self.session.receive(data, 0.0):
            data = b""
            self.frames.extend(frames)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _new_frames(peer: Peer) -> list[Frame]:
    frames = list(peer.frames)
    peer.frames.clear()
    return frames


class _Client(Protocol):
    peer: Peer

    def work(self) -> None:
        """Process the received frames, and write the next ones."""


class _Producer:
    def __init__(self, port: int, account: Account, chance: random.Random) -> None:
        self.peer = Peer(port)
        self._account = account
        self._chance = chance
        self._open = 0

    def work(self) -> None:
        """Count receipts, and send as much as the window allows."""
        for frame in _new_frames(self.peer):
            assert frame.command == "RECEIPT", frame
            self._account.promised.update(map(int, frame.headers["receipt-id"].split("-")))
            self._open -= 1
        while self._open < WINDOW and not self.peer.is_over:
            self._send()

    def _send(self) -> None:
        """Send one message, or several in a transaction."""
        account = self._account
        self._open += 1
        first = account.last_sent + 1
        many = 3 if self._chance.random() < 0.1 else 1
        account.last_sent += many
        numbers = range(first, first + many)
        more = {}
        if many > 1:
            more = {"transaction": str(first)}
            self.peer.send("BEGIN", more)
        else:
            more = {"receipt": str(first)}
        for number in numbers:
            self.peer.send("SEND", {"destination": QUEUE, **more}, b"%d" % number)
        if many > 1:
            receipt = "-".join(map(str, numbers))
            self.peer.send("COMMIT", {**more, "receipt": receipt})


class _Consumer:
    def __init__(self, port: int, account: Account, chance: random.Random) -> None:
        self.peer = Peer(port)
        self._account = account
        self._chance = chance
        headers = {"id": "1", "destination": QUEUE, "ack": "client-individual"}
        self.peer.send("SUBSCRIBE", headers | {"prefetch-count": "200"})

    def work(self) -> None:
        """Count receipts, and acknowledge most of the received messages."""
        account = self._account
        for frame in _new_frames(self.peer):
            if frame.command == "RECEIPT":
                account.settled.add(int(frame.headers["receipt-id"]))
                continue
            assert frame.command == "MESSAGE", frame
            number = int(frame.body)
            account.received(number)
            # Keep some, so that there are always messages to redeliver.
            if self._chance.random() < 0.8:
                account.ack_sent.add(number)
                self.peer.send("ACK", {"id": frame.headers["ack"], "receipt": str(number)})


class Load:
    """A producer and a consumer of one broker."""

    def __init__(self, port: int, account: Account, chance: random.Random) -> None:
        """Connect both."""
        self._clients: list[_Client] = [
            _Producer(port, account, chance),
            _Consumer(port, account, chance),
        ]
        self._selector = selectors.DefaultSelector()
        for client in self._clients:
            self._selector.register(client.peer.socket, selectors.EVENT_READ, client)

    def run(self, seconds: float) -> None:
        """Send, receive and acknowledge for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for client in self._clients:
                client.work()
                client.peer.write()
            for key, _ in self._selector.select(left):
                key.data.peer.read()

    def collect(self) -> None:
        """Read the data that the broker had sent before it was killed, and close."""
        for client in self._clients:
            client.peer.socket.settimeout(_TIMEOUT_S)
            while not client.peer.is_over:
                client.peer.read()
            client.peer.out.clear()
            client.work()
            client.peer.close()
        self._selector.close()


def drain(port: int, account: Account) -> list[int]:
    """Empty the queue; return the numbers in the order of delivery."""
    peer = Peer(port)
    peer.socket.settimeout(_TIMEOUT_S)
    peer.send("SEND", {"destination": QUEUE}, b"0")
    peer.send("SUBSCRIBE", {"id": "1", "destination": QUEUE})
    numbers: list[int] = []
    while True:
        peer.write()
        peer.read()
        assert not peer.is_over, "the broker has gone"
        for frame in _new_frames(peer):
            assert frame.command == "MESSAGE", frame
            if frame.body == b"0":
                peer.close()
                return numbers
            account.received(int(frame.body))
            numbers.append(int(frame.body))
