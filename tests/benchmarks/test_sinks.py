"""The program that measures sinks applies all changes."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.programs import figures, run


def test_every_kind_of_change_is_measured(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    arguments = ("--sink", "sqlite", "--rows", "200", "--rounds", "1", "--json", str(made))
    figure = figures(run("sinks", *arguments), made)
    for action in ("write", "update", "delete"):
        assert 0 < figure[f"sqlite_{action}_per_s"]
        assert 0 < figure[f"sqlite_{action}_per_core_s"]
