"""The program that measures the cost of a slow reader has one, and counts its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks._client import RefusedError
from benchmarks.slow_reader import lost
from tests.benchmarks.conftest import Script, delivery
from tests.benchmarks.programs import figures, run


def test_the_slow_reader_loses_as_much_as_is_measured_and_the_others_nothing(
    tmp_path: Path,
) -> None:
    made = tmp_path / "made.json"
    arguments = ("--rounds", "1", "--seconds", "1", "--rate", "100", "--subscribers", "3")
    figure = figures(run("slow_reader", *arguments, "--json", str(made)), made)
    for kind in ("without", "with"):
        for percentile in ("p50", "p99"):
            name = f"{kind}_{percentile}"
            assert 0 < figure[f"{name}_min_ms"] <= figure[f"{name}_ms"] <= figure[f"{name}_max_ms"]
        assert figure[f"{kind}_p50_ms"] <= figure[f"{kind}_p99_ms"]
    assert figure["ratio"] == pytest.approx(figure["with_p50_ms"] / figure["without_p50_ms"])
    assert figure["noise"] == pytest.approx(figure["without_p50_max_ms"] / figure["without_p50_ms"])
    assert figure["lost"] >= 100
    assert figure["spared"] == 0


def test_what_a_slow_reader_has_lost_is_counted_by_the_numbers(scripted: Script) -> None:
    client = scripted(b"".join(map(delivery, [0, 1, 5, 6, 9])))
    assert lost(client, 10) == 5


@pytest.mark.parametrize("numbers", [[0, 2, 1], [0, 0], [10]])
def test_what_a_slow_reader_gets_has_to_be_in_order(scripted: Script, numbers: list[int]) -> None:
    client = scripted(b"".join(map(delivery, numbers)))
    with pytest.raises(RefusedError, match="is to come"):
        lost(client, 10)
