"""The parts of an HTML page that are about one case: its verdict, what was found, its wire log."""

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

#: The verdicts that a reader looks for.
NOT_OK = (Verdict.FAILED, Verdict.NON_STRICT)
#: What stands for a verdict where there is no room for the word; the style sheet has them as well.
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
    """What the case is about, whatever the target."""
    return {
        "requirement": result.statement,
        "case": result.expectation,
    }


def source(result: CaseResult) -> dict[str, str]:
    """Where the specification says it."""
    return {
        "section": f"{result.section} ({result.level})",
        "covers": ", ".join(result.requirements),
    }


def found(result: CaseResult) -> dict[str, str]:
    """What came out of it."""
    return {
        "found": result.detail,
        "expected": result.expected,
        "notes": "\n".join(result.notes),
        "profile": "\n".join(f"{about}: {does}" for about, does in result.profile.items()),
    }


def rows(facts: Mapping[str, str]) -> str:
    """Facts as the inside of a ``dl``; those that are empty are left out."""
    return "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)


def known(result: CaseResult) -> str:
    """A mark where the deviation was expected."""
    return ' <span class="dim">(expected)</span>' if result.expected else ""


def kind(*results: CaseResult) -> str:
    """The class of what is about these results, by which it can be left out."""
    bad = [result for result in results if result.verdict in NOT_OK]
    news = " news" if any(not result.expected for result in bad) else ""
    return f"bad{news}" if bad else "good"


def cell(verdict: Verdict, number: int) -> str:
    """The cell of a table that says how often a verdict was reached."""
    return f'<td class="{verdict if number else "none"}">{number}</td>'


def legend() -> str:
    """What the marks mean."""
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
    """What can be opened to see the facts and the wire log; ``title`` and ``extra`` are HTML."""
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
    """The wire log: two columns, of which the second is text that stands for itself."""
    events = "".join(
        f"<i>{event.at_ms:>5} ms #{event.connection} {escape(event.direction)}</i>"
        f"{escape(_visible(event.text))}"
        for event in result.wire
    )
    return f'<pre class="log">{events}</pre>' if events else ""


def _visible(text: str) -> str:
    """Octets with the line ends around them, which may be heart-beats, to be seen."""
    inner = text.strip("\n")
    before, _, after = text.partition(inner) if inner else (text, "", "")
    return _line_ends(len(before)) + inner + _line_ends(len(after))


def _line_ends(number: int) -> str:
    return _LINE_END * number if number <= _SHOWN_LINE_ENDS else f"{_LINE_END} x {number}"
