"""The program that measures takeovers does so for every kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.programs import figures, run


@pytest.mark.matrix
def test_every_kind_of_takeover_is_measured(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    figure = figures(run("takeover", "--rounds", "1", "--lease", "2", "--json", str(made)), made)
    for name in ("killed", "planned", "stopped"):
        assert 0 < figure[f"{name}_median_s"] == figure[f"{name}_max_s"]
