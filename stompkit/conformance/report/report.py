"""The results of a run, as data and as JSON for other programs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from stompkit._common.files import make_directory
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = [
    "FORMAT",
    "Merged",
    "Report",
    "TargetInfo",
    "check_writable",
    "schema",
    "to_json",
    "write",
]

#: Incremented when the meaning of a field of a report changes, or a field is removed.
FORMAT: Final = 1


class TargetInfo(msgspec.Struct, kw_only=True):
    """The broker that was tested."""

    address: str
    #: The ``server`` header of its CONNECTED frame.
    server: str
    versions: list[str]

    def product(self) -> tuple[str, str]:
        """Return name and version of the server, or the address if it does not name itself.

        Comments, which may follow the version, are left out (1.2, "CONNECTED Frame").
        """
        name, _, rest = self.server.partition("/")
        version, *_ = rest.split() or [""]
        return name.strip() or self.address, version


class Report(msgspec.Struct, kw_only=True):
    """One run on one target."""

    format: int = FORMAT
    suite: str = "stompkit"
    suite_version: str
    target: TargetInfo
    #: Start time of the run: ISO 8601, UTC.
    started: str
    duration_s: float
    #: True if every selected case was run, and the target was alive at the end.
    complete: bool
    #: Reason why it is incomplete; empty otherwise.
    cut_short: str = ""
    #: Failure of a command that the user gave for the target, which cut the run short.
    failed_command: str = ""
    #: Number of selected cases.
    selected: int = 0
    #: Versions of STOMP that the user requires the server to speak.
    required: list[str] = []
    results: list[CaseResult]
    #: Cases with an expected deviation that did not occur.
    better_than_expected: list[str] = []
    #: Errors of the suite itself; the cases concerned have no result.
    errors: list[str] = []

    def count(self) -> Counter[Verdict]:
        """Return the number of cases with each verdict."""
        return Counter(result.verdict for result in self.results)

    def by_chapter(self) -> dict[str, Counter[Verdict]]:
        """Return the same for each chapter, in the order of the run, and finally for ``all``."""
        counts: dict[str, Counter[Verdict]] = {}
        for result in self.results:
            counts.setdefault(result.chapter, Counter())[result.verdict] += 1
        return {**counts, "all": self.count()}

    def profile(self) -> dict[str, str]:
        """Return the target's behaviour where it has a choice, in alphabetical order.

        One text if it is the same for all versions of STOMP; else that of each: ``1.1: x; 1.2: y``.
        """
        seen: dict[str, dict[str, dict[str, None]]] = {}
        for result in self.results:
            for about, does in result.profile.items():
                seen.setdefault(about, {}).setdefault(result.version, {})[does] = None
        return {about: _by_version(seen[about]) for about in sorted(seen, key=str.casefold)}

    def unexpected(self, *, strict: bool) -> list[CaseResult]:
        """Return the results that make the run fail."""
        bad = {Verdict.FAILED, Verdict.NON_STRICT} if strict else {Verdict.FAILED}
        return [each for each in self.results if each.verdict in bad and not each.expected]

    def shortcomings(self) -> list[str]:
        """Return why the run fails as a whole, whatever its cases found: sentences without a stop.

        A case that is UNSUPPORTED proves nothing: a run of such cases alone must not look like a
        success, unless each of them is expected.
        """
        found = []
        spoken = self.target.versions
        if missing := [each for each in self.required if each not in spoken]:
            found.append(
                f"The target does not speak STOMP {', '.join(missing)}, which --require names:"
                f" it speaks {', '.join(spoken)}"
            )
        if self.results and all(each.verdict is Verdict.UNSUPPORTED for each in self.results):
            if not all(each.expected for each in self.results):
                found.append("Nothing was judged: each case is UNSUPPORTED")
        return found


def _by_version(seen: Mapping[str, Iterable[str]]) -> str:
    """Return the behaviour on each version, in one text."""
    versions: dict[str, list[str]] = {}
    for version in sorted(seen):
        versions.setdefault(", ".join(seen[version]), []).append(version)
    if len(versions) == 1:
        return next(iter(versions))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in versions.items())


class Merged(msgspec.Struct, kw_only=True):
    """Several runs in one file."""

    format: int = FORMAT
    reports: list[Report]


def schema() -> str:
    """Return the JSON Schema of reports, and of files with several of them."""
    return files("stompkit.conformance").joinpath("report-schema.json").read_text("utf-8")


def to_json(report: Report | Merged) -> bytes:
    """Return a report as JSON; ``msgspec.json.decode(data, type=Report)`` reads it."""
    return b"%b\n" % msgspec.json.format(msgspec.json.encode(report), indent=1)


def check_writable(path: Path) -> None:
    """Raise ``OSError`` if a report cannot be written there, as far as can be checked."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    for each in (path, *path.absolute().parents):
        if each.exists():
            if each is not path and not each.is_dir():
                raise NotADirectoryError(f"{each} is not a folder")
            if not os.access(each, os.W_OK):
                raise PermissionError(f"{each} cannot be written")
            return


def write(path: Path, data: bytes) -> None:
    """Write a report file; create its folders if necessary."""
    make_directory(path.parent)
    path.write_bytes(data)
