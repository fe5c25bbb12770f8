"""Totals of recorded fuzzing runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from fuzz._campaign import Finding, Outcome, Summary
from fuzz._results import PAGE, Results, load_results, record, table


def summary(id: str, **targets: Outcome) -> Summary:
    return Summary(id=id, python="3.11", atheris="3", targets=targets)


def outcome(executions: int, branches: int, *findings: Finding) -> Outcome:
    return Outcome(
        executions=executions,
        cpu_seconds=1_800.0,
        branches=branches,
        features=0,
        inputs=0,
        peak_rss_mb=0,
        findings=list(findings),
    )


def test_runs_are_added_up_once(tmp_path: Path) -> None:
    first, second, file, page = (tmp_path / name for name in ("1", "2", "results", "page"))
    page.write_text("\n".join(["before", *table(Results()), "after"]))
    found = Finding("input", "AssertionError")
    first.write_bytes(msgspec.json.encode(summary("1", frames=outcome(10, 7), spool=outcome(1, 2))))
    second.write_bytes(msgspec.json.encode(summary("2", frames=outcome(5, 8, found))))
    assert "1.00 hours" in record(first, file, page)
    assert "1.50 hours" in record(second, file, page)
    assert "already" in record(second, file, page)
    # Recorded while the run was still in progress.
    second.write_bytes(
        msgspec.json.encode(summary("2", frames=outcome(5, 8, found), names=outcome(3, 4)))
    )
    assert "2.00 hours" in record(second, file, page)
    results = load_results(file)
    frames = results.targets["frames"]
    assert (frames.executions, frames.cpu_seconds, frames.branches) == (15, 3_600.0, 8)
    assert results.targets["spool"].executions == 1
    assert list(results.targets) == ["frames", "names", "spool"]
    assert page.read_text() == "\n".join(["before", *table(results), "after"])


def test_nothing_is_recorded_at_first(tmp_path: Path) -> None:
    assert load_results(tmp_path / "none") == Results()


def test_the_page_has_the_table_of_what_is_recorded() -> None:
    text = "\n".join(table(load_results()))
    assert text in PAGE.read_text(), f"python -m fuzz --record writes it; it is now:\n{text}"
