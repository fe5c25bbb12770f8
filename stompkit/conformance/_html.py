"""The report as one self-contained HTML page: a matrix of cases, each with its wire log."""

from __future__ import annotations

from html import escape
from itertools import groupby
from string import Template

from stompkit.conformance.report import Report
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["to_html"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; --ok: #1a7f37; --bad: #cf222e;
  --so: #9a6700; --off: #6e7781; --info: #0969da; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--dim); } dd { margin: 0; }
table { border-collapse: collapse; } th, td { padding: .25rem .75rem; text-align: right; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tbody tr { border-top: 1px solid var(--line); }
details { border-top: 1px solid var(--line); padding: .25rem 0; }
summary { cursor: pointer; display: flex; gap: .75rem; align-items: baseline; flex-wrap: wrap; }
summary code { flex: 1; overflow-wrap: anywhere; }
.v { font-weight: 600; font-size: .8rem; min-width: 8rem; }
.OK { color: var(--ok); } .FAILED { color: var(--bad); } .NON-STRICT { color: var(--so); }
.UNSUPPORTED { color: var(--off); } .INFORMATIONAL { color: var(--info); }
.dim { color: var(--dim); font-size: .85rem; }
.log { font: 12px/1.4 ui-monospace, monospace; overflow-x: auto; margin: .5rem 0; }
.log td { text-align: left; vertical-align: top; padding: .1rem .5rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.log td:nth-child(-n+3) { color: var(--dim); white-space: nowrap; }
"""

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>STOMP conformance of $name</title>
<style>$style</style></head><body>
<h1>STOMP conformance of $name</h1>
<dl>$facts</dl>
<table><thead><tr><th>chapter</th>$columns</tr></thead><tbody>$rows</tbody></table>
$chapters
</body></html>
""")


def to_html(report: Report) -> bytes:
    """Make the page; it needs nothing but itself."""
    target = report.target
    facts = {
        "target": target.address,
        "server": target.server or "not said",
        "versions": ", ".join(target.versions),
        "run": f"{report.started}, {report.duration_s:.1f} s"
        + ("" if report.complete else ", cut short: the target no longer answered"),
        "suite": f"{report.suite} {report.suite_version}",
    }
    page = _PAGE.substitute(
        name=escape(target.server or target.address),
        style=_STYLE,
        facts="".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()),
        columns="".join(f'<th class="{v}">{v}</th>' for v in Verdict),
        rows="".join(_row(*group) for group in _by_chapter(report.results)),
        chapters="".join(_chapter(*group) for group in _by_chapter(report.results)),
    )
    return page.encode()


def _by_chapter(results: list[CaseResult]) -> list[tuple[str, list[CaseResult]]]:
    ordered = sorted(results, key=lambda each: each.chapter)
    return [(name, list(group)) for name, group in groupby(ordered, lambda each: each.chapter)]


def _row(chapter: str, results: list[CaseResult]) -> str:
    cells = "".join(
        f"<td>{sum(each.verdict is verdict for each in results)}</td>" for verdict in Verdict
    )
    return f'<tr><td><a href="#{escape(chapter)}">{escape(chapter)}</a></td>{cells}</tr>'


def _chapter(chapter: str, results: list[CaseResult]) -> str:
    cases = "".join(map(_case, results))
    return f'<h2 id="{escape(chapter)}">{escape(chapter)}</h2>{cases}'


def _case(result: CaseResult) -> str:
    told = [result.detail] if result.detail else []
    if result.expected:
        told.append(f"expected: {result.expected}")
    told += result.notes
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in told)
    return (
        f'<details id="{escape(result.id)}"><summary>'
        f'<span class="v {result.verdict}">{result.verdict}</span>'
        f"<code>{escape(result.id)}</code>"
        f'<span class="dim">{result.level}, {result.ending}, {result.duration_ms} ms</span>'
        f"</summary><p><b>{escape(result.statement)}</b></p>"
        f"<p>{escape(result.expectation)}</p>{paragraphs}"
        f'<p class="dim">covers {escape(", ".join(result.requirements))}</p>'
        f'<table class="log">{_wire(result)}</table></details>'
    )


def _wire(result: CaseResult) -> str:
    return "".join(
        f"<tr><td>{event.at_ms} ms</td><td>#{event.connection}</td>"
        f"<td>{escape(event.direction)}</td><td>{escape(event.text)}</td></tr>"
        for event in result.wire
    )
