"""How long a client that behaves waits, at worst, while another asks for much work at once.

Each case is something that clients can make many of: selectors, patterns, delayed jobs, messages
whose time ends in one moment, frames of a transaction, messages that one frame acknowledges. One
client does it, and another sends a message with a receipt every few milliseconds from a process of
its own; the longest time to a RECEIPT is the figure. "none" is the same while nobody else does
anything: what the machine itself adds. To try::

    python -m benchmarks.pauses --cases kick,selectors-queue

The bound is on every case. Where other programs keep the processors busy no figure is worth
anything: run this on a machine that does nothing else.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, repeat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple, Self

from benchmarks._client import Client, RefusedError
from benchmarks._compiled import measure_compiled
from benchmarks._process import start
from benchmarks._report import Bound, Figure, broken, make_parser, progress, report, unusable
from stompkit.frames import Frame, encode
from stompkit.testing import BrokerError

#: Longest permitted wait in milliseconds.
MOST_MS: Final = 50.0
#: Seconds between two messages of the well-behaved client.
EVERY_S: Final = 0.005
#: Frames that are written to a socket at a time.
LOT: Final = 500
#: Messages of a transaction, and most unacknowledged ones: the default limits.
FRAMES: Final = 10_000
HELD: Final = 100_000
#: Timeout of a case in seconds.
PATIENCE_S: Final = 120.0
CONFIG: Final = """
[broker]
ack_timeout_s = 6.0
max_prefetch = 100000

[beanstalk]
endpoints = ["tcp:{beanstalk}:interface=127.0.0.1"]
"""


class Place(NamedTuple):
    """Address of the broker."""

    stomp: int
    beanstalk: int


# The well-behaved client.


def watch(port: int, pipe: Connection) -> None:
    """Send a message every few milliseconds; send the longest wait on each request."""
    client = Client(port).log_in()
    frame = encode(Frame("SEND", {"destination": "/topic/watch", "receipt": "r"}), "1.2")
    worst_s = 0.0
    pipe.send(worst_s)
    while True:
        began = time.perf_counter()
        client.write(frame)
        client.expect("RECEIPT")
        worst_s = max(worst_s, time.perf_counter() - began)
        if pipe.poll():
            if not pipe.recv():
                return
            pipe.send(worst_s)
            worst_s = 0.0
        time.sleep(EVERY_S)


@contextmanager
def watching(port: int) -> Iterator[Callable[[], float]]:
    """Run the well-behaved client; yield a function that returns its longest wait in ms."""
    ours, its = multiprocessing.Pipe()
    process = multiprocessing.Process(target=watch, args=(port, its), daemon=True)
    process.start()

    def worst_ms() -> float:
        ours.send(True)
        if not ours.poll(PATIENCE_S):
            raise TimeoutError("the client that behaves waits for ever")
        worst_s: float = ours.recv()
        return worst_s * 1_000

    try:
        ours.recv()
        yield worst_ms
        ours.send(False)
        process.join(PATIENCE_S)
    finally:
        process.kill()


# The other client.


def wait_for_all(client: Client) -> None:
    """Wait until the broker has processed everything that a client has sent; drop messages."""
    client.send("SEND", {"destination": "/topic/none", "receipt": "all"})
    while not any(each.command == "RECEIPT" for each in client.receive()):
        pass


def send_all(client: Client, frames: Iterator[Frame]) -> None:
    """Send frames, several at a time."""
    lot: list[bytes] = []
    for frame in frames:
        lot.append(encode(frame, "1.2"))
        if len(lot) == LOT:
            client.write(b"".join(lot))
            wait_for_all(client)
            lot.clear()
    client.write(b"".join(lot))
    wait_for_all(client)


def messages(queue: str, count: int, **headers: str) -> Iterator[Frame]:
    """Return messages for one destination."""
    return (Frame("SEND", {"destination": queue, **headers}, b"x") for _ in range(count))


def subscriptions(count: int, destination: str, **headers: str) -> bytes:
    """Return subscriptions, each with a different, expensive selector that matches nothing."""
    selectors = (" OR ".join(f"n={n}" for n in range(at, at + 499)) for at in range(count))
    frames = [
        Frame(
            "SUBSCRIBE",
            {"id": str(n), "destination": destination, "selector": selector, **headers},
        )
        for n, selector in enumerate(selectors)
    ]
    return b"".join(encode(frame, "1.2") for frame in frames)


class Jobs:
    """A client of beanstalkd."""

    def __init__(self, port: int) -> None:
        """Connect to the broker."""
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._socket.close()

    def put(self, count: int, *, delay: int = 0) -> None:
        """Put jobs of one byte."""
        for _ in range(count // LOT):
            self._socket.sendall(b"put 0 %d 60 1\r\nx\r\n" % delay * LOT)
            answered = 0
            while answered < LOT:
                answered += self._socket.recv(1 << 18).count(b"\r\n")

    def ask(self, commands: bytes, last: bytes) -> None:
        """Send commands, and wait for the last answer."""
        self._socket.sendall(commands)
        answers = b""
        while not answers.endswith(last):
            answers = answers[-100:] + self._socket.recv(1 << 18)


Case = Callable[[Place], Iterator[None]]


def nothing(_: Place) -> Iterator[None]:
    """Leave the other client idle."""
    yield
    time.sleep(2.0)


def selectors_queue(place: Place) -> Iterator[None]:
    """Add 40 selectors of 499 comparisons each to a queue of 1,000 messages, and send 20 more."""
    client = Client(place.stomp).log_in()
    send_all(client, messages("/queue/selected", 1_000, n="-1"))
    yield
    client.write(subscriptions(40, "/queue/selected", ack="client"))
    wait_for_all(client)
    send_all(client, messages("/queue/selected", 20, n="-1"))
    client.close()


def selectors_topic(place: Place) -> Iterator[None]:
    """Publish 200 messages to a topic with 40 selectors of 499 comparisons each."""
    client = Client(place.stomp).log_in()
    client.write(subscriptions(40, "/topic/selected"))
    wait_for_all(client)
    yield
    send_all(client, messages("/topic/selected", 200, n="-1"))
    client.close()


def patterns(place: Place) -> Iterator[None]:
    """Add and cancel 60 subscriptions to a pattern that matches 20,000 queues with messages."""
    client = Client(place.stomp).log_in()
    frames = (
        Frame("SEND", {"destination": f"/queue/p.{n % 100}.{n}"}, b"x") for n in range(20_000)
    )
    send_all(client, frames)
    yield
    reader = Client(place.stomp).log_in()
    headers = {"destination": "/queue/p.>", "ack": "client", "prefetch-count": "1"}
    reader.write(
        b"".join(encode(Frame("SUBSCRIBE", {"id": str(n), **headers}), "1.2") for n in range(60))
    )
    wait_for_all(reader)
    reader.close()
    time.sleep(2.0)


def kick(place: Place) -> Iterator[None]:
    """Kick 4,000 of 40,000 delayed jobs."""
    with Jobs(place.beanstalk) as jobs:
        jobs.put(40_000, delay=3_600)
        yield
        jobs.ask(b"kick 4000\r\n", b"KICKED 4000\r\n")


def jobs_found(place: Place) -> Iterator[None]:
    """Delete and peek at 2,000 jobs by their numbers, among 40,000 others."""
    with Jobs(place.beanstalk) as jobs:
        jobs.put(40_000)
        yield
        commands = b"".join(b"peek %d\r\n" % (20_000 + n) for n in range(2_000))
        jobs.ask(commands, b"FOUND 21999 1\r\nx\r\n")


def due_at_once(place: Place) -> Iterator[None]:
    """Make 50,000 delayed messages due at the same moment."""
    client = Client(place.stomp).log_in()
    due = str(round((time.time() + 12.0) * 1_000))
    frames = messages("/queue/due", 50_000, AMQ_SCHEDULED_TIME=due)
    send_all(client, frames)
    yield
    time.sleep(max(0.0, int(due) / 1_000 - time.time()) + 4.0)
    client.close()


def expired_at_once(place: Place) -> Iterator[None]:
    """Expire 50,000 messages at the same moment."""
    client = Client(place.stomp).log_in()
    end = str(round((time.time() + 12.0) * 1_000))
    send_all(client, messages("/queue/expired", 50_000, expires=end))
    yield
    time.sleep(max(0.0, int(end) / 1_000 - time.time()) + 4.0)
    client.close()


def late_at_once(place: Place) -> Iterator[None]:
    """Miss the acknowledgement deadline of 20,000 deliveries at the same moment."""
    client = Client(place.stomp).log_in()
    send_all(client, messages("/queue/late", 20_000))
    reader = Client(place.stomp).log_in()
    headers = {"destination": "/queue/late", "ack": "client-individual", "id": "1"}
    reader.send("SUBSCRIBE", {**headers, "prefetch-count": "20000"})
    reader.send("UNSUBSCRIBE", {"id": "1"})
    wait_for_all(reader)
    yield
    time.sleep(9.0)
    reader.close()
    client.close()


def commit(place: Place, names: Iterator[str]) -> Iterator[None]:
    """Commit a transaction that sends to destinations."""
    client = Client(place.stomp).log_in()
    client.send("BEGIN", {"transaction": "t"})
    send_all(
        client,
        (
            Frame("SEND", {"destination": next(names), "transaction": "t"}, b"x")
            for _ in range(FRAMES)
        ),
    )
    yield
    client.send("COMMIT", {"transaction": "t"})
    wait_for_all(client)
    client.close()


def commit_many(place: Place) -> Iterator[None]:
    """Commit a transaction of 10,000 messages to a new queue each."""
    return commit(place, (f"/queue/c.{n}" for n in count()))


def commit_one(place: Place) -> Iterator[None]:
    """Commit a transaction of 10,000 messages to one queue."""
    return commit(place, repeat("/queue/c"))


def holding(place: Place, queue: str) -> tuple[Client, str]:
    """Hold 100,000 messages in the mode client; yield a function that acknowledges all."""
    client = Client(place.stomp).log_in()
    send_all(client, messages(queue, HELD))
    client.close()
    reader = Client(place.stomp).log_in()
    headers = {"destination": queue, "ack": "client", "id": "1"}
    reader.send("SUBSCRIBE", {**headers, "prefetch-count": str(HELD)})
    left, last = HELD, ""
    while left:
        for frame in reader.receive():
            left -= 1
            last = frame.headers["ack"]
    return reader, last


def answer_many(place: Place, command: str) -> Iterator[None]:
    """Answer all messages of a client with one frame."""
    reader, last = holding(place, "/queue/held")
    yield
    reader.send("UNSUBSCRIBE", {"id": "1"})
    reader.send(command, {"id": last})
    wait_for_all(reader)
    reader.close()


def ack_many(place: Place) -> Iterator[None]:
    """Acknowledge 100,000 messages with one ACK."""
    return answer_many(place, "ACK")


def nack_many(place: Place) -> Iterator[None]:
    """Reject 100,000 messages with one NACK; they become dead letters."""
    return answer_many(place, "NACK")


def end_of_acks(place: Place, command: str) -> Iterator[None]:
    """End a transaction that has acknowledged 100,000 messages by a command."""
    reader, last = holding(place, "/queue/held")
    reader.send("UNSUBSCRIBE", {"id": "1"})
    reader.send("BEGIN", {"transaction": "t"})
    yield
    reader.send("ACK", {"id": last, "transaction": "t"})
    reader.send(command, {"transaction": "t"})
    wait_for_all(reader)
    yield
    reader.close()


def commit_acks(place: Place) -> Iterator[None]:
    """Commit a transaction that has acknowledged 100,000 messages."""
    return end_of_acks(place, "COMMIT")


def abort_many(place: Place) -> Iterator[None]:
    """Abort a transaction that has acknowledged 100,000 messages."""
    return end_of_acks(place, "ABORT")


def end_many(place: Place) -> Iterator[None]:
    """End a connection that has 100,000 unacknowledged messages."""
    reader, _ = holding(place, "/queue/held")
    yield
    reader.close()
    time.sleep(4.0)


CASES: Final[dict[str, Case]] = {
    "none": nothing,
    "selectors-queue": selectors_queue,
    "selectors-topic": selectors_topic,
    "patterns": patterns,
    "kick": kick,
    "jobs-found": jobs_found,
    "due-at-once": due_at_once,
    "expired-at-once": expired_at_once,
    "late-at-once": late_at_once,
    "commit-many": commit_many,
    "commit-one": commit_one,
    "ack-many": ack_many,
    "nack-many": nack_many,
    "commit-acks": commit_acks,
    "abort-many": abort_many,
    "end-many": end_many,
}


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def measure(name: str, data: bool) -> float:  # noqa: FBT001 (told by name)
    """Run one case with a new broker; return the longest wait in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="stompkit-pauses-") as directory:
        folder = Path(directory)
        beanstalk = free_port()
        config = folder / "stompkit.toml"
        text = CONFIG.format(beanstalk=beanstalk)
        config.write_text(text, encoding="utf-8")
        kept = ["--data", str(folder / "data")] if data else []
        with start(folder / "run", "--config", str(config), *kept) as broker:
            case = CASES[name](Place(broker.port, beanstalk))
            next(case)
            with watching(broker.port) as worst_ms:
                time.sleep(0.5)
                worst_ms()
                for _ in case:
                    pass
                time.sleep(0.2)
                return worst_ms()


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = make_parser("pauses", str(__doc__))
    add = parser.add_argument
    add("--cases", metavar="NAMES", help=f"with commas (default: all): {', '.join(CASES)}")
    add("--data", action="store_true", help="with a store, in place of messages in memory")
    given = parser.parse_args()
    names = list(CASES) if given.cases is None else given.cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        raise unusable(f"no case is called {', '.join(unknown)}")
    measure_compiled("benchmarks.pauses")
    figures, bounds = [], []
    for name in names:
        progress(name)
        try:
            worst_ms = measure(name, given.data)
        except (RefusedError, BrokerError, OSError) as error:
            raise broken(f"{name}: {error}") from error
        figure = Figure(
            f"{name}_worst_pause_ms", f"Worst pause of others, {name}, ms", worst_ms, ",.1f"
        )
        figures.append(figure)
        bounds.append(Bound(figure, MOST_MS))
    return report(parser, given.json, figures, bounds)


if __name__ == "__main__":
    sys.exit(main())
