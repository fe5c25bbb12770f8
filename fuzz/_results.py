"""Totals of all recorded runs, in ``fuzz/results.json`` and as the table of a page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from fuzz._campaign import Summary
from fuzz._targets import TARGETS

__all__ = ["PAGE", "RESULTS", "Results", "Total", "load_results", "record", "table"]

RESULTS: Final = Path(__file__).with_name("results.json")
#: The page with the table.
PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "fuzzing.rst"


class Total(msgspec.Struct, kw_only=True):
    """Totals of all runs of a target."""

    executions: int = 0
    cpu_seconds: float = 0.0
    #: Maximum of all runs.
    branches: int = 0


class Results(msgspec.Struct, kw_only=True):
    """Results of all runs."""

    #: Targets of each run that have been added, by the id of the run: none is added twice.
    runs: dict[str, list[str]] = {}
    targets: dict[str, Total] = {}


def load_results(file: Path = RESULTS) -> Results:
    """Return the recorded results."""
    if not file.exists():
        return Results()
    return msgspec.json.decode(file.read_bytes(), type=Results)


def record(path: Path, file: Path = RESULTS, page: Path = PAGE) -> str:
    """Add the summary of a run, and update the page; return a report in one sentence."""
    summary = msgspec.json.decode(path.read_bytes(), type=Summary)
    results = load_results(file)
    before = "\n".join(table(results))
    done = results.runs.setdefault(summary.id, [])
    fresh = {name: each for name, each in summary.targets.items() if name not in done}
    if not fresh:
        return f"{path}: the run {summary.id} is recorded already."
    done += fresh
    for name, outcome in fresh.items():
        total = results.targets.setdefault(name, Total())
        total.executions += outcome.executions
        total.cpu_seconds = round(total.cpu_seconds + outcome.cpu_seconds, 1)
        total.branches = max(total.branches, outcome.branches)
    results.targets = {name: results.targets[name] for name in TARGETS if name in results.targets}
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(before, "\n".join(table(results))), encoding="utf-8")
    hours = sum(each.cpu_seconds for each in results.targets.values()) / 3_600
    return f"{path}: recorded; all runs come to {hours:.2f} hours of CPU."


def table(results: Results) -> list[str]:
    """Return the table of docs/explanation/fuzzing.rst, as lines."""
    wide = max(map(len, TARGETS)) + 4
    rule = f"{'=' * wide}  {'=' * 13}  {'=' * 9}  {'=' * 9}"
    lines = [
        rule,
        f"{'Target':<{wide}}  {'Executions':>13}  {'CPU hours':>9}  {'Branches':>9}",
        rule,
    ]
    totals = [results.targets.get(name, Total()) for name in TARGETS]
    for name, total in zip(TARGETS, totals, strict=True):
        lines.append(_row(f"``{name}``", wide, total))
    everything = Total(
        executions=sum(each.executions for each in totals),
        cpu_seconds=sum(each.cpu_seconds for each in totals),
        branches=0,
    )
    lines += [_row("all", wide, everything), rule]
    return lines


def _row(name: str, wide: int, total: Total) -> str:
    hours = total.cpu_seconds / 3_600
    branches = f"{total.branches:,}" if total.branches else "\\-"
    return f"{name:<{wide}}  {total.executions:>13,}  {hours:>9.2f}  {branches:>9}"
