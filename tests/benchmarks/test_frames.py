"""The program that compares codecs runs and reports; speed is not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "benchmarks" / "frames.py"
PEERS = {"stomp.py": "stomp", "stompest": "stompest", "stomper": "stomper", "coilmq": "coilmq"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120
    )


def check_rows(made: dict[str, Any], libraries: set[str]) -> None:
    rows = made["rows"]
    cases = {(row["operation"], row["command"]) for row in rows}
    assert cases == {(how, what) for how in ("Reading", "Writing") for what in ("SEND", "MESSAGE")}
    assert len(rows) == len(cases) * len(libraries)
    assert {row["library"] for row in rows} == libraries == set(made["versions"])
    for row in rows:
        assert row["shape"] == "escaped"
        figures = [row[name] for name in ("min_us", "median_us", "max_us", "frames_per_s")]
        if row["fault"]:
            assert row["library"] != "stompkit"
            assert figures == [None] * 4 and row["times_as_slow"] is None
        else:
            assert all(figure > 0 for figure in figures) and row["times_as_slow"] > 0
        assert (row["library"] == "stompkit") <= (row["times_as_slow"] == 1)


def test_a_run_is_complete_with_the_peers_that_are_there(tmp_path: Path) -> None:
    table, figures = tmp_path / "table.rst", tmp_path / "figures.json"
    done = run(
        str(PROGRAM), "--rounds", "1", "--shape", "escaped",
        "--rst", str(table), "--json", str(figures),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[4/4] Writing MESSAGE escaped" in done.stderr
    made = json.loads(figures.read_text())
    check_rows(made, {"stompkit", *PEERS} - set(made["missing"]))
    assert made["command"] == "python benchmarks/frames.py --rounds 1 --shape escaped"
    assert table.read_text() in done.stdout
    assert table.read_text().count("\n   stompkit ") == 4
    assert str(ROOT) not in table.read_text()


def test_peers_that_are_not_installed_are_named_and_do_no_harm(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    hidden = f"import runpy, sys; sys.modules |= dict.fromkeys({[*PEERS.values()]!r});"
    start = f"{hidden} runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    done = run("-c", start, "--rounds", "1", "--shape", "escaped", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    made = json.loads(figures.read_text())
    assert made["missing"] == sorted(PEERS)
    check_rows(made, {"stompkit"})
    for name in PEERS:
        assert f"pip install {name}" in done.stderr
        assert f"{name} is missing: ``pip install {name}``." in done.stdout


def test_no_rounds_are_refused() -> None:
    done = run(str(PROGRAM), "--rounds", "0")
    assert done.returncode == 2
    assert "--rounds must be 1 or more" in done.stderr
