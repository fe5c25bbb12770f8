"""Status commands of ``stompkit replica``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from stompkit._commands.replica.options import add_json, opened
from stompkit._commands.replica.status import as_json, peer_lines, print_lines, status_lines
from stompkit._commands.replica.subcommand import Command, ReplicaUsageError
from stompkit._commands.shared.values import shown_key
from stompkit._common.arguments import positive
from stompkit._common.files import reason_of
from stompkit._common.text import shown
from stompkit.replica.diagrams import (
    history_dot,
    history_svg,
    topology_dot,
    topology_of,
    topology_svg,
)
from stompkit.replica.engine import Status
from stompkit.replica.metrics import health
from stompkit.replication.model.values import row_to_json

__all__ = ["COMMANDS"]

# Status.


def _status(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        status = replica.status()
    # The connections may belong to another process.
    faults = health(status, max_lag_s=options.max_lag, needs_broker=False)
    if options.json:
        channels = [channel for channel, _ in status.channels]
        document = {**msgspec.to_builtins(status), "channels": channels, "faults": faults}
        print(as_json(document))
    else:
        print_lines(status_lines(status, now=time.time(), faults=faults))
    return 1 if faults else 0


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--max-lag",
        type=float,
        metavar="S",
        help="report an error if another node lags behind by more seconds (default: no limit)",
    )


def _peers(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        status = replica.status()
    if options.json:
        print(as_json(status.peers))
    else:
        print_lines(peer_lines(status, now=time.time()))
    return 0


def _check(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        found = replica.check()
        diverged = replica.status().diverged
    if options.json:
        rows = [{**each._asdict(), "key": row_to_json(each.key)} for each in found]
        print(as_json({"rows": rows, "diverged": diverged}))
    else:
        for each in found:
            columns = f": {', '.join(map(shown, each.columns))}" if each.columns else ""
            print(f"{shown(each.table)} {shown_key(each.key)}  {each.kind}{columns}")
        for peer, tables in sorted(diverged.items()):
            print(f"{peer} has other rows in {', '.join(map(shown, tables))}")
        if not found and not diverged:
            print("nothing differs")
    return 1 if found or diverged else 0


# Diagrams.


def _picture(options: argparse.Namespace) -> int:
    with opened(options) as (replica, _):
        if options.of == "history":
            graph = replica.graph(options.limit)
            text = (history_svg if options.format == "svg" else history_dot)(graph)
        else:
            statuses = [_whole(replica.status()), *map(_saved_status, options.status)]
            topology = topology_of(statuses, now=time.time())
            text = (topology_svg if options.format == "svg" else topology_dot)(topology)
    if options.output is None:
        sys.stdout.write(text)
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0


def _whole(status: Status) -> Status:
    """Return a status without disconnected channels, since connections were not queried."""
    channels = [(channel, True) for channel, _ in status.channels]
    return msgspec.structs.replace(status, channels=channels)


def _saved_status(path: Path) -> Status:
    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        channels = [(channel, True) for channel in document.get("channels", ())]
        return msgspec.convert({**document, "channels": channels}, Status)
    except (OSError, msgspec.DecodeError) as error:
        reason = reason_of(error)
        raise ReplicaUsageError(f"--status {path}: {reason}; it is of `status --json`") from None


def _picture_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("of", choices=("history", "topology"), help="the changesets, or the connections of nodes")
    add(
        "--format",
        choices=("dot", "svg"),
        default="svg",
        help="format of the diagram (default: svg)",
    )
    add("--output", type=Path, metavar="FILE", help="write to this file instead of standard output")
    add(
        "--limit",
        type=positive,
        default=50,
        metavar="N",
        help="draw at most N changesets (default: 50)",
    )
    add(
        "--status",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="for topology: output of `status --json` of another node; repeatable",
    )


#: The commands of this module, by name.
COMMANDS: Final = {
    "status": Command(
        _status_arguments,
        _status,
        """\
The command reads only the database, so the replica need not run. The metrics of a running replica
(run --metrics-port) also show its connections.

  stompkit replica status --db sqlite:///notes.db
  stompkit replica status --config notes.toml --json --max-lag 3600

exit status: 0 no errors; 1 errors, which are printed, or failure
""",
    ),
    "peers": Command(
        add_json,
        _peers,
        "  stompkit replica peers --db sqlite:///notes.db\n",
    ),
    "check": Command(
        add_json,
        _check,
        """\
A row is reported as unknown, missing or changed if it was written without the replica's knowledge.
`create --import` publishes such rows. A running replica compares its tables with those of other
nodes that have the same changesets, by digests.

  stompkit replica check --config notes.toml

exit status: 0 no differences; 1 differences, which are printed
""",
    ),
    "picture": Command(
        _picture_arguments,
        _picture,
        """\
  stompkit replica picture history --db sqlite:///notes.db --output history.svg
  stompkit replica picture topology --config notes.toml --format dot | dot -Tpng -o nodes.png
""",
    ),
}
