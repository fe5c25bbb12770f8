"""``stompkit pipeline``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit._commands.pipeline.maintenance import CARE
from stompkit._commands.pipeline.maintenance import main as care
from stompkit._common.arguments import Parser
from stompkit._common.metrics import parse_address
from stompkit.spark.jobs.settings import JOBS, PipelineError, seconds

__all__ = ["main", "parser"]

_EPILOG: Final = """\
A pipeline reads a spool, which `stompkit spool` fills from brokers, and applies each change once,
whatever is killed when. Its jobs:

  replicate   apply changes to a database: PostgreSQL, SQLite, MariaDB, MySQL
  events      store changes in an event store: a folder of Parquet files
  analytics   count changes by the minute, into Parquet files or a database, with a report

and those that end by themselves:

  compact     make few large files of the many small ones of an event store
  rebuild     make a replica as of some time, without the broker
  verify      compare a replica with its source

A file says what a pipeline does:

  name = "shop"

  [source]
  spool = "/var/spool/shop"

  [target]
  url = "postgresql://me@db2/shop"
  create = true

  [events]
  path = "/var/lib/shop/events"

  [analytics]
  path = "/var/lib/shop/analytics"
  report = "/var/www/shop.html"

  [metrics]
  listen = "127.0.0.1:9400"

  stompkit spool run /var/spool/shop --from stomp://mq:61613/queue/changes
  stompkit pipeline check shop.toml
  stompkit pipeline run replicate --config shop.toml
  stompkit pipeline status shop.toml

`stompkit pipeline COMMAND --help` says more about each.

exit status: 0; 1 it can't be done, or it can't go on, and has said why; 2 the command line, or the
file of run, is wrong
"""

_RUN: Final = """\
It ends by SIGTERM or SIGINT (Ctrl-C), when the batch under way is done; with --once when it has
what is there. Killed or ended, it goes on where its target is.

  stompkit pipeline run replicate --config shop.toml
  stompkit pipeline run replicate --config shop.toml --trigger 200ms
  stompkit pipeline run events --config shop.toml --once
  stompkit pipeline run analytics --config shop.toml --report shop.html

With [metrics] Prometheus can ask how it goes: batches, what they take, lag, dead letters. Each job
that runs at the same time needs an address of its own: --metrics is taken instead of the file's.
"""

_REPORT: Final = """\
The job analytics makes the report anew with each batch; this makes it of what there is, whether the
job runs or not. It is one page without scripts, which loads nothing.

  stompkit pipeline report shop.toml --output shop.html
  stompkit pipeline report shop.toml --output - | ssh web 'cat > shop.html'
"""

_USAGE: Final = 2


def main(arguments: list[str]) -> int:
    """Run a pipeline's job, or inspect a pipeline."""
    try:
        if arguments[:1] == ["run"] and arguments[1:2] and arguments[1] in CARE:
            return care(arguments[1:])
        options = parser().parse_args(arguments)
        work: Callable[[argparse.Namespace], int] = options.work
        return work(options)
    except ModuleNotFoundError as error:
        print(f"stompkit pipeline: {_extra(error)}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit pipeline",
        description="Carry changes from spools to replicas and event stores, by Spark.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, what: str, work: Callable[[argparse.Namespace], int], epilog: str = ""
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=what,
            description=f"{what[:1].upper()}{what[1:]}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(work=work)
        return command

    run = add("run", "run a job of a pipeline, until it is told to end", _run, _RUN)
    run.add_argument(
        "job",
        choices=(*JOBS, *CARE),
        metavar="JOB",
        help=f"{', '.join(JOBS)}; or {', '.join(CARE)}, which have options of their own: --help",
    )
    run.add_argument("--config", type=Path, required=True, metavar="FILE", help="the pipeline")
    modes = run.add_mutually_exclusive_group()
    modes.add_argument("--once", action="store_true", help="end when it has what is there")
    modes.add_argument(
        "--trigger",
        type=_seconds,
        metavar="TIME",
        help="begin a batch so often, such as 200ms or 10s; 0s: without a pause; by default 1s",
    )
    run.add_argument(
        "--report", type=Path, metavar="FILE", help="of analytics: a page to write with each batch"
    )
    run.add_argument(
        "--metrics-port",
        "--metrics",
        dest="metrics",
        type=_address,
        metavar="[HOST:]PORT",
        help="serve Prometheus there; without a host on the loopback interface",
    )
    run.add_argument("--quiet", action="store_true", help="tell no progress")
    run.add_argument("--verbose", action="store_true", help="log more, of Spark's, too")
    check = add("check", "say what is wrong with the file of a pipeline", _check)
    status = add("status", "tell how far the jobs of a pipeline are", _status)
    report = add("report", "make the report of the job analytics", _report, _REPORT)
    report.add_argument(
        "--output",
        metavar="PAGE",
        help="where to write it, - for the output; by default where the file says",
    )
    for command in (check, status, report):
        command.add_argument("file", type=Path, metavar="FILE", help="the pipeline, TOML")
    status.add_argument("--json", action="store_true", help="as JSON, for programs")
    return parser


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except PipelineError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _address(text: str) -> str:
    try:
        return str(parse_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.run import run
    from stompkit.spark.jobs import Pipeline, load

    try:
        settings = load(options.config)
        settings = settings.with_options(
            options.job, report=options.report, metrics=options.metrics
        )
        pipeline = Pipeline(
            settings,
            options.job,
            once=options.once,
            trigger_s=options.trigger,
            log_level="WARN" if options.verbose else "OFF",
        )
    except PipelineError as problem:
        print(f"stompkit pipeline: {problem}", file=sys.stderr)
        return _USAGE
    return run(pipeline, options.config, quiet=options.quiet, verbose=options.verbose)


def _check(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.inspection import check

    return check(options.file)


def _status(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.inspection import print_status

    return print_status(options.file, as_json=options.json)


def _report(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.inspection import make_report

    return make_report(options.file, options.output)


#: Extras with the libraries that a job or some targets need.
_EXTRAS: Final = {
    "pyspark": "spark",
    "sqlalchemy": "sql",
    "psycopg": "postgresql",
    "pymysql": "mysql",
}


def _extra(error: ModuleNotFoundError) -> str:
    library = (error.name or "").partition(".")[0]
    if library not in _EXTRAS:
        raise error
    return f"this needs {library}: pip install 'stompkit[{_EXTRAS[library]}]'"
