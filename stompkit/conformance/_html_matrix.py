"""Several reports as one self-contained HTML page: a matrix of targets by cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from string import Template

from stompkit.conformance._details import (
    NOT_OK,
    about,
    cell,
    details,
    found,
    rows,
    source,
    style,
    topic,
)
from stompkit.conformance.report import Report
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["to_matrix"]

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>STOMP conformance of $names</title>
<style>$style</style></head><body class="wide">
<h1>STOMP conformance</h1>
$targets
<h2>All cases</h2>
<p><label><input type="checkbox" id="only"> only what is FAILED or NON-STRICT somewhere</label></p>
$matrix
<h2>Case by case</h2>
$cases
</body></html>
""")

#: The results of one case: those of each target that it was run on, by the target's number.
_Row = Mapping[int, CaseResult]


def to_matrix(reports: Sequence[Report]) -> bytes:
    """Make the page, with a column for each report; it needs nothing but itself."""
    cases = _by_case(reports)
    page = _PAGE.substitute(
        names=escape(", ".join(" ".join(each.target.product()).strip() for each in reports)),
        style=style(),
        targets=_targets(reports),
        matrix=_matrix(reports, cases),
        cases="".join(_case(reports, row) for row in cases),
    )
    return page.encode("utf-8", "backslashreplace")


def _by_case(reports: Sequence[Report]) -> list[_Row]:
    """A row for each case that any target has a result of, by chapter and topic."""
    cases: dict[str, dict[int, CaseResult]] = {}
    for number, report in enumerate(reports):
        for result in report.results:
            cases.setdefault(result.id, {})[number] = result
    return sorted(cases.values(), key=_place)


def _any(row: _Row) -> CaseResult:
    return next(iter(row.values()))


def _place(row: _Row) -> tuple[str, str]:
    return _any(row).chapter, topic(_any(row))


def _kind(row: _Row) -> str:
    return "bad" if any(result.verdict in NOT_OK for result in row.values()) else "good"


def _anchor(number: int, result: CaseResult) -> str:
    return f"{number + 1}/{result.id}"


def _targets(reports: Sequence[Report]) -> str:
    """What was tested, and how often each verdict was reached."""
    head = "".join(f'<th class="{verdict}">{verdict}</th>' for verdict in Verdict)
    lines = []
    for report in reports:
        name, version = report.target.product()
        counts = report.count()
        cells = "".join(cell(verdict, counts[verdict]) for verdict in Verdict)
        cut_short = (
            f'<br><span class="FAILED">cut short: {escape(report.cut_short)}</span>'
            if not report.complete
            else ""
        )
        told = (
            f"{report.target.address}, {report.started}, {report.suite} {report.suite_version},"
            f" STOMP {', '.join(report.target.versions)}"
        )
        lines.append(
            f"<tr><th><strong>{escape(name)}</strong> {escape(version)}"
            f'<br><span class="dim">{escape(told)}</span>{cut_short}</th>{cells}</tr>'
        )
    return (
        f'<table class="counts"><thead><tr><th>target</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _matrix(reports: Sequence[Report], cases: Sequence[_Row]) -> str:
    """A row for each case, a column for each target, a body for each chapter."""
    head = "".join(_column(report) for report in reports)
    chapters: dict[str, str] = {}
    for row in cases:
        chapter = _any(row).chapter
        chapters[chapter] = chapters.get(chapter, "") + _line(reports, row)
    bodies = "".join(
        f'<tbody><tr><th class="chapter" colspan="{len(reports) + 1}">{escape(chapter)}</th></tr>'
        f"{lines}</tbody>"
        for chapter, lines in chapters.items()
    )
    return f'<table class="targets"><thead><tr><th>case</th>{head}</tr></thead>{bodies}</table>'


def _column(report: Report) -> str:
    name, version = report.target.product()
    address = escape(report.target.address)
    return (
        f'<th title="{address}">{escape(name)}<br><span class="dim">{escape(version)}</span></th>'
    )


def _line(reports: Sequence[Report], row: _Row) -> str:
    case = _any(row)
    cells = "".join(_verdict(number, row.get(number)) for number in range(len(reports)))
    return (
        f'<tr class="{_kind(row)}"><th><a href="#{escape(case.id)}"><code>{escape(case.id)}</code>'
        f'</a> <span class="dim">{escape(case.level)}</span></th>{cells}</tr>'
    )


def _verdict(number: int, result: CaseResult | None) -> str:
    if result is None:
        return '<td class="none" title="not run">-</td>'
    return (
        f'<td><a class="v {result.verdict}" href="#{escape(_anchor(number, result))}"'
        f' title="{escape(result.detail)}">{result.verdict}</a></td>'
    )


def _case(reports: Sequence[Report], row: _Row) -> str:
    """What the case is about, and for each target what was found."""
    case = _any(row)
    results = "".join(
        details(
            result,
            found(result),
            title="<span>" + escape(" ".join(reports[number].target.product())) + "</span>",
            anchor=_anchor(number, result),
        )
        for number, result in row.items()
    )
    return (
        f'<section class="{_kind(row)}" id="{escape(case.id)}"><h3><code>{escape(case.id)}</code>'
        f"</h3><dl>{rows({**about(case), **source(case)})}</dl>{results}</section>"
    )
