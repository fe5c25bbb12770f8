"""What thousands of hostile connections cost a client that behaves.

The client sends at a steady rate, half of its messages to a queue in memory and half to one that
is kept, each with a receipt, and consumes and acknowledges them. The time from SEND to RECEIPT and
that from SEND to MESSAGE are taken. Rounds without and with the others alternate. Each message has
to be receipted, and to come once and in its order, or the program ends at once with status 1.

The others are a process that gets the time that nobody else wants (benchmarks/_crowd.py). Once they
are there it does no more than --actions in a second: it opens connections, or sends octets, of all
of them together. Of 1,000

* 200 say nothing; 200 send CONNECT an octet at a time, until their time for the login is over;
* 150 guess passcodes, each time another one; 50 do so in a CONNECT as large as it may be;
* 50 send octets that are no STOMP; 50 connect and close, or reset, and come again;
* 100 have logged in and send a thousand heart-beats a second; 100 a body, an octet at a time; and
  100 have subscribed to a topic, and never read what one of them sends there.

Whoever is closed comes again. They come from 64 addresses, and passcodes are hashed at the default
cost. What the others have done and used of a processor is part of the figures, so that one can see
whether they did their work, and whether there was room for it. After a round they all leave at
once; what the client sees of that is a figure without a bound. To try::

    python -m benchmarks.hostile --connections 1000 --rounds 2 --seconds 5

Linux may give each session the same share of the processors (autogroup in sched(7)). What nobody
else wants counts within a session only then: broker and client would wait for milliseconds while
the others, who in truth are on other machines, are at work. As root, before the program::

    sysctl kernel.sched_autogroup_enabled=0
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

from benchmarks._client import Client, RefusedError, message, number_of
from benchmarks._compiled import measure_compiled
from benchmarks._crowd import NEIGHBOUR
from benchmarks._process import allow_open_files, process_id, processes, start
from benchmarks._report import Bound, Figure, broken, make_parser, positive, progress, report
from stompkit.server.operations import hash_passcode
from stompkit.testing import BrokerError, RunningBroker

QUEUES: Final = {"memory": "/queue/brief", "kept": "/queue/kept"}
LOGIN: Final = "shop:behaves-well"
#: Largest permitted ratio of the 99th percentile to that without hostile connections.
MOST: Final = 2.0
#: Longest time until the last delivery after the last SEND, in seconds.
END_S: Final = 30.0
#: Other open files of the processes, and connections that are not hostile.
SPARE: Final = 200
#: Time of the measurement while the hostile connections leave, in seconds.
LEAVING_S: Final = 2
#: Longest time until all hostile connections are open or closed, in seconds.
PATIENCE_S: Final = 120.0
#: File that shows whether the kernel divides processors among sessions.
AUTOGROUP: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")
#: Interval in seconds of the test for an idle broker, and its permitted processor use.
LOOK_S: Final = 0.5
IDLE_CORES: Final = 0.05

CONFIG: Final = """\
[broker]
max_connections = {most}
max_connections_per_address = {most}

[[destination]]
name = "/queue/brief"
storage = "memory"

[store]
path = "{data}"

[auth]
checkers = ["stompkit:{users}"]
# For the look whether it has begun to listen.
anonymous = true
"""


class Round(NamedTuple):
    """The times of one round in milliseconds, by kind."""

    times_ms: dict[str, list[float]]

    def percentile(self, what: str, n: int) -> float:
        """Return a percentile of one kind."""
        return quantiles(self.times_ms[what], n=100, method="inclusive")[n - 1]


#: Kinds of times, by event and queue.
WAITED: Final = tuple(f"{what}_{where}" for where in QUEUES for what in ("receipt", "message"))


class Measured(NamedTuple):
    """All rounds: those without hostile connections, with them, and while they leave."""

    without: list[Round]
    with_others: list[Round]
    leaving: list[Round]
    #: Counters and costs of the hostile connections, by name.
    done: list[dict[str, float]]


class Shop:
    """The well-behaved client: a connection that sends, and one that consumes."""

    def __init__(self, port: int) -> None:
        """Log in and subscribe."""
        self._port = port
        self._producer = Client(port, login=LOGIN).log_in()
        self._consumer = Client(port, login=LOGIN).log_in()
        for where, queue in QUEUES.items():
            headers = {"id": where, "destination": queue, "ack": "client-individual"}
            self._consumer.send("SUBSCRIBE", {**headers, "receipt": where})
            self._consumer.expect("RECEIPT")
        self._selector = selectors.DefaultSelector()
        for client in (self._producer, self._consumer):
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        self._sent = 0
        self._next = {where: index for index, where in enumerate(QUEUES)}

    def run(self, rate_per_s: int, seconds: int, body_bytes: int) -> Round:
        """Send for a while, and wait for all messages; raise RefusedError and TimeoutError."""
        first, count = self._sent, rate_per_s * seconds
        times: dict[str, list[float]] = {what: [] for what in WAITED}
        sent_at: dict[int, float] = {}
        places = list(QUEUES)
        expected, came = 2 * count, 0
        began = time.perf_counter()
        ends = began + seconds + END_S
        while came < expected:
            now = time.perf_counter()
            if now > ends:
                raise TimeoutError(f"{expected - came} of {expected} receipts and messages lost")
            due = ends
            if (number := self._sent) < first + count:
                due = began + (number - first) / rate_per_s
                if now >= due:
                    queue = QUEUES[places[number % 2]]
                    octets = message(queue, number, body_bytes, receipt=str(number))
                    sent_at[number] = now
                    self._sent += 1
                    self._producer.write(octets)
            for what, number, at in self._read(max(0.0, due - now)):
                times[f"{what}_{places[number % 2]}"].append((at - sent_at[number]) * 1e3)
                came += 1
        return Round(times)

    def _read(self, timeout_s: float) -> Iterator[tuple[str, int, float]]:
        """Yield the received receipts and messages: the kind, the number and the time of each."""
        for key, _ in self._selector.select(timeout_s):
            client: Client = key.data
            data, now = client.read(), time.perf_counter()
            acks = []
            for frame in client.decode(data):
                if frame.command == "RECEIPT":
                    yield "receipt", int(frame.headers["receipt-id"]), now
                    continue
                number, where = number_of(frame), frame.headers["subscription"]
                if number != self._next[where] or "redelivered" in frame.headers:
                    raise RefusedError(f"message {self._next[where]} is to come, not {number}")
                self._next[where] += len(QUEUES)
                acks.append(b"ACK\nid:%s\n\n\0" % frame.headers["ack"].encode())
                yield "message", number, now
            if acks:
                client.write(b"".join(acks))

    def close(self) -> None:
        """Close both connections."""
        self._selector.close()
        self._producer.close()
        self._consumer.close()

    def left(self) -> int:
        """Stop consuming; return the number of messages left, 0 if all were acknowledged."""
        self._consumer.close()
        browser = Client(self._port, login=LOGIN).log_in()
        found = 0
        for where, queue in QUEUES.items():
            browser.send("SUBSCRIBE", {"id": where, "destination": queue, "browser": "true"})
            is_over = False
            while not is_over:
                frames = [frame.headers.get("browser") for frame in browser.receive()]
                is_over = "end" in frames
                found += len(frames) - is_over
        browser.close()
        return found


@contextlib.contextmanager
def crowd(
    port: int, given: argparse.Namespace, into: list[dict[str, float]]
) -> Iterator[Callable[[], None]]:
    """Start the hostile connections; yield a function that ends them.

    Append the counters of their actions to a list.
    """
    command = [sys.executable, "-m", "benchmarks._crowd", "--port", str(port)]
    command += ["--connections", str(given.connections), "--rate", str(given.actions)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RefusedError("the others could not come")
            assert process.stdin is not None
            yield process.stdin.close
            process.stdin = None
            said, _ = process.communicate(timeout=PATIENCE_S)
            into.append(json.loads(said))
        finally:
            process.kill()


def used_s(pid: int) -> float:
    """Return the processor time in seconds of a broker and its password-hashing processes."""
    everybody = processes()
    return sum(each.own_s for number, each in everybody.items() if pid in (number, each.parent))


def wait_until_gone(broker: RunningBroker) -> None:
    """Wait until a broker has few connections, and is idle; raise TimeoutError.

    It verifies passcodes of some closed connections until their login timeout.
    """
    pid = process_id(broker)
    files = Path(f"/proc/{pid}/fd")
    ends = time.monotonic() + PATIENCE_S
    is_over = False
    while not is_over:
        if time.monotonic() > ends:
            raise TimeoutError("others are still connected, or still cost the broker time")
        before_s = used_s(pid)
        time.sleep(LOOK_S)
        is_idle = used_s(pid) - before_s < IDLE_CORES * LOOK_S
        is_over = is_idle and len(list(files.iterdir())) < SPARE


def measure(broker: RunningBroker, given: argparse.Namespace) -> Measured:
    """Run all rounds."""
    measured = Measured([], [], [], [])
    without, with_others, leaving, done = measured
    shop = Shop(broker.port)
    pid = process_id(broker)
    gc.disable()
    shop.run(given.rate, 1, given.body_bytes)
    for number in range(given.rounds):
        progress(f"round {number + 1} of {given.rounds}, without")
        without.append(shop.run(given.rate, given.seconds, given.body_bytes))
        progress(f"round {number + 1} of {given.rounds}, others come")
        with crowd(broker.port, given, done) as leave:
            progress(f"round {number + 1} of {given.rounds}, with others")
            before, began = used_s(pid), time.monotonic()
            with_others.append(shop.run(given.rate, given.seconds, given.body_bytes))
            cost_s, took_s = used_s(pid) - before, time.monotonic() - began
            leave()
            progress(f"round {number + 1} of {given.rounds}, others leave")
            leaving.append(shop.run(given.rate, LEAVING_S, given.body_bytes))
        done[-1]["broker_cores"] = cost_s / took_s
        wait_until_gone(broker)
    if left := shop.left():
        raise RefusedError(f"{left} messages are left in the queues, and should not be")
    return measured


def compared(measured: Measured) -> tuple[list[Figure], list[Bound]]:
    """Return the figures and bounds of all rounds."""
    without, with_others, leaving, done = measured
    figures, bounds = [], []
    for what in WAITED:
        word = what.replace("_", ", ")
        for n in (50, 99):
            normal_ms, hostile_ms = (
                median(each.percentile(what, n) for each in rounds)
                for rounds in (without, with_others)
            )
            figures += [
                Figure(f"{what}_p{n}_without_ms", f"{word}: p{n} without, ms", normal_ms, ",.3f"),
                Figure(f"{what}_p{n}_with_ms", "  with hostile ones, ms", hostile_ms, ",.3f"),
            ]
        ratio = Figure(
            f"{what}_p99_ratio",
            f"{word}: p99 in times that without",
            hostile_ms / normal_ms,
            ",.2f",
        )
        leaving_ms = median(each.percentile(what, 99) for each in leaving)
        figures.append(ratio)
        figures.append(
            Figure(f"{what}_p99_leaving_ms", "  while they leave, ms", leaving_ms, ",.3f")
        )
        bounds.append(Bound(ratio, MOST))

    def done_of(name: str) -> float:
        return median(each.get(name, 0.0) for each in done)

    figures += [
        Figure("open", "Hostile connections open", done_of("open")),
        Figure("opened_per_s", "  opened per second", done_of("opened")),
        Figure("closed_per_s", "  closed by the broker per second", done_of("closed")),
        Figure("acted_per_s", "  other actions per second", done_of("acted")),
        Figure("crowd_cores", "  processors that they have used", done_of("cores"), ",.2f"),
        Figure(
            "broker_cores", "Processors that the broker has used", done_of("broker_cores"), ",.2f"
        ),
    ]
    return figures, bounds


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = make_parser("hostile", str(__doc__))
    add = parser.add_argument
    add("--connections", type=positive, default=10_000, help="hostile ones (default: %(default)s)")
    add("--actions", type=positive, default=500, help="of theirs in a second (%(default)s)")
    add("--rate", type=positive, default=1_000, help="messages per second (default: %(default)s)")
    add("--seconds", type=positive, default=20, help="of a round (default: %(default)s)")
    add("--rounds", type=positive, default=5, help="of each kind (default: %(default)s)")
    add("--body-bytes", type=positive, default=1_024, help="of a message (default: %(default)s)")
    given = parser.parse_args()
    measure_compiled("benchmarks.hostile")
    shares = AUTOGROUP.exists() and AUTOGROUP.read_text(encoding="ascii").strip() != "0"
    if shares:
        print("Sessions have shares of the processors here: see --help", flush=True)
    most = given.connections + SPARE
    allow_open_files(most + SPARE)
    with tempfile.TemporaryDirectory(prefix="stompkit-hostile-") as name:
        folder = Path(name)
        users, config = folder / "users", folder / "stompkit.toml"
        lines = (login.partition(":") for login in (LOGIN, NEIGHBOUR))
        users.write_text("".join(f"{user}:{hash_passcode(word)}\n" for user, _, word in lines))
        text = CONFIG.format(most=most, data=folder / "data", users=users)
        config.write_text(text, encoding="utf-8")
        try:
            with start(folder / "run", "--config", str(config)) as broker:
                found = measure(broker, given)
        except (RefusedError, BrokerError, OSError) as error:
            raise broken(str(error)) from error
    figures, bounds = compared(found)
    return report(parser, given.json, figures, bounds, sessions_have_shares=shares)


if __name__ == "__main__":
    sys.exit(main())
