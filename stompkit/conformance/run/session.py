"""One pytest run over the cases: selection, execution and results."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest

from stompkit.conformance import plugin
from stompkit.conformance.address import Address
from stompkit.conformance.case import Case
from stompkit.conformance.control import Control
from stompkit.conformance.requirements import Level
from stompkit.conformance.run.pool import Pool, Task
from stompkit.conformance.run.signals import hold_signals
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import CaseResult

__all__ = ["INTERRUPTED", "HarnessError", "Selection", "Session", "cases_folder", "run_pytest"]

#: Reason of an interrupted run that is not the target's fault.
INTERRUPTED: Final = "interrupted"


class HarnessError(Exception):
    """An error of the suite itself: a case cannot be loaded, or raised an unexpected exception."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the cases to run."""

    #: Patterns of case ids; empty selects all.
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    levels: tuple[Level, ...] = ()
    #: The folder with the cases; by default that of the suite.
    folder: Path | None = None

    def takes(self, case: Case) -> bool:
        """Return True if a case is selected."""
        return (
            (not self.include or any(_is_called(case, pattern) for pattern in self.include))
            and not any(_is_called(case, pattern) for pattern in self.exclude)
            and (not self.levels or case.level in self.levels)
        )

    def unknown(self, cases: list[Case]) -> list[str]:
        """Return the patterns that match none of these cases."""
        return [
            pattern
            for pattern in (*self.include, *self.exclude)
            if not any(_is_called(case, pattern) for case in cases)
        ]


def _is_called(case: Case, pattern: str) -> bool:
    """Return True if a pattern matches the id of a case or a requirement that it covers.

    ``1.?/ack`` matches everything below it.
    """
    return (
        fnmatchcase(case.id, pattern)
        or fnmatchcase(case.id, pattern.rstrip("/") + "/*")
        or pattern in case.requirements
    )


def cases_folder() -> Path:
    """Return the folder of the cases: in the installed package, or in the checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "cases", package.parents[1] / "conformance"):
        if (folder / "pytest.ini").is_file():
            return folder
    raise HarnessError(f"no cases found in {package / 'cases'}")


@dataclass(eq=False)  # pytest requires hashable plug-ins
class Session:
    """The pytest plug-in of the runner; it runs all selected cases."""

    selection: Selection
    address: Address | None = None
    capabilities: Capabilities | None = None
    control: Control | None = None
    #: Maximum number of parallel cases, except those that must run alone.
    jobs: int = 1
    on_case: Callable[[Case], None] = lambda case: None
    on_result: Callable[[CaseResult], None] = lambda result: None
    cases: list[Case] = field(default_factory=list)
    results: list[CaseResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    #: Reason why not all cases were run.
    cut_short: str = ""
    #: Failure of a user's command, which ended the run.
    failed_command: str = ""
    #: Cases that run in separate processes.
    shared: list[Case] = field(default_factory=list)

    def pytest_configure(self, config: pytest.Config) -> None:
        """Pass the target to the plug-in of the cases."""
        if self.address is not None:
            config.stash[plugin.ADDRESS] = self.address
        if self.capabilities is not None:
            config.stash[plugin.CAPABILITIES] = self.capabilities
        if self.control is not None:
            config.stash[plugin.CONTROL] = self.control

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Keep the selected cases, in the order of the specifications."""
        try:
            yield
        except pytest.UsageError as error:
            self.errors.append(str(error))
            items.clear()
        found = [(item.stash[plugin.CASE], item) for item in items if plugin.CASE in item.stash]
        found = [pair for pair in found if self.selection.takes(pair[0])]
        # The chapters are in the order of their names.
        found.sort(key=lambda pair: (pair[0].chapter, pair[0].version))
        self.cases = [case for case, _ in found]
        if self.jobs > 1:
            self.shared = [case for case in self.cases if not case.is_alone]
            found = [pair for pair in found if pair[0].is_alone]
        items[:] = [item for _, item in found] if self.address is not None else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the cases that may share the target; pytest runs the others."""
        folder = self.selection.folder
        if self.shared and self.address is not None and self.capabilities is not None:
            pool = Pool(
                Task(self.address, self.capabilities, str(folder) if folder else None),
                jobs=self.jobs,
                on_case=self.on_case,
                on_result=self._take,
            )
            pool.run(self.shared)
            self.errors += pool.errors
            self.cut_short = pool.cut_short
        return True if self.cut_short else None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record an error of a module of cases."""
        if report.failed:
            self.errors.append(str(report.longrepr))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Store the result after the teardown of the case: only then its ending is known."""
        self.on_case(item.stash[plugin.CASE])
        answer = yield
        result = item.stash.get(plugin.RESULT, None)
        if result is not None:
            self._take(result)
        return answer

    def _take(self, result: CaseResult) -> None:
        self.results.append(result)
        self.on_result(result)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record an error of the suite."""
        known = dict(report.user_properties)
        self.failed_command = self.failed_command or str(known.get(plugin.COMMAND, ""))
        # Other failures are errors of the suite itself.
        if report.failed and not known.keys() & {plugin.JUDGED, plugin.COMMAND}:
            self.errors.append(f"{report.nodeid} ({report.when}): {report.longrepr}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Keep what there is, whatever signals come from now on."""
        if self.address is not None:
            hold_signals()

    def pytest_internalerror(self, excrepr: object) -> None:
        """Record an error of pytest or of a plug-in."""
        self.errors.append(str(excrepr))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record why the run ends early; pytest's own reasons arrive here as well."""
        is_pytests = isinstance(excinfo.value, pytest.Session.Interrupted)
        self.cut_short = str(excinfo.value) if is_pytests else INTERRUPTED


#: Plug-ins of pytest that write output, or that turn a warning, such as one about a socket left
#: open by Ctrl-C, into the end of the run.
_LEFT_OUT: Final = (
    "terminal",
    "cacheprovider",
    "warnings",
    "unraisableexception",
    "threadexception",
)


def run_pytest(run: Session) -> None:
    """Collect the cases, and run them if there is an address; the results are in ``run``."""
    own_folder = cases_folder()
    folder = run.selection.folder or own_folder
    arguments = [
        str(folder),
        f"-c={own_folder / 'pytest.ini'}",
        f"--rootdir={folder}",
        f"--confcutdir={folder}",
        "--import-mode=importlib",
        "--capture=no",
        *(f"-pno:{name}" for name in _LEFT_OUT),
    ]
    # A user's pytest settings are for the user's own tests.
    spared = {name: os.environ.pop(name, None) for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    autoload = os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    written = sys.dont_write_bytecode
    # Do not leave files in an installed package.
    sys.dont_write_bytecode = written or own_folder.parent == Path(__file__).parents[1]
    try:
        status = pytest.main(arguments, plugins=[run, plugin])
    finally:
        sys.dont_write_bytecode = written
        spared["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = autoload
        for name, value in spared.items():
            if value is not None:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
    if status in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        run.errors.append(f"pytest ended with status {status}")
