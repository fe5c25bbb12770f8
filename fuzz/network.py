"""Sessions that go wrong, over the network, beside one that must not suffer.

    python -m fuzz.network --seconds 600                   launches a broker of its own
    python -m fuzz.network --mq 127.0.0.1:61613            uses one that runs already
    python -m fuzz.network --seed 7 --first 120 --rounds 1 plays one round again

Several connections at a time do what clients do, in any order: they log in, subscribe, send,
acknowledge, begin and commit. And they do what they must not: frames that are wrong or cut in two,
octets that are changed, sessions of ``stompkit.conformance.fuzzing``; they stop reading, close one
direction, reset. What they do in a round follows from the seed and its number. Meanwhile a
well-behaved client sends itself messages, which have to come whole and in order, once each. A
broker that was launched has to have no traceback in its log, nor keep anything of those who are
gone, nor grow. The exit status is 1 for a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import socket
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, Self

from stompkit.conformance.fuzzing import transcript
from stompkit.frames import (
    VERSIONS,
    Frame,
    FrameDecoder,
    LocalProtocolError,
    RemoteProtocolError,
    Tolerance,
    Version,
    encode,
)
from stompkit.testing import LaunchConfig, RunningBroker, given, launch, parse_address
from stompkit.testing.client import ClientFailureError
from stompkit.testing.launching.polling import wait_until

__all__ = ["Found", "Victim", "Wild", "main", "play"]

_DEADLINE_S: Final = 60.0
_SLOTS: Final = 6
_STEPS: Final = 60
#: Maximum number of the well-behaved client's messages in flight.
_BURST: Final = 5
_MOST_OCTETS: Final = 1024 * 1024 * 1024
_BAD: Final = ("Traceback (most recent call last)", "Unhandled Error", "#critical")
_DESTINATIONS: Final = (
    "/queue/w.1", "/queue/w.2", "/topic/w.1", "/topic/w.2.x", "/temp-queue/w", "/fanout/w",
    "/dlq/w.1", "/queue/w.*", "/topic/w.>", "/queue/", "nowhere", "/queue/w.\N{SNOWMAN}",
)  # fmt: skip


class Found(Exception):
    """Raised for a finding."""


class Wild:
    """One connection with random actions; it never waits."""

    def __init__(self, random: Random, host: str, port: int) -> None:
        """Open the connection."""
        self._random = random
        self._socket = socket.create_connection((host, port), _DEADLINE_S)
        self._socket.setblocking(False)
        self._decoder = FrameDecoder(tolerance=Tolerance.LENIENT)
        self._is_reading = True
        self._messages: list[Frame] = []
        self._held = b""
        #: Number of remaining actions, independent of the broker's replies: a round depends only on
        #: its number.
        self._left = random.randint(3, 40)

    @property
    def is_over(self) -> bool:
        """True if no actions remain."""
        return not self._left

    def act(self) -> None:
        """Perform one random action."""
        self._left -= 1
        names = list(_ACTIONS)
        [name] = self._random.choices(names, [_ACTIONS[each][0] for each in names])
        _ACTIONS[name][1](self)
        if self._is_reading:
            self._read()

    def _write(self, octets: bytes) -> None:
        octets, self._held = self._held + octets, b""
        # Bytes that the socket does not accept now are never sent: this also tests cut-off frames.
        with contextlib.suppress(OSError):
            self._socket.send(octets)

    def _frame(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        entries = {name.replace("_", "-"): value for name, value in headers.items()}
        version: Version | None = self._decoder.version
        try:
            self._write(encode(Frame(command, entries, body), version, tolerance=Tolerance.LENIENT))
        except LocalProtocolError:
            self._write(encode(Frame("SEND", {"destination": "/queue/w.1"}), version))

    def _read(self) -> None:
        try:
            while octets := self._socket.recv(65_536):
                while frames := self._decoder.feed(octets):
                    octets = b""
                    self._messages += [frame for frame in frames if frame.command == "MESSAGE"]
                    if self._decoder.version is None and frames[-1].command == "CONNECTED":
                        named = frames[-1].headers.get("version", "1.0")
                        self._decoder.negotiated(next(v for v in VERSIONS if v == named))
        except BlockingIOError:
            del self._messages[:-20]
        except RemoteProtocolError as error:
            raise Found(f"what the broker sent cannot be read: {error}") from None
        except OSError:
            pass  # the broker has closed the connection

    def _one_of(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _transaction(self) -> dict[str, str]:
        return {"transaction": self._one_of("t", "u")} if self._random.random() < 0.3 else {}

    def _receipt(self) -> dict[str, str]:
        return {"receipt": str(self._random.random())} if self._random.random() < 0.4 else {}

    # Actions.

    def connect(self) -> None:
        """Log in, correctly or not."""
        self._frame(
            self._one_of("CONNECT", "CONNECT", "STOMP"),
            accept_version=self._one_of("1.2", "1.1", "1.0", "1.0,1.1,1.2", "1.2", "7"),
            host=self._one_of("h", "", "x" * 300),
            heart_beat=self._one_of("0,0", "0,0", "1,1", "200,200", "1,x", "-1,0"),
            client_id=self._one_of("c", "d"),
        )

    def subscribe(self) -> None:
        """Subscribe to a destination."""
        extra: dict[str, str] = {}
        for name, value in (
            ("selector", self._one_of("a > 1", "a = 'x' OR", "b LIKE '%x%'")),
            ("prefetch-count", self._one_of("1", "0", "-1", "x", "5")),
            ("activemq.subscriptionName", self._one_of("n", "m")),
            ("browser", "true"),
        ):
            if self._random.random() < 0.2:
                extra[name] = value
        self._frame(
            "SUBSCRIBE",
            destination=self._random.choice(_DESTINATIONS),
            id=self._one_of("0", "1", "2"),
            ack=self._one_of("auto", "client", "client-individual", "client-individual", "other"),
            **extra,
            **self._receipt(),
        )

    def unsubscribe(self) -> None:
        """End a subscription, if there is one."""
        self._frame("UNSUBSCRIBE", id=self._one_of("0", "1", "2", "9"), **self._receipt())

    def send(self) -> None:
        """Send a message."""
        size = self._random.choice((0, 1, 10, 1_000, 50_000))
        self._frame(
            "SEND",
            self._random.randbytes(size),
            destination=self._random.choice(_DESTINATIONS),
            a=self._one_of("1", "2", "x"),
            expires=self._one_of("0", "1", str(int(time.time() * 1_000) + 500), "x"),
            **self._transaction(),
            **self._receipt(),
        )

    def settle(self) -> None:
        """Acknowledge a received message, or an unknown one."""
        named = {"id": "none", "message-id": "none", "subscription": "0"}
        is_made_up, which = self._random.random() < 0.1, self._random.randrange(1_000)
        if self._messages and not is_made_up:
            headers = self._messages[which % len(self._messages)].headers
            named["id"] = headers.get("ack", headers["message-id"])
            named["message-id"] = headers["message-id"]
            named["subscription"] = headers.get("subscription", "0")
        command = self._one_of("ACK", "ACK", "ACK", "NACK")
        self._frame(command, **named, **self._transaction(), **self._receipt())

    def transact(self) -> None:
        """Begin, commit or abort."""
        command = self._one_of("BEGIN", "BEGIN", "COMMIT", "ABORT")
        self._frame(command, transaction=self._one_of("t", "u"), **self._receipt())

    def begin_a_frame(self) -> None:
        """Send the first part of a frame; the next action is in the middle of it, or after it."""
        whole = b"SEND\ndestination:/queue/w.1\ncontent-length:20\n\n" + b"x" * 20 + b"\0"
        cut = self._random.randrange(1, len(whole))
        self._write(whole[:cut])
        if self._random.random() < 0.5:
            self._held = whole[cut:]

    def talk_nonsense(self) -> None:
        """Send a piece of a session with random faults, or a whole one."""
        said = transcript(self._random.randrange(10_000), self._random.randrange(100), "/queue/w.1")
        for piece in said.pieces if self._random.random() < 0.5 else said.pieces[:1]:
            self._write(piece)

    def stop_reading(self) -> None:
        """Stop or resume reading."""
        self._is_reading = not self._is_reading

    def disconnect(self) -> None:
        """Send DISCONNECT."""
        self._frame("DISCONNECT", **self._receipt())

    def half_close(self) -> None:
        """Close the direction to the broker."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close both directions."""
        self._socket.close()
        self._left = 0


#: Actions of a connection, with their weights.
_ACTIONS: Final[dict[str, tuple[int, Callable[[Wild], None]]]] = {
    "connect": (2, Wild.connect),
    "subscribe": (12, Wild.subscribe),
    "unsubscribe": (4, Wild.unsubscribe),
    "send": (20, Wild.send),
    "settle": (14, Wild.settle),
    "transact": (8, Wild.transact),
    "begin a frame": (2, Wild.begin_a_frame),
    "talk nonsense": (2, Wild.talk_nonsense),
    "stop reading": (3, Wild.stop_reading),
    "disconnect": (1, Wild.disconnect),
    "half close": (1, Wild.half_close),
    "reset": (2, Wild.reset),
    "close": (1, Wild.close),
}


class Victim:
    """A well-behaved client: it sends itself messages, and gets each of them once, in order."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        """Connect, to send, and to receive from a queue and a topic."""
        self._queue, self._topic = f"/queue/victim.{seed}", f"/topic/victim.{seed}"
        self._clients = self._sender, self._receiver, self._listener = [
            broker.client() for _ in range(3)
        ]
        for client in self._clients:
            client.timeout_s = _DEADLINE_S
        self._receiver.subscribe(self._queue, ack="client-individual")
        self._listener.subscribe(self._topic)
        self.sent = 0

    def send(self, count: int) -> None:
        """Send some messages; wait for the receipt of the last one."""
        for number in range(count):
            body = self._body(self.sent)
            for destination in (self._queue, self._topic):
                self._sender.send(destination, body, receipt=number == count - 1)
            self.sent += 1

    @staticmethod
    def _body(number: int) -> bytes:
        chance = Random(number)
        content = chance.randbytes(chance.choice((0, 10, 1_000, 70_000)))
        return b"%d %s " % (number, hashlib.sha256(content).hexdigest().encode()) + content

    def receive(self, first: int) -> None:
        """Receive all messages from *first* on; raises :class:`Found` if there is a fault."""
        for number in range(first, self.sent):
            message = self._receiver.receive()
            self._compare(message, number)
            self._receiver.ack(message, receipt=number == self.sent - 1)
            self._compare(self._listener.receive(), number)

    def _compare(self, message: Frame, number: int) -> None:
        if message.body != self._body(number):
            raise Found(f"instead of message {number} came {message.body[:80]!r}")
        if message.headers.get("redelivered") == "true":
            raise Found(f"message {number} came again")

    def disconnect(self) -> None:
        """Disconnect gracefully."""
        for client in self._clients:
            client.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Add the place to the message of a finding."""
    try:
        yield
    except (ClientFailureError, Found, OSError) as error:
        raise Found(f"{what}: {error}") from error


def play(broker: RunningBroker, victim: Victim, seed: int, number: int) -> int:
    """Play one round; return the number of connections. Raises :class:`Found`."""
    random = Random(f"{seed} {number}")
    slots: list[Wild | None] = [None] * _SLOTS
    connections = 0
    first = victim.sent
    with _told(f"round {number} of seed {seed}"), contextlib.ExitStack() as opened:
        for step in range(_STEPS):
            place = random.randrange(_SLOTS)
            wild = slots[place]
            if wild is None or wild.is_over:
                connections += 1
                wild = slots[place] = Wild(random, broker.host, broker.port)
                opened.callback(random.choice((wild.close, wild.reset)))
                if random.random() < 0.9:
                    wild.connect()
            wild.act()
            if step % 20 == 0:
                victim.send(random.randint(1, _BURST))
        opened.close()
        victim.send(1)
        victim.receive(first)
    return connections


def _check_broker(broker: RunningBroker, seed: int, *, most_sessions: int) -> None:
    """Check the state of a launched broker after all other clients have disconnected."""
    found = next((bad for bad in _BAD if bad in broker.log), None)
    if found is not None:
        at = broker.log.index(found)
        raise Found(f"the log has: {broker.log[max(0, at - 500) : at + 3_000]}")
    if not wait_until(lambda: len(broker.sessions()) <= most_sessions, _DEADLINE_S):
        raise Found(f"sessions are left: {broker.sessions()}")
    for each in broker.destinations().values():
        if each.in_flight:
            raise Found(f"seed {seed}: messages of nobody are in flight: {each}")
    with urllib.request.urlopen(
        f"{broker.admin_url}/api/v1/overview", timeout=_DEADLINE_S
    ) as answer:
        octets = json.load(answer)["memory_octets"] or 0
    if octets > _MOST_OCTETS:
        raise Found(f"the broker has {octets:,} octets of memory")


def main(arguments: list[str]) -> int:
    """Read the command line and play; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.network", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--mq", metavar="HOST:PORT", help="a broker that runs already")
    parser.add_argument("--seed", type=int, default=1, help="what is played (1)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first round (0)")
    parser.add_argument("--rounds", type=int, help="how many rounds to play, at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long to play (60)")
    options = parser.parse_args(arguments)
    if options.mq:
        host, port = parse_address(options.mq)
        broker = given(host, port)
    else:
        broker = launch(LaunchConfig(persistent=True, control=True, admin=True))
    until = time.monotonic() + options.seconds
    number, connections = options.first, 0
    last = None if options.rounds is None else number + options.rounds
    try:
        with broker, Victim(broker, options.seed) as victim:
            while (last is None or number < last) and time.monotonic() < until:
                connections += play(broker, victim, options.seed, number)
                number += 1
                if not options.mq:
                    _check_broker(broker, options.seed, most_sessions=3)
            victim.disconnect()
    except Found as finding:
        print(f"Found: {finding}\n--seed {options.seed} --first {number} --rounds 1 plays it again")
        return 1
    print(
        f"{number - options.first} rounds of seed {options.seed}, {connections:,} connections,"
        f" {victim.sent:,} messages of the well-behaved client: nothing found"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
