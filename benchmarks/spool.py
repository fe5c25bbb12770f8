"""How fast messages get from a broker into a spool, and from there to who reads them.

A broker in a process of its own, which keeps its messages in memory, gets so many messages; then a
receiver takes them into a spool, each group synced to the disk before it is acknowledged, and the
time is from its start until the last one is in the spool. That is done for each mode of
acknowledgements, and once without a broker: what the writer alone does with groups of this size.
Then the spool is read, block by block, with each checksum: from its folder, and from its server in
another process. Processor time is that of the process that receives or reads, in all of its
threads. Of the server it stands apart.

To try::

    python -m benchmarks.spool --messages 20000
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, get_args
from uuid import uuid4

from benchmarks._client import Client, fill
from benchmarks._process import start
from benchmarks._report import Figure, broken, make_parser, positive, progress, report
from stompkit.client import AckMode
from stompkit.client.blocking import BrokerUrl
from stompkit.spool import Record, ServerAccess, SpoolReader, SpoolWriter
from stompkit.spool.receiver import Receiver
from stompkit.testing import RunningBroker

#: Longer than anything takes, in seconds.
_TIMEOUT_S: Final = 600.0
#: Most messages to the broker without a receipt.
_WINDOW: Final = 500
_QUEUE: Final = "/queue/spool"
_MODES: Final[tuple[AckMode, ...]] = get_args(AckMode)


class Measured(NamedTuple):
    """The results of one run."""

    seconds: float
    processor_s: float


def receive(broker: RunningBroker, folder: Path, mode: AckMode, messages: int) -> Measured:
    """Receive all messages of the broker into a new spool."""
    done = threading.Event()
    with SpoolWriter(folder) as writer:

        def count(_: int, __: int) -> None:
            progress(f"{mode}: {writer.head[0]:,} of {messages:,} received")
            if writer.head[0] >= messages:
                done.set()

        source = BrokerUrl(hosts=(f"{broker.host}:{broker.port}",))
        receiver = Receiver(source, [_QUEUE], writer, ack=mode, on_group=count)
        begun, processor_s = time.perf_counter(), time.process_time()
        receiver.start()
        if not done.wait(_TIMEOUT_S):
            raise broken(f"{writer.head[0]} of {messages} messages have come")
        measured = Measured(time.perf_counter() - begun, time.process_time() - processor_s)
        receiver.stop()
        receiver.join(_TIMEOUT_S)
        if writer.head[0] != messages:
            raise broken(f"{writer.head[0]} messages have come instead of {messages}")
    return measured


def append(folder: Path, messages: int, body_bytes: int, group: int) -> Measured:
    """Write as many messages without a broker."""
    body = b"x" * body_bytes
    headers = (("destination", _QUEUE), ("subscription", "1"), ("message-id", "m"))
    groups = [
        [
            Record(0, _QUEUE, f"m{number}", "", "", headers, body)
            for number in range(first, min(first + group, messages))
        ]
        for first in range(0, messages, group)
    ]
    with SpoolWriter(folder) as writer:
        begun, processor_s = time.perf_counter(), time.process_time()
        for each in groups:
            writer.append(each)
        return Measured(time.perf_counter() - begun, time.process_time() - processor_s)


def read(folder: Path, messages: int) -> Measured:
    """Read all blocks of a spool."""
    begun, processor_s = time.perf_counter(), time.process_time()
    reader = SpoolReader(folder)
    count = sum(block.count for block in reader.blocks(0, 0, messages))
    measured = Measured(time.perf_counter() - begun, time.process_time() - processor_s)
    if count != messages:
        raise broken(f"{count} messages are in the spool instead of {messages}")
    return measured


def read_served(folder: Path, messages: int) -> tuple[Measured, Measured]:
    """Read all blocks of a spool from its server; return what the reader and the server take."""
    token_file = folder.with_name(f"{folder.name}-token")
    token_file.write_text(f"{uuid4().hex}\n")
    program = "import sys; from stompkit._commands import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "spool", "serve", str(folder)]
    command += ["--listen", "0", "--token-file", str(token_file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            access = ServerAccess(token_file.read_text().strip())
            before_s = _processor_s(process.pid)
            begun, processor_s = time.perf_counter(), time.process_time()
            reader = SpoolReader(url, access=access)
            count = sum(block.count for block in reader.blocks(0, 0, messages))
            took_s = time.perf_counter() - begun
            measured = Measured(took_s, time.process_time() - processor_s)
            server = Measured(took_s, _processor_s(process.pid) - before_s)
        finally:
            process.kill()
    if count != messages:
        raise broken(f"{count} messages came from the server instead of {messages}")
    return measured, server


def _processor_s(pid: int) -> float:
    """Return the processor time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures(name: str, title: str, runs: list[Measured], messages: int) -> list[Figure]:
    """Return the medians of some runs."""
    rate = median(messages / each.seconds for each in runs)
    processor_us = median(each.processor_s / messages * 1e6 for each in runs)
    return [
        Figure(f"{name}_messages_per_s", f"{title}, messages per second", rate),
        Figure(f"{name}_processor_us", f"{title}, microseconds each", processor_us, ",.1f"),
    ]


def main() -> int:
    """Measure and print."""
    parser = make_parser("spool", __doc__ or "")
    parser.add_argument("--messages", type=positive, default=100_000, metavar="N")
    parser.add_argument("--body-bytes", type=positive, default=200, metavar="N")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N")
    options = parser.parse_args()
    messages, body_bytes = options.messages, options.body_bytes
    runs: dict[str, list[Measured]] = {}

    def sent(count: int) -> None:
        progress(f"{count:,} of {messages:,} sent")

    with tempfile.TemporaryDirectory(prefix="stompkit-") as name:
        directory = Path(name)
        for number in range(options.repeats):
            for mode in _MODES:
                folder = directory / f"{mode}-{number}"
                broker_directory = directory / f"broker-{mode}-{number}"
                broker_directory.mkdir()
                with start(broker_directory) as broker:
                    sending = Client(broker.port).log_in()
                    fill(sending, _QUEUE, messages, body_bytes, _WINDOW, sent)
                    sending.close()
                    runs.setdefault(mode, []).append(receive(broker, folder, mode, messages))
            alone = append(directory / f"alone-{number}", messages, body_bytes, 500)
            runs.setdefault("alone", []).append(alone)
            runs.setdefault("reading", []).append(read(folder, messages))
            reader, server = read_served(folder, messages)
            runs.setdefault("served", []).append(reader)
            runs.setdefault("serving", []).append(server)
    titles: dict[str, str] = {mode: f"received, {mode}" for mode in _MODES}
    titles |= {"alone": "written without a broker", "reading": "read by blocks"}
    titles |= {"served": "read from its server", "serving": "the same, at the server"}
    found = [
        figure
        for each, title in titles.items()
        for figure in figures(each.replace("-", "_"), title, runs[each], messages)
    ]
    return report(parser, options.json, found, [])


if __name__ == "__main__":
    sys.exit(main())
