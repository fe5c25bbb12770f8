"""The page with the medians of the benchmarks, and the stored results that it is generated from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs import make_benchmarks

RUN = {"per_second": 100.0, "seconds": 2.0, "broker_cpu_s": 0.5}


def measured(file: Path, results: list[dict[str, Any]], *arguments: str) -> Path:
    """Write what ``python -m benchmarks --json`` writes."""
    usual = {"about": "about", "rate": 0, "is_headline": True, "fault": "", "runs": [RUN]}
    output = {
        "arguments": [*arguments, "--json", str(file)],
        "machine": "Linux 1.2.3 x86_64",
        "cores": 2,
        "python": "3.11.7",
        "results": [usual | each for each in results],
    }
    file.write_text(json.dumps(output), encoding="utf-8")
    return file


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the condensed results."""
    file = tmp_path / "results" / "brokers.json"
    monkeypatch.setattr(make_benchmarks, "_RESULTS", file)
    return file


def page_of(folder: Path, *files: Path) -> str:
    assert make_benchmarks.main(["--into", str(folder), "--from", *map(str, files)]) == 0
    return (folder / "benchmark-results.rst").read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    assert make_benchmarks.main(["--check"]) == 0


@pytest.mark.usefixtures("stored")
def test_a_table_has_medians_by_cell_and_broker(tmp_path: Path) -> None:
    runs = [RUN | {"per_second": each} for each in (90.0, 1_200.0, 5_000.0)]
    rows: list[dict[str, Any]] = [
        {"cell": "queue-1-1-auto", "broker": "stompkit", "runs": runs},
        {"cell": "queue-1-1-auto", "broker": "rabbitmq:4"},
        {"cell": "topic-1-10", "broker": "rabbitmq:4"},
    ]
    text = page_of(tmp_path, measured(tmp_path / "a.json", rows))
    assert ":header: cell, stompkit, RabbitMQ 4\n" in text
    assert '"``queue-1-1-auto``: about", "1,200", "100"\n' in text
    assert '"``topic-1-10``: about", "", "100"\n' in text


@pytest.mark.usefixtures("stored")
def test_cpu_time_is_that_of_a_message(tmp_path: Path) -> None:
    rows = [{"cell": "queue-1-1-auto", "broker": "stompkit"}]
    text = page_of(tmp_path, measured(tmp_path / "a.json", rows))
    cpu = text[text.index("CPU time\n") :]
    assert '"``queue-1-1-auto``: about", "2,500.0"\n' in cpu


@pytest.mark.usefixtures("stored")
def test_a_failure_is_shown_with_its_reason(tmp_path: Path) -> None:
    rows = [{"cell": "churn", "broker": "coilmq", "runs": [], "fault": "lost *all*\nof it"}]
    text = page_of(tmp_path, measured(tmp_path / "a.json", rows))
    assert '"``churn``: about", "failed"\n' in text
    assert text.endswith("* CoilMQ, ``churn``: lost \\*all\\* of it\n")


@pytest.mark.usefixtures("stored")
def test_a_later_file_replaces_cells_of_an_earlier_one(tmp_path: Path) -> None:
    cells = ("queue-1-1-auto", "churn")
    first = measured(
        tmp_path / "a.json", [{"cell": each, "broker": "stompkit"} for each in cells], "--rounds=1"
    )
    run = RUN | {"per_second": 7.0}
    second = measured(
        tmp_path / "b.json", [{"cell": "churn", "broker": "stompkit", "runs": [run]}], "--rounds=3"
    )
    text = page_of(tmp_path, first, second)
    assert '"``churn``: about", "7"\n' in text
    assert '"``queue-1-1-auto``: about", "100"\n' in text
    assert "    python -m benchmarks --rounds=1\n    python -m benchmarks --rounds=3\n" in text


@pytest.mark.usefixtures("stored")
def test_percentiles_are_shown_of_cells_with_a_rate(tmp_path: Path) -> None:
    run = RUN | {"latency_us": {"p50": 40.2, "p99": 1_000.0, "p99.9": 2_000.4}}
    rows = [{"cell": "latency-1000", "broker": "artemis", "rate": 1_000, "runs": [run]}]
    text = page_of(tmp_path, measured(tmp_path / "a.json", rows))
    assert '"``latency-1000``: about", "40 / 1,000 / 2,000"\n' in text
    assert "Throughput\n" not in text
