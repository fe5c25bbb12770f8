"""Tests that run in the matrix lane since they take long: ``costly.txt``, by measured durations.

``python -m tests.suite.costs report/tests/*.xml`` prints the slow tests of a run in the format of
the list. A statement that is tested in many ways stays in the quick lane in its fastest way.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.suite.parts import ROOT

__all__ = ["COSTLY", "is_costly", "mark", "read_costly", "slow_tests", "unknown_tests"]

COSTLY: Final = Path(__file__).with_name("costly.txt")
#: Duration in seconds, beside five other parts on two processors, from which a test is printed.
_SLOW_S: Final = 5.0

Costly = Mapping[str, frozenset[str]]
"""Names of tests by file; a name without parameters stands for all parameters."""


@cache
def read_costly(path: Path = COSTLY) -> Costly:
    """Return the listed tests.

    A line that is not indented is a file of tests, relative to the root of the repository. The
    indented lines after it are the names of its tests. Text after ``#`` is a comment.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    file = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        text = line.partition(" #")[0].rstrip()
        if not text or text.startswith("#"):
            continue
        if text == text.lstrip():
            file = text
        else:
            found[file].add(text.strip())
    return {name: frozenset(tests) for name, tests in found.items()}


def is_costly(node: str, costly: Costly) -> bool:
    """Return True if a test is listed; *node* is ``FILE::TEST`` or ``FILE::CLASS::TEST``."""
    file, _, name = node.partition("::")
    listed = costly.get(file, frozenset())
    return name in listed or name.partition("[")[0] in listed


def mark(items: Iterable[pytest.Item]) -> None:
    """Give the listed tests the marker ``costly``."""
    costly = read_costly()
    for item in items:
        if is_costly(item.nodeid, costly):
            item.add_marker(pytest.mark.costly)


def unknown_tests(costly: Costly) -> list[str]:
    """Return the listed tests whose file or function does not exist."""
    unknown = []
    for file, names in costly.items():
        path = ROOT / file
        known = _names(path) if path.is_file() else set()
        unknown += [f"{file}::{name}" for name in names if _first(name) not in known]
    return sorted(unknown)


def _first(name: str) -> str:
    """Return the name of the function, or of the class if the test is in one."""
    return name.partition("[")[0].partition("::")[0]


def _names(path: Path) -> set[str]:
    """Return the names that a module defines at its top."""
    found = set()
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        match statement:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(name)]):
                found.add(name)
    return found


def slow_tests(report: Path, least_s: float) -> Iterator[tuple[str, str, float]]:
    """Yield the file, the name and the duration in seconds of the slow tests of a JUnit report."""
    for case in ElementTree.parse(report).iter("testcase"):
        seconds = float(case.get("time", 0))
        file = case.get("file")
        # The tests of a state machine are reported in a file of Hypothesis.
        if seconds < least_s or file is None or not file.startswith("tests/"):
            continue
        classes = case.get("classname", "").removeprefix(file[: -len(".py")].replace("/", "."))
        name = "::".join([*filter(None, classes.split(".")), case.get("name", "")])
        yield file, name, seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the slow tests of reports that are not listed yet; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.costs", description=__doc__)
    parser.add_argument("report", nargs="+", type=Path, help="JUnit report of a part")
    parser.add_argument(
        "--least",
        type=float,
        default=_SLOW_S,
        metavar="SECONDS",
        help=f"duration from which a test is printed (default: {_SLOW_S:g})",
    )
    options = parser.parse_args(arguments)
    costly = read_costly()
    found: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for report in options.report:
        for file, name, seconds in slow_tests(report, options.least):
            if not is_costly(f"{file}::{name}", costly):
                found[file].append((name, seconds))
    for file, tests in sorted(found.items()):
        print(file)
        for name, seconds in tests:
            print(f"    {name} # {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
