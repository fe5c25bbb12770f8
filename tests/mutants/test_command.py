"""The command line: a draw from a commit, and reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import main
from tests.mutants.mutant import MutantSet
from tests.mutants.results import Check, Outcome, Results
from tests.mutants.test_drawing import SOURCES
from tests.mutants.test_runs import commit

TEST = "tests/test_a.py::test_a"


def test_a_draw_is_of_a_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree, out = tmp_path / "tree", tmp_path / "set.json"
    commit(tree, SOURCES)
    (tree / next(iter(SOURCES))).write_text("not committed\n")
    arguments = ["--seed", "3", "--count", "20", "--tree", str(tree), "--out", str(out)]
    assert main(["draw", *arguments]) == 0
    drawn = MutantSet.read(out)
    assert (drawn.seed, len(drawn.mutants), len(drawn.commit)) == (3, 20, 40)
    assert "20 mutants of" in capsys.readouterr().out


def results(path: Path, *outcomes: Outcome) -> str:
    made = Results(path)
    made.add(Check(test=TEST, passes=True))
    for each in outcomes:
        made.add(each)
    return str(path)


def test_a_report_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = results(tmp_path / "before.jsonl", Outcome(id=1, outcome="found", test=TEST))
    assert main(["report", path]) == 0
    assert "| all | 330 | 1 | 1 | 0 | 0 | 0 |" in capsys.readouterr().out


def test_a_comparison_names_what_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = results(
        tmp_path / "before.jsonl",
        Outcome(id=1, outcome="found", test=TEST),
        Outcome(id=2, outcome="found", test=TEST),
    )
    after = results(
        tmp_path / "after.jsonl",
        Outcome(id=1, outcome="found", test=TEST, is_same=True),
        Outcome(id=2, outcome="survived"),
    )
    assert main(["report", before, after]) == 1
    said = capsys.readouterr().out
    assert "| all | 2 | 1 | 0 | 0 | 1 | 0 |" in said
    [lost] = [each for each in MutantSet.read().mutants if each.id == 2]
    assert f"2, {lost.file}:{lost.line} {lost.scope}, {lost.operator}:\nsurvived" in said
    assert TEST in said
    assert main(["report", before, before]) == 0
