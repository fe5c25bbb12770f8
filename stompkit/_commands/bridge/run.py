"""Runs a bridge until it is stopped, for ``stompkit bridge``."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import LogEvent, LogLevel, STDLibLogObserver, globalLogBeginner

from stompkit._commands.bridge.metrics import BridgeMetrics
from stompkit._commands.bridge.status import lock_of, write
from stompkit._commands.shared.logs import start_log
from stompkit._commands.shared.progress import Progress
from stompkit._commands.shared.signals import ended_by_signals
from stompkit._common.files import FileLock, LockedError, describe, make_directory
from stompkit._common.metrics import MetricsError, serving_collector
from stompkit._common.spelling import amount
from stompkit._common.text import shown
from stompkit._common.twisted.stopping import stop_reactor
from stompkit.bridge import Bridge, BridgeError, BridgeSettings, BridgeStatus, waiting_in
from stompkit.spool import SpoolError

__all__ = ["run"]

_log: Final = logging.getLogger(__name__)
#: Interval of status checks in seconds.
_LOOK_S: Final = 1.0
_USAGE: Final = 2
#: Logger of the clients' attempts to connect; it warns at most once a minute.
_CONNECTOR: Final = "stompkit.client._connector"


def run(settings: BridgeSettings, *, quiet: bool, verbose: bool) -> int:
    """Forward until a signal or until all routes have stopped; returns the exit status."""
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    start_log(level)
    globalLogBeginner.beginLoggingTo([_observer(verbose=verbose)], redirectStandardIO=False)
    bridge = Bridge(settings)
    try:
        metrics = BridgeMetrics(bridge.status)
        with _locked(settings), serving_collector(metrics, settings.metrics) as address:
            if address is not None and not quiet:
                print(f"metrics at http://{address}/metrics", file=sys.stderr, flush=True)
            _check_paths(settings, bridge.status())
            _run(bridge, _Reporter(settings, quiet=quiet))
    except (BridgeError, MetricsError) as error:
        print(f"stompkit bridge: {error}", file=sys.stderr)
        return _USAGE
    # The log has the reasons.
    return 1 if any(route.state == "stopped" for route in bridge.status().routes) else 0


def _observer(*, verbose: bool) -> Any:
    """Return an observer of log events; the bridge itself reports the errors of its clients.

    It does not report brokers that cannot be reached, since its clients try again by themselves.
    """
    log = cast("Any", STDLibLogObserver("stompkit.bridge"))

    def observe(event: LogEvent) -> None:
        namespace = str(event.get("log_namespace"))
        is_unreachable = namespace == _CONNECTOR and event.get("log_level") is LogLevel.warn
        if verbose or is_unreachable or not namespace.startswith("stompkit.client."):
            log(event)

    return observe


def _run(bridge: Bridge, reporter: _Reporter) -> None:
    from twisted.internet import reactor as running

    reactor = cast("Any", running)

    def begin() -> None:
        looking.start(_LOOK_S)
        bridge.start().addErrback(_unexpected).addBoth(over)

    def over(_: object = None) -> None:
        stop_reactor(reactor)

    def end() -> Deferred[None]:
        return bridge.stop().addErrback(_unexpected)

    looking = LoopingCall(lambda: reporter.look(bridge.status()))
    reactor.callWhenRunning(begin)
    reactor.addSystemEventTrigger("before", "shutdown", end)
    # Signals may come more than once: ``timeout`` sends one to a process, and again to its group.
    with ended_by_signals(lambda: reactor.callFromThread(over)):
        reactor.run(installSignalHandlers=False)
    reporter.end(bridge.status())


def _unexpected(failure: Any) -> None:
    _log.error("the bridge has failed: %s", failure.getTraceback())


def _check_paths(settings: BridgeSettings, status: BridgeStatus) -> None:
    """Write the first status, and create the directories of buffers; raises OSError.

    A full disk is no reason to stop: routes wait until there is room again.
    """
    try:
        if settings.status is not None:
            write(settings.status, status)
        for leg in settings.legs:
            if leg.buffer is not None:
                make_directory(leg.buffer, mode=0o700)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


@contextmanager
def _locked(settings: BridgeSettings) -> Iterator[None]:
    """Hold a lock on the status file; raises :class:`BridgeError` if it is locked."""
    if settings.status is None:
        yield
        return
    if settings.status.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(settings.status))
    try:
        make_directory(settings.status.parent)
        with FileLock(lock_of(settings.status)).acquire():
            yield
    except LockedError:
        raise BridgeError(
            f"a bridge that has its status in {settings.status} runs already: end that, or name"
            " another file"
        ) from None


class _Reporter:
    """Writes the status file, and reports changes on standard error."""

    def __init__(self, settings: BridgeSettings, *, quiet: bool) -> None:
        self._path = settings.status
        self._buffers = {leg.name: leg.buffer for leg in settings.legs if leg.buffer is not None}
        self._is_quiet = quiet
        self._states: dict[str, tuple[str, str]] = {}
        self._progress = Progress("forwarded", quiet=quiet)

    def look(self, status: BridgeStatus) -> None:
        """Write the status, and report changes."""
        if self._path is not None:
            try:
                write(self._path, status)
            except OSError as error:
                _log.warning("the status cannot be written: %s", describe(error))
        for route in status.routes:
            state = route.state, route.problem
            if self._states.get(route.name) != state:
                self._states[route.name] = state
                if not self._is_quiet and route.state != "stopped":
                    problem = f": {route.problem}" if route.problem else ""
                    line = f"{route.name}: {route.source} to {route.to}: {route.state}{problem}"
                    self._progress.end()
                    print(shown(line), file=sys.stderr, flush=True)

        self._progress(sum(route.forwarded for route in status.routes))

    def end(self, status: BridgeStatus) -> None:
        """Report the last changes, and how many messages were forwarded and wait in buffers."""
        self.look(status)
        self._progress.end()
        for route in status.routes if not self._is_quiet else ():
            line = f"{route.name}: {amount(route.forwarded, 'message')} forwarded"
            buffer = self._buffers.get(route.name)
            try:
                left = 0 if buffer is None else waiting_in(buffer)
            except (OSError, SpoolError) as error:
                line += f"; the rest in {buffer} cannot be counted: {describe(error)}"
            else:
                line += f"; {left:,} left in {buffer}, for the next run" if left else ""
            print(line, file=sys.stderr, flush=True)
