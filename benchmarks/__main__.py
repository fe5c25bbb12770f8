"""Brokers side by side: messages a second, and what they cost, by one load generator.

Each cell is a kind of load; all brokers run it in turns, round after round, and medians are
compared. Ratios within one run are what counts: other machines, and other days, have other
figures. A broker rests while another one is measured. To try:

    python -m benchmarks --quick --cells 'queue-1-1-*' --brokers stompkit,activemq,rabbitmq:4

Each cell has two forms. In the first, which is the one to publish, heads differ from message to
message, as those of applications do: besides destination and content-length, each has eight
headers. These are a correlation id and a time of its own, and content-type, priority, expires,
reply-to, type and a trace id, of which expires and the trace id differ as well. In the form whose
name ends in -equal all messages have the same short head, which is the best case for whoever keeps
heads in a cache. Messages of beanstalkd and the relays have no headers.

In cells with -single clients write each frame on its own, as stomp.py does; otherwise they write up
to 64 KiB at a time, if they may send so much.

The load generator is a program in C that is compiled when it is first run. It checks that every
message comes, once, in order and whole, at each consumer that is to get it, and tells the
processor time that it took itself: it is never the limit. At most 10,000 messages, or 8 MiB of
them, are on the way at a time; 4 KiB for CoilMQ, which breaks with more.

All is bounded in time: with the defaults and activemq, rabbitmq, coilmq, beanstalkd and stompkit it
is meant to take less than 30 minutes. A backlog has 1,000,000 messages, or as many as the broker
takes and gives back in 90 times as long as a run; of 10,000 connections there are as many as open
in 20 times as long. These two are measured once, each with a broker that has done nothing else.

The ratio of a broker is that to the first one in the table: below 1 it is slower. "generator" is
how much of a core the load generator took; the last column has microseconds from sending to
receipt, or to delivery, in the middle and for the slowest hundredth and thousandth; of "churn"
from connecting to CONNECTED. Memory is anonymous memory of all processes of a broker. Where other
programs kept the machine busy a line says so: such figures are worth little.

Our broker is measured as a wheel has it, with its inner modules compiled, which is done when it is
first needed; with STOMPKIT_PURE=1 in the environment as Python.

Slow readers, and more about long backlogs and many connections of our broker, are in programs of
their own: python -m benchmarks.slow_reader, benchmarks.backlog and benchmarks.connections. Pictures
are made of what --json has written, by python -m benchmarks.pictures.

Exit status: 0, 1 if a broker did wrong in a cell, 2 if nothing could be measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks._compiled import measure_compiled
from benchmarks._report import positive, progress, unusable
from benchmarks.load._cells import CELLS, Cell, choose
from benchmarks.load._generator import GeneratorError, generator
from benchmarks.load._peers import PEERS, Missing, Peer
from benchmarks.load._rounds import Machine, Result, measure
from benchmarks.load._tables import lines, write_json
from stompkit.testing import BrokerError

__all__ = ["main"]


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--cells", metavar="NAMES", help="with commas, * standing for anything (default: all)")
    add(
        "--brokers",
        metavar="NAMES",
        help="with commas, some in a version, as in rabbitmq:4 (default: all that are installed)",
    )
    add("--rounds", type=positive, metavar="N", help="(default: 3, with --quick 1)")
    add("--seconds", type=float, help="that a run takes, about (default: 0.5, with --quick 0.2)")
    add("--quick", action="store_true", help="few messages: to see that it works")
    add("--json", type=Path, metavar="FILE", help="write every run to FILE")
    add("--list", action="store_true", help="tell the cells and brokers, and do nothing")
    return parser


def _list() -> None:
    for title, rows in (("cells", CELLS), ("brokers", PEERS)):
        print(f"{title}:")
        width = max(len(row.name) for row in rows) + 2
        for row in rows:
            print(f"  {row.name:<{width}}{row.about}")
    print("not measured:")
    for peer in PEERS:
        reasons: dict[str, list[str]] = {}
        for cell in CELLS:
            if reason := peer.lacks(cell):
                reasons.setdefault(reason, []).append(cell.name)
        for reason, names in reasons.items():
            print(f"  {peer.name}: {', '.join(names)}: {reason}")


def _cells(text: str | None) -> list[Cell]:
    try:
        return choose(["*"] if text is None else text.split(","))
    except ValueError as error:
        raise unusable(str(error)) from None


def _peers(text: str | None) -> list[Peer]:
    if text is None:
        return list(PEERS)
    known = {peer.name: peer for peer in PEERS}
    peers = []
    for name in dict.fromkeys(text.split(",")):
        kind, _, version = name.partition(":")
        if kind not in known:
            raise unusable(f"no broker is called {name}; known: {', '.join(known)}")
        try:
            peers.append(known[kind].in_version(version) if version else known[kind])
        except BrokerError as error:
            raise unusable(str(error)) from None
    return peers


def _present(machine: Machine, peers: list[Peer], cells: list[Cell], *, named: bool) -> list[Peer]:
    """Start the brokers; skip those that cannot be started, unless they were named."""
    found = []
    for peer in peers:
        cell = next((cell for cell in cells if not peer.lacks(cell)), None)
        if cell is None:
            continue
        try:
            machine.start(peer, cell)
        except (BrokerError, Missing) as error:
            if named:
                raise unusable(str(error)) from None
            progress()
            print(f"skipped: {error}", file=sys.stderr)
        else:
            found.append(peer)
    if not found:
        raise unusable("none of these brokers can be measured in any of these cells")
    return found


def main() -> int:
    """Read the command line, measure and print; return the exit status."""
    given = _options().parse_args()
    if given.list:
        _list()
        return 0
    measure_compiled("benchmarks")
    cells, peers = _cells(given.cells), _peers(given.brokers)
    rounds = given.rounds or (1 if given.quick else 3)
    seconds = given.seconds or (0.2 if given.quick else 0.5)
    results: list[Result] = []
    try:
        generator()
    except GeneratorError as error:
        raise unusable(str(error)) from None
    with Machine() as machine:
        peers = _present(machine, peers, cells, named=given.brokers is not None)
        for result in measure(machine, cells, peers, rounds, seconds):
            results.append(result)
    progress()
    print("\n".join(lines(results)))
    if given.json is not None:
        write_json(given.json, results)
    return 1 if any(result.fault for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
