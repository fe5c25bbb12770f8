"""``merge``: combines the reports of several runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import msgspec

from stompkit._common.arguments import Parser
from stompkit._common.files import reason_of
from stompkit.conformance.report.expectations import UsageError
from stompkit.conformance.report.html_matrix import to_matrix
from stompkit.conformance.report.markdown import to_markdown_matrix
from stompkit.conformance.report.report import FORMAT, Merged, Report, to_json
from stompkit.conformance.report.writing import write_reports
from stompkit.conformance.run.values import report_file

__all__ = ["merge", "read"]

_DESCRIPTION = """\
Makes one report of several: the JSON reports of runs on different targets, or
on one at different times, become the columns of one table, in the order given.
"""

#: File types and their contents.
_FILES: Final = {
    "html": "one page: a table of cases and targets, and what was found",
    "markdown": "a table of targets, and the cases that are not OK on all",
    "json": "all reports in one file, which merge takes as well",
}


class _Head(msgspec.Struct):
    """The fields that determine how to decode the rest."""

    format: int
    #: Present only in a file with several reports.
    reports: list[msgspec.Raw] | None = None


def merge(arguments: list[str]) -> None:
    """Run the subcommand; raises :class:`UsageError` for files that cannot be read or written."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if all(getattr(options, name) is None for name in _FILES):
        parser.error(f"what shall it write? At least one of --{', --'.join(_FILES)} is needed")
    reports = [report for path in options.report for report in read(path)]
    write_reports(
        options,
        {
            "html": lambda: to_matrix(reports, all_logs=options.all_wire_logs),
            "markdown": lambda: to_markdown_matrix(reports),
            "json": lambda: to_json(Merged(reports=reports)),
        },
    )


def _parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="python -m stompkit.conformance merge",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "report", nargs="+", metavar="REPORT", type=Path, help="what --json has written"
    )
    for name, what in _FILES.items():
        made.add_argument(f"--{name}", metavar="FILE", type=report_file, help=f"write {what}")
    made.add_argument(
        "--all-wire-logs",
        action="store_true",
        help="have the wire log of every case in --html, not only of those that are FAILED or"
        " NON-STRICT",
    )
    return made


def read(path: Path) -> list[Report]:
    """Return the reports of a file, one or several.

    Raises :class:`UsageError` for a file that cannot be read, is not a report, or has a format that
    this version does not support.
    """
    try:
        reports = _decode(path, path.read_bytes())
    except OSError as error:
        raise UsageError(f"merge: cannot read {path}: {reason_of(error)}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"merge: {path} is no report of this suite: {error}") from None
    if not reports:
        raise UsageError(f"merge: {path} holds no report")
    return reports


def _decode(path: Path, data: bytes | msgspec.Raw) -> list[Report]:
    head = msgspec.json.decode(data, type=_Head)
    if head.format != FORMAT:
        raise UsageError(
            f"merge: {path} has format {head.format}; this version of stompkit knows format"
            f" {FORMAT} only"
        )
    if head.reports is None:
        return [msgspec.json.decode(data, type=Report)]
    return [report for each in head.reports for report in _decode(path, each)]
