"""What it costs replicas to catch up, and a session to commit where there is one.

Two nodes with files of SQLite make changesets while they are offline, of one row each: nine of ten
write rows of the node's own, five times each, and the tenth one of a hundred rows that both write.
Then each is run in a process of its own, and the two get all from each other over a broker, which
is a third process. That is done again with a tenth as many on top, so that the history is long and
the difference is not. Time is from when both are told to begin until both have
everything. A client
that hears all that is sent counts messages and the octets of their frames, each once; memory is
what a node's process has allocated, at the most.

Then a session commits one new row at a time, watched by a replica and not, taking turns. No file
waits for the disk.

To try::

    python -m benchmarks.replica --changesets 2000 --commits 200
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Engine, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from benchmarks._client import Client
from benchmarks._process import MIB, Watch, memory, start
from benchmarks._report import Bound, Figure, broken, make_parser, positive, progress, report
from stompkit.replica import Replica, Rules
from stompkit.replica.applier import Applier, Incoming
from stompkit.replica.clock import HybridClock
from stompkit.replica.data.sql import SqlData
from stompkit.replica.signed import SignedChangeset
from stompkit.replica.store import Store
from stompkit.replication.model.events import Changeset, Revision, RowChange, Source
from stompkit.replication.model.values import Value
from stompkit.testing import RunningBroker
from tests.replica.notes import make_engine, sqlite_url

#: Largest permitted ratio of a changeset's cost with a history to that without one.
MORE: Final = 1.5
#: Messages of the second run beyond its share: those that exchange the state of the nodes.
MESSAGES: Final = 40
#: Ratio of the changesets of the first run to those of the second.
PART: Final = 10
#: Changesets of one database transaction while filling.
_FILLED: Final = 1000
_SHARED: Final = 100
#: Longer than a run ever takes, in seconds.
_TIMEOUT_S: Final = 7200.0
_BRANCHES: Final = ("A", "B")


class _Base(DeclarativeBase):
    """Base of the tables of the application."""


class Part(_Base):
    """A written row."""

    __tablename__ = "parts"

    id: Mapped[str] = mapped_column(String(50), primary_key=True)
    name: Mapped[str | None] = mapped_column(String(50))
    amount: Mapped[int | None]
    note: Mapped[str | None] = mapped_column(String(100))


class _Order(msgspec.Struct):
    """Parameters of a node's process."""

    url: str
    settings: dict[str, Any]


class Measured(NamedTuple):
    """The results of one run."""

    seconds: float
    #: Seconds of processor time of both nodes.
    processor_s: float
    messages: int
    octets: int
    #: Peak memory of a node's process, and its growth since the start.
    peak_bytes: int
    growth_bytes: int


class _Listener:
    """Counts the messages that are sent to destinations."""

    def __init__(self, port: int, destinations: list[str]) -> None:
        """Subscribe to them."""
        self.messages = 0
        self.octets = 0
        self._client = Client(port).log_in()
        for number, destination in enumerate(destinations):
            headers = {"id": str(number), "destination": destination, "receipt": str(number)}
            self._client.send("SUBSCRIBE", headers)
            self._client.expect("RECEIPT")
        self._client.socket.settimeout(None)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while octets := self._client.socket.recv(1 << 18):
                self.octets += len(octets)
                # A frame has no other NUL byte, as bodies are text.
                self.messages += octets.count(0)


def fill_both(urls: list[str], first: int, last: int, own: int) -> None:
    """Fill the databases of both nodes at the same time."""
    with ProcessPoolExecutor(len(urls), get_context("spawn")) as pool:
        jobs = [
            pool.submit(fill, url, branch, first, last, own)
            for url, branch in zip(urls, _BRANCHES, strict=True)
        ]
        for job in jobs:
            job.result()


def fill(url: str, branch: str, first: int, last: int, own: int) -> None:
    """Write changesets with these numbers, without publishing them.

    They are built here, each on top of the one before, and applied many at a time, as those of
    other nodes are. Single commits would take longer, and are not measured.
    """
    engine = make_engine(url)
    _Base.metadata.create_all(engine)
    replica = Replica(engine, _Base.metadata, branch_id=branch)
    replica.create()
    store = Store(engine)
    data = SqlData(engine, list(_Base.metadata.tables.values()))
    applier = Applier(data, Rules(), wall=time.time, save_history=True)
    with store.reading() as reader:
        tip = reader.meta("tip") or {"heads": [], "hlc": 0}
        rows: dict[str, dict[str, Value]] = {
            str(key["id"]): values
            for key, values in data.read(reader.connection, "parts", limit=1 << 40)
        }
        known = reader.origins().get(replica.origin)
    clock = HybridClock(time.time, tip["hlc"])
    context = {name: number for name, number in replica.vector.items() if name != replica.origin}
    parents, previous = tuple(sorted(tip["heads"])), "" if known is None else known.last_id
    made: list[Incoming] = []
    for number in range(first, last + 1):
        shared = f"shared {number // 10 % _SHARED}"
        key = shared if number % 10 == 0 else f"{branch} {number % own}"
        after: dict[str, Value] = {"name": f"name {number}", "amount": number, "note": "x" * 40}
        before = rows.get(key)
        changed = {"name": after["name"], "amount": number}
        change = RowChange(
            table="parts",
            action="write" if before is None else "update",
            key={"id": key},
            before=before and {name: before[name] for name in changed},
            after=after if before is None else changed,
        )
        rows[key] = after
        signed = SignedChangeset.make(
            Changeset(
                id="",
                origin=replica.origin,
                sequence=number,
                timestamp=datetime.now(UTC),
                changes=(change,),
                source=Source(kind="replica", server=branch),
                parents=parents,
                revision=Revision(
                    trunk=replica.settings.trunk_id,
                    hlc=clock.next(),
                    context=context,
                    previous=previous[:16],
                ),
            ),
            None,
        )
        parents, previous, context = (signed.id,), signed.id, {}
        made.append(Incoming(signed, ""))
        if len(made) == _FILLED or number == last:
            progress(f"{branch} writes while it is offline: {number} of {last}")
            with store.transaction() as tx:
                applier.apply(tx, made)
            made.clear()
    if replica.vector[replica.origin] != last:
        raise broken("not all was made that was to be caught up with")
    engine.dispose()


def catch_up(broker: RunningBroker, urls: list[str]) -> Measured:
    """Run both nodes until each has the changesets of the other."""
    settings = {
        "replication_hosts": f"{broker.host}:{broker.port}",
        "replication_channel": "benchmark",
    }
    origins, vectors = [], []
    for url in urls:
        engine = make_engine(url)
        replica = Replica(engine, _Base.metadata)
        origins.append(replica.origin)
        vectors.append(replica.vector)
        engine.dispose()
    target = {name: max(each.get(name, 0) for each in vectors) for name in origins}
    channel = "/topic/benchmark"
    own = [f"{channel}.{origin.replace('~', '-')}" for origin in origins]
    listener = _Listener(broker.port, [channel, *own])
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.replica", "--node"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for _ in urls
        ]
        for node, url in zip(nodes, urls, strict=True):
            _tell(node, _Order(url, settings))
        idle_s = sum(map(_hear, nodes))
        before = [memory(node.pid)[0] for node in nodes]
        with ExitStack() as watching:
            watches = [watching.enter_context(Watch(node.pid)) for node in nodes]
            began = time.perf_counter()
            for node in nodes:
                _tell(node, target)
            processor_s = sum(map(_hear, nodes)) - idle_s
            seconds = time.perf_counter() - began
        peaks = [watch.peak_bytes for watch in watches]
        for node in nodes:
            assert node.stdin is not None
            node.stdin.close()
            if node.wait(_TIMEOUT_S):
                raise broken("a node has failed")
    growth = max(peak - least for peak, least in zip(peaks, before, strict=True))
    return Measured(seconds, processor_s, listener.messages, listener.octets, max(peaks), growth)


def _tell(node: subprocess.Popen[bytes], what: object) -> None:
    assert node.stdin is not None
    node.stdin.write(msgspec.json.encode(what) + b"\n")
    node.stdin.flush()


def _hear(node: subprocess.Popen[bytes]) -> float:
    """Wait until a node has finished; return its seconds of processor time."""
    assert node.stdout is not None
    line = node.stdout.readline()
    if not line:
        raise broken("a node has failed")
    return float(line)


def run_node() -> int:
    """Run a node with the parameters from standard input; return the exit status."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Order)
    replica = Replica(make_engine(order.url), _Base.metadata, settings=order.settings)
    print(time.process_time(), flush=True)
    target = msgspec.json.decode(sys.stdin.buffer.readline(), type=dict[str, int])
    with replica:
        replica.wait_until(target, _TIMEOUT_S)
        print(time.process_time(), flush=True)
        # The other node may still need changesets.
        sys.stdin.buffer.readline()
    return 0


def commits(directory: Path, count: int) -> tuple[float, float]:
    """Commit new rows; return microseconds of processor time, without a replica and with one."""
    sides: list[tuple[sessionmaker[Session], list[float]]] = []
    engines: list[Engine] = []
    for name in ("alone", "replica"):
        engine = make_engine(sqlite_url(directory, name))
        _Base.metadata.create_all(engine)
        engines.append(engine)
        sides.append((sessionmaker(engine), []))
    replica = Replica(engines[1], _Base.metadata, session_factory=sides[1][0])
    replica.create()
    for number in range(count):
        if number % 100 == 0:
            progress(f"committing: {number} of {count}")
        for sessions, times in sides:
            began = time.process_time()
            with sessions.begin() as session:
                session.add(Part(id=str(number), name="name", amount=number, note="x" * 40))
            times.append(time.process_time() - began)
    if sum(replica.vector.values()) != count:
        raise broken("not every commit was recorded")
    replica.close()
    for engine in engines:
        engine.dispose()
    alone_s, watched_s = (median(times) for _, times in sides)
    return alone_s * 1e6, watched_s * 1e6


def figures_of(name: str, title: str, measured: Measured, changesets: int) -> list[Figure]:
    """Return the figures of a run with this many changesets in all."""
    each_us = measured.processor_s / changesets * 1e6
    return [
        Figure(f"{name}_s", f"{title}: seconds", measured.seconds, ",.1f"),
        Figure(f"{name}_per_s", f"{title}: changesets per second", changesets / measured.seconds),
        Figure(f"{name}_us", f"{title}: us of processor time a changeset", each_us),
        Figure(f"{name}_messages", f"{title}: messages", measured.messages),
        Figure(f"{name}_octets", f"{title}: octets a changeset", measured.octets / changesets),
        Figure(f"{name}_peak_mib", f"{title}: peak memory, MiB", measured.peak_bytes / MIB),
        Figure(f"{name}_growth_mib", f"{title}: growth of it, MiB", measured.growth_bytes / MIB),
    ]


def main() -> int:
    """Measure; return the exit status."""
    if sys.argv[1:] == ["--node"]:
        return run_node()
    words, _, _ = (__doc__ or "").partition("\n\nTo try")
    parser = make_parser("replica", words)
    parser.add_argument(
        "--changesets", type=positive, default=20_000, help="of each node (default: 20000)"
    )
    parser.add_argument("--commits", type=positive, default=3000, help="(default: 3000)")
    options = parser.parse_args()
    many, few = options.changesets, max(options.changesets // PART, 1)
    own = max(many // 5, 1)
    with tempfile.TemporaryDirectory(prefix="stompkit-benchmark-") as name:
        directory = Path(name)
        (directory / "broker").mkdir()
        urls = [sqlite_url(directory, branch) for branch in _BRANCHES]
        with start(directory / "broker") as broker:
            fill_both(urls, 1, many, own)
            progress("catching up")
            first = catch_up(broker, urls)
            fill_both(urls, many + 1, many + few, own)
            progress("catching up again")
            second = catch_up(broker, urls)
        alone_us, watched_us = commits(directory, options.commits)
    times = [
        Figure(f"{what}_more", f"on top of history: {what} a changeset, times", found, ".2f")
        for what, found in (
            ("processor", second.processor_s / first.processor_s * many / few),
            ("octets", second.octets / first.octets * many / few),
        )
    ]
    beyond = second.messages - first.messages * few / many
    extra = Figure("messages_more", "on top of history: messages beyond its share", beyond)
    figures = [
        *figures_of("first", "all", first, 2 * many),
        *figures_of("second", "on top of history", second, 2 * few),
        *times,
        extra,
        Figure("commit_us", "us of processor time for a commit, no replica", alone_us),
        Figure("recorded_us", "us of processor time for a commit, recorded", watched_us),
    ]
    bounds = [*(Bound(each, MORE) for each in times), Bound(extra, MESSAGES)]
    return report(parser, options.json, figures, bounds)


if __name__ == "__main__":
    raise SystemExit(main())
