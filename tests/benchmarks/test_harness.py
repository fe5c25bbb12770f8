"""The program that measures the test harness runs all the measured actions."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.programs import figures, run


def test_brokers_are_started_reset_and_talked_to(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    arguments = ("--starts", "2", "--resets", "3", "--messages", "5", "--json", str(made))
    figure = figures(run("harness", *arguments), made)
    assert 0 < figure["ready_s"] <= figure["ready_max_s"]
    assert 0 < figure["reset_ms"] <= figure["reset_max_ms"]
    assert all(figure[name] > 0 for name in ("gone_s", "direct_us", "recorded_us"))
