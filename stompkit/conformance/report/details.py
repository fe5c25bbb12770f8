"""The parts of an HTML page about one case: its verdict, the findings and its wire log."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = [
    "MARKS",
    "NOT_OK",
    "about",
    "cell",
    "details",
    "found",
    "kind",
    "known",
    "legend",
    "rows",
    "source",
]

#: Verdicts that need the reader's attention.
NOT_OK = (Verdict.FAILED, Verdict.NON_STRICT)
#: Symbols for verdicts in places without room for the word; the style sheet has them as well.
MARKS = {
    Verdict.OK: "✓",
    Verdict.NON_STRICT: "n",
    Verdict.FAILED: "✗",
    Verdict.UNSUPPORTED: "-",
    Verdict.INFORMATIONAL: "i",
}
_LINE_END = "↵"
_SHOWN_LINE_ENDS = 8


def about(result: CaseResult) -> dict[str, str]:
    """Return the description of the case, independent of the target."""
    return {
        "requirement": result.statement,
        "case": result.expectation,
        "specification": f"\u201c{result.sentence}\u201d" if result.sentence else "",
    }


def source(result: CaseResult) -> dict[str, str]:
    """Return the section of the specification and the covered requirements."""
    return {
        "section": f"{result.section} ({result.level})",
        "covers": ", ".join(result.requirements),
    }


def found(result: CaseResult) -> dict[str, str]:
    """Return the findings."""
    return {
        "found": result.detail,
        "expected": result.expected,
        "notes": "\n".join(result.notes),
        "profile": "\n".join(f"{about}: {does}" for about, does in result.profile.items()),
    }


def rows(facts: Mapping[str, str]) -> str:
    """Return facts as the content of a ``dl``; empty ones are left out."""
    return "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)


def known(result: CaseResult) -> str:
    """Return a mark if the deviation was expected."""
    return ' <span class="dim">(expected)</span>' if result.expected else ""


def kind(*results: CaseResult) -> str:
    """Return the CSS class of these results, by which they can be filtered."""
    bad = [result for result in results if result.verdict in NOT_OK]
    news = " news" if any(not result.expected for result in bad) else ""
    return f"bad{news}" if bad else "good"


def cell(verdict: Verdict, number: int) -> str:
    """Return a table cell with the number of cases with a verdict."""
    return f'<td class="{verdict if number else "none"}">{number}</td>'


def legend() -> str:
    """Return the legend of the symbols."""
    marks = (f'<span class="{v}">{mark} {v}</span>' for v, mark in MARKS.items())
    return f'<p class="legend">{" ".join(marks)}</p>'


def details(
    result: CaseResult,
    facts: Mapping[str, str],
    *,
    title: str,
    anchor: str,
    extra: str = "",
    has_log: bool = True,
) -> str:
    """Return a ``details`` element with the facts and the log; ``title`` and ``extra`` are HTML."""
    ending = "" if result.ending is Ending.CLEAN else f"{result.ending}, "
    # The id is inside, so that a link to it opens the details.
    return (
        f'<details class="case {kind(result)}"><summary>'
        f'<span class="v {result.verdict}">{result.verdict}</span>'
        f"{title}{known(result)}"
        f'<span class="dim">{extra}{ending}{result.duration_ms} ms</span></summary>'
        f'<div id="{escape(anchor)}"><dl>{rows(facts)}</dl>{_log(result) if has_log else ""}</div>'
        "</details>"
    )


def _log(result: CaseResult) -> str:
    """Return the wire log as two columns; the second contains preformatted text."""
    events = "".join(
        f"<i>{event.at_ms:>5} ms #{event.connection} {escape(event.direction)}</i>"
        f"{escape(_visible(event.text))}"
        for event in result.wire
    )
    return f'<pre class="log">{events}</pre>' if events else ""


def _visible(text: str) -> str:
    """Return a text with its leading and trailing line ends, possible heart-beats, made visible."""
    inner = text.strip("\n")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return _line_ends(len(before)) + inner + _line_ends(len(after))


def _line_ends(number: int) -> str:
    return _LINE_END * number if number <= _SHOWN_LINE_ENDS else f"{_LINE_END} x {number}"
