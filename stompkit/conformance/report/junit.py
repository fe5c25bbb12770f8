"""The report as JUnit XML, for build servers."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from stompkit.conformance.report.report import Report
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["to_junit"]

#: Characters invalid in XML 1.0, in addition to control characters and surrogates.
_NONCHARACTERS = "\ufffe\uffff"


def to_junit(report: Report, *, strict: bool = False) -> bytes:
    """Return the file. A case is a failure in it only if it makes the run fail.

    NON-STRICT therefore counts as passed unless ``strict``. UNSUPPORTED and expected deviations
    count as skipped; an expected deviation that did not occur is a failure. An interrupted run has
    one additional error, and so has one that fails as a whole.
    """
    failures = {result.id: result.detail for result in report.unexpected(strict=strict)}
    failures |= dict.fromkeys(report.better_than_expected, "better than expected")
    cases = [_case(result, failures.get(result.id)) for result in report.results]
    problems = [*report.errors, report.cut_short, *report.shortcomings()]
    cases += [_error(problem) for problem in problems if problem]
    count = Counter(child.tag for case in cases for child in case)
    suite = ElementTree.Element(
        "testsuite",
        name=_xml_safe(f"STOMP conformance of {report.target.server or report.target.address}"),
        tests=str(len(cases)),
        failures=str(count["failure"]),
        skipped=str(count["skipped"]),
        errors=str(count["error"]),
        time=f"{report.duration_s:.3f}",
        timestamp=report.started,
    )
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _case(result: CaseResult, failure: str | None) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase",
        classname=f"stomp.{result.chapter.replace('.', '_')}",
        name=result.id,
        time=f"{result.duration_ms / 1000:.3f}",
    )
    if failure is not None:
        child = ElementTree.SubElement(
            element, "failure", type=result.level, message=_xml_safe(failure)
        )
        facts = (result.statement, result.sentence, result.expectation)
        child.text = _xml_safe("\n\n".join(filter(None, facts)) + "\n")
    elif result.verdict is Verdict.UNSUPPORTED or result.expected:
        reason = f"expected: {result.expected}" if result.expected else result.detail
        ElementTree.SubElement(element, "skipped", message=_xml_safe(reason))
    lines = [f"verdict: {result.verdict}", f"ending: {result.ending}", *result.notes]
    if result.detail:
        lines.append(result.detail)
    ElementTree.SubElement(element, "system-out").text = _xml_safe("\n".join(lines))
    return element


def _error(problem: str) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname="stomp", name="the run as a whole")
    error = ElementTree.SubElement(element, "error", message=_xml_safe(problem.partition("\n")[0]))
    error.text = _xml_safe(problem)
    return element


def _xml_safe(text: str) -> str:
    """Replace characters that are invalid in XML 1.0."""
    return "".join(char if _is_xml(char) else "\ufffd" for char in text)


def _is_xml(char: str) -> bool:
    if char in "\t\n":
        return True
    return char >= " " and not "\ud800" <= char <= "\udfff" and char not in _NONCHARACTERS
