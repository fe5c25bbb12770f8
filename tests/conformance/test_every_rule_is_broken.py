"""Each case fails on some server: a case that never fails is useless.

Most fail on a fault of :mod:`tests.conformance.test_broken_rules`. A module that uses other faults
or tests names its cases in ``FOUND_BY``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

from stompkit.conformance.case import Case
from stompkit.conformance.run.runner import Selection, all_cases
from tests.conformance.test_broken_rules import FAULTS


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """The cases of the suite."""
    return all_cases(Selection())


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """The ids of the cases that fail somewhere, each with the name of one such place."""
    named = {each: name for name in _modules_with_names() for each in _names_of(name)}
    return named | {each: name for name, fault in FAULTS.items() for each in fault.found_by}


def _modules_with_names() -> list[str]:
    return [
        f"tests.conformance.{path.stem}"
        for path in sorted(Path(__file__).parent.glob("*.py"))
        if re.search("^FOUND_BY\\b", path.read_text("utf-8"), re.MULTILINE)
    ]


def _names_of(module: str) -> Iterable[str]:
    names: Iterable[str] = import_module(module).FOUND_BY
    return names


def test_a_case_that_judges_is_failed_by_some_server(
    cases: list[Case], found: dict[str, str]
) -> None:
    """Informational cases, which only record their observations, are exempt."""
    missing = [
        f"{case.level} {case.id}"
        for case in cases
        if not case.informational and case.id not in found
    ]
    assert not missing, f"no server fails these {len(missing)} cases:\n" + "\n".join(missing)


def test_a_case_that_a_server_fails_exists(cases: list[Case], found: dict[str, str]) -> None:
    """No fault refers to a case that was removed."""
    there = {case.id for case in cases}
    gone = [f"{each} ({place})" for each, place in found.items() if each not in there]
    assert not gone, "no such cases:\n" + "\n".join(gone)
