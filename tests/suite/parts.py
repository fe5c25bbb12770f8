"""Divide the files of tests into parts of about the same duration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ROOT", "TIMES", "Part", "SuiteFile", "Times", "divide", "read_times", "suite_files"]

ROOT: Final = Path(__file__).resolve().parents[2]
TIMES: Final = Path(__file__).with_name("times.json")

#: Expected duration of a file of tests that was never measured, in seconds.
_UNKNOWN_S: Final = 5.0
#: Intended duration of a part, in seconds. Longer parts leave a processor idle at the end of the
#: run; shorter ones start pytest, and servers, more often.
_INTENDED_S: Final = 480.0
#: Folders of a shorter duration, in seconds, share a part.
_SMALL_S: Final = 250.0
#: Folders whose tests share an expensive fixture, the JVM of Spark: fewer parts.
_TOGETHER: Final = ("tests/spark",)
#: Separate projects, which tests run.
_PROJECTS: Final = ("tests/integration/neighbours/", "tests/integration/stranger/")

Times = Mapping[str, float]
"""Recorded duration in seconds of each part or file of tests."""


@dataclass(frozen=True)
class Part:
    """A command that runs by itself, beside other parts."""

    name: str
    command: Sequence[str]
    expected_s: float
    """Expected duration in seconds."""
    environment: Mapping[str, str] | None = None
    """Additional environment variables."""
    has_tests: bool = True
    """True if it is pytest, which writes a JUnit report."""
    kind: str = ""
    """Beginning of the names under which the durations of its files are recorded."""
    is_background: bool = False
    """True for a calculation without tests that wait: it takes what processors have left."""
    is_urgent: bool = False
    """True if the others would wait for it at the end: they leave it the processors."""


class SuiteFile(NamedTuple):
    """A file of tests."""

    path: str
    """Its path relative to the root of the repository."""
    expected_s: float
    """Expected duration in seconds."""


def read_times(path: Path = TIMES) -> dict[str, float]:
    """Return the recorded durations in seconds; an empty dictionary if there are none."""
    try:
        times: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return times


def suite_files(times: Times, prefix: str = "") -> Iterator[SuiteFile]:
    """Yield all files of tests; *prefix* begins the names of their recorded durations."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(_PROJECTS):
            continue
        yield SuiteFile(name, times.get(prefix + name, times.get(name, _UNKNOWN_S)))


def divide(
    files: Iterable[SuiteFile], intended_s: float = _INTENDED_S
) -> Iterator[tuple[str, list[SuiteFile]]]:
    """Yield parts of about *intended_s* seconds, each as its name and its files.

    A part has files of one folder; folders that take little time share one.
    """
    small: list[list[SuiteFile]] = []
    for folder, members in groupby(sorted(files, key=_folder), key=_folder):
        group = list(members)
        total = _duration(group)
        if total < _SMALL_S:
            small.append(group)
        else:
            folder_s = intended_s * (2 if folder in _TOGETHER else 1)
            count = max(1, round(total / folder_s))
            name = folder.removeprefix("tests").strip("/") or "top"
            yield from _numbered(name, [[each] for each in group], count)
    if small:
        total = sum(map(_duration, small))
        yield from _numbered("small", small, max(1, round(total / intended_s)))


def _folder(file: SuiteFile) -> str:
    together = (folder for folder in _TOGETHER if file.path.startswith(f"{folder}/"))
    return next(together, str(Path(file.path).parent))


def _numbered(
    name: str, groups: Iterable[list[SuiteFile]], count: int
) -> Iterator[tuple[str, list[SuiteFile]]]:
    """Yield *count* parts of about the same duration; the longest groups are placed first.

    Files of a small folder stay together: they import the same modules, and share servers.
    """
    parts: list[list[SuiteFile]] = [[] for _ in range(count)]
    for group in sorted(groups, key=_duration, reverse=True):
        min(parts, key=_duration).extend(group)
    parts = [sorted(part) for part in parts if part]
    for number, part in enumerate(parts, 1):
        yield (name if len(parts) == 1 else f"{name} {number}/{len(parts)}"), part


def _duration(files: Iterable[SuiteFile]) -> float:
    return sum(each.expected_s for each in files)
