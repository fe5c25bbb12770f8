"""The report as one self-contained HTML page: a matrix of cases, each with its wire log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from html import escape

from stompkit.conformance.report.details import (
    MARKS,
    NOT_OK,
    about,
    cell,
    details,
    found,
    kind,
    known,
    legend,
    rows,
    source,
)
from stompkit.conformance.report.page import chapter_anchor, page
from stompkit.conformance.report.places import ANY_VERSION, SPECIFICATIONS, place_of
from stompkit.conformance.report.report import Report
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["to_html"]

_FILTERS = {
    "show-all": "all",
    "show-bad": "FAILED or NON-STRICT",
    "show-news": "not expected",
}


def to_html(report: Report) -> bytes:
    """Return the page; it loads nothing else."""
    name = report.target.server or report.target.address
    title = f"STOMP conformance of {name}"
    findings, profile = _findings(report.results), _profile(report)
    links = {"all-cases": "all cases"}
    if findings:
        links["findings"] = "not OK"
    if profile:
        links["profile"] = "profile"
    links["case-by-case"] = "case by case"
    content = (
        f"<h1>{escape(title)}</h1><dl>{rows(_facts(report))}</dl>{_counts(report)}"
        f'<h2 id="all-cases">All cases</h2>{legend()}{_matrix(report.results)}'
        f'{findings}{profile}<h2 id="case-by-case">Case by case</h2>{_cases(report.results)}'
    )
    return page("single", title, links, _FILTERS, content)


def _facts(report: Report) -> dict[str, str]:
    target = report.target
    facts = {
        "target": target.address,
        "server": target.server or "not said",
        "versions": ", ".join(target.versions),
        "run": f"{report.started}, {report.duration_s:.1f} s",
        "suite": f"{report.suite} {report.suite_version}",
    }
    if not report.complete:
        done = f"{len(report.results)} of {report.selected} cases"
        facts["cut short"] = f"after {done}: {report.cut_short}"
    if shortcomings := report.shortcomings():
        facts["failed"] = "; ".join(shortcomings)
    if report.errors:
        facts["errors"] = f"{len(report.errors)} in the suite itself"
    if report.better_than_expected:
        facts["better than expected"] = ", ".join(report.better_than_expected)
    return facts


def _unique(words: Iterable[str]) -> list[str]:
    return sorted(set(words))


def _counts(report: Report) -> str:
    """Return the number of cases with each verdict in each chapter."""
    head = "".join(f'<th class="{verdict}">{verdict}</th>' for verdict in Verdict)
    lines = []
    for chapter, count in report.by_chapter().items():
        cells = "".join(cell(verdict, count[verdict]) for verdict in Verdict)
        name = escape(chapter)
        if chapter != "all":
            name = f'<a href="#{escape(chapter_anchor(chapter))}">{name}</a>'
        lines.append(f"<tr><th>{name}</th>{cells}</tr>")
    body = "".join(lines)
    return (
        f'<table class="counts"><thead><tr><th>chapter</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _matrix(results: list[CaseResult]) -> str:
    """Return a symbol for each case: a row for each topic, a column for each version."""
    places = [place_of(each.id) for each in results]
    # Cases for any version come last.
    versions = sorted(
        {place.version for place in places}, key=lambda each: (each == ANY_VERSION, each)
    )
    # The specifications come first, and the other chapters in the order of the run.
    groups = dict.fromkeys([SPECIFICATIONS, *(place.group for place in places)])
    marks: dict[tuple[str, str, str], str] = {}
    for place, result in zip(places, results, strict=True):
        marks[place] = marks.get(place, "") + _mark(result)
    head = "".join(f"<th>{escape(version or 'any')}</th>" for version in versions)
    bodies = []
    for group in groups:
        topics = _unique(place.topic for place in places if place.group == group)
        if not topics:
            continue
        lines = "".join(
            f"<tr><th>{escape(topic)}</th>"
            + "".join(f"<td>{marks.get((group, topic, each), '')}</td>" for each in versions)
            + "</tr>"
            for topic in topics
        )
        name = f'<tr><th class="chapter" colspan="{len(versions) + 1}">{escape(group)}</th></tr>'
        bodies.append(f"<tbody>{name}{lines}</tbody>")
    return (
        f'<table class="matrix"><thead><tr><th>topic</th>{head}</tr></thead>'
        f"{''.join(bodies)}</table>"
    )


def _mark(result: CaseResult) -> str:
    title = escape(f"{result.id}: {result.verdict}")
    return (
        f'<a class="{result.verdict} {kind(result)}" href="#{escape(result.id)}" title="{title}">'
        f"{MARKS[result.verdict]}</a>"
    )


def _findings(results: list[CaseResult]) -> str:
    """Return the cases that are not OK, with the reasons."""
    body = "".join(
        f'<tr class="{kind(result)}"><td class="{result.verdict} v">{result.verdict}</td>'
        f'<td><a href="#{escape(result.id)}"><code>{escape(result.id)}</code></a>'
        f"{known(result)}<br>{escape(result.detail)}</td></tr>"
        for verdict in NOT_OK
        for result in results
        if result.verdict is verdict
    )
    # There are few reasons, each shared by many cases.
    missing = Counter(each.detail for each in results if each.verdict is Verdict.UNSUPPORTED)
    body += "".join(
        f'<tr><td class="{Verdict.UNSUPPORTED} v">{Verdict.UNSUPPORTED}</td>'
        f"<td>{number} {'case' if number == 1 else 'cases'}: {escape(reason)}</td></tr>"
        for reason, number in missing.items()
    )
    if not body:
        return ""
    return f'<h2 id="findings">Not OK</h2><table class="findings">{body}</table>'


def _profile(report: Report) -> str:
    """Return the target's behaviour where the specification leaves a choice."""
    lines = "".join(
        f"<tr><th>{escape(about)}</th><td>{escape(does)}</td></tr>"
        for about, does in report.profile().items()
    )
    if not lines:
        return ""
    return (
        '<h2 id="profile">Profile</h2><p>What the target does where it has the choice; no verdict.'
        f'</p><table class="profile"><tbody>{lines}</tbody></table>'
    )


def _cases(results: list[CaseResult]) -> str:
    """Return a section for each chapter, in which each case can be opened."""
    chapters: dict[str, list[CaseResult]] = {}
    for result in sorted(results, key=lambda each: (each.chapter, place_of(each.id).topic)):
        chapters.setdefault(result.chapter, []).append(result)
    return "".join(
        f'<section class="{kind(*inside)}"><h3 id="{escape(chapter_anchor(chapter))}">'
        f"{escape(chapter)}</h3>{''.join(map(_case, inside))}</section>"
        for chapter, inside in chapters.items()
    )


def _case(result: CaseResult) -> str:
    return details(
        result,
        {**about(result), **found(result), **source(result)},
        title=f"<code>{escape(result.id)}</code>",
        anchor=result.id,
        extra=f"{result.level}, ",
    )
