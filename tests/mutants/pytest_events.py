"""A stand-alone plug-in of pytest that writes events into a file as they occur.

It is not imported as part of a package, since the tree that is tested may not have this package.
"""

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_PATH = os.environ["MUTANTS_EVENTS"]
#: Files to run as a whole, and single tests; empty for all collected tests.
_WANTED = frozenset(Path(os.environ["MUTANTS_WANTED"]).read_text(encoding="utf-8").split("\n"))
_BUDGET_S = float(os.environ["MUTANTS_BUDGET_S"])
_deadline = math.inf


def _note(**event: object) -> None:
    with open(_PATH, "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def _why(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr)[:300]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that are not wanted.

    As an argument of pytest, one missing test would prevent all others.
    """
    if _WANTED == {""}:
        return
    wanted: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        is_wanted = not _WANTED.isdisjoint((item.nodeid, item.nodeid.partition("::")[0]))
        (wanted if is_wanted else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = wanted


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record the tests that will be run, and start the time budget."""
    global _deadline
    _deadline = time.monotonic() + _BUDGET_S
    _note(collected=[item.nodeid for item in session.items])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that cannot be imported."""
    if report.failed:
        _note(failed=report.nodeid, why=_why(report))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the start and end of a test; start none after the time budget."""
    if time.monotonic() > _deadline:
        item.session.shouldstop = "the time is over"
        _note(over=item.nodeid)
    else:
        _note(begun=item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the result of a test."""
    if report.failed:
        _note(failed=report.nodeid, why=_why(report))
    elif report.when == "call" and report.passed:
        _note(passed=report.nodeid, took_s=round(report.duration, 2))
    if report.when == "teardown":
        _note(ended=report.nodeid)
