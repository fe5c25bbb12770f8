"""What many idle connections cost: memory for each, time to open them, and a message among them.

The connections are opened and logged in; with --subscribe, each then subscribes to a queue of its
own. While all are open, messages go from one more connection to some of them; in the end all have
to be open still, without having got anything else.

Memory is that of the broker's process; what the kernel keeps for the sockets comes on top. The
clients want no heart-beats and send none. Each connection takes an open file in both processes:
this one raises its limit if need be, and the broker inherits it. To try::

    python -m benchmarks.connections --connections 500 --subscribe
"""

from __future__ import annotations

import select
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks._client import Client, RefusedError, message, number_of
from benchmarks._compiled import measure_compiled
from benchmarks._process import MIB, allow_open_files, memory, process_id, start
from benchmarks._report import Bound, Figure, broken, make_parser, positive, progress, report
from stompkit.testing import BrokerError, RunningBroker

#: Connections that wait for CONNECTED at a time: fewer than the listen queue of the kernel, or some
#: would be retried a second later.
BATCH: Final = 32
#: Connections from one address: below its number of ports, and below the broker's default limit.
PER_ADDRESS: Final = 5_000
#: Other open files of each process, and other connections that the broker accepts.
SPARE: Final = 100
#: Messages sent to idle connections, one after the other.
ROUND_TRIPS: Final = 100


def queue(number: int) -> str:
    return f"/queue/idle.{number}"


def batches(count: int, doing: str) -> Iterator[range]:
    """Yield ``count`` numbers in small ranges, and show the progress."""
    for begin in range(0, count, BATCH):
        progress(f"{doing}: {begin:,} of {count:,}")
        yield range(begin, min(begin + BATCH, count))


def opened(port: int, count: int) -> list[Client]:
    """Open the connections and yield their clients."""
    clients: list[Client] = []
    for numbers in batches(count, "connecting"):
        new = [Client(port, source=f"127.0.0.{1 + n // PER_ADDRESS}") for n in numbers]
        clients += [client.log_in() for client in new]
    return clients


def subscribe(clients: Sequence[Client], numbers: Sequence[int]) -> None:
    """Subscribe some of the clients, each to its queue."""
    for places in batches(len(numbers), "subscribing"):
        some = [numbers[place] for place in places]
        for number in some:
            headers = {"id": "1", "destination": queue(number), "receipt": "r"}
            clients[number].send("SUBSCRIBE", headers)
        for number in some:
            clients[number].expect("RECEIPT")


def round_trips(port: int, clients: Sequence[Client], numbers: Sequence[int]) -> list[float]:
    """Send a message to each of some clients; return the milliseconds from SEND to MESSAGE."""
    sender = Client(port).log_in()
    times_ms = []
    for number in numbers:
        progress("sending messages")
        octets = message(queue(number), number, 1_024)
        began = time.perf_counter()
        sender.write(octets)
        frame = clients[number].expect("MESSAGE")
        times_ms.append((time.perf_counter() - began) * 1e3)
        if number_of(frame) != number:
            raise RefusedError(f"message {number} is to come, not {frame!r:.200}")
    sender.close()
    return times_ms


def disturbed(clients: Sequence[Client]) -> int:
    """Return the number of clients that were closed by the broker or have data to read."""
    poll = select.poll()
    for client in clients:
        poll.register(client.socket, select.POLLIN)
    return len(poll.poll(0))


def opening(pid: int, port: int, count: int) -> tuple[list[Client], list[Figure]]:
    """Open the connections and measure it."""
    before = memory(pid)
    began = time.perf_counter()
    clients = opened(port, count)
    took_s = time.perf_counter() - began
    after = memory(pid)
    each_kib, each_resident_kib = (
        (now - then) / count / 1024 for now, then in zip(after, before, strict=True)
    )
    return clients, [
        Figure("connect_s", "Opening all, s", took_s, ",.1f"),
        Figure("connect_per_s", "Connections opened per second", count / took_s),
        Figure("memory_before_mib", "Anonymous memory before, MiB", before[0] / MIB, ",.1f"),
        Figure("memory_open_mib", "Anonymous memory with all open, MiB", after[0] / MIB, ",.1f"),
        Figure("each_kib", "A connection, anonymous memory, KiB", each_kib, ",.1f"),
        Figure("each_resident_kib", "A connection, all memory, KiB", each_resident_kib, ",.1f"),
    ]


def measure(broker: RunningBroker, count: int, *, subscribes: bool) -> list[Figure]:
    """Open the connections and use some."""
    pid = process_id(broker)
    clients, figures = opening(pid, broker.port, count)
    before = memory(pid)[0]
    some = range(0, count, -(-count // ROUND_TRIPS))
    subscribe(clients, range(count) if subscribes else some)
    if subscribes:
        each_kib = (memory(pid)[0] - before) / count / 1024
        title = "A subscription and its queue, anonymous memory, KiB"
        figures.append(Figure("subscription_kib", title, each_kib, ",.1f"))
    first_ms, *others_ms = round_trips(broker.port, clients, [*some, some[0]])
    figures += [
        Figure("first_ms", "First message, from SEND to MESSAGE, ms", first_ms, ",.2f"),
        Figure("median_ms", "Messages after it, median, ms", median(others_ms), ",.2f"),
        Figure("max_ms", "Messages after it, maximum, ms", max(others_ms), ",.2f"),
        Figure("disturbed", "Connections lost, or sent what isn't theirs", disturbed(clients)),
    ]
    for client in clients:
        client.close()
    return figures


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = make_parser("connections", str(__doc__))
    add = parser.add_argument
    add("--connections", type=positive, default=10_000, help="to open (default: %(default)s)")
    add("--subscribe", action="store_true", help="subscribe each to a queue of its own")
    given = parser.parse_args()
    measure_compiled("benchmarks.connections")
    allowed = given.connections + SPARE
    allow_open_files(allowed)
    with tempfile.TemporaryDirectory(prefix="stompkit-connections-") as name:
        try:
            with start(Path(name), "--max-connections", str(allowed)) as broker:
                figures = measure(broker, given.connections, subscribes=given.subscribe)
        except (RefusedError, BrokerError, OSError) as error:
            raise broken(str(error)) from error
    return report(parser, given.json, figures, [Bound(figures[-1], 0)])


if __name__ == "__main__":
    sys.exit(main())
