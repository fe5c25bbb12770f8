"""Runs the cases: pytest underneath, our own words and exit status above."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum

import stompkit
from stompkit.conformance._session import (
    INTERRUPTED,
    HarnessError,
    Selection,
    Session,
    cases_folder,
    run_pytest,
)
from stompkit.conformance.address import Address
from stompkit.conformance.case import Case
from stompkit.conformance.control import Control
from stompkit.conformance.report import Report, TargetInfo
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import CaseResult

__all__ = ["Exit", "HarnessError", "Selection", "all_cases", "cases_folder", "exit_of", "run"]


class Exit(IntEnum):
    """The exit status of the runner."""

    #: Everything is as it is expected to be.
    OK = 0
    #: A case failed that was not expected to, or the reverse.
    FAILURES = 1
    #: The command line makes no sense, or selects nothing.
    USAGE = 2
    #: Nothing that speaks STOMP answers, or it stopped answering.
    UNREACHABLE = 3
    #: The suite itself is broken.
    HARNESS = 4
    #: Somebody pressed Ctrl-C; the number is the shell's for that.
    INTERRUPTED = 130
    #: It got SIGTERM; likewise.
    TERMINATED = 143


def all_cases(selection: Selection) -> list[Case]:
    """The selected cases, without running any; raises :class:`HarnessError`."""
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
    on_case: Callable[[Case], None] = lambda case: None,
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> Report:
    """Run the selected cases on a target; mistakes of the suite's own are in ``errors``.

    ``control`` can start the target again, ``jobs`` is how many cases may run at the same time.
    ``on_case`` is told each case before it is run, ``on_result`` each result as it comes.
    """
    began = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
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
        results=sorted(state.results, key=lambda result: order[result.id]),
        errors=state.errors,
    )


def exit_of(report: Report, *, strict: bool) -> Exit:
    """The exit status that a report amounts to."""
    if report.cut_short == INTERRUPTED:
        return Exit.INTERRUPTED
    if report.errors:
        return Exit.HARNESS
    if not report.complete:
        return Exit.UNREACHABLE
    if report.unexpected(strict=strict) or report.better_than_expected:
        return Exit.FAILURES
    return Exit.OK
