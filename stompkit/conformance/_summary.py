"""What a person reads in the terminal before and after a run, at most 80 columns wide."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap

from stompkit.conformance.report import Report, TargetInfo
from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = ["header_lines", "judgement", "summary_lines"]

_WIDTH = 80
_INDENT = "    "


def header_lines(target: TargetInfo, cases: int) -> list[str]:
    """What is about to be tested."""
    server = target.server or "a server that does not name itself"
    return [
        *wrap(f"Target  {target.address}, {server}", _WIDTH, subsequent_indent=" " * 8),
        f"Speaks  STOMP {', '.join(target.versions)}",
        f"Cases   {cases}",
    ]


def summary_lines(report: Report, *, strict: bool) -> list[str]:
    """What is not OK, the verdict table by chapter, and the judgement on the whole."""
    lines = [""]
    for result in report.results:
        if result.verdict in (Verdict.FAILED, Verdict.NON_STRICT):
            lines += [*_finding(result), ""]
    if missing := _missing(report):
        lines += [*missing, ""]
    lines += [*_table(report), ""]
    lines += [f"better than expected: {case_id}" for case_id in report.better_than_expected]
    for sentence in judgement(report, strict=strict):
        lines += wrap(sentence, _WIDTH)
    return lines


def judgement(report: Report, *, strict: bool) -> list[str]:
    """The whole run, in a few sentences."""
    told = []
    cases = len(report.results)
    if not report.complete:
        run = f"The run was cut short after {cases} of {report.selected} cases"
        told.append(f"{run}: {report.cut_short}.")
    failed = len(report.unexpected(strict=strict))
    expected = sum(bool(each.expected) for each in report.results)
    noun = _cases(cases)
    text = f"{failed} of {cases} {noun} failed" if failed else f"{cases} {noun}, none failed"
    if expected:
        were = "were" if expected > 1 else "was"
        text += f", beside {expected} that {were} expected to deviate"
    told.append(f"{text}, in {report.duration_s:.1f} seconds")
    if report.count()[Verdict.NON_STRICT] and not strict:
        told.append("(NON-STRICT does not count as a failure without --strict)")
    return told


def _finding(result: CaseResult) -> list[str]:
    ending = "" if result.ending is Ending.CLEAN else f", {result.ending}"
    lines = [f"{result.verdict}  {result.id}  [{result.level}{ending}]"]
    lines += _wrapped(result.detail)
    lines += _wrapped(f"required: {result.statement}")
    if result.expected:
        lines += _wrapped(f"expected: {result.expected}")
    return lines


def _missing(report: Report) -> list[str]:
    """Why cases were UNSUPPORTED: few reasons, each of which may be that of many."""
    reasons = Counter(each.detail for each in report.results if each.verdict is Verdict.UNSUPPORTED)
    return [
        line
        for reason, number in reasons.items()
        for line in wrap(
            f"{Verdict.UNSUPPORTED}  {number} {_cases(number)}: {reason}",
            _WIDTH,
            subsequent_indent=_INDENT,
        )
    ]


def _cases(number: int) -> str:
    return "case" if number == 1 else "cases"


def _wrapped(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT + "  ")


def _table(report: Report) -> list[str]:
    verdicts = list(Verdict)
    head = "".join(f"{verdict:>14}" for verdict in verdicts)
    lines = [f"{'chapter':<10}{head}", "-" * (10 + 14 * len(verdicts))]
    for chapter, count in report.by_chapter().items():
        cells = "".join(f"{count[verdict]:>14}" for verdict in verdicts)
        lines.append(f"{chapter:<10}{cells}")
    return lines
