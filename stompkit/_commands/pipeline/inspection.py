"""Inspection of pipelines: ``stompkit pipeline check``, ``status`` and ``report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from stompkit._commands.shared.text import aligned
from stompkit._common.files import write_atomically
from stompkit._common.spelling import amount
from stompkit._common.text import text_of
from stompkit.spark.jobs.settings import JOBS, PipelineError, PipelineSettings, load
from stompkit.spark.jobs.status import JobState, look, missing, unmatched

__all__ = ["check", "make_report", "print_status"]


def check(path: Path) -> int:
    """Print the problems of a file, and missing requirements; returns the exit status."""
    try:
        settings = load(path)
        missed = missing(settings)
    except PipelineError as problem:
        print(problem, file=sys.stderr)
        return 1
    for each in missed:
        print(f"{path}: not yet: {each}", file=sys.stderr)
    for warning in unmatched(settings):
        print(f"{path}: {warning}", file=sys.stderr)
    for job in settings.jobs():
        lacks = any(each.job in (None, job) for each in missed)
        verdict = "valid, but cannot run here yet" if lacks else "OK"
        print(f"{path}: {job}: {verdict}: {JOBS[job]}")
    return 0


def print_status(path: Path, *, as_json: bool) -> int:
    """Print the progress of the jobs; returns 1 if one of them cannot be queried."""
    try:
        settings = load(path)
    except PipelineError as problem:
        print(f"stompkit pipeline: {problem}", file=sys.stderr)
        return 1
    found: list[JobState] = []
    for job in settings.jobs():
        try:
            found.append(look(settings, job))
        except ModuleNotFoundError:
            raise
        except Exception as error:
            reason = settings.without_secrets(text_of(error))
            print(f"stompkit pipeline: {job}: {reason}", file=sys.stderr)
    if as_json:
        told = {"name": settings.name, "jobs": msgspec.to_builtins(found)}
        print(json.dumps(told, indent=1))
    else:
        _print(settings, found)
    return 0 if len(found) == len(settings.jobs()) else 1


def make_report(path: Path, output: str | None) -> int:
    """Write the report of the job analytics; returns the exit status."""
    # These need libraries that the other commands do not.
    from stompkit.spark.jobs.analytics import report_of, results_of

    settings: PipelineSettings | None = None
    try:
        settings = load(path)
        output = output or settings.demanded_analytics().report
        if not output:
            raise PipelineError("name a file with --output, or with report in [analytics]")
        results = results_of(settings)
        try:
            page = report_of(settings, results)
        finally:
            results.close()
        if output == "-":
            sys.stdout.buffer.write(page)
        else:
            write_atomically(Path(output), page, mode=None, parents=True)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        reason = text_of(error)
        reason = reason if settings is None else settings.without_secrets(reason)
        print(f"stompkit pipeline: {reason}", file=sys.stderr)
        return 1
    return 0


def _print(settings: PipelineSettings, found: list[JobState]) -> None:
    print(f"{settings.name}: reads {settings.spool()}")
    for state in found:
        runs = "running" if state.is_running else "not running on this machine"
        print(f"  {state.job}: {runs}, lag {amount(state.lag, 'message')}")
        rows = [("partition", "next", "head")]
        rows += [(f"{each.partition}", f"{each.next}", f"{each.head}") for each in state.places]
        for line in aligned(rows, right=(0, 1, 2)):
            print(f"    {line}")
