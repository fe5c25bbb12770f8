"""``stompkit pipeline``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stompkit._commands.pipeline.maintenance import CARE
from stompkit._commands.pipeline.maintenance import main as care
from stompkit._common.arguments import Parser, Subcommands, argument_type
from stompkit._common.metrics import parse_address
from stompkit.spark.jobs.settings import JOBS, PipelineError, advice, seconds

__all__ = ["main", "parser"]

_EPILOG: Final = """\
A pipeline reads changes from a spool, which `stompkit spool` fills from brokers. Each change is
applied exactly once, also after a crash. Its jobs:

  replicate   apply changes to a database: PostgreSQL, SQLite, MariaDB, MySQL
  events      store changes in an event store: a folder of Parquet files
  analytics   count changes by the minute, into Parquet files or a database, with a report

Jobs that end when they are done:

  compact     merge small files of an event store into large ones
  rebuild     rebuild a target database as of a time, without the broker
  verify      compare a target database with its source

The configuration file of a pipeline:

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

`stompkit pipeline COMMAND --help` describes a command.

exit status: 0 success; 1 failure, with the reason on standard error; 2 wrong command line, or wrong
configuration file of run
"""

_RUN: Final = """\
SIGTERM or SIGINT (Ctrl-C) stops the job after the current batch. With --once, it stops when all
existing messages are processed. The next run resumes at the position stored in the target.

  stompkit pipeline run replicate --config shop.toml
  stompkit pipeline run replicate --config shop.toml --trigger 200ms
  stompkit pipeline run events --config shop.toml --once
  stompkit pipeline run analytics --config shop.toml --report shop.html

With [metrics], the job serves Prometheus metrics: batches, their durations, lag, dead letters. Jobs
that run at the same time need different addresses, such as
listen = {events = "127.0.0.1:9401", replicate = "127.0.0.1:9402"}. --metrics-port
overrides it.
"""

_REPORT: Final = """\
The job analytics updates the report with each batch. This command creates it from the existing
data, also while the job is stopped. The report is one page without scripts and external resources.

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
        print(f"stompkit pipeline: {advice(error)}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""
    parser = Parser(
        prog="stompkit pipeline",
        description="Apply changes from a spool to databases and event stores, with Spark.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = Subcommands(parser).add
    run = add("run", "run a job of a pipeline until stopped", work=_run, epilog=_RUN)
    run.add_argument(
        "job",
        choices=(*JOBS, *CARE),
        metavar="JOB",
        help=f"{', '.join(JOBS)}; or {', '.join(CARE)}, which have further options, see --help",
    )
    run.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="configuration, TOML"
    )
    modes = run.add_mutually_exclusive_group()
    modes.add_argument(
        "--once", action="store_true", help="stop when all existing messages are processed"
    )
    modes.add_argument(
        "--trigger",
        type=argument_type(seconds, PipelineError),
        metavar="TIME",
        help="interval between batches, such as 200ms or 10s; 0s: without pause (default: 1s)",
    )
    run.add_argument(
        "--report", type=Path, metavar="FILE", help="analytics: update this report with each batch"
    )
    run.add_argument(
        "--metrics-port",
        "--metrics",
        dest="metrics",
        type=_address,
        metavar="[HOST:]PORT",
        help="serve Prometheus metrics at this address (default host: 127.0.0.1)",
    )
    run.add_argument("--quiet", action="store_true", help="show no progress")
    run.add_argument(
        "--verbose", action="store_true", help="write a detailed log, including Spark's"
    )
    check = add("check", "check the configuration file of a pipeline", work=_check)
    status = add("status", "print the progress of the jobs of a pipeline", work=_status)
    report = add("report", "create the report of the job analytics", work=_report, epilog=_REPORT)
    report.add_argument(
        "--output",
        metavar="PAGE",
        help="file for the report; - for standard output (default: that of the configuration)",
    )
    for command in (check, status, report):
        command.add_argument("file", type=Path, metavar="FILE", help="configuration, TOML")
    status.add_argument("--json", action="store_true", help="print JSON")
    return parser


@argument_type
def _address(text: str) -> str:
    return str(parse_address(text))


def _run(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.run import Display, run
    from stompkit.spark.jobs import Pipeline, load

    display = None if options.quiet else Display()
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
            on_step=None if display is None else display.step,
        )
    except PipelineError as problem:
        print(f"stompkit pipeline: {problem}", file=sys.stderr)
        return _USAGE
    return run(pipeline, options.config, display, verbose=options.verbose)


def _check(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.inspection import check

    return check(options.file)


def _status(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.inspection import print_status

    return print_status(options.file, as_json=options.json)


def _report(options: argparse.Namespace) -> int:
    from stompkit._commands.pipeline.inspection import make_report

    return make_report(options.file, options.output)
