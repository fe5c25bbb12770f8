"""Finite jobs of pipelines: ``stompkit pipeline run compact|rebuild|verify``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from stompkit._commands.shared.text import aligned, duration
from stompkit._common.arguments import Parser, argument_type
from stompkit._common.secrets import SecretError, resolve
from stompkit._common.spelling import amount
from stompkit._common.text import shown, text_of
from stompkit.spark.jobs.settings import PipelineError, PipelineSettings, load, seconds

__all__ = ["CARE", "main"]

#: Descriptions of the jobs.
CARE: Final = {
    "compact": "merge small files of an event store into large ones",
    "rebuild": "rebuild a target database as of a time, without the broker",
    "verify": "compare a target database with its source",
}
_USAGE: Final = 2
_TELL_S: Final = 1.0
#: Maximum number of differences of a table that are listed as text.
_SHOWN: Final = 20

_COMPACT: Final = """\
The job `events` writes many small files. `compact` merges them into a few large ones, and removes
expired data (ttl in [events]) and changesets that are older than keep-history. Other jobs and
readers can use the store meanwhile. You can kill `compact` at any time. Its memory does not grow
with the store. Run it about once a day:

  stompkit pipeline run compact --config shop.toml

The next run removes the merged files, if they are at least ten minutes old. Readers may still need
newer ones.

exit status: 0; 1 an error, which is printed; 2 the command line or the file is wrong
"""

_REBUILD: Final = """\
All changes are applied again, from the first one on. They come from the event store, which needs
history = true and ttl = "forever" in [events], or from a spool from which retention has removed
nothing. The rebuild is one transaction of the target, so readers never see a part of it. The time
of a change is the time of its commit in the source.

  stompkit pipeline run rebuild --config shop.toml --target sqlite:///then.sqlite --create \\
      --at 2026-11-20T10:00:00Z
  stompkit pipeline run rebuild --config shop.toml --replace

The second command rebuilds the target of the file as of now. Stop the job `replicate` first, and
start it again afterwards. After a rebuild as of an earlier time, `replicate` begins with the first
message of the spool. A target cannot be rebuilt in place if the spool does not have the messages
that follow, or if the checkpoint of the job is at a URI. Use another --target then.

exit status: 0; 1 an error, which is printed; 2 the command line or the file is wrong
"""

_VERIFY: Final = """\
The replica must have each row of the source with equal values, and no other row. Values are
compared by meaning: 1.0 equals 1.00, and a time equals the same time in another zone. Columns that
only the replica has are ignored.

The source and the replica can be in use. Rows that differ are compared again after --settle. They
are equal if the replica has reached the state that the source had before. The file has the URL of
the source, and the masks of the publisher:

  [verify]
  source = "postgresql://me@db1/shop"
  masks = {"users.email" = "env:EMAIL_MASK"}

  stompkit pipeline run verify --config shop.toml
  stompkit pipeline run verify --config shop.toml --table orders --settle 30s --json

Spark reads tables with more than 500,000 rows and an integer as the first column of the key. It is
not started for other tables, and without PySpark or Java.

The result lists `missing` rows, `extra` rows, which the source does not have, and `different` rows
with their columns. `stompkit pipeline run rebuild --replace` rebuilds a replica.

exit status: 0 no difference; 1 a difference, or an error; 2 the command line or the file is wrong
"""


def main(arguments: list[str]) -> int:
    """Run the job that the first argument names."""
    parser = _PARSERS[arguments[0]]()
    options = parser.parse_args(arguments[1:])
    work: Callable[[PipelineSettings, argparse.Namespace], int] = options.work
    try:
        settings = load(options.config)
    except PipelineError as problem:
        print(f"stompkit pipeline: {problem}", file=sys.stderr)
        return _USAGE
    try:
        return work(settings, options)
    except ModuleNotFoundError:
        raise
    except KeyboardInterrupt:
        print(f"\nstompkit pipeline: {arguments[0]} is ended", file=sys.stderr)
        return 1
    except Exception as error:
        reason = settings.without_secrets(text_of(error))
        print(f"stompkit pipeline: {reason}", file=sys.stderr)
        return 1


def _parser(job: str, epilog: str) -> argparse.ArgumentParser:
    what = CARE[job]
    parser = Parser(
        prog=f"stompkit pipeline run {job}",
        description=f"{what[:1].upper()}{what[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="configuration, TOML"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


# Compact.


def _compact_parser() -> argparse.ArgumentParser:
    parser = _parser("compact", _COMPACT)
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    parser.set_defaults(work=_compact)
    return parser


def _compact(settings: PipelineSettings, options: argparse.Namespace) -> int:
    from stompkit.spark.jobs.compact import compact

    done = compact(settings)
    if options.json:
        told = {
            "before": done.before._asdict(),
            "after": done.after._asdict(),
            "expired": done.expired,
            "merged": done.merged,
            "made": done.made,
        }
        print(json.dumps(told, indent=1))
        return 0
    sizes = [("", "files", "octets")]
    for name, size in (("before", done.before), ("after", done.after)):
        sizes.append((name, f"{size.files:,}", f"{size.octets:,}"))
    for line in aligned(sizes, right=(1, 2)):
        print(line)
    print(f"{amount(done.expired, 'key')} or changesets past their life removed")
    return 0


# Rebuild.


def _rebuild_parser() -> argparse.ArgumentParser:
    parser = _parser("rebuild", _REBUILD)
    add = parser.add_argument
    add(
        "--at",
        type=_time,
        metavar="TIME",
        help="time of the rebuilt state, such as 2026-11-20T10:00:00Z; default zone: UTC"
        " (default: now)",
    )
    add(
        "--until-ordinal",
        type=int,
        metavar="N",
        help="from the spool, and only up to its message N, in each of its partitions",
    )
    add(
        "--target",
        type=argument_type(resolve, SecretError),
        metavar="URL",
        help="target database (default: that of [target])",
    )
    add("--create", action="store_true", help="create missing tables")
    add("--replace", action="store_true", help="delete the rows of non-empty tables first")
    parser.set_defaults(work=_rebuild)
    return parser


def _rebuild(settings: PipelineSettings, options: argparse.Namespace) -> int:
    from stompkit.spark.jobs.rebuild import rebuild

    tell = _Tell(quiet=options.quiet)
    begun = time.monotonic()
    done = rebuild(
        settings,
        at=options.at,
        until_ordinal=options.until_ordinal,
        url=options.target,
        create=options.create,
        replace=options.replace,
        on_progress=lambda changes: tell(f"{amount(changes, 'change')} read"),
    )
    tell.end()
    took = duration(time.monotonic() - begun)
    print(f"{amount(done.changes, 'change')} from {done.source} in {took}")
    rows = [("table", "rows"), *((shown(name), f"{count:,}") for name, count in done.rows.items())]
    for line in aligned(rows, right=(1,)):
        print(f"  {line}")
    if done.dead_letters:
        print(f"{amount(done.dead_letters, 'dead letter')} in stompkit_pipeline_dead_letters")
    if done.goes_on:
        again = f"stompkit pipeline run replicate --config {shlex.quote(str(options.config))}"
        print(f"go on with: {again}")
    return 0


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 2026-11-20T10:00:00Z"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


# Verify.


def _verify_parser() -> argparse.ArgumentParser:
    parser = _parser("verify", _VERIFY)
    add = parser.add_argument
    url = argument_type(resolve, SecretError)
    add("--source", type=url, metavar="URL", help="source database (default: that of [verify])")
    add("--target", type=url, metavar="URL", help="target database (default: that of [target])")
    add(
        "--table",
        action="append",
        metavar="NAME",
        help="compare only this table, NAME or SCHEMA.NAME; repeatable",
    )
    add(
        "--settle",
        type=argument_type(seconds, PipelineError),
        metavar="TIME",
        help="wait this time before differing rows are compared again, such as 5s; 0s: never",
    )
    add("--json", action="store_true", help="as JSON, for programs")
    parser.set_defaults(work=_verify)
    return parser


def _verify(settings: PipelineSettings, options: argparse.Namespace) -> int:
    from stompkit.spark.jobs.verify import Verdict, verify

    tell = _Tell(quiet=options.quiet)
    found = verify(
        settings,
        source=options.source,
        url=options.target,
        tables=options.table,
        settle_s=options.settle,
        on_progress=lambda name: tell(f"comparing {shown(name)}"),
    )
    tell.end()
    are_equal = all(table.is_equal for table in found)
    if options.json:
        told = {"equal": are_equal, "tables": msgspec.to_builtins(found)}
        print(json.dumps(told, indent=1))
        return 0 if are_equal else 1

    def verdict(table: Verdict) -> str:
        if table.is_equal:
            return "equal"
        if table.source_rows is None:
            return "the source has no such table"
        if table.target_rows is None:
            return "the replica has no such table"
        more = "more than " if table.has_more else ""
        return f"{more}{amount(len(table.differences), 'difference')}"

    rows = [("table", "source", "replica", "")]
    for table in found:
        counts = (table.source_rows, table.target_rows)
        sizes = ["-" if count is None else f"{count:,}" for count in counts]
        rows.append((shown(table.name), sizes[0], sizes[1], verdict(table)))
    for line in aligned(rows, right=(1, 2)):
        print(line)
    for table in found:
        for each in table.differences[:_SHOWN]:
            key = shown(json.dumps(each.key, ensure_ascii=False))
            columns = f": {', '.join(map(shown, each.columns))}" if each.columns else ""
            print(f"  {each.kind} {shown(each.table)} {key}{columns}")
        if len(table.differences) > _SHOWN:
            print(f"  ... and more of {shown(table.name)}: --json lists up to 1,000")
    if not are_equal and options.target is None:
        file = shlex.quote(str(options.config))
        sys.stdout.flush()
        print(
            f"stompkit pipeline: `stompkit pipeline status {file}` shows the lag of replicate. If"
            " it is not 0, the copy lacks the newest changes: compare again later",
            file=sys.stderr,
        )
    return 0 if are_equal else 1


class _Tell:
    """Shows the current activity on one line of a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._is_on: Final = not quiet and sys.stderr.isatty()
        self._last = 0.0

    def __call__(self, text: str) -> None:
        if self._is_on and time.monotonic() - self._last >= _TELL_S:
            self._last = time.monotonic()
            print(f"\r\x1b[K{text[:79]}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._is_on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


_PARSERS: Final[dict[str, Callable[[], argparse.ArgumentParser]]] = {
    "compact": _compact_parser,
    "rebuild": _rebuild_parser,
    "verify": _verify_parser,
}
