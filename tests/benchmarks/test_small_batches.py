"""The program that measures the growth by small batches runs jobs of each target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.programs import figures, missing, run

pytest.importorskip("pyspark")
pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("target", ["postgresql", "delta", "events"])
def test_figures_are_taken_after_each_tenth(target: str, tmp_path: Path) -> None:
    from stompkit.spark import SparkError
    from stompkit.spark.java import find_java_home

    try:
        find_java_home()
    except SparkError as error:
        raise missing(str(error)) from None
    made = tmp_path / "made.json"
    arguments = ("--target", target, "--batches", "10", "--json", str(made))
    figure = figures(run("small_batches", *arguments, timeout_s=600.0), made)
    numbers = sorted({int(name.rpartition("_")[2]) for name in figure})
    # A step may end some batches later than it should.
    assert numbers[-1] == 10
    assert figure["open_files_10"] > 10
    assert figure["memory_mib_10"] > 100
    assert figure["state_files_10"] > figure[f"state_files_{numbers[0]}"] or len(numbers) == 1
    place = "relations_10" if target == "postgresql" else "target_files_10"
    assert figure[place] > 0
