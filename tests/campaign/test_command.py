"""The campaign as a command: it resumes where it was stopped, and makes a report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.disk import NoCompiler, built
from tests.campaign.faults import fault_of
from tests.campaign.report import picture, table
from tests.campaign.results import Results
from tests.campaign.running import Verdict

ROOT = Path(__file__).parents[2]


def verdict(seed: int, fault: str = "kill", *, problem: str = "", lost: int = 0) -> Verdict:
    return Verdict(
        seed=seed,
        fault=fault,
        violations={"lost": lost} if lost else {},
        texts=["lost: message 1 of /queue/a is gone"] * lost,
        problem=problem,
        counts={"receipted": 1_000 + seed, "settled": 700, "redelivered": 50},
        tracebacks=0,
        took_s=2.5,
    )


def test_what_is_known_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "report" / "results.jsonl"
    results = Results(path)
    results.add(verdict(2, lost=1))
    results.add(verdict(1))
    again = Results(path)
    assert [each.seed for each in again] == [1, 2]
    assert 2 in again
    assert 3 not in again
    assert [each.is_good for each in again] == [True, False]


def test_a_seed_that_said_nothing_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.add(verdict(1, problem="the broker did not start"))
    assert 1 not in Results(path)
    results.add(verdict(1))
    assert 1 in Results(path)
    assert len(list(Results(path))) == 1


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path).add(verdict(1))
    with path.open("ab") as file:
        file.write(b'{"seed":2,"fau')
    results = Results(path)
    results.add(verdict(3))
    assert [each.seed for each in Results(path)] == [1, 3]


def test_a_table_has_a_row_for_each_fault_and_one_for_all() -> None:
    text = table([verdict(1), verdict(2), verdict(3, "power", lost=4)])
    lines = [line.strip(" *-") for line in text.splitlines()]
    assert "``kill``: kill -9" in lines
    kill = lines.index("``kill``: kill -9")
    assert lines[kill + 1 : kill + 6] == ["2", "2,003", "1,400", "100", "0"]
    power = lines.index("``power``: power loss")
    assert lines[power + 1 : power + 6] == ["1", "1,003", "700", "50", "4"]
    total = lines.index("all")
    assert lines[total + 1 : total + 3] == ["3", "3,006"]


def test_a_picture_shows_what_was_broken() -> None:
    drawn = picture([verdict(1), verdict(3, "power", lost=4)])
    assert "power loss" in drawn
    assert "1,003 in 1 runs, 4 broken" in drawn
    assert "1,001 in 1 runs<" in drawn


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.campaign", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_seed_is_run_once(tmp_path: Path) -> None:
    try:
        built(tmp_path)
    except NoCompiler as error:
        pytest.skip(str(error))
    results = str(tmp_path / "results.jsonl")
    first = run("--seeds", "25-27", "--only", "none", "--results", results)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "1/1" in first.stdout
    [found] = Results(Path(results))
    assert found.fault == "none"
    assert found.counts["receipted"] > 1_000
    second = run("--seeds", "25-27", "--only", "none", "--results", results)
    assert second.returncode == 0
    assert "1/1" not in second.stdout
    assert "1 of 3 seeds" in second.stdout


def test_what_can_not_be_run_here_is_said_and_left_out(tmp_path: Path) -> None:
    try:
        built(tmp_path)
    except NoCompiler as error:
        pytest.skip(str(error))
    seed = next(seed for seed in range(1, 100) if fault_of(seed) == "namespace")
    results = str(tmp_path / "results.jsonl")
    told = run("--seeds", str(seed), "--results", results, PATH="")
    assert told.returncode == 0, told.stderr
    assert "namespace is left out, since it needs the programs unshare, ip\n" in told.stdout
    assert "0 of 1 seeds" in told.stdout


def test_a_report_goes_into_the_page(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    into = tmp_path / "docs"
    into.mkdir()
    shutil.copyfile(ROOT / "docs" / "explanation" / "campaign.rst", into / "campaign.rst")
    results.add(verdict(1))
    for _ in range(2):
        made = run("report", "--results", str(results.path), "--into", str(into))
        assert made.returncode == 0, made.stderr
    page = (into / "campaign.rst").read_text(encoding="utf-8")
    assert page.count(table([verdict(1)])) == 1
    assert (
        (into.parent / "pictures" / "campaign.svg").read_text(encoding="utf-8").startswith("<svg")
    )


def test_a_report_of_nothing_says_how_to_get_something(tmp_path: Path) -> None:
    made = run("report", "--results", str(tmp_path / "nothing.jsonl"))
    assert made.returncode == 2
    assert "python -m tests.campaign makes some" in made.stderr


def test_findings_of_before_are_told(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(verdict(1, lost=1))
    try:
        built(tmp_path)
    except NoCompiler as error:
        pytest.skip(str(error))
    told = run("--seeds", "1", "--results", str(results.path))
    assert told.returncode == 1
    assert "1 have found something: 1" in told.stdout
