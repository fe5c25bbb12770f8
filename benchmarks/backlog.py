"""What a long backlog costs: memory, disk, the start after a crash, and emptying the queue.

One persistent queue that nobody reads is filled, each message with a receipt, which the broker
sends when the message is on the disk. Then the broker is killed as kill -9 does, is started again
on its data, and the queue is emptied with acknowledgements: every message has to come, once and
in its order.

The start is timed from before its process is launched, under the guard that the tests use, to the
first MESSAGE. Memory is the broker's anonymous memory: pages of the store's file that are mapped
into the process can be dropped by the system at any time, and are not counted. To try::

    python -m benchmarks.backlog --messages 50000
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks._client import Client, RefusedError, fill, number_of
from benchmarks._compiled import measure_compiled
from benchmarks._process import MIB, Watch, disk_bytes, memory, process_id, start
from benchmarks._report import (
    Bound,
    Figure,
    broken,
    make_parser,
    positive,
    progress,
    report,
    unusable,
)
from stompkit.frames import Frame
from stompkit.testing import BrokerError, RunningBroker

QUEUE: Final = "/queue/backlog"
#: Most unacknowledged deliveries.
PREFETCH: Final = 1_000
#: Free disk space needed before the start, as a multiple of the bodies' size.
ROOM: Final = 4


def put(broker: RunningBroker, before: int, given: argparse.Namespace) -> list[Figure]:
    """Fill the queue; ``before`` is the memory of an unused broker, in bytes."""
    pid, messages = process_id(broker), given.messages
    client = Client(broker.port).log_in()
    with Watch(pid) as watch:
        began = time.monotonic()
        fill(client, QUEUE, messages, given.body_bytes, given.window, tell_of("filling", messages))
        took_s = time.monotonic() - began
    client.close()
    after, growth = memory(pid)[0], watch.peak_bytes - before
    return [
        Figure("put_s", "Filling, s", took_s, ",.1f"),
        Figure("put_per_s", "Messages confirmed per second", messages / took_s),
        Figure("memory_before_mib", "Memory before, MiB", before / MIB, ",.1f"),
        Figure("memory_full_mib", "Memory with the queue full, MiB", after / MIB, ",.1f"),
        Figure("put_growth_mib", "Growth of memory while filling, MiB", growth / MIB, ",.1f"),
    ]


def tell_of(doing: str, messages: int) -> Callable[[int], None]:
    """Return a function that shows the progress, at most a thousand times."""
    step, shown = max(1, messages // 1_000), 0

    def tell(done: int) -> None:
        nonlocal shown
        if done - shown >= step or done == messages:
            progress(f"{doing}: {done:,} of {messages:,}")
            shown = done

    return tell


def first(broker: RunningBroker) -> tuple[Client, list[Frame]]:
    """Subscribe, and wait for the first messages."""
    client = Client(broker.port).log_in()
    headers = {"id": "1", "destination": QUEUE, "ack": "client"}
    client.send("SUBSCRIBE", headers | {"prefetch-count": str(PREFETCH)})
    while not (frames := client.receive()):
        pass
    return client, frames


def take(client: Client, frames: list[Frame], messages: int) -> None:
    """Acknowledge everything, beginning with ``frames``; raise RefusedError after a fault."""
    tell, taken = tell_of("emptying", messages), 0
    while True:
        for frame in frames:
            if frame.command != "MESSAGE" or number_of(frame) != taken or taken == messages:
                raise RefusedError(f"{taken:,} of {messages:,} came in order, then {frame!r:.200}")
            taken += 1
        tell(taken)
        if taken == messages:
            break
        if frames:
            client.send("ACK", {"id": frames[-1].headers["ack"]})
        frames = client.receive()
    client.send("ACK", {"id": frames[-1].headers["ack"], "receipt": "all"})
    client.expect("RECEIPT")
    # Other messages in the queue would arrive before this receipt.
    client.send("UNSUBSCRIBE", {"id": "1", "receipt": "end"})
    client.expect("RECEIPT")
    client.close()


def measure(directory: Path, given: argparse.Namespace) -> list[Figure]:
    """Fill, kill, start, empty."""
    data = directory / "data"
    arguments = ("--data", str(data), "--sync", "always")
    with start(directory, *arguments) as broker:
        before = memory(process_id(broker))[0]
        figures = put(broker, before, given)
        broker.kill()
    full = disk_bytes(data)
    progress("starting again")
    began = time.monotonic()
    with start(directory, *arguments) as broker:
        client, frames = first(broker)
        restart_s = time.monotonic() - began
        with Watch(process_id(broker)) as watch:
            began = time.monotonic()
            take(client, frames, given.messages)
            took_s = time.monotonic() - began
    growth, messages = watch.peak_bytes - before, given.messages
    return [
        *figures,
        Figure("disk_full_mib", "On the disk with the queue full, MiB", full / MIB),
        Figure("restart_s", "From launch to the first MESSAGE, s", restart_s, ",.2f"),
        Figure("take_s", "Emptying, s", took_s, ",.1f"),
        Figure("take_per_s", "Messages acknowledged per second", messages / took_s),
        Figure("take_growth_mib", "Growth of memory by emptying, MiB", growth / MIB, ",.1f"),
        Figure("disk_empty_mib", "On the disk when empty, MiB", disk_bytes(data) / MIB),
    ]


def options() -> argparse.ArgumentParser:
    parser = make_parser("backlog", str(__doc__))
    add = parser.add_argument
    add("--messages", type=positive, default=1_000_000, help="in the queue (default: %(default)s)")
    add("--body-bytes", type=positive, default=1_024, help="of a message (default: %(default)s)")
    add("--window", type=positive, default=1_000, help="unconfirmed SENDs (default: %(default)s)")
    add("--directory", type=Path, help="on the disk that is to be used (default: for temp files)")
    add("--max-growth-mib", type=float, default=100, help="of memory (default: %(default)s)")
    add("--max-restart-s", type=float, default=2, help="to a MESSAGE (default: %(default)s)")
    return parser


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = options()
    given = parser.parse_args()
    measure_compiled("benchmarks.backlog")
    with tempfile.TemporaryDirectory(prefix="stompkit-backlog-", dir=given.directory) as name:
        needed, free = ROOM * given.messages * given.body_bytes, shutil.disk_usage(name).free
        if needed > free:
            raise unusable(f"{name} has {free // MIB:,} MiB; {needed // MIB:,} MiB are needed")
        try:
            figures = measure(Path(name), given)
        except (RefusedError, BrokerError, OSError) as error:
            raise broken(str(error)) from error
    named = {figure.name: figure for figure in figures}
    bounds = [
        Bound(named["put_growth_mib"], given.max_growth_mib),
        Bound(named["take_growth_mib"], given.max_growth_mib),
        Bound(named["restart_s"], given.max_restart_s),
    ]
    return report(parser, given.json, figures, bounds)


if __name__ == "__main__":
    sys.exit(main())
