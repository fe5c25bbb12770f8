"""The parts of an HTML page that are about one case: its verdict, what was found, its wire log."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files

from stompkit.conformance.verdict import CaseResult, Ending, Verdict

__all__ = [
    "NOT_OK",
    "about",
    "cell",
    "details",
    "found",
    "known",
    "rows",
    "source",
    "style",
    "topic",
]

#: The verdicts that a reader looks for.
NOT_OK = (Verdict.FAILED, Verdict.NON_STRICT)
_LINE_END = "↵"
_SHOWN_LINE_ENDS = 8


def style() -> str:
    """The style sheet of the pages."""
    return files("stompkit.conformance").joinpath("report.css").read_text("utf-8")


def topic(result: CaseResult) -> str:
    """The second part of a case's id: what it is about."""
    return result.id.partition("/")[2].partition("/")[0]


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
    }


def rows(facts: Mapping[str, str]) -> str:
    """Facts as the inside of a ``dl``; those that are empty are left out."""
    return "".join(f"<dt>{k}</dt><dd>{escape(v)}</dd>" for k, v in facts.items() if v)


def known(result: CaseResult) -> str:
    """A mark where the deviation was expected."""
    return ' <span class="dim">(expected)</span>' if result.expected else ""


def cell(verdict: Verdict, number: int) -> str:
    """The cell of a table that says how often a verdict was reached."""
    return f'<td class="{verdict if number else "none"}">{number}</td>'


def details(
    result: CaseResult, facts: Mapping[str, str], *, title: str, anchor: str, extra: str = ""
) -> str:
    """What can be opened to see the facts and the wire log; ``title`` and ``extra`` are HTML."""
    ending = "" if result.ending is Ending.CLEAN else f"{result.ending}, "
    kind = "bad" if result.verdict in NOT_OK else "good"
    # The id is inside, so that a link to it opens the details.
    return (
        f'<details class="{kind}"><summary>'
        f'<span class="v {result.verdict}">{result.verdict}</span>'
        f"{title}{known(result)}"
        f'<span class="dim">{extra}{ending}{result.duration_ms} ms</span></summary>'
        f'<dl id="{escape(anchor)}">{rows(facts)}</dl>'
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
