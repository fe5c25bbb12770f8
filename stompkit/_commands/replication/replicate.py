"""``stompkit replicate``."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

import msgspec

from stompkit._commands.replication.options import parser
from stompkit._commands.replication.status import Display, forget, lock_of, print_status, write
from stompkit._commands.shared.logs import start_log
from stompkit._commands.shared.missing import reason
from stompkit._commands.shared.signals import ended_by_signals
from stompkit._common.files import FileLock, LockedError, describe, make_directory
from stompkit._common.metrics import Address, MetricsError, parse_address, serving
from stompkit._common.secrets import SecretError, resolve
from stompkit._common.settings import ConfigurationError, canonical, read_toml, wrong_type
from stompkit._common.spelling import suggestion
from stompkit._common.text import shown_lines
from stompkit.replication.jobs import Job, JobError, JobSettings, JobStatus
from stompkit.replication.model.events import Changeset

__all__ = ["main", "parser"]

_USAGE: Final = 2
#: Interval of status writes in seconds.
_STATUS_S: Final = 1.0
#: Time in seconds after which an unreachable broker is reported.
_AWAY_S: Final = 5.0
#: Maximum wait in seconds for a lock that a status query may hold.
_LOCK_S: Final = 2.0


def main(arguments: list[str]) -> int:
    """Replicate, or print the status of jobs."""
    options = parser().parse_args(arguments)
    directory = JobSettings(source="", to="", state_dir=getattr(options, "state_dir", "")).directory
    if options.forget is not None:
        return forget(directory, options.forget)
    if options.status:
        name = getattr(options, "name", None)
        return print_status(directory, name, as_json=options.json)
    with ExitStack() as stack:
        try:
            settings = _settings(options)
            metrics = stack.enter_context(_metrics(options.metrics_port))
            job = Job(settings, on_applied=metrics)
        except JobError as error:
            print(f"stompkit replicate: {error}", file=sys.stderr)
            return _USAGE
        level = logging.DEBUG if options.verbose else logging.WARNING
        start_log(level, job.without_secrets)
        return _run(job, options)


@contextmanager
def _metrics(port: int) -> Iterator[Callable[[Changeset], object] | None]:
    """Serve metrics if there is a port; yields the function that counts a changeset."""
    if not port:
        yield None
        return
    try:
        from prometheus_client import REGISTRY

        from stompkit.replication.sinks.forwarders.metrics import prometheus_sub
    except ModuleNotFoundError as error:
        needed = f"{error.name}: pip install 'stompkit[metrics]'"
        raise JobError(f"--metrics-port needs {needed}") from None
    try:
        with serving(_address(port), REGISTRY), closing(prometheus_sub(None)) as metrics:
            yield metrics
    except MetricsError as error:
        raise JobError(f"--metrics-port {port}: {error}") from None


def _address(port: int) -> Address:
    try:
        return parse_address(str(port))
    except ValueError as error:
        raise MetricsError(str(error)) from None


#: Options of the command that are no settings of a job.
_OWN: Final = ("config", "status", "json", "forget", "verbose", "quiet", "metrics_port")

#: Settings of a job, by their names in the file.
_KEYS: Final = tuple(field.encode_name for field in msgspec.structs.fields(JobSettings))


def _settings(options: argparse.Namespace) -> JobSettings:
    """Return the job's settings from file and command line; raises JobError."""
    found: dict[str, Any] = {}
    if options.config is not None:
        try:
            found = canonical(read_toml(options.config), _KEYS)
        except ConfigurationError as error:
            raise JobError(str(error)) from None
        for name in found:
            if name not in _KEYS:
                advice = suggestion(name, _KEYS)
                raise JobError(f"{options.config}: there is no setting {name}; {advice}")
    given = {
        name.replace("_", "-"): value for name, value in vars(options).items() if name not in _OWN
    }
    for name in ("masks", "schema-map", "table-map"):
        if name in given:
            given[name] = {**found.get(name, {}), **dict(given[name])}
    found |= given
    for name in ("from", "to"):
        if name not in found:
            raise JobError(f"--{name} is missing; `stompkit replicate --help` shows what it can be")
        if isinstance(found[name], str):
            found[name] = _looked_up(name, found[name])
    try:
        return msgspec.convert(found, JobSettings)
    except msgspec.ValidationError as error:
        where = f"{options.config}: " if options.config is not None else ""
        raise JobError(f"{where}{wrong_type(error)}") from None


def _looked_up(name: str, url: str) -> str:
    try:
        return resolve(url)
    except SecretError as error:
        raise JobError(f"--{name}: {error}") from None


# Running.


def _places(options: argparse.Namespace) -> dict[str, str]:
    """Return where the URLs of the source and the target are given."""
    return {
        name: f"--{name}" if name in vars(options) else f"{options.config}: {name}"
        for name in ("from", "to")
    }


def _run(job: Job, options: argparse.Namespace) -> int:
    try:
        with _locked(job), _reporting(job, options), ended_by_signals(job.stop):
            job.run()
    except KeyboardInterrupt:
        raise
    except Exception as error:
        logging.getLogger(__name__).debug("the job has failed", exc_info=True)
        text = job.described(reason(error), _places(options))
        print(f"stompkit replicate: {shown_lines(text)}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _locked(job: Job) -> Iterator[None]:
    """Hold the job's lock, so that it runs only once at a time; raises JobError."""
    make_directory(job.status_path.parent, mode=0o700)
    try:
        with FileLock(lock_of(job.status_path)).acquire(_LOCK_S):
            yield
    except LockedError:
        raise JobError(
            f"a job called {job.name} is running already; another --name makes another one"
        ) from None


class _Away:
    """Reports once per outage that a broker is unreachable: a job waits without limit."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_reported = False

    def look(self, status: JobStatus) -> None:
        """Check a status; called every second."""
        if not status.disconnected:
            self._since, self._is_reported = None, False
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._is_reported and now - self._since >= _AWAY_S:
            self._is_reported = True
            logging.getLogger(__name__).warning(
                "no connection to the broker %s for %.0f s: the job waits for it, also with --once",
                ", ".join(status.disconnected),
                now - self._since,
            )


@contextmanager
def _reporting(job: Job, options: argparse.Namespace) -> Iterator[None]:
    """Write the status periodically, and report it."""
    ended = threading.Event()
    display = None if options.quiet else Display()
    away = _Away()

    def show() -> None:
        status = job.status()
        away.look(status)
        if display is not None:
            display.show(status)
        write(job.status_path, status)

    def report() -> None:
        while not ended.wait(_STATUS_S):
            with _logged("the status cannot be reported"):
                show()

    with _logged("the status cannot be reported"):
        write(job.status_path, job.status())
    thread = threading.Thread(target=report, name="stompkit-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        # A failure here must not hide the error that ended the job.
        with _logged("the status cannot be reported"):
            status = job.status()
            if display is not None:
                display.end(status)
            write(job.status_path, status)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log an exception and continue: the disk may be full, or the output closed."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("%s: %s", what, describe(error))
