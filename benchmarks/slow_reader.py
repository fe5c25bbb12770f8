"""What a subscriber that doesn't read costs the others of its topic.

A producer sends at a steady rate to a topic with subscribers that read what comes, and the time
from SEND to each MESSAGE is taken. Rounds without and with one more subscriber, which doesn't read
at all, alternate. In the rounds with it, all that the broker and the kernel hold for it is full
before the measurement begins, so that each message that is sent costs it one; when the round is
over it reads what is left, and what it has lost is counted. The same is sent before the
measurement in the rounds without it, when there is nobody yet.

A round's figures are the median and the 99th percentile over all deliveries. Over the rounds of
each kind the medians of these are compared: with the slow reader, the median is to stay within
what rounds without it reach. Producer and subscribers are one thread of this process. To try::

    python -m benchmarks.slow_reader --rounds 3 --seconds 2
"""

from __future__ import annotations

import argparse
import gc
import selectors
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

from benchmarks._client import Client, RefusedError, fill, message, number_of
from benchmarks._compiled import measure_compiled
from benchmarks._process import start
from benchmarks._report import Bound, Figure, broken, make_parser, positive, progress, report
from stompkit.testing import BrokerError

TOPIC: Final = "/topic/prices"
#: Receive buffer of the slow reader in bytes: small, since it has to be filled.
SLOW_BUFFER_BYTES: Final = 1 << 16
#: Bytes that fill all buffers: 16 MiB of the broker for a subscriber by default, 4 MiB of the
#: kernel at the broker's end, and a margin.
FILL_BYTES: Final = 32 << 20
#: Most messages without receipt while the buffers are filled.
FILL_WINDOW: Final = 1_000
#: Longest time until the last delivery after the last SEND, in seconds.
END_S: Final = 30.0


class Round(NamedTuple):
    """The results of one round."""

    p50_ms: float
    p99_ms: float
    lost: int
    """Messages that the slow reader never received; 0 without it."""


def subscribe(client: Client) -> Client:
    """Subscribe to the topic, and wait for the receipt."""
    client.send("SUBSCRIBE", {"id": "1", "destination": TOPIC, "receipt": "r"})
    client.expect("RECEIPT")
    return client


class Delivery:
    """A producer with its subscribers, and the latency of each delivery."""

    def __init__(self, producer: Client, subscribers: list[Client], numbers: range) -> None:
        """Send nothing yet; ``numbers`` are those of the messages."""
        self._producer = producer
        self._numbers = numbers
        self._sent_at: list[float] = []
        self._selector = selectors.DefaultSelector()
        #: The number of the next message of each subscriber.
        self._next = dict.fromkeys(subscribers, numbers.start)
        for client in subscribers:
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        self.times_ms: list[float] = []

    def run(self, rate_per_s: int, body_bytes: int) -> None:
        """Send all, and wait for all deliveries; raise :class:`RefusedError` and TimeoutError."""
        began, expected = time.perf_counter(), len(self._numbers) * len(self._next)
        ends = began + len(self._numbers) / rate_per_s + END_S
        while len(self.times_ms) < expected:
            now = time.perf_counter()
            due = began + len(self._sent_at) / rate_per_s
            if now > ends:
                raise TimeoutError(f"{len(self.times_ms)} of {expected} deliveries came")
            if len(self._sent_at) == len(self._numbers):
                due = ends
            elif now >= due:
                number = self._numbers[len(self._sent_at)]
                self._sent_at.append(now)
                self._producer.write(message(TOPIC, number, body_bytes))
            self._read(max(0.0, due - now))

    def _read(self, timeout_s: float) -> None:
        """Read from the sockets; messages of one read have the same time."""
        for key, _ in self._selector.select(timeout_s):
            client: Client = key.data
            data, now = client.read(), time.perf_counter()
            for frame in client.decode(data):
                number = self._next[client]
                if frame.command != "MESSAGE" or number_of(frame) != number:
                    raise RefusedError(f"message {number} is to come next, not {frame!r:.200}")
                self._next[client] = number + 1
                self.times_ms.append((now - self._sent_at[number - self._numbers.start]) * 1e3)


def lost(client: Client, sent: int) -> int:
    """Read the rest with a slow reader; return the number of messages that it never received."""
    got, last = 0, -1
    while last < sent - 1:
        for frame in client.receive():
            if frame.command != "MESSAGE" or not last < number_of(frame) < sent:
                raise RefusedError(f"a message after {last} is to come, not {frame!r:.200}")
            last = number_of(frame)
            got += 1
    return sent - got


def run(port: int, given: argparse.Namespace, *, has_slow: bool) -> Round:
    """Run one round."""
    producer = Client(port).log_in()
    clients, slow = [producer], None
    if has_slow:
        slow = subscribe(Client(port, receive_buffer_bytes=SLOW_BUFFER_BYTES).log_in())
        clients.append(slow)
    first = -(-FILL_BYTES // given.body_bytes)
    fill(producer, TOPIC, first, given.body_bytes, FILL_WINDOW)
    numbers = range(first, first + given.rate * given.seconds)
    subscribers = [subscribe(Client(port).log_in()) for _ in range(given.subscribers)]
    delivery = Delivery(producer, subscribers, numbers)
    delivery.run(given.rate, given.body_bytes)
    percentiles = quantiles(delivery.times_ms, n=100, method="inclusive")
    missed = lost(slow, numbers.stop) if slow else 0
    for client in (*clients, *subscribers):
        client.close()
    return Round(percentiles[49], percentiles[98], missed)


def measure(port: int, given: argparse.Namespace) -> tuple[list[Round], list[Round]]:
    """Run all rounds; return those without and those with a slow reader."""
    rounds: tuple[list[Round], list[Round]] = ([], [])
    gc.disable()
    for number in range(given.rounds):
        for has_slow in (False, True):
            progress(f"round {number + 1} of {given.rounds}, {'with' if has_slow else 'without'}")
            rounds[has_slow].append(run(port, given, has_slow=has_slow))
    return rounds


def figures_of(kind: str, rounds: list[Round]) -> list[Figure]:
    """Return the medians over rounds of one kind."""
    p50_ms, p99_ms = [each.p50_ms for each in rounds], [each.p99_ms for each in rounds]
    return [
        Figure(f"{kind}_p50_ms", f"Median {kind} slow reader, ms", median(p50_ms), ",.3f"),
        Figure(f"{kind}_p50_min_ms", "  the round with the least", min(p50_ms), ",.3f"),
        Figure(f"{kind}_p50_max_ms", "  the round with the most", max(p50_ms), ",.3f"),
        Figure(f"{kind}_p99_ms", f"99th percentile {kind} it, ms", median(p99_ms), ",.3f"),
        Figure(f"{kind}_p99_min_ms", "  the round with the least", min(p99_ms), ",.3f"),
        Figure(f"{kind}_p99_max_ms", "  the round with the most", max(p99_ms), ",.3f"),
    ]


def compared(
    without: list[Round], with_slow: list[Round], messages: int
) -> tuple[list[Figure], list[Bound]]:
    """Return the figures of all rounds; ``messages`` are those measured in a round."""
    normal_ms = median(each.p50_ms for each in without)
    ratio = median(each.p50_ms for each in with_slow) / normal_ms
    noise = max(each.p50_ms for each in without) / normal_ms
    losses = [each.lost for each in with_slow]
    slowed = Figure("ratio", "Median with slow reader, in times that without", ratio, ",.3f")
    # If it lost fewer than were sent meanwhile, some messages fitted into its buffers.
    spared = max(0, messages - min(losses))
    unburdened = Figure("spared", "Messages measured that cost it none", spared)
    figures = [
        *figures_of("without", without),
        *figures_of("with", with_slow),
        slowed,
        Figure("noise", "  the most in a round without, in the same", noise, ",.3f"),
        Figure("lost", "Messages lost by the slow reader in a round", median(losses)),
        unburdened,
    ]
    return figures, [Bound(slowed, noise), Bound(unburdened, 0)]


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = make_parser("slow_reader", str(__doc__))
    add = parser.add_argument
    add("--subscribers", type=positive, default=20, help="that read (default: %(default)s)")
    add("--rate", type=positive, default=500, help="messages per second (default: %(default)s)")
    add("--seconds", type=positive, default=5, help="of a round (default: %(default)s)")
    add("--rounds", type=positive, default=9, help="of each kind (default: %(default)s)")
    add("--body-bytes", type=positive, default=1_024, help="of a message (default: %(default)s)")
    given = parser.parse_args()
    measure_compiled("benchmarks.slow_reader")
    with tempfile.TemporaryDirectory(prefix="stompkit-slow-reader-") as name:
        try:
            with start(Path(name)) as broker:
                without, with_slow = measure(broker.port, given)
        except (RefusedError, BrokerError, OSError) as error:
            raise broken(str(error)) from error
    figures, bounds = compared(without, with_slow, given.rate * given.seconds)
    return report(parser, given.json, figures, bounds)


if __name__ == "__main__":
    sys.exit(main())
