"""What a person reads in the terminal before and after a run, at most 80 columns wide."""

from __future__ import annotations

from collections import Counter
from textwrap import wrap

from stompkit.conformance.report import Report, TargetInfo
from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = ["header_lines", "summary_lines"]

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
    return [*lines, *_table(report), "", *_judgement(report, strict=strict)]


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
    chapters = list(dict.fromkeys(result.chapter for result in report.results))
    head = "".join(f"{verdict:>14}" for verdict in verdicts)
    lines = [f"{'chapter':<10}{head}", "-" * (10 + 14 * len(verdicts))]
    for chapter in [*chapters, "all"]:
        count = Counter(each.verdict for each in report.results if chapter in (each.chapter, "all"))
        cells = "".join(f"{count[verdict]:>14}" for verdict in verdicts)
        lines.append(f"{chapter:<10}{cells}")
    return lines


def _judgement(report: Report, *, strict: bool) -> list[str]:
    lines = []
    for case_id in report.better_than_expected:
        lines.append(f"better than expected: {case_id}")
    cases = len(report.results)
    if not report.complete:
        run = f"The run was cut short after {cases} of {report.selected} cases"
        lines += wrap(f"{run}: {report.cut_short}.", _WIDTH)
    failed = len(report.unexpected(strict=strict))
    known = sum(bool(each.expected) for each in report.results)
    noun = _cases(cases)
    told = f"{failed} of {cases} {noun} failed" if failed else f"{cases} {noun}, none failed"
    if known:
        told += f", beside {known} that {'were' if known > 1 else 'was'} expected to deviate"
    lines += wrap(f"{told}, in {report.duration_s:.1f} seconds", _WIDTH)
    if report.count()[Verdict.NON_STRICT] and not strict:
        lines.append("(NON-STRICT does not count as a failure without --strict)")
    return lines
