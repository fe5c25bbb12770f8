"""The text in the terminal before and after a run, at most 80 columns wide."""

from __future__ import annotations

import re
from collections import Counter
from itertools import zip_longest
from textwrap import wrap
from typing import Final

from stompkit._common.spelling import amount
from stompkit._common.style import Style
from stompkit.conformance.report.report import Report, TargetInfo
from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = ["header_lines", "inert", "judgement", "summary_lines", "unsupported_reasons"]

_WIDTH = 80
_INDENT = "    "
_GAP = 2
_COLOURS: Final = {
    Verdict.OK: "green",
    Verdict.NON_STRICT: "yellow",
    Verdict.FAILED: "red",
    Verdict.UNSUPPORTED: "magenta",
    Verdict.INFORMATIONAL: "cyan",
}
#: A name that the suite has generated for a destination; it differs in each case.
_GENERATED: Final = re.compile(r"stompkit-[0-9a-f]{10}(?:-\d+)?")
#: The beginning of a command for a CI system.
_COMMAND: Final = re.compile(r"^\s*(?:::|##\[)")
#: Maximum number of columns for the topics of the profile.
_MOST_ABOUT = 38


def header_lines(target: TargetInfo, cases: int) -> list[str]:
    """Return the description of the run that is about to start."""
    server = target.server or "a server that does not name itself"
    return [
        *map(inert, wrap(f"Target  {target.address}, {server}", _WIDTH, subsequent_indent=" " * 8)),
        f"Speaks  STOMP {', '.join(target.versions)}",
        f"Cases   {cases}",
    ]


def summary_lines(report: Report, *, strict: bool, has_profile: bool, style: Style) -> list[str]:
    """Return the findings, the table of verdicts by chapter, and the judgement.

    With ``has_profile``, the profile follows the table.
    """
    lines = [""]
    for result in report.results:
        if result.verdict in (Verdict.FAILED, Verdict.NON_STRICT):
            lines += [*_finding(result), ""]
    if missing := _missing(report):
        lines += [*missing, ""]
    lines += [*_table(report), ""]
    if has_profile:
        lines += _profile(report)
    elif report.profile():
        number = len(report.profile())
        lines += [f"Profile: {amount(number, 'observation')}; --profile prints them.", ""]
    lines += [f"better than expected: {case_id}" for case_id in report.better_than_expected]
    if any(each.expected for each in report.results):
        # These are hard to find among the expected ones, and logs are often cut in the middle.
        lines += [f"not expected: {each.id}" for each in report.unexpected(strict=strict)]
    for sentence in judgement(report, strict=strict):
        lines += wrap(sentence, _WIDTH)
    return [_painted(inert(line), style) for line in lines]


def inert(line: str) -> str:
    """Return a line that means nothing to a CI system, whatever words of a target begin it.

    GitHub takes a line that begins with ``::`` or ``##[`` for a command.
    """
    return _COMMAND.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], line)


def _painted(line: str, style: Style) -> str:
    """Return a line with its verdicts in colours, and the final sentence if nothing failed."""
    if line.startswith("chapter"):
        for verdict, colour in _COLOURS.items():
            line = line.replace(f" {verdict}", " " + style(verdict, colour))
        return line
    for verdict, colour in _COLOURS.items():
        if line.startswith(f"{verdict}  "):
            return style(verdict, colour) + line.removeprefix(verdict)
    is_good = ", none failed" in line and "better than listed" not in line
    return style(line, "green") if is_good else line


def judgement(report: Report, *, strict: bool) -> list[str]:
    """Return the result of the whole run, in a few sentences."""
    told = []
    cases = len(report.results)
    if not report.complete:
        run = f"The run was cut short after {cases} of {report.selected} cases"
        told.append(f"{run}: {report.cut_short}.")
    failed = len(report.unexpected(strict=strict))
    expected = sum(bool(each.expected) for each in report.results)
    noun = _cases(cases)
    shortcomings = report.shortcomings()
    told += [f"{each}." for each in shortcomings]
    none = "but the run failed" if shortcomings else "none failed"
    text = f"{failed} of {cases} {noun} failed" if failed else f"{cases} {noun}, {none}"
    if better := len(report.better_than_expected):
        text += f", {better} better than listed"
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
    if result.verdict is Verdict.FAILED and result.sentence:
        lines += _wrapped(f'specification: "{result.sentence}"')
    if result.expected:
        lines += _wrapped(f"expected: {result.expected}")
    return lines


def unsupported_reasons(report: Report) -> Counter[str]:
    """Return the reasons of UNSUPPORTED cases, often few for many cases, with NAME for names."""
    return Counter(
        _GENERATED.sub("NAME", each.detail)
        for each in report.results
        if each.verdict is Verdict.UNSUPPORTED
    )


def _missing(report: Report) -> list[str]:
    """Return a line for each reason of UNSUPPORTED cases."""
    return [
        line
        for reason, number in unsupported_reasons(report).items()
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
    """Return the number of cases with each verdict in each chapter."""
    verdicts = list(Verdict)
    columns = "".join(f"{verdict:>{len(verdict) + _GAP}}" for verdict in verdicts)
    chapters = report.by_chapter()
    # The names of a user's own chapters may have any length.
    width = min(max(map(len, ("chapter", *chapters))), _WIDTH - len(columns))
    lines = [f"{'chapter':<{width}}{columns}", "-" * (width + len(columns))]
    for chapter, count in chapters.items():
        cells = "".join(f"{count[verdict]:>{len(verdict) + _GAP}}" for verdict in verdicts)
        lines.append(f"{chapter[:width]:<{width}}{cells}")
    return lines


def _profile(report: Report) -> list[str]:
    """Return the target's behaviour where it has a choice: two columns with wrapped text."""
    profile = report.profile()
    if not profile:
        return []
    width = min(max(map(len, ("profile", *profile))), _MOST_ABOUT)
    lines = [f"{'profile':<{width + _GAP}}what the target does", "-" * _WIDTH]
    for about, does in profile.items():
        left = wrap(about, width, subsequent_indent="  ")
        right = wrap(does, _WIDTH - width - _GAP, subsequent_indent="  ")
        lines += [
            f"{one:<{width + _GAP}}{other}".rstrip()
            for one, other in zip_longest(left, right, fillvalue="")
        ]
    return [*lines, ""]
