"""The report as one self-contained HTML page: a matrix of cases, each with its wire log."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from string import Template

from stompkit.conformance._details import (
    NOT_OK,
    about,
    cell,
    details,
    found,
    known,
    rows,
    source,
    style,
    topic,
)
from stompkit.conformance.report import Report
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["to_html"]

_MARKS = {
    Verdict.OK: "✓",
    Verdict.NON_STRICT: "n",
    Verdict.FAILED: "✗",
    Verdict.UNSUPPORTED: "-",
    Verdict.INFORMATIONAL: "i",
}

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>STOMP conformance of $name</title>
<style>$style</style></head><body>
<h1>STOMP conformance of $name</h1>
<dl>$facts</dl>
$counts
<h2>All cases</h2>
$matrix
$findings
<h2>Case by case</h2>
<p><label><input type="checkbox" id="only"> only what is FAILED or NON-STRICT</label></p>
$cases
</body></html>
""")


def to_html(report: Report) -> bytes:
    """Make the page; it needs nothing but itself."""
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
    if report.errors:
        facts["errors"] = f"{len(report.errors)} in the suite itself"
    if report.better_than_expected:
        facts["better than expected"] = ", ".join(report.better_than_expected)
    page = _PAGE.substitute(
        name=escape(target.server or target.address),
        style=style(),
        facts=rows(facts),
        counts=_counts(report),
        matrix=_matrix(report.results),
        findings=_findings(report.results),
        cases="".join(map(_case, sorted(report.results, key=_place))),
    )
    return page.encode("utf-8", "backslashreplace")


def _place(result: CaseResult) -> tuple[str, str]:
    return result.chapter, topic(result)


def _unique(words: Iterable[str]) -> list[str]:
    return sorted(set(words))


def _counts(report: Report) -> str:
    """How often each verdict was reached in each chapter."""
    head = "".join(f'<th class="{verdict}">{verdict}</th>' for verdict in Verdict)
    lines = []
    for chapter, count in report.by_chapter().items():
        cells = "".join(cell(verdict, count[verdict]) for verdict in Verdict)
        lines.append(f"<tr><th>{escape(chapter)}</th>{cells}</tr>")
    body = "".join(lines)
    return (
        f'<table class="counts"><thead><tr><th>chapter</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _matrix(results: list[CaseResult]) -> str:
    """A mark for each case: a row for each topic, a column for each chapter."""
    chapters = _unique(each.chapter for each in results)
    cells: dict[tuple[str, str], str] = {}
    for result in results:
        place = topic(result), result.chapter
        title = escape(f"{result.id}: {result.verdict}")
        mark = (
            f'<a class="{result.verdict}" href="#{escape(result.id)}" title="{title}">'
            f"{_MARKS[result.verdict]}</a>"
        )
        cells[place] = cells.get(place, "") + mark
    head = "".join(f"<th>{escape(chapter)}</th>" for chapter in chapters)
    body = "".join(
        f"<tr><th>{escape(name)}</th>"
        + "".join(f"<td>{cells.get((name, chapter), '')}</td>" for chapter in chapters)
        + "</tr>"
        for name in _unique(map(topic, results))
    )
    return (
        f'<table class="matrix"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _findings(results: list[CaseResult]) -> str:
    """What is not OK, with the reason."""
    body = "".join(
        f'<tr><td class="{result.verdict} v">{result.verdict}</td>'
        f'<td><a href="#{escape(result.id)}"><code>{escape(result.id)}</code></a>'
        f"{known(result)}<br>{escape(result.detail)}</td></tr>"
        for verdict in NOT_OK
        for result in results
        if result.verdict is verdict
    )
    return f'<h2>FAILED and NON-STRICT</h2><table class="findings">{body}</table>' if body else ""


def _case(result: CaseResult) -> str:
    return details(
        result,
        {**about(result), **found(result), **source(result)},
        title=f"<code>{escape(result.id)}</code>",
        anchor=result.id,
        extra=f"{result.level}, ",
    )
