"""A table and a diagram of the results of runs, for ``docs/explanation/campaign.rst``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from tests.campaign.checker import RULES
from tests.campaign.faults import FAULTS
from tests.campaign.results import Results
from tests.campaign.running import Verdict

__all__ = ["picture", "table", "write_report"]

#: Markers of the generated part of the page.
_BEGIN: Final = ".. what follows is made by python -m tests.campaign report\n"
_END: Final = ".. end of what is made\n"
_WIDTH: Final = 860
_NAMES: Final = 250
_BARS: Final = 440
_ROW: Final = 22
_TOP: Final = 58
#: Colours that are safe for colour-blind readers (Okabe and Ito).
_KEPT: Final = "#0072b2"
_BROKEN: Final = "#d55e00"


class _Row(NamedTuple):
    """All runs of a fault."""

    title: str
    runs: int
    receipted: int
    settled: int
    redelivered: int
    #: Number of violations, by rule.
    broken: tuple[int, ...]
    bad: int

    @staticmethod
    def of(title: str, verdicts: Sequence[Verdict]) -> _Row:
        """Sum up runs."""

        def total(name: str) -> int:
            return sum(each.counts.get(name, 0) for each in verdicts)

        return _Row(
            title,
            len(verdicts),
            total("receipted"),
            total("settled"),
            total("redelivered"),
            tuple(sum(each.violations.get(rule, 0) for each in verdicts) for rule in RULES),
            sum(not each.is_good for each in verdicts),
        )


def _rows(verdicts: Iterable[Verdict]) -> list[_Row]:
    """Return a row for each fault, and one for all."""
    verdicts = list(verdicts)
    rows = []
    for name, fault in FAULTS.items():
        of_it = [each for each in verdicts if each.fault == name]
        if of_it:
            rows.append(_Row.of(f"{name}: {fault.title}", of_it))
    return [*rows, _Row.of("all", verdicts)]


def table(verdicts: Iterable[Verdict]) -> str:
    """Return a table in reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "",
        *_line("fault", "runs", "messages", "acknowledged", "redelivered", *RULES),
    ]
    for row in _rows(verdicts):
        title, colon, rest = row.title.partition(":")
        name = f"``{title}``:{rest}" if colon else title
        figures = (row.runs, row.receipted, row.settled, row.redelivered, *row.broken)
        lines += _line(name, *(f"{figure:,}" for figure in figures))
    return "\n".join([*lines, ""])


def _line(*cells: str) -> Iterator[str]:
    for number, cell in enumerate(cells):
        yield f"   {'  ' if number else '* '}- {cell}"


def picture(verdicts: Iterable[Verdict]) -> str:
    """Return a bar chart of the messages and violations of each fault, as SVG."""
    rows = _rows(verdicts)[:-1]
    most = max((row.receipted for row in rows), default=1)
    height = _TOP + _ROW * len(rows) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(16, 24, "Messages with their receipts, by what happened", 'font-size="15"'),
        _text(16, 42, "blue: promises kept; orange: seeds that found one broken", 'fill="#555"'),
    ]
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW
        width = _BARS * row.receipted / most
        broken = width * row.bad / row.runs
        parts.append(_text(_NAMES - 8, y + 14, row.title.partition(": ")[2], 'text-anchor="end"'))
        parts.append(_bar(_NAMES, y, width - broken, _KEPT))
        parts.append(_bar(_NAMES + width - broken, y, broken, _BROKEN))
        said = f"{row.receipted:,} in {row.runs} runs"
        said += f", {sum(row.broken)} broken" if sum(row.broken) else ""
        parts.append(_text(_NAMES + width + 6, y + 14, said, 'fill="#555"'))
    return "\n".join([*parts, "</svg>", ""])


def _bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 6}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def write_report(results: Results, folder: Path) -> int:
    """Write table and diagram into the documentation; return the exit status."""
    verdicts = list(results)
    if not verdicts:
        print(f"{results.path} has no runs: python -m tests.campaign makes some", file=sys.stderr)
        return 2
    page = folder / "campaign.rst"
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin and end, f"{page} has lost the lines between which the table goes"
    page.write_text(f"{before}{_BEGIN}\n{table(verdicts)}\n{_END}{after}", encoding="utf-8")
    drawn = folder.parent / "pictures" / "campaign.svg"
    drawn.parent.mkdir(parents=True, exist_ok=True)
    drawn.write_text(picture(verdicts), encoding="utf-8")
    print(page, drawn, sep="\n")
    return 0
