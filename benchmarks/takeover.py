"""How long clients wait when another broker of a shared PostgreSQL store takes over.

Each round starts brokers that share a store by a lease, and takes the time from an event to the
first message that a client gets from the next broker:

killed   the active broker is killed by SIGKILL
planned  an operator asks for a failover
stopped  the active broker is stopped by SIGTERM

The kill comes at another point of the interval between two renewals in each round. The message is
stored before the event. Brokers, client and database share this machine. To try::

    python -m benchmarks.takeover --rounds 3 --lease 2
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks._report import Bound, Figure, make_parser, positive, progress, report, unusable
from tests.server.admin.asking import Asker
from tests.server.process.lease_cluster import Cluster, Member
from tests.server.processes import Client, processes
from tests.servers import PostgreSql, ServerMissing

#: Interval in seconds between two checks whether a broker listens.
_INTERVAL_S: Final = 0.005
#: Seconds after which a broker that does not take over is a failure.
_TIMEOUT_S: Final = 120.0
#: Bounds in seconds: the first is added to the time of the lease.
KILLED_S: Final = 1.0
PLANNED_S: Final = 2.0

_QUEUE: Final = "/queue/a"
_ADMIN: Final = '[admin]\nendpoints = ["tcp:0:interface=127.0.0.1"]'


def time_of(event: Callable[[], object], old: Member, new: Member) -> float:
    """Store a message with the old broker; return the seconds from an event to its delivery."""
    with Client(old.active()) as client:
        assert client.send(_QUEUE, "m").startswith(b"RECEIPT")
    began = time.perf_counter()
    event()
    while not new.announce.exists():
        if time.perf_counter() > began + _TIMEOUT_S:
            raise SystemExit(f"BROKEN: no broker takes over\n{new.process.log[-1_000:]}")
        time.sleep(_INTERVAL_S)
    [where] = json.loads(new.announce.read_text(encoding="utf-8"))["endpoints"]
    with Client(where) as client:
        assert client.subscribe(_QUEUE).startswith(b"MESSAGE")
        return time.perf_counter() - began


def round_of(cluster: Cluster, lease_s: float, phase: float) -> dict[str, float]:
    """Let three brokers take over in turn; ``phase`` is the part of the renewal interval."""

    def start(name: str) -> Member:
        member = cluster.start(name, lease_s, more=_ADMIN)
        member.running()
        return member

    def known(name: str, by: Member) -> None:
        """Wait until a broker knows another one."""
        ask = Asker(by.admin)
        by.process.wait_until(
            lambda: any(each["name"] == name for each in ask.get("lease")["brokers"]), _TIMEOUT_S
        )

    a = start("a")
    a.active()
    b = start("b")
    known("b", a)
    time.sleep(lease_s / 3 * phase)
    taken = {"killed": time_of(a.process.popen.kill, a, b)}
    c = start("c")
    known("c", b)
    taken["planned"] = time_of(lambda: Asker(b.admin).post("failover", to="c"), b, c)
    d = start("d")
    known("d", c)
    taken["stopped"] = time_of(c.end, c, d)
    return taken


def measure(rounds: int, lease_s: float) -> list[Figure]:
    """Measure all takeovers in each round; return medians and maxima."""
    seen: dict[str, list[float]] = {}
    with PostgreSql() as postgresql:
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            with tempfile.TemporaryDirectory(prefix="stompkit-takeover-") as directory:
                with processes(Path(directory)) as start:
                    url = postgresql.url(postgresql.new_database())
                    cluster = Cluster(start, Path(directory), url)
                    for name, seconds in round_of(cluster, lease_s, number / rounds).items():
                        seen.setdefault(name, []).append(seconds)
    return [
        Figure(f"{name}_{kind}_s", f"{name}: {kind}, s", value(seconds), ",.2f")
        for name, seconds in seen.items()
        for kind, value in (("median", median), ("max", max))
    ]


def main() -> int:
    """Read the command line, measure and report; return the exit status."""
    parser = make_parser("takeover", str(__doc__))
    add = parser.add_argument
    add("--rounds", type=positive, default=10, help="rounds (default: %(default)s)")
    add("--lease", type=float, default=2.0, help="lease_s of the brokers (default: %(default)s)")
    given = parser.parse_args()
    try:
        figures = measure(given.rounds, given.lease)
    except ServerMissing as error:
        raise unusable(str(error)) from error
    named = {figure.name: figure for figure in figures}
    bounds = [
        Bound(named["killed_max_s"], given.lease + KILLED_S),
        Bound(named["planned_max_s"], PLANNED_S),
    ]
    return report(parser, given.json, figures, bounds, lease_s=given.lease)


if __name__ == "__main__":
    sys.exit(main())
