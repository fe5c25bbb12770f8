"""How the broker's cost per message grows with all the rest that the broker has.

The broker and its clients are in one process, over streams in memory. Given is the processor time
that the broker takes for a message, with the octets of one frame a call, so that nothing is shared
between messages; clients read what they get outside of that time. Each case begins with little
and gets more, and is measured at each size::

    queues         queues with a subscriber each; messages go to all of them in turn
    subscriptions  subscriptions of the consumer's connection to other queues
    patterns       subscriptions to patterns that don't match
    names          the same, and each message goes to a topic that is made for it
    pattern        queues with messages, all behind one subscription to a pattern
    memory         messages that wait in the queue, in memory
    store          the same in the store, with --data only: without waiting for the disk

The exit status is 1 where a message costs more than 1.5 times as much at the largest size as at
the smallest one. Figures of one run can be compared, those of two cannot. Times differ by a tenth
or two where others use the machine. To try::

    python -m benchmarks.growth --only patterns --only names --most 1000 --plot growth.svg
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import ClassVar, Final

from benchmarks._compiled import measure_compiled
from benchmarks._line_plot import Line, line_plot
from benchmarks._report import Bound, Figure, broken, make_parser, positive, progress, report
from stompkit.frames import Frame, encode
from stompkit.server import BrokerConfig
from stompkit.server.stores.lmdb import LmdbStore
from stompkit.testing.memory import MemoryBroker, MemoryClient

#: Largest permitted ratio of the cost at the largest size to that at the smallest.
MOST: Final = 1.5
BODY: Final = b"x" * 100
#: Frames that are written between two looks at the clock and at the output.
BATCH: Final = 100
#: Frames of a chunk outside of the measurement.
CHUNK: Final = 500
_HUGE: Final = 1 << 40
_ACK: Final = re.compile(rb"\nack:([^\n]+)\n")


def send(destination: str) -> bytes:
    return encode(Frame("SEND", {"destination": destination}, BODY), "1.2")


def write_all(client: MemoryClient, frames: Iterable[bytes]) -> float:
    """Write frames, each in its own chunk; return the processor seconds taken."""
    write, chunks = client.write, list(frames)
    began = time.process_time()
    for chunk in chunks:
        write(chunk)
    return time.process_time() - began


def received(client: MemoryClient) -> bytes:
    """Return the bytes that a client has received since the last call, and discard them."""
    return client.transport.take()


class Case(ABC):
    """A broker in which something grows, and a stream of messages through it."""

    name: ClassVar[str]
    title: ClassVar[str]
    sizes: ClassVar[tuple[int, ...]]

    def __init__(self, data: Path | None) -> None:
        """Create an empty broker; ``data`` is a directory for a store, if there is one."""
        config = BrokerConfig().changed(
            max_subscriptions=1_000_000,
            max_destinations=1_000_000,
            max_queue_messages=_HUGE,
            max_memory_queue_bytes=_HUGE,
        )
        store = None if data is None else LmdbStore(data, synchronous=False)
        self.broker = MemoryBroker(config, store=store)
        self.producer = self.broker.client()
        self.consumer = self.broker.client()
        self.size = 0

    @abstractmethod
    def grow(self, size: int) -> None:
        """Grow the broker to a size, which never shrinks."""

    @abstractmethod
    def run(self, messages: int) -> float:
        """Send and consume messages; return processor seconds. The size is the same afterwards."""

    def check(self, got: int, wanted: int) -> None:
        """End the program if not all messages have arrived."""
        if got != wanted:
            raise broken(f"{self.name}, {self.size:,}: {got:,} messages of {wanted:,} came")

    def close(self) -> None:
        """Stop the broker."""
        self.broker.broker.close()


class Queues(Case):
    """Many queues."""

    name = "queues"
    title = "queues"
    sizes = (1, 10, 100, 1_000, 10_000, 100_000)

    def __init__(self, data: Path | None) -> None:
        """Start without queues."""
        super().__init__(data)
        self._order: deque[int] = deque()

    def grow(self, size: int) -> None:
        """Subscribe to more queues."""
        for number in range(self.size, size):
            self.consumer.subscribe(f"/queue/orders.{number}", id=str(number))
        self.size = size
        order = list(range(size))
        random.Random(size).shuffle(order)
        self._order = deque(order)
        self.run(size)  # the first message creates more state of a queue

    def run(self, messages: int) -> float:
        """Send to all of them in turn, not in the order of their creation."""
        frames = []
        for _ in range(messages):
            frames.append(send(f"/queue/orders.{self._order[0]}"))
            self._order.rotate(-1)
        took_s = write_all(self.producer, frames)
        self.check(received(self.consumer).count(b"MESSAGE\n"), messages)
        return took_s


class OneQueue(Case):
    """A queue that is independent of what grows."""

    def __init__(self, data: Path | None) -> None:
        """Subscribe to it."""
        super().__init__(data)
        self.consumer.subscribe("/queue/orders", id="orders")

    def run(self, messages: int) -> float:
        """Send to the queue."""
        took_s = write_all(self.producer, [send("/queue/orders")] * messages)
        self.check(received(self.consumer).count(b"MESSAGE\n"), messages)
        return took_s


class Subscriptions(OneQueue):
    """Many subscriptions of one connection."""

    name = "subscriptions"
    title = "subscriptions to other queues"
    sizes = (1, 10, 100, 1_000, 10_000)

    def grow(self, size: int) -> None:
        """Subscribe to more queues."""
        for number in range(self.size, size):
            self.consumer.subscribe(f"/queue/other.{number}", id=str(number))
        self.size = size


class Patterns(OneQueue):
    """Many subscriptions to patterns."""

    name = "patterns"
    title = "subscriptions to patterns"
    sizes = (1, 10, 100, 1_000, 10_000)

    def grow(self, size: int) -> None:
        """Subscribe to more patterns, of all shapes."""
        shapes = ("{}.*", "*.{}", "orders.{}.>", "*.{}.#", "orders.*.{}")
        for number in range(self.size, size):
            levels = shapes[number % len(shapes)].format(f"shop-{number}")
            for kind in ("queue", "topic"):
                self.consumer.subscribe(f"/{kind}/{levels}", id=f"{kind}-{number}")
        self.size = size


class Names(Patterns):
    """Many subscriptions to patterns, and new names of destinations."""

    name = "names"
    title = "patterns, each name new"

    def run(self, messages: int) -> float:
        """Send to a topic without subscribers, which is removed after each message."""
        took_s = write_all(self.producer, [send("/topic/orders.eu.new")] * messages)
        self.check(received(self.consumer).count(b"MESSAGE\n"), 0)
        if self.producer.error is not None:
            raise broken(f"{self.name}: {self.producer.error!r:.200}")
        return took_s


class Acknowledged(Case):
    """Messages that wait, and a consumer that acknowledges one for each sent message."""

    #: Prefetch of the consumer.
    prefetch: ClassVar[int] = BATCH

    def __init__(self, data: Path | None) -> None:
        """Start without waiting messages."""
        super().__init__(data)
        self._keys: deque[bytes] = deque()

    def subscribe(self, name: str) -> None:
        """Subscribe with a prefetch, so that the consumer holds some messages."""
        prefetch = str(self.prefetch)
        self.consumer.subscribe(name, ack="client-individual", prefetch_count=prefetch)

    @abstractmethod
    def next_frame(self) -> bytes:
        """Return a SEND to the next queue."""

    def run(self, messages: int) -> float:
        """Send a batch, and acknowledge as many."""
        took_s, left = 0.0, messages
        while left:
            batch = min(left, BATCH)
            took_s += write_all(self.producer, [self.next_frame() for _ in range(batch)])
            took_s += self._take(batch)
            left -= batch
        return took_s

    def _take(self, messages: int) -> float:
        took_s, left = 0.0, messages
        while left:
            self._keys.extend(_ACK.findall(received(self.consumer)))
            batch = min(left, len(self._keys))
            if not batch:
                self.check(messages - left, messages)
            acks = [b"ACK\nid:%b\n\n\0" % self._keys.popleft() for _ in range(batch)]
            took_s += write_all(self.consumer, acks)
            left -= batch
        return took_s


class Pattern(Acknowledged):
    """Many queues behind one subscription to a pattern."""

    name = "pattern"
    title = "queues behind one pattern"
    sizes = (1, 10, 100, 1_000, 10_000, 100_000)

    def __init__(self, data: Path | None) -> None:
        """Subscribe to a pattern."""
        super().__init__(data)
        self._last = 0
        self.subscribe("/queue/>")

    def grow(self, size: int) -> None:
        """Put a message into more queues."""
        numbers = list(range(self.size, size))
        # More than the consumer takes at once, so that all queues have waiting messages.
        more = self.prefetch if not self.size else 0
        for number in [*numbers, *numbers[:1] * more]:
            self.producer.write(send(f"/queue/orders.{number}"))
        self.size = size
        self.run(size)  # each queue has been served once, which determines the order

    def next_frame(self) -> bytes:
        """Return a SEND to the queues, round robin."""
        self._last = (self._last + 1) % self.size
        return send(f"/queue/orders.{self._last}")


class Stored(Acknowledged):
    """Many messages in one queue, in memory."""

    name = "memory"
    title = "messages stored in memory"
    sizes = (0, 1_000, 10_000, 100_000, 1_000_000)

    def __init__(self, data: Path | None) -> None:
        """Subscribe to the queue."""
        super().__init__(data)
        self._frame = send("/queue/orders")
        self.subscribe("/queue/orders")

    def grow(self, size: int) -> None:
        """Send more than is consumed."""
        for number in range(self.size, size, CHUNK):
            self.producer.write(self._frame * min(CHUNK, size - number))
            if number % 10_000 == 0:
                progress(f"{self.name}: {number:,} of {size:,}")
        self.size = size

    def next_frame(self) -> bytes:
        """Return the same SEND each time."""
        return self._frame


class Persistent(Stored):
    """Many messages in one queue, in the store."""

    name = "store"
    title = "messages stored with --data"


CASES: Final[dict[str, type[Case]]] = {
    each.name: each
    for each in (Queues, Subscriptions, Patterns, Names, Pattern, Stored, Persistent)
}


def measure(case: Case, sizes: Iterable[int], rounds: int, messages: int) -> dict[int, float]:
    """Return the cost at each size: the median of the rounds, in microseconds per message."""
    costs: dict[int, float] = {}
    for size in sizes:
        progress(f"{case.name}: growing to {size:,}")
        case.grow(size)
        case.run(messages)  # a warm-up round, which allocates memory
        times_s = []
        for number in range(rounds):
            progress(f"{case.name}, {size:,}: {number} of {rounds} rounds")
            times_s.append(case.run(messages))
        costs[size] = median(times_s) / messages * 1e6
    return costs


def measured(name: str, given: argparse.Namespace) -> dict[int, float]:
    """Create a case and measure it at the wanted sizes."""
    sizes = [size for size in CASES[name].sizes if size <= given.most]
    if name != Persistent.name:
        case = CASES[name](None)
        costs = measure(case, sizes, given.rounds, given.messages)
        case.close()
        return costs
    with tempfile.TemporaryDirectory(prefix="stompkit-growth-", dir=given.data) as directory:
        case = Persistent(Path(directory))
        costs = measure(case, sizes, given.rounds, given.messages)
        case.close()
        return costs


def options() -> argparse.ArgumentParser:
    parser = make_parser("growth", str(__doc__))
    add = parser.add_argument
    add("--only", action="append", choices=CASES, help="this case, or these (default: all)")
    add("--data", type=Path, metavar="DIR", help="measure the store, too, in a new folder in DIR")
    add("--most", type=positive, default=1_000_000, help="sizes up to it (default: %(default)s)")
    add("--messages", type=positive, default=5_000, help="of a round (default: %(default)s)")
    add("--rounds", type=positive, default=5, help="at each size (default: %(default)s)")
    add("--plot", type=Path, metavar="FILE", help="draw the costs into FILE, as SVG")
    return parser


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = options()
    given = parser.parse_args()
    measure_compiled("benchmarks.growth")
    names = [name for name in given.only or CASES if name != Persistent.name or given.data]
    if not names:
        parser.error("store needs --data")
    figures, bounds, lines = [], [], []
    for name in names:
        costs, title = measured(name, given), CASES[name].title
        figures += [
            Figure(f"{name}_{size}_us", f"{size:>9,} {title}, us", cost, ",.1f")
            for size, cost in costs.items()
        ]
        lines.append(Line(title, list(costs.items())))
        smallest, *_, largest = costs
        ratio = costs[largest] / costs[smallest]
        text = f"{title}, {largest:,} beside {smallest:,}, times"
        figures.append(Figure(f"{name}_ratio", text, ratio, ".2f"))
        bounds.append(Bound(figures[-1], MOST))
    if given.plot:
        plot = line_plot("Processor time per message", "how many", "microseconds", lines)
        given.plot.write_text(plot, encoding="utf-8")
    return report(parser, given.json, figures, bounds)


if __name__ == "__main__":
    sys.exit(main())
