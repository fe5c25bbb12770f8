"""``stompkit replicate``."""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from stompkit._commands.replication.status import Display, lock_of, print_status, write
from stompkit._commands.shared.logs import start_log
from stompkit._commands.shared.missing import reason
from stompkit._commands.shared.signals import ended_by_signals
from stompkit._common.arguments import Parser
from stompkit._common.files import FileLock, LockedError
from stompkit._common.metrics import Address, MetricsError, parse_address, serving
from stompkit._common.secrets import SecretError, resolve
from stompkit._common.settings import ConfigurationError, canonical, read_toml
from stompkit._common.spelling import suggestion
from stompkit.replication.jobs import Job, JobError, JobSettings, JobStatus
from stompkit.replication.model.events import Changeset

__all__ = ["main", "parser"]

_EPILOG: Final = """\
from:
  mysql://USER:PASSWORD@HOST/          the binary log of MySQL or MariaDB
  postgresql://USER:PASSWORD@HOST/DB   logical replication of PostgreSQL
  outbox+postgresql://..., outbox+sqlite:///FILE, outbox+mysql://...
                                       the outbox table of a database
  stomp://HOST:PORT/queue/NAME         changesets from a broker
to:
  stomp://A:61613,B:61613/topic/NAME   a broker; several hosts are used for failover
  sqlite:///FILE, postgresql://..., mysql://...
                                       tables of a database
  redis://HOST/0                       a cache in Redis
  opensearch+http://HOST:9200          a search index
  print, print:json                    standard output

env:NAME takes a URL from an environment variable, file:PATH from the first line of a file, so that
other users of the machine cannot read a password.

  stompkit replicate --from mysql://repl:secret@db/ --to stomp://mq:61613/queue/changes
  stompkit replicate --from stomp://mq:61613/queue/changes --to postgresql://me@db2/shop --create
  stompkit replicate --from postgresql://me@db/shop --to print --tables 'public.orders*'
  stompkit replicate --config shop.toml
  stompkit replicate --status

The file of --config is TOML, with the names of the options as keys:

  from = "env:SHOP_DATABASE"
  to = "stomp://mq1:61613,mq2:61613/queue/changes"
  tables = ["shop.*"]
  masks = {"shop.users.email" = "hash:a secret of yours"}

After a stop or a crash, the job resumes at its checkpoint in --state-dir or in the target.

exit status: 0 stopped by a signal, or completed with --once; 1 failed, with the reason on standard
error; 2 wrong command line or configuration file; with --status 1 if a job failed or is not running
"""

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
    if options.status:
        directory = JobSettings(source="", to="", state_dir=getattr(options, "state_dir", ""))
        name = getattr(options, "name", None)
        return print_status(directory.directory, name, as_json=options.json)
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


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit replicate",
        usage="stompkit replicate --from URL --to URL [options]",
        description="Replicate database changes to a broker, another database or a cache.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Values missing on the command line are taken from the file.
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--from", metavar="URL", help="source of changes, see below")
    add("--to", metavar="URL", help="destination of changes, see below")
    add("--config", type=Path, default=None, metavar="FILE", help="read options from this file")
    add("--name", help="name of the job and its files (default: derived from the URLs)")
    add("--state-dir", metavar="DIR", help="directory for checkpoints and status")
    add("--status", action="store_true", default=False, help="print the status of jobs and exit")
    add("--json", action="store_true", default=False, help="with --status: print JSON")
    add(
        "--verbose",
        action="store_true",
        default=False,
        help="write a detailed log to standard error",
    )
    add("--quiet", action="store_true", default=False, help="show no progress")
    add(
        "--metrics-port",
        type=int,
        default=0,
        metavar="PORT",
        help="serve Prometheus metrics on this port of the loopback interface",
    )
    group = parser.add_argument_group("what is replicated")
    add = group.add_argument
    add(
        "--tables",
        action="append",
        metavar="GLOB",
        help="replicate only SCHEMA.TABLE or TABLE; repeatable (default: all)",
    )
    add(
        "--exclude",
        action="append",
        metavar="GLOB",
        help="do not replicate these tables; repeatable",
    )
    add(
        "--exclude-columns",
        action="append",
        metavar="GLOB",
        help="do not replicate these columns; repeatable",
    )
    add(
        "--mask",
        action="append",
        dest="masks",
        type=_pair,
        metavar="GLOB=MASK",
        help="mask columns TABLE.COLUMN with hash:SECRET, null, constant:TEXT, truncate:N "
        "or drop; repeatable",
    )
    add(
        "--snapshot",
        choices=("initial", "never", "only"),
        help="existing rows: copy them first, never, or only them (default: initial)",
    )
    add("--once", action="store_true", help="stop at the position that the source had at the start")
    add(
        "--slot",
        metavar="NAME",
        help="PostgreSQL: name of slot and publication (default: stompkit)",
    )
    add(
        "--all-tables",
        action="store_true",
        help="PostgreSQL: publish FOR ALL TABLES; the server then rejects UPDATE and "
        "DELETE on new tables without a key",
    )
    add(
        "--server-id",
        type=int,
        metavar="N",
        help="MySQL: replication server id, unique among its servers",
    )
    group = parser.add_argument_group("brokers")
    add = group.add_argument
    add(
        "--partitions",
        type=int,
        metavar="N",
        help="distribute changes over N destinations, for N consumers",
    )
    add(
        "--max-frame-bytes",
        type=int,
        metavar="N",
        help="split changesets above this size in bytes (default: 1048576)",
    )
    add("--no-receipts", action="store_true", help="request no receipts, for brokers without them")
    add("--no-ack", action="store_true", help="send no acknowledgements, for brokers without ACK")
    add("--durable", metavar="NAME", help="use a durable subscription of this name to a topic")
    add(
        "--prefetch",
        type=int,
        metavar="N",
        help="maximum number of unacknowledged frames (default: 1000)",
    )
    add(
        "--dead-letter",
        metavar="DEST",
        help="destination for changes that cannot be applied; without it the job stops",
    )
    add(
        "--gap",
        choices=("wait", "stop", "skip"),
        help="reaction to missing changesets (default: wait)",
    )
    group = parser.add_argument_group("targets")
    add = group.add_argument
    add(
        "--batch",
        type=int,
        metavar="N",
        help="maximum changesets in one transaction (default: 100)",
    )
    add("--create", action="store_true", help="SQL: create missing tables")
    add("--no-evolve", dest="evolve", action="store_false", help="SQL: do not add columns")
    add(
        "--foreign-keys",
        choices=("deferred", "enforced", "off"),
        help="SQL: check foreign keys at the end of a transaction, immediately, or not "
        "(default: deferred)",
    )
    add(
        "--schema-map",
        action="append",
        type=_pair,
        metavar="A=B",
        help="SQL: write schema A to schema B; repeatable (default: all to the default schema)",
    )
    add(
        "--table-map",
        action="append",
        type=_pair,
        metavar="A=B",
        help="SQL: write table A or SCHEMA.A to table B or SCHEMA.B; repeatable",
    )
    add("--namespace", help="Redis: prefix of keys")
    add("--ttl", type=float, metavar="S", help="Redis: expire rows after this many seconds")
    add("--index", metavar="NAME", help="search: name of the index (default: {table})")
    return parser


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


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("this is NAME=VALUE")
    return name, value


#: Options of the command that are no settings of a job.
_OWN: Final = ("config", "status", "json", "verbose", "quiet", "metrics_port")

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
        raise JobError(f"{where}{error}") from None


def _looked_up(name: str, url: str) -> str:
    try:
        return resolve(url)
    except SecretError as error:
        raise JobError(f"--{name}: {error}") from None


# Running.


def _run(job: Job, options: argparse.Namespace) -> int:
    try:
        with _locked(job), _reporting(job, options), ended_by_signals(job.stop):
            job.run()
    except KeyboardInterrupt:
        raise
    except Exception as error:
        logging.getLogger(__name__).debug("the job has failed", exc_info=True)
        print(f"stompkit replicate: {job.without_secrets(reason(error))}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _locked(job: Job) -> Iterator[None]:
    """Hold the job's lock, so that it runs only once at a time; raises JobError."""
    job.status_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
                "no connection to %s for %.0f s: the job waits for it, also with --once",
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
        logging.getLogger(__name__).warning("%s: %s", what, error)
