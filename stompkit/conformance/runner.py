"""Runs the cases: pytest underneath, our own words and exit status above."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import stompkit
from stompkit.conformance import plugin
from stompkit.conformance.case import Case
from stompkit.conformance.report import Report, TargetInfo
from stompkit.conformance.requirements import Level
from stompkit.conformance.target import Address, Capabilities
from stompkit.conformance.verdict import CaseResult
from stompkit.testing import plugin as testing_plugin

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


class HarnessError(Exception):
    """The suite itself is broken: a case can't be loaded, or raised what no case may raise."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cases to run."""

    #: Patterns of case ids; all if there are none.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()

    def takes(self, case: Case) -> bool:
        """Whether a case is selected; ``1.2/ack`` stands for everything below it."""
        return (
            (not self.include or _matches(case.id, self.include))
            and not _matches(case.id, self.exclude)
            and (not self.levels or case.level in self.levels)
        )


def _matches(case_id: str, patterns: tuple[str, ...]) -> bool:
    return any(
        fnmatchcase(case_id, pattern) or case_id.startswith(pattern.rstrip("/") + "/")
        for pattern in patterns
    )


def cases_folder() -> Path:
    """Where the cases are: in the package once it is installed, else in the checkout."""
    package = Path(__file__).parent
    for folder in (package / "cases", package.parents[1] / "conformance"):
        if (folder / "pytest.ini").is_file():
            return folder
    raise HarnessError(f"no cases found in {package / 'cases'}")


@dataclass
class _Run:
    """The part of the runner that pytest calls."""

    selection: Selection
    address: Address | None
    capabilities: Capabilities | None
    on_begin: Callable[[int], None]
    on_result: Callable[[CaseResult], None]
    cases: list[Case] = field(default_factory=list)
    results: list[CaseResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    selected: int = 0

    def pytest_configure(self, config: pytest.Config) -> None:
        if self.address is not None:
            config.stash[plugin.ADDRESS] = self.address
        if self.capabilities is not None:
            config.stash[plugin.CAPABILITIES] = self.capabilities

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is selected, in the order of the specifications."""
        found = [(item.stash[plugin.CASE], item) for item in items if plugin.CASE in item.stash]
        self.cases = [case for case, _ in found if self.selection.takes(case)]
        items[:] = [
            item
            for case, item in sorted(found, key=lambda pair: pair[0].version)
            if self.address is not None and self.selection.takes(case)
        ]
        self.selected = len(items)
        if items:
            self.on_begin(len(items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(str(report.longrepr))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Take the result once the case is torn down: then its ending is known."""
        answer = yield
        result = item.stash.get(plugin.RESULT, None)
        if result is not None:
            self.results.append(result)
            self.on_result(result)
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A case whose failure was judged has no traceback that anybody needs; what is left is a
        # mistake of the suite's own.
        if report.failed and plugin.JUDGED not in dict(report.user_properties):
            self.errors.append(f"{report.nodeid} ({report.when}): {report.longrepr}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self.errors.append(str(excrepr))


def _pytest(run: _Run) -> None:
    folder = cases_folder()
    arguments = [
        str(folder),
        f"-c={folder / 'pytest.ini'}",
        f"--rootdir={folder}",
        f"--confcutdir={folder}",
        "--import-mode=importlib",
        "--capture=no",
        *("-p", "no:terminal"),
        *("-p", "no:cacheprovider"),
    ]
    # What a user has set for pytest is for the user's own tests.
    spared = {name: os.environ.pop(name, None) for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    autoload = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    written = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # the cases may be installed where nobody may write
    try:
        status = pytest.main(arguments, plugins=[run, plugin, testing_plugin])
    finally:
        sys.dont_write_bytecode = written
        spared["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = autoload
        for name, value in spared.items():
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
    if status == pytest.ExitCode.INTERRUPTED and not run.errors and not run.results:
        raise KeyboardInterrupt
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        run.errors.append(f"pytest ended with status {status}")
    if run.errors:
        raise HarnessError("\n".join(run.errors))


def all_cases(selection: Selection) -> list[Case]:
    """The selected cases, without running any; raises :class:`HarnessError`."""
    run = _Run(selection, None, None, lambda number: None, lambda result: None)
    _pytest(run)
    return sorted(run.cases, key=lambda case: case.version)


def run(
    address: Address,
    capabilities: Capabilities,
    selection: Selection,
    *,
    on_begin: Callable[[int], None] = lambda number: None,
    on_result: Callable[[CaseResult], None] = lambda result: None,
) -> Report:
    """Run the selected cases on a target; raises :class:`HarnessError`.

    ``on_begin`` is told how many there are, ``on_result`` each result as it comes.
    """
    began = time.monotonic()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    state = _Run(selection, address, capabilities, on_begin, on_result)
    _pytest(state)
    host = f"[{address.host}]" if ":" in address.host else address.host
    return Report(
        suite_version=stompkit.__version__,
        target=TargetInfo(
            address=f"{host}:{address.port}",
            server=capabilities.server,
            versions=list(capabilities.versions),
        ),
        started=started,
        duration_s=round(time.monotonic() - began, 3),
        complete=len(state.results) == state.selected,
        results=state.results,
    )


def exit_of(report: Report, *, strict: bool) -> Exit:
    """The exit status that a report amounts to."""
    if not report.complete:
        return Exit.UNREACHABLE
    if report.unexpected(strict=strict) or report.better_than_expected:
        return Exit.FAILURES
    return Exit.OK
