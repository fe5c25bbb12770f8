"""Runs the cases with pytest, with the suite's own output and exit status."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

import stompkit
from stompkit.conformance.address import Address
from stompkit.conformance.case import Case
from stompkit.conformance.control import Control
from stompkit.conformance.report.report import Report, TargetInfo
from stompkit.conformance.run.overall import judge_run
from stompkit.conformance.run.session import (
    INTERRUPTED,
    HarnessError,
    Selection,
    Session,
    cases_folder,
    run_pytest,
)
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import CaseResult
from stompkit.frames import Version

__all__ = ["Exit", "HarnessError", "Selection", "all_cases", "cases_folder", "exit_of", "run"]


#: Number of open files that is enough for each case.
_MOST_FILES: Final = 4_096


class Exit(IntEnum):
    """The exit status of the runner."""

    #: All results are as expected.
    OK = 0
    #: A case failed unexpectedly, an expected deviation did not occur, or the run fails as a whole.
    FAILURES = 1
    #: The command line is invalid or selects no cases, or one of its commands failed.
    USAGE = 2
    #: No STOMP server answers, or it stopped answering.
    UNREACHABLE = 3
    #: The suite itself has an error.
    HARNESS = 4
    #: The user pressed Ctrl-C; the number is the shell's convention for that.
    INTERRUPTED = 130
    #: The runner got SIGTERM; likewise.
    TERMINATED = 143
    #: The runner got SIGHUP, as when its terminal is closed; likewise.
    HUNG_UP = 129


def all_cases(selection: Selection) -> list[Case]:
    """Return the selected cases, without running any; raises :class:`HarnessError`."""
    run = Session(selection)
    run_pytest(run)
    if run.errors:
        raise HarnessError("\n".join(run.errors))
    if run.cut_short:
        raise KeyboardInterrupt
    return run.cases


def run(
    address: Address,
    capabilities: Capabilities,
    selection: Selection,
    *,
    control: Control | None = None,
    jobs: int = 1,
    required: Sequence[Version] = (),
    on_case: Callable[[Case], None] = lambda case: None,
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> Report:
    """Run the selected cases on a target; errors of the suite itself are in ``errors``.

    ``control`` can restart the target; ``jobs`` is the maximum number of parallel cases. The run
    fails unless the target speaks the ``required`` versions.
    ``on_case`` is called before each case, ``on_result`` after each result.
    """
    began = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    _allow_connections()
    state = Session(selection, address, capabilities, control, jobs, on_case, on_result)
    run_pytest(state)
    order = {case.id: place for place, case in enumerate(state.cases)}
    return Report(
        suite_version=stompkit.__version__,
        target=TargetInfo(
            address=str(address),
            server=capabilities.server,
            versions=list(capabilities.versions),
        ),
        started=started,
        duration_s=round(time.monotonic() - began, 3),
        complete=not state.cut_short,
        cut_short=state.cut_short,
        selected=len(state.cases),
        required=list(required),
        results=judge_run(sorted(state.results, key=lambda result: order[result.id])),
        failed_command=state.failed_command,
        errors=state.errors,
    )


def _allow_connections() -> None:
    """Raise the soft limit of open files, since a case may open hundreds of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def exit_of(report: Report, *, strict: bool) -> Exit:
    """Return the exit status for a report."""
    if report.cut_short == INTERRUPTED:
        return Exit.INTERRUPTED
    if report.errors:
        return Exit.HARNESS
    if report.failed_command:
        return Exit.USAGE
    if not report.complete:
        return Exit.UNREACHABLE
    if report.unexpected(strict=strict) or report.better_than_expected or report.shortcomings():
        return Exit.FAILURES
    return Exit.OK
