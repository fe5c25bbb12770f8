"""What a run found: the report as data, JSON, JUnit and text."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = ["Report", "TargetInfo", "summary_lines", "to_json", "to_junit"]

_WIDTH = 80


class TargetInfo(msgspec.Struct, kw_only=True):
    """The broker that was tested."""

    address: str
    #: The ``server`` header of its CONNECTED frame.
    server: str
    versions: list[str]


class Report(msgspec.Struct, kw_only=True):
    """One run on one target."""

    #: Raised when the meaning of a field changes, or one goes away.
    format: int = 1
    suite: str = "stompkit"
    suite_version: str
    target: TargetInfo
    #: When the run began: ISO 8601, UTC.
    started: str
    duration_s: float
    #: Whether every selected case was run.
    complete: bool
    results: list[CaseResult]
    #: Cases that were expected to deviate, and did not.
    better_than_expected: list[str] = []

    def count(self) -> Counter[Verdict]:
        """How often each verdict was reached."""
        return Counter(result.verdict for result in self.results)

    def unexpected(self, *, strict: bool) -> list[CaseResult]:
        """The results that make a run a failure."""
        bad = {Verdict.FAILED, Verdict.NON_STRICT} if strict else {Verdict.FAILED}
        return [each for each in self.results if each.verdict in bad and not each.expected]


def to_json(report: Report) -> bytes:
    """The report as JSON; ``msgspec.json.decode(data, type=Report)`` reads it."""
    data: bytes = msgspec.json.format(msgspec.json.encode(report), indent=1)
    return data + b"\n"


def to_junit(report: Report) -> bytes:
    """The report as JUnit's XML, as build servers read it: NON-STRICT counts as passed."""
    count = report.count()
    suite = ElementTree.Element(
        "testsuite",
        name=f"STOMP conformance of {report.target.server or report.target.address}",
        tests=str(len(report.results)),
        failures=str(count[Verdict.FAILED]),
        skipped=str(count[Verdict.UNSUPPORTED]),
        errors="0",
        time=f"{report.duration_s:.3f}",
        timestamp=report.started,
    )
    for result in report.results:
        suite.append(_junit_case(result))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _junit_case(result: CaseResult) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase",
        classname=f"stomp.{result.chapter.replace('.', '_')}",
        name=result.id,
        time=f"{result.duration_ms / 1000:.3f}",
    )
    if result.verdict is Verdict.FAILED:
        failure = ElementTree.SubElement(
            element, "failure", type=result.level, message=_xml_safe(result.detail)
        )
        failure.text = _xml_safe(f"{result.statement}\n\n{result.expectation}\n")
    elif result.verdict is Verdict.UNSUPPORTED:
        ElementTree.SubElement(element, "skipped", message=_xml_safe(result.detail))
    lines = [f"verdict: {result.verdict}", f"ending: {result.ending}", *result.notes]
    if result.detail:
        lines.append(result.detail)
    ElementTree.SubElement(element, "system-out").text = _xml_safe("\n".join(lines))
    return element


def _xml_safe(text: str) -> str:
    """Replace what XML 1.0 can't hold."""
    return "".join(
        char if char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff") else "\ufffd"
        for char in text
    )


# Text, at most 80 columns wide.


def header_lines(target: TargetInfo, cases: int) -> list[str]:
    """What is about to be tested."""
    server = target.server or "a server that does not name itself"
    return [
        f"Target  {target.address}, {server}"[:_WIDTH],
        f"Speaks  STOMP {', '.join(target.versions)}",
        f"Cases   {cases}",
    ]


def summary_lines(report: Report, *, strict: bool) -> list[str]:
    """The verdict table by chapter, and what is not OK."""
    lines = _findings(report)
    if lines:
        lines.append("")
    lines += _table(report)
    lines += ["", *_verdict(report, strict=strict)]
    return lines


def _findings(report: Report) -> list[str]:
    lines = []
    shown = {Verdict.FAILED, Verdict.NON_STRICT}
    for result in report.results:
        if result.verdict not in shown:
            continue
        ending = "" if result.ending is Ending.CLEAN else f", {result.ending}"
        known = f" (expected: {result.expected})" if result.expected else ""
        lines.append(f"{result.verdict:<10} {result.id} [{result.level}{ending}]")
        lines += _wrapped(f"{result.detail}{known}", "           ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def _table(report: Report) -> list[str]:
    verdicts = list(Verdict)
    chapters = list(dict.fromkeys(result.chapter for result in report.results))
    head = "".join(f"{verdict:>14}" for verdict in verdicts)
    lines = [f"{'chapter':<10}{head}", "-" * (10 + 14 * len(verdicts))]
    for chapter in [*chapters, "all"]:
        count = Counter(each.verdict for each in report.results if chapter in (each.chapter, "all"))
        cells = "".join(f"{count[verdict]:>14}" for verdict in verdicts)
        lines.append(f"{chapter:<10}{cells}")
    return lines


def _verdict(report: Report, *, strict: bool) -> list[str]:
    count = report.count()
    unexpected = report.unexpected(strict=strict)
    lines = []
    if not report.complete:
        lines.append("The run was cut short: the target no longer answers CONNECT.")
    for case_id in report.better_than_expected:
        lines.append(f"better than expected: {case_id}")
    known = sum(bool(each.expected) for each in report.results)
    if unexpected:
        lines.append(f"{len(unexpected)} of {len(report.results)} cases failed")
    else:
        lines.append(
            f"{len(report.results)} cases, none failed"
            + (f" but {known} that were expected to" if known else "")
        )
    if count[Verdict.NON_STRICT] and not strict:
        lines.append("(NON-STRICT does not count as a failure without --strict)")
    lines.append(f"in {report.duration_s:.1f} seconds")
    return lines


def write(path: Path, data: bytes) -> None:
    """Write a report file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
