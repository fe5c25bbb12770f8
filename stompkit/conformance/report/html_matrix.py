"""Several reports as one self-contained HTML page: a matrix of targets by cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from stompkit.conformance.report.details import (
    NOT_OK,
    about,
    cell,
    details,
    found,
    kind,
    legend,
    rows,
    source,
)
from stompkit.conformance.report.page import chapter_anchor, page
from stompkit.conformance.report.places import place_of
from stompkit.conformance.report.report import Report
from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = ["to_matrix"]

_FILTERS = {
    "show-all": "all",
    "show-bad": "FAILED or NON-STRICT",
    "show-differing": "where they differ",
}
_LOGS_LEFT_OUT = (
    '<p class="dim">Wire logs are of what is FAILED or NON-STRICT only; merge --all-wire-logs takes'
    " all that the reports have.</p>"
)

#: The results of one case by the number of the target.
_Row = Mapping[int, CaseResult]


def to_matrix(reports: Sequence[Report], *, all_logs: bool = False) -> bytes:
    """Return the page, with a column for each report; it loads nothing else.

    The wire logs of cases that are neither FAILED nor NON-STRICT are rarely read and make up most
    of the page. They are included only with ``all_logs``.
    """
    cases = _by_case(reports)
    profile = _profile(reports)
    links = {"all-cases": "all cases", "profile": "profile", "case-by-case": "case by case"}
    if not profile:
        del links["profile"]
    content = (
        f"<h1>STOMP conformance</h1>{_targets(reports)}"
        f'<h2 id="all-cases">All cases</h2>{legend()}{_matrix(reports, cases, all_logs=all_logs)}'
        f"{profile}"
        f'<h2 id="case-by-case">Case by case</h2>{"" if all_logs else _LOGS_LEFT_OUT}'
        + "".join(_case(reports, row, all_logs=all_logs) for row in cases)
    )
    names = ", ".join(map(_name, reports))
    return page("several", f"STOMP conformance of {names}", links, _FILTERS, content)


def _name(report: Report) -> str:
    return " ".join(report.target.product()).strip()


def _by_case(reports: Sequence[Report]) -> list[_Row]:
    """Return a row for each case that has a result for any target, by chapter and topic."""
    cases: dict[str, dict[int, CaseResult]] = {}
    for number, report in enumerate(reports):
        for result in report.results:
            cases.setdefault(result.id, {})[number] = result
    return sorted(cases.values(), key=lambda row: (_any(row).chapter, place_of(_any(row).id).topic))


def _any(row: _Row) -> CaseResult:
    return next(iter(row.values()))


def _kind(reports: Sequence[Report], row: _Row) -> str:
    """Return the CSS class of a row, by which it can be filtered."""
    verdicts = {result.verdict for result in row.values()}
    differs = len(row) < len(reports) or len(verdicts) > 1
    return f"{kind(*row.values())}{' differs' if differs else ''}"


def _anchor(number: int, result: CaseResult) -> str:
    return f"{number + 1}/{result.id}"


def _targets(reports: Sequence[Report]) -> str:
    """Return the tested targets, with the number of cases with each verdict."""
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
            f"{report.target.address}, {report.started[:10]}, STOMP"
            f" {', '.join(report.target.versions)}, suite {report.suite} {report.suite_version}"
        )
        lines.append(
            f"<tr><th><strong>{escape(name)}</strong> {escape(version)}"
            f'<br><span class="dim">{escape(told)}</span>{cut_short}</th>{cells}</tr>'
        )
    return (
        f'<table class="counts"><thead><tr><th>target</th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


def _head(first: str, reports: Sequence[Report], *, kind: str) -> str:
    """Return the start of a table with a column for each target."""
    columns = "".join(map(_column, reports))
    return f'<table class="targets {kind}"><thead><tr><th>{first}</th>{columns}</tr></thead>'


def _column(report: Report) -> str:
    name, version = report.target.product()
    address = escape(report.target.address)
    return (
        f'<th title="{address}">{escape(name)}<br><span class="dim">{escape(version)}</span></th>'
    )


def _matrix(reports: Sequence[Report], cases: Sequence[_Row], *, all_logs: bool) -> str:
    """Return a row for each case, a column for each target, and a body for each chapter."""
    chapters: dict[str, list[_Row]] = {}
    for row in cases:
        chapters.setdefault(_any(row).chapter, []).append(row)
    links = " ".join(
        f'<a href="#{escape(chapter_anchor(each))}">{escape(each)}</a>' for each in chapters
    )
    bodies = "".join(
        f"<tbody>{_chapter(reports, chapter, rows_of)}"
        f"{''.join(_line(reports, row, all_logs=all_logs) for row in rows_of)}</tbody>"
        for chapter, rows_of in chapters.items()
    )
    head = _head("case", reports, kind="marks")
    return f'<p class="chapters">{links}</p>{head}{bodies}</table>'


def _chapter(reports: Sequence[Report], chapter: str, cases: Sequence[_Row]) -> str:
    """Return the first row of a chapter: the number of its cases that are not OK."""
    cells = ""
    for number in range(len(reports)):
        verdicts = [row[number].verdict for row in cases if number in row]
        counts = (
            f'<span class="{verdict}">{verdicts.count(verdict)} {verdict}</span>'
            for verdict in NOT_OK
            if verdict in verdicts
        )
        cells += f"<td>{'<br>'.join(counts)}</td>"
    return (
        f'<tr class="chapter" id="{escape(chapter_anchor(chapter))}"><th>{escape(chapter)}</th>'
        f"{cells}</tr>"
    )


def _line(reports: Sequence[Report], row: _Row, *, all_logs: bool) -> str:
    case = _any(row)
    cells = "".join(
        _verdict(number, row.get(number), all_logs=all_logs) for number in range(len(reports))
    )
    return (
        f'<tr class="{_kind(reports, row)}"><th><a href="#{escape(case.id)}">'
        f'<code>{escape(case.id)}</code></a> <span class="dim">{escape(case.level)}</span></th>'
        f"{cells}</tr>"
    )


def _verdict(number: int, result: CaseResult | None, *, all_logs: bool) -> str:
    if result is None:
        return '<td class="none" title="not run">-</td>'
    anchor = _anchor(number, result) if _tells(result, all_logs=all_logs) else result.id
    return (
        f'<td class="{result.verdict}"><a class="v {result.verdict}" href="#{escape(anchor)}"'
        f' title="{escape(result.detail)}">{result.verdict}</a></td>'
    )


def _tells(result: CaseResult, *, all_logs: bool) -> bool:
    """Return True if a result has more details than the verdict OK."""
    return (
        result.verdict is not Verdict.OK
        or result.ending is not Ending.CLEAN
        or any(found(result).values())
        or (all_logs and bool(result.wire))
    )


def _profile(reports: Sequence[Report]) -> str:
    """Return the behaviour of each target where the specification leaves a choice."""
    profiles = [report.profile() for report in reports]
    lines = ""
    for name in sorted({name for profile in profiles for name in profile}, key=str.casefold):
        seen = [profile.get(name) for profile in profiles]
        differs = ' class="good differs"' if len(set(seen)) > 1 else ' class="good"'
        cells = "".join(
            f'<td data-target="{escape(_name(report))}">{escape(does)}</td>'
            if does
            else '<td class="none" title="not seen">-</td>'
            for report, does in zip(reports, seen, strict=True)
        )
        lines += f"<tr{differs}><th>{escape(name)}</th>{cells}</tr>"
    if not lines:
        return ""
    return (
        '<h2 id="profile">Profile</h2><p>What the targets do where they have the choice; no'
        f" verdict.</p>{_head('about', reports, kind='words')}<tbody>{lines}</tbody></table>"
    )


def _case(reports: Sequence[Report], row: _Row, *, all_logs: bool) -> str:
    """Return the description of the case, and the findings for each target."""
    case = _any(row)
    results = ""
    silent = []
    for number, result in row.items():
        name = escape(_name(reports[number]))
        if not _tells(result, all_logs=all_logs):
            silent.append(name)
            continue
        results += details(
            result,
            found(result),
            title=f"<span>{name}</span>",
            anchor=_anchor(number, result),
            has_log=all_logs or result.verdict in NOT_OK,
        )
    if silent:
        results += f'<p><span class="v OK">OK</span>{", ".join(silent)}</p>'
    return (
        f'<section class="{_kind(reports, row)}" id="{escape(case.id)}">'
        f"<h3><code>{escape(case.id)}</code></h3>"
        f"<dl>{rows({**about(case), **source(case)})}</dl>{results}</section>"
    )
