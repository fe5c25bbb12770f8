"""Reports as Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from stompkit.conformance.report.report import Report
from stompkit.conformance.report.summary import judgement
from stompkit.conformance.verdict import CaseResult, Verdict

__all__ = ["to_markdown", "to_markdown_matrix"]

_NOT_OK = (Verdict.FAILED, Verdict.NON_STRICT)
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~&]")


def to_markdown(report: Report, *, strict: bool = False) -> bytes:
    """Return the report of one run: judgement, table by chapter, findings and profile."""
    failures = report.unexpected(strict=strict)
    failed = {result.id for result in failures}
    others = [each for each in report.results if each.verdict in _NOT_OK and each.id not in failed]
    lines = [f"## STOMP conformance of {_name(report)}", ""]
    for sentence in judgement(report, strict=strict):
        lines += [_text(sentence), ""]
    chapters = [(_text(chapter), count) for chapter, count in report.by_chapter().items()]
    lines += _table("chapter", chapters)
    lines += _section("Failures", map(_finding, failures))
    lines += _section("Better than expected", map(_code, report.better_than_expected))
    lines += _section("Errors of the suite itself", map(_code, report.errors))
    lines += _section("Not OK, but no failure", map(_finding, others))
    lines += _profile(["does"], [report])
    return _encoded(lines)


def to_markdown_matrix(reports: Sequence[Report]) -> bytes:
    """Return the report of several runs: table by target, cases not OK everywhere, profiles."""
    names = [_name(report) for report in reports]
    cut_short = [
        f"{name}: {_code(report.cut_short)}"
        for name, report in zip(names, reports, strict=True)
        if not report.complete
    ]
    counts = [report.count() for report in reports]
    lines = ["## STOMP conformance", ""]
    lines += _table("target", list(zip(names, counts, strict=True)))
    lines += _section("Cut short", cut_short)
    verdicts = [{each.id: each.verdict for each in report.results} for report in reports]
    deviating = {name for run in verdicts for name, verdict in run.items() if verdict in _NOT_OK}
    if deviating:
        lines += ["", "### FAILED and NON-STRICT", "", _row("case", *names)]
        lines += [_row(*["---"] * (len(names) + 1))]
        for name in sorted(deviating):
            lines.append(_row(_cell(name), *(str(run.get(name, "not run")) for run in verdicts)))
    lines += _profile(names, reports)
    return _encoded(lines)


def _name(report: Report) -> str:
    """Return the name of the target, for a table cell or a text."""
    return _cell(" ".join(report.target.product()))


def _table(first: str, counts: Sequence[tuple[str, Counter[Verdict]]]) -> list[str]:
    """Return the number of cases with each verdict; ``first`` is the header of the name column."""
    lines = [_row(first, *Verdict), _row("---", *["---:"] * len(Verdict))]
    lines += [_row(name, *(str(count[each]) for each in Verdict)) for name, count in counts]
    return lines


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _section(title: str, items: Iterable[str]) -> list[str]:
    """Return a list under a heading; empty if there are no items."""
    lines = [f"- {item}" for item in items]
    return ["", f"### {title}", "", *lines] if lines else []


def _profile(names: Sequence[str], reports: Sequence[Report]) -> list[str]:
    """Return the behaviour of each target where it has a choice; ``names`` are the columns."""
    profiles = [report.profile() for report in reports]
    lines = [
        _row(_text(about), *(_cell(profile.get(about, "")) for profile in profiles))
        for about in sorted({about for profile in profiles for about in profile}, key=str.casefold)
    ]
    head = [_row("about", *names), _row(*["---"] * (len(names) + 1))]
    return ["", "### Profile", "", *head, *lines] if lines else []


def _finding(result: CaseResult) -> str:
    told = f"{result.verdict} {_code(result.id)} ({result.level}): {_code(result.detail)}"
    return f"{told}, expected: {_text(result.expected)}" if result.expected else told


# Texts of the target, escaped.


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _text(text: str) -> str:
    """Return text with all Markdown characters escaped."""
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", _one_line(text))


def _code(text: str) -> str:
    """Return a code span, in which neither tags nor user names are interpreted."""
    inner = _one_line(text)
    longest = max(map(len, re.findall("`+", inner)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {inner} {fence}" if longest else f"`{inner}`" if inner else "-"


def _cell(text: str) -> str:
    """Return a code span for a table, with bars escaped."""
    return _code(text).replace("|", "\\|")


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
