"""The report as one self-contained HTML page: a matrix of cases, each with its wire log."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from string import Template

from stompkit.conformance.report import Report
from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = ["to_html"]

_MARKS = {
    Verdict.OK: "✓",
    Verdict.NON_STRICT: "n",
    Verdict.FAILED: "✗",
    Verdict.UNSUPPORTED: "-",
    Verdict.INFORMATIONAL: "i",
}
_LINE_END = "↵"
_SHOWN_LINE_ENDS = 8
_NOT_OK = (Verdict.FAILED, Verdict.NON_STRICT)

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
        style=files("stompkit.conformance").joinpath("report.css").read_text("utf-8"),
        facts="".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()),
        counts=_counts(report),
        matrix=_matrix(report.results),
        findings=_findings(report.results),
        cases="".join(map(_case, sorted(report.results, key=_place))),
    )
    return page.encode("utf-8", "backslashreplace")


def _topic(result: CaseResult) -> str:
    return result.id.split("/")[1]


def _place(result: CaseResult) -> tuple[str, str]:
    return result.chapter, _topic(result)


def _unique(words: Iterable[str]) -> list[str]:
    return sorted(set(words))


def _counts(report: Report) -> str:
    """How often each verdict was reached in each chapter."""
    head = "".join(f'<th class="{verdict}">{verdict}</th>' for verdict in Verdict)
    rows = []
    for chapter in [*_unique(each.chapter for each in report.results), "all"]:
        results = [each for each in report.results if chapter in (each.chapter, "all")]
        numbers = [sum(each.verdict is verdict for each in results) for verdict in Verdict]
        cells = "".join(
            f'<td class="{verdict if number else "none"}">{number}</td>'
            for verdict, number in zip(Verdict, numbers, strict=True)
        )
        rows.append(f"<tr><th>{escape(chapter)}</th>{cells}</tr>")
    body = "".join(rows)
    return (
        f'<table class="counts"><thead><tr><th>chapter</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _matrix(results: list[CaseResult]) -> str:
    """A mark for each case: a row for each topic, a column for each chapter."""
    chapters = _unique(each.chapter for each in results)
    cells: dict[tuple[str, str], str] = {}
    for result in results:
        place = _topic(result), result.chapter
        title = escape(f"{result.id}: {result.verdict}")
        mark = (
            f'<a class="{result.verdict}" href="#{escape(result.id)}" title="{title}">'
            f"{_MARKS[result.verdict]}</a>"
        )
        cells[place] = cells.get(place, "") + mark
    head = "".join(f"<th>{escape(chapter)}</th>" for chapter in chapters)
    rows = "".join(
        f"<tr><th>{escape(topic)}</th>"
        + "".join(f"<td>{cells.get((topic, chapter), '')}</td>" for chapter in chapters)
        + "</tr>"
        for topic in _unique(map(_topic, results))
    )
    return (
        f'<table class="matrix"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _findings(results: list[CaseResult]) -> str:
    """What is not OK, with the reason."""
    rows = "".join(
        f'<tr><td class="{result.verdict} v">{result.verdict}</td>'
        f'<td><a href="#{escape(result.id)}"><code>{escape(result.id)}</code></a>'
        f"{_known(result)}<br>{escape(result.detail)}</td></tr>"
        for verdict in _NOT_OK
        for result in results
        if result.verdict is verdict
    )
    return f'<h2>FAILED and NON-STRICT</h2><table class="findings">{rows}</table>' if rows else ""


def _known(result: CaseResult) -> str:
    return ' <span class="dim">(expected)</span>' if result.expected else ""


def _case(result: CaseResult) -> str:
    facts = {
        "requirement": result.statement,
        "case": result.expectation,
        "found": result.detail,
        "expected": result.expected,
        "notes": "\n".join(result.notes),
        "section": f"{result.section} ({result.level})",
        "covers": ", ".join(result.requirements),
    }
    rows = "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)
    ending = "" if result.ending is Ending.CLEAN else f"{result.ending}, "
    kind = "bad" if result.verdict in _NOT_OK else "good"
    # The id is inside, so that a link to it opens the details.
    return (
        f'<details class="{kind}"><summary>'
        f'<span class="v {result.verdict}">{result.verdict}</span>'
        f"<code>{escape(result.id)}</code>{_known(result)}"
        f'<span class="dim">{result.level}, {ending}{result.duration_ms} ms</span></summary>'
        f'<dl id="{escape(result.id)}">{rows}</dl>'
        f'<table class="log">{_wire(result)}</table></details>'
    )


def _wire(result: CaseResult) -> str:
    return "".join(
        f"<tr><td>{event.at_ms} ms</td><td>#{event.connection}</td>"
        f"<td>{escape(event.direction)}</td><td>{escape(_visible(event.text))}</td></tr>"
        for event in result.wire
    )


def _visible(text: str) -> str:
    """Octets with the line ends around them, which may be heart-beats, to be seen."""
    inner = text.strip("\n")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return _line_ends(len(before)) + inner + _line_ends(len(after))


def _line_ends(number: int) -> str:
    return _LINE_END * number if number <= _SHOWN_LINE_ENDS else f"{_LINE_END} x {number}"
