"""Receives until it is stopped, for ``stompkit spool run``."""

from __future__ import annotations

import argparse
import errno
import logging
import select
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

from stompkit._commands.shared.signals import signalled
from stompkit._commands.shared.terminal import columns
from stompkit._commands.spool.maintenance import Maintenance
from stompkit._commands.spool.metrics import Appends, SpoolMetrics, served
from stompkit._commands.spool.options import SpoolUsageError, brokers
from stompkit._commands.spool.serve import check_serving, served_at
from stompkit._common.files import describe
from stompkit._common.metrics import Address
from stompkit._common.retry import Backoff
from stompkit._common.spelling import amount
from stompkit._common.text import shown, shown_lines
from stompkit.client.blocking import BrokerUrl
from stompkit.spool import SpoolError, SpoolInUseError, SpoolWriter
from stompkit.spool.receiver import Receiver, ReceiverStatus
from stompkit.spool.retention import retain

__all__ = ["run"]

_log: Final = logging.getLogger(__name__)
#: Interval of status checks in seconds.
_LOOK_S: Final = 1.0
#: First and longest delay before a spool without room is opened again, in seconds.
_ROOM_S: Final = (0.1, 5.0)
#: Maximum duration of the shutdown in seconds: pending writes and acknowledgements finish.
_END_S: Final = 30.0


def run(options: argparse.Namespace) -> int:
    """Receive until a signal; returns the exit status.

    Raises :class:`SpoolUsageError` and :class:`~stompkit.spool.SpoolError`.
    """
    sources = brokers(options.sources)
    _refuse_durable_queues(options.durable, sources)
    check_serving(options, options.serve)
    with signalled() as end:
        writer = _opened_when_there_is_room(options, end)
        return 0 if writer is None else _run(options, sources, writer, end)


def _run(
    options: argparse.Namespace,
    sources: Mapping[BrokerUrl, Sequence[str]],
    writer: SpoolWriter,
    end: int,
) -> int:
    with writer:
        appends = Appends(writer)
        receivers = [
            Receiver(
                source,
                destinations,
                appends,
                ack=options.ack,
                receipts=options.receipts,
                selector=options.selector,
                durable=options.durable,
                group_messages=options.group,
                prefetch=options.prefetch,
            )
            for source, destinations in sources.items()
        ]
        maintenance = Maintenance(
            writer,
            max_age_s=options.retain_age,
            max_bytes=options.retain_bytes,
            readers_expire_s=options.readers_expire,
            form=None if options.seal == "never" else options.seal,
        )
        reporter = _Reporter(sources, options.directory, quiet=options.quiet)
        metrics = SpoolMetrics(
            Path(options.directory), appends, lambda: [each.status() for each in receivers]
        )
        with served(metrics, options.metrics) as address, _serving(options) as url:
            reporter.metrics(address)
            reporter.server(url)
            return _receive(receivers, maintenance, reporter, end)


def _serving(options: argparse.Namespace) -> AbstractContextManager[str]:
    """Serve the spool to readers on other machines, if that is wanted."""
    return nullcontext("") if options.serve is None else served_at(options, options.serve)


def _refuse_durable_queues(durable: str, sources: Mapping[BrokerUrl, Sequence[str]]) -> None:
    destinations = (each for listed in sources.values() for each in listed)
    if durable and any(each.startswith("/queue/") for each in destinations):
        raise SpoolUsageError("--durable is for topics: a queue keeps what nobody has read anyway")


def _opened_when_there_is_room(options: argparse.Namespace, end: int) -> SpoolWriter | None:
    """Open the spool; on a full disk, remove what retention allows, and wait for room.

    Returns None if the descriptor ``end`` becomes readable before.
    """
    backoff = Backoff(*_ROOM_S)
    is_reported = False
    while True:
        try:
            return _opened(options)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not is_reported:
                is_reported = True
                _log.warning("the spool cannot be written; retrying: %s", describe(error))
        _make_room(options)
        if select.select([end], [], [], backoff.fail())[0]:
            return None


def _make_room(options: argparse.Namespace) -> None:
    if options.retain_age is None and options.retain_bytes is None:
        return
    # A spool that could not be created has nothing to remove.
    with suppress(OSError, SpoolError):
        retain(
            options.directory,
            max_age_s=options.retain_age,
            max_bytes=options.retain_bytes,
            readers_expire_s=options.readers_expire,
        )


def _opened(options: argparse.Namespace) -> SpoolWriter:
    try:
        return SpoolWriter(options.directory, partitions=options.partitions)
    except SpoolInUseError as error:
        raise SpoolInUseError(
            f"{error}: one process receives for all that read, so end that first, or take another"
            f" directory; `stompkit spool status {options.directory}` tells how far it is"
        ) from None
    except ValueError as error:
        raise SpoolUsageError(str(error)) from None


def _receive(
    receivers: Sequence[Receiver], maintenance: Maintenance, reporter: _Reporter, end: int
) -> int:
    """Receive until the descriptor ``end`` is readable, or a receiver has failed."""
    for receiver in receivers:
        receiver.start()
    statuses = [receiver.status() for receiver in receivers]
    while not any(status.failure for status in statuses):
        reporter.show(statuses)
        if select.select([end], [], [], _LOOK_S)[0]:
            break
        maintenance.run_if_due()
        statuses = [receiver.status() for receiver in receivers]
    for receiver in receivers:
        receiver.stop()
    failures = [error for receiver in receivers if (error := _failure(receiver)) is not None]
    reporter.end([receiver.status() for receiver in receivers])
    for failure in failures:
        print(f"stompkit spool: {shown_lines(str(failure))}", file=sys.stderr)
    return 1 if failures else 0


def _failure(receiver: Receiver) -> Exception | None:
    """Wait for a stopped receiver; returns the error that ended it, if any."""
    try:
        receiver.join(_END_S)
    except Exception as error:
        logging.getLogger(__name__).debug("receiving has failed", exc_info=True)
        return error
    return None


class _Reporter:
    """Progress output: one changing line on a terminal; elsewhere a line for each problem."""

    def __init__(
        self, sources: Mapping[BrokerUrl, Sequence[str]], directory: str, *, quiet: bool
    ) -> None:
        self._is_quiet = quiet
        self._is_terminal = sys.stderr.isatty()
        self._last: tuple[int, float] | None = None
        self._problem = ""
        for source, destinations in sources.items():
            self._print(f"{', '.join(destinations)} of {','.join(source.hosts)} into {directory}")

    def metrics(self, address: Address | None) -> None:
        """Print the address of the metrics, if they are served."""
        if address is not None:
            self._print(f"metrics at http://{address}/metrics")

    def server(self, url: str) -> None:
        """Print the URL for readers on other machines, if there is one."""
        if url:
            self._print(f"serves readers at {url}")

    def show(self, statuses: Sequence[ReceiverStatus]) -> None:
        """Show the progress."""
        if self._is_terminal:
            line = f"\r\x1b[K{self._line(statuses)[: columns()]}"
            if not self._is_quiet:
                print(line, end="", file=sys.stderr, flush=True)
            return
        problem = _problem(statuses)
        if problem != self._problem:
            self._problem = problem
            self._print(problem or "connected")

    def end(self, statuses: Sequence[ReceiverStatus]) -> None:
        """Show the final progress."""
        if self._is_terminal:
            self._print("\r\x1b[K", end="")
        self._last = None
        self._print(self._line(statuses))

    def _line(self, statuses: Sequence[ReceiverStatus]) -> str:
        received = sum(status.received for status in statuses)
        duplicates = sum(status.duplicates for status in statuses)
        now = time.monotonic()
        parts = [amount(received, "message")]
        if self._last is not None and now > self._last[1]:
            parts.append(f"{(received - self._last[0]) / (now - self._last[1]):,.0f}/s")
        self._last = received, now
        if duplicates:
            parts.append(f"{duplicates:,} repeated")
        if problem := _problem(statuses):
            parts.append(problem)
        return "  ".join(parts)

    def _print(self, text: str, end: str = "\n") -> None:
        if not self._is_quiet:
            print(text, end=end, file=sys.stderr, flush=True)


def _problem(statuses: Sequence[ReceiverStatus]) -> str:
    found = (
        status.problem or ("" if status.connected else "no connection yet") for status in statuses
    )
    return shown(", ".join(dict.fromkeys(filter(None, found))))
