"""The lanes of the suite: parts that each change has to pass, and parts that run in rotation."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Final

from tests.suite.costs import read_costly
from tests.suite.parts import ROOT, Part, SuiteFile, Times, divide, suite_files

__all__ = ["matrix", "quick", "turn"]

#: Marker of the tests that run in no part of the quick lane, for what they test; that of those that
#: take too long for it follows.
_MATRIX: Final = "matrix"
_COSTLY: Final = "costly"
_QUICK: Final = f"not {_MATRIX} and not {_COSTLY}"
_MARKED: Final = re.compile(r"\bmark\.matrix\b|\b(in_matrix|some)\(")
#: Marker of tests that never run on compiled modules.
_PURE: Final = "pure"
#: Marker of tests that measure memory.
_MEMORY: Final = "memory"
_MARKED_PURE: Final = re.compile(r"\bmark\.pure\b")
#: Time that pytest needs to start and to collect a part, in seconds.
_START_S: Final = 4.0
#: Expected duration in seconds of a part that does not run pytest and was never measured.
_UNKNOWN_S: Final = 60.0
#: Folders, or files, whose tests also run on compiled modules.
_COMPILED: Final = (
    "tests/frames/",
    "tests/replication/model/test_values",
    "tests/replication/sources/mysql/test_values",
    "tests/replication/sources/postgres/test_pgoutput",
    "tests/replication/sources/postgres/test_postgres_changes",
    "tests/replication/sources/postgres/test_postgres_pub",
    "tests/server/beanstalk/",
    "tests/server/domain/",
    "tests/server/listen/",
    "tests/server/selectors/",
    "tests/server/stores/",
    "tests/server/websocket/",
)
#: Tests in these folders for modules that are Python in a wheel, too.
_AROUND: Final = (
    "tests/server/beanstalk/test_processes",
    "tests/server/listen/test_proxy_protocol",
    "tests/server/listen/test_tls",
    "tests/server/listen/test_turns",
    "tests/server/stores/test_runners",
    "tests/server/stores/test_sqlalchemy",
    "tests/server/stores/test_store_commands",
    "tests/server/websocket/test_websocket_port",
)
#: Tests in these folders run commands, which are forked in the quick lane.
_COMMANDS: Final = ("tests/commands/", "tests/conformance/", "tests/server/process/")
#: Commands start as users start them.
_STARTED: Final = {"STOMPKIT_NO_FORK": "1"}
#: Duration in seconds of the compilation, beside other parts. The parts that wait for it start
#: first: otherwise they would run alone at the end.
_COMPILATION_S: Final = 110.0
#: Duration in seconds of the tests of a part that waits for the compilation, so that it ends with
#: the others.
_AFTER_COMPILATION_S: Final = 220.0
#: Compilers take half the time without optimisation; the code does the same.
_NOT_OPTIMISED: Final = {"STOMPKIT_COMPILE_LEVEL": "0"}
#: Hypothesis draws fewer examples in the quick lane than in the matrix lane.
_FEW: Final = "--hypothesis-profile=few"
_PYTHON: Final = sys.executable


def quick(times: Times, options: Sequence[str]) -> Iterator[Part]:
    """Yield the parts that each change has to pass; *options* go to pytest."""
    for each in _quick(times, options):
        yield replace(each, environment=_NOT_OPTIMISED)


def _quick(times: Times, options: Sequence[str]) -> Iterator[Part]:
    yield from _checks(times)
    options = [_FEW, *options]
    files = list(suite_files(times))
    compiled = [each for each in files if _is_compiled(each)]
    for name, part in divide(each for each in files if not _is_compiled(each)):
        yield _tests(name, _QUICK, part, options)
    # Other tests of these files run on compiled modules; those of the codec with coverage, too.
    pure = [each._replace(expected_s=0.0) for each in compiled if _is_marked(each, _MARKED_PURE)]
    yield _tests("as Python", f"{_PURE} and {_QUICK}", pure, options, kind=f"{_PURE} ")
    yield from _compiled(times, options)


def matrix(times: Times, options: Sequence[str]) -> Iterator[Part]:
    """Yield the parts of other brokers and versions, long kills and campaigns, one for each file.

    Then those that the quick lane runs on compiled modules only, those of commands that it forks,
    properties with all of their examples, and other tests that take long.
    """
    for each in suite_files(times, f"{_MATRIX} "):
        if _is_marked(each, _MARKED):
            path = Path(each.path).with_suffix("").relative_to("tests")
            yield _tests(f"{_MATRIX} {path}", _MATRIX, [each], options, kind=f"{_MATRIX} ")
    # In the quick lane these run on compiled modules, or with their coverage.
    files = list(suite_files(times))
    python = [each for each in files if _is_compiled(each) and not _is_codec(each)]
    for folder, part in divide(python):
        title = f"{_MATRIX} {folder} as Python"
        yield _tests(title, f"not {_PURE} and not {_MATRIX}", part, options)
    commands = [each for each in suite_files(times, "started ") if each.path.startswith(_COMMANDS)]
    for folder, part in divide(commands):
        title = f"{_MATRIX} {folder} started"
        started = _tests(title, f"not {_MATRIX}", part, options, kind="started ")
        yield replace(started, environment=_STARTED)
    others = {each.path for each in files} - {each.path for each in python}
    drawing = [each for each in suite_files(times, "properties ") if each.path in others]
    for folder, part in divide(each for each in drawing if _has_properties(each)):
        markers = f"hypothesis and not {_MATRIX}"
        title = f"{_MATRIX} properties of {folder}"
        yield _tests(title, markers, part, options, kind="properties ")
    others -= {each.path for each in commands}
    listed = others & read_costly().keys()
    slow = [each for each in suite_files(times, f"{_COSTLY} ") if each.path in listed]
    for folder, part in divide(slow):
        markers = f"{_COSTLY} and not hypothesis and not {_MATRIX}"
        title = f"{_MATRIX} {_COSTLY} of {folder}"
        yield _tests(title, markers, part, options, kind=f"{_COSTLY} ")


def _is_marked(file: SuiteFile, marker: re.Pattern[str]) -> bool:
    """Return True if a file of tests, or the fixtures of its folder, have the marker."""
    path = ROOT / file.path
    files = (path, path.with_name("conftest.py"))
    return any(each.exists() and marker.search(each.read_text("utf-8")) for each in files)


def turn(parts: Iterable[Part], day: int, limit_s: float, slots: int) -> list[Part]:
    """Return the parts to run on this day; within some days, every part runs.

    They are expected to take about *limit_s* seconds, with *slots* parts at a time; those of other
    days take as long.
    """
    longest_first = sorted(parts, key=lambda part: (-part.expected_s, part.name))
    total_s = sum(part.expected_s for part in longest_first)
    count = min(ceil(total_s / (limit_s * slots)), len(longest_first))
    shares: list[list[Part]] = [[] for _ in range(count)]
    for each in longest_first:
        min(shares, key=lambda share: sum(part.expected_s for part in share)).append(each)
    return shares[day % len(shares)]


def _checks(times: Times) -> Iterator[Part]:
    """Yield the parts for style of code and prose, types and the coverage of the codec."""
    ruff, cover = f"{_PYTHON} -m ruff", f"{_PYTHON} -m coverage"
    # Properties are drawn on compiled modules, and in the matrix lane: what runs with coverage
    # depends on no seed, and takes a third of the time. Tests that count work, or measure memory,
    # run without it.
    codec = f"pytest -q -m 'not hypothesis and not {_PURE} and not {_MEMORY}' tests/frames"
    commands = {
        "style": f"{ruff} check && {ruff} format --check && {_PYTHON} docs/check_prose.py",
        "types": f"{_PYTHON} -m mypy",
        "frames": f"{cover} erase && {cover} run -m {codec} && "
        f"{cover} report --include='stompkit/frames/*' --fail-under=100",
    }
    for name, command in commands.items():
        shell = ["sh", "-c", command]
        expected_s = times.get(name, _UNKNOWN_S)
        yield Part(name, shell, expected_s, has_tests=False, is_background=True)


def _compiled(times: Times, options: Sequence[str]) -> Iterator[Part]:
    """Yield the parts that run on compiled modules; the first to start compiles them.

    If compiling is not possible, they run on Python modules.
    """
    files = [each for each in suite_files(times, "compiled ") if _is_compiled(each)]
    for name, part in divide(files, _AFTER_COMPILATION_S):
        tests = _tests(
            f"compiled {name}",
            f"not {_PURE} and {_QUICK}",
            part,
            options,
            module="tests.suite.compiled",
            kind="compiled ",
        )
        yield replace(tests, expected_s=tests.expected_s + _COMPILATION_S, is_urgent=True)


def _is_codec(file: SuiteFile) -> bool:
    return file.path.startswith("tests/frames/")


def _has_properties(file: SuiteFile) -> bool:
    return "hypothesis" in (ROOT / file.path).read_text("utf-8")


def _is_compiled(file: SuiteFile) -> bool:
    return file.path.startswith(_COMPILED) and not file.path.startswith(_AROUND)


def _tests(
    name: str,
    markers: str,
    files: Sequence[SuiteFile],
    options: Sequence[str],
    module: str = "pytest",
    *,
    kind: str = "",
) -> Part:
    """Return a part that runs pytest on files."""
    command = [_PYTHON, "-m", module, "-q", "--no-header", "-o", "junit_family=xunit1"]
    # A separate cache: parallel parts would overwrite the record of failed tests.
    command += ["-o", f"cache_dir=report/tests/cache/{name.replace(' ', '-').replace('/', '-')}"]
    command += ["-m", markers, *options, *(each.path for each in files)]
    expected_s = _START_S + sum(each.expected_s for each in files)
    return Part(name, command, expected_s, kind=kind)
