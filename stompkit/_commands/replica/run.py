"""``stompkit replica run``."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from stompkit._commands.replica.options import Setup, opened
from stompkit._commands.replica.subcommand import Command, ReplicaUsageError, hide
from stompkit._commands.shared.logs import start_log
from stompkit._commands.shared.signals import ended_by_signals
from stompkit._common.metrics import Address, MetricsError, new_registry, serving
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit.replica import Replica, ReplicaStoreError
from stompkit.replica.engine import Status
from stompkit.replica.metrics import health, prometheus_replica

__all__ = ["COMMANDS"]

#: Poll interval in seconds while checking that the replica runs, or with --once is done.
_LOOK_S: Final = 0.2
#: Interval of status reports in seconds.
_REPORT_S: Final = 5.0
#: Delay in seconds before a missing connection is reported.
_GRACE_S: Final = 3.0


def _run(options: argparse.Namespace) -> int:
    level = logging.DEBUG if options.verbose else logging.WARNING
    start_log(level, lambda text: hide(text, options))
    ended = threading.Event()
    with opened(options, is_made=True) as (replica, setup), ended_by_signals(ended.set):
        if not setup.settings.ports:
            raise ReplicaUsageError(
                "run: there is nobody to exchange with: name --replication-hosts and"
                " --replication-channel"
            )
        with _metrics(replica, setup):
            # Messages of other nodes may arrive from here on.
            started = time.time()
            # Closing a failed replica raises the cause.
            with replica:
                return _wait(replica, options, ended, started)


def _wait(
    replica: Replica, options: argparse.Namespace, ended: threading.Event, started: float
) -> int:
    """Report the status until the end; returns the exit status."""
    reporter = _Reporter(options)
    deadline = time.monotonic() + options.timeout
    report_at = 0.0
    while replica.is_running:
        if options.once or time.monotonic() >= report_at:
            report_at = time.monotonic() + _REPORT_S
            status = _status(replica)
            if status is not None:
                reporter.report(status)
            if options.once:
                lacking = "the database is in use" if status is None else _lacking(status, started)
                if not lacking:
                    return 0
                if time.monotonic() > deadline:
                    reason = f"not all is exchanged after {options.timeout:g} s: {lacking}"
                    print(f"stompkit replica run: {reason}", file=sys.stderr)
                    return 1
        if ended.wait(_LOOK_S):
            break
    return 0


def _status(replica: Replica) -> Status | None:
    """Return the status; database errors are logged and do not end the command."""
    try:
        return replica.status()
    except (ReplicaStoreError, TimeoutError) as problem:
        logging.getLogger(__name__).warning("the status cannot be read: %s", problem)
        return None


def _lacking(status: Status, started: float) -> str:
    """Describe what is not exchanged yet with the online nodes; empty if nothing is."""
    if status.bootstrap:
        return "a snapshot of another node is being taken"
    there = [peer for peer in status.peers if peer.heard_at >= started]
    if not there:
        return "no other node was heard"
    if status.held:
        return f"{amount(status.held, 'changeset')} held back"
    found = [
        f"{peer.origin} has {amount(peer.ahead, 'changeset')} more" for peer in there if peer.ahead
    ]
    found += [
        f"{peer.origin} lacks {amount(peer.behind, 'changeset')}" for peer in there if peer.behind
    ]
    return ", ".join(found)


class _Reporter:
    """Reports changes on standard error."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Start without reports."""
        self._options = options
        self._begun = time.monotonic()
        #: Current reported facts, each with the message for its end.
        self._reported: dict[str, str] = {}

    def report(self, status: Status) -> None:
        """Report facts that are new or have ended since the last call."""
        facts = {f"{status.origin} of trunk {status.trunk} runs": ""}
        for channel, is_connected in status.channels:
            name = shown(channel)
            if is_connected:
                facts[f"connected to {name}"] = f"not connected to {name} any more"
            elif time.monotonic() > self._begun + _GRACE_S:
                facts[f"trying to connect to {name}"] = ""
        for peer in status.peers:
            if peer.ports:
                facts[f"{peer.origin} is there"] = f"{peer.origin} is forgotten"
        for fault in health(status, needs_broker=False):
            facts[f"! {shown(fault)}"] = f"over: {shown(fault)}"
        if not self._options.quiet:
            for line, over in self._reported.items():
                if line not in facts and over:
                    self._print(over)
            for line in facts:
                if line not in self._reported:
                    self._print(line)
        self._reported = facts

    def _print(self, line: str) -> None:
        print(hide(line, self._options), file=sys.stderr, flush=True)


# Metrics.


@contextmanager
def _metrics(replica: Replica, setup: Setup) -> Iterator[None]:
    """Serve metrics if there is a port."""
    if not setup.metrics_port:
        yield
        return
    try:
        registry = new_registry()
        metrics = prometheus_replica(replica.status, registry)
        with serving(Address("127.0.0.1", setup.metrics_port), registry), closing(metrics):
            yield
    except MetricsError as error:
        raise ReplicaUsageError(f"run: --metrics-port {setup.metrics_port}: {error}") from None


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--once",
        action="store_true",
        help="stop when all changes are exchanged with the nodes that are online",
    )
    add(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="with --once: fail after this many seconds (default: 60)",
    )
    add(
        "--metrics-port",
        type=int,
        default=None,
        metavar="PORT",
        help="serve Prometheus metrics on this port of the loopback interface",
    )
    add("--quiet", action="store_true", help="print only errors")
    add("--verbose", action="store_true", help="write a detailed log to standard error")


#: The command of this module, by name.
COMMANDS: Final = {
    "run": Command(
        _arguments,
        _run,
        """\
  stompkit replica run --db sqlite:///notes.db --branch-id anna \\
      --replication-hosts mq1:61613,mq2:61613 --replication-channel notes
  stompkit replica run --config notes.toml
  stompkit replica run --config notes.toml --once

The file of --config is TOML and contains settings by name:

  db = "postgresql://me@db/shop"
  branch_id = "berlin"
  replication_hosts = "env:SHOP_BROKER"      # stomp://login:passcode@mq:61613
  replication_channel = "shop"
  tables = ["orders", "customers"]
  documents = true
  author = "berlin"

  [trusted_keys]
  paris = "ed25519:..."

  [rules]                                    # the same on all nodes
  default = "last-writer"
  [rules.tables.orders]
  on_delete = "delete-wins"
  columns = {total = "counter", tags = "members", owner = "origin-priority berlin paris"}

Rules in Python are rules = "MODULE:NAME". All settings are in the manual, under replicas.

exit status: 0 stopped by a signal, or completed with --once; 1 failed, with the reason on standard
error; 2 wrong command line or configuration file
""",
        "settings",
    ),
}
