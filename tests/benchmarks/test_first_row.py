"""The program that measures the start of a pipeline's job runs jobs with and without an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.programs import figures, missing, run

pytest.importorskip("pyspark")
pytestmark = pytest.mark.matrix


def test_first_and_later_starts_are_measured(tmp_path: Path) -> None:
    from stompkit.spark import SparkError
    from stompkit.spark.java import find_java_home

    try:
        find_java_home()
    except SparkError as error:
        raise missing(str(error)) from None
    made = tmp_path / "made.json"
    arguments = ("--rounds", "1", "--idle", "0", "--json", str(made))
    figure = figures(run("first_row", *arguments, timeout_s=600.0), made)
    for name in ("first", "later"):
        # Python starts in less than that; the rest is Java.
        assert figure[f"{name}_cpu_s"] > 1
        assert figure[f"{name}_s"] > 1
    assert figure["idle_mib"] > 100
