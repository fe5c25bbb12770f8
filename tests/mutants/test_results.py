"""Results are stored as they arrive, and compared."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.results import Check, Outcome, Results, comparison, summary
from tests.mutants.test_mutant import mutant


def test_a_run_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "report" / "results.jsonl"
    results = Results(path)
    results.add(Outcome(id=1, outcome="found", test="tests/test_a.py::test_a"))
    results.add(Check(test="tests/test_a.py::test_a", passes=True))
    with path.open("ab") as file:
        file.write(b'{"type":"mutant","id":2,"outc')
    results = Results(path)
    results.add(Outcome(id=3, outcome="survived"))
    again = Results(path)
    assert sorted(again.outcomes) == [1, 3]
    assert again.is_found(1)
    assert not again.is_found(3)


def test_only_what_passes_without_a_mutant_has_found_it(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(Outcome(id=1, outcome="timeout", test="a"))
    assert not results.is_found(1)
    assert results.unchecked() == ["a"]
    results.add(Check(test="a", passes=False))
    assert not results.is_found(1)
    assert results.unchecked() == []
    assert results.failing() == {"a"}


def row(lines: list[str], name: str) -> list[str]:
    cells = [line.strip("| ").split(" | ") for line in lines]
    return next(each[1:] for each in cells if each[0] == name)


def test_tables(tmp_path: Path) -> None:
    mutants = [mutant(id=number) for number in range(1, 8)]
    mutants.append(mutant(id=8, part="client"))
    before, after = Results(tmp_path / "before"), Results(tmp_path / "after")
    for results in (before, after):
        results.add(Check(test="a", passes=True))
    for number in range(1, 7):
        before.add(Outcome(id=number, outcome="timeout" if number == 6 else "found", test="a"))
    before.add(Outcome(id=7, outcome="survived"))
    lines = list(summary(before, mutants))
    assert row(lines, "server") == ["7", "7", "6", "1", "1", "0"]
    assert row(lines, "client") == ["1", "0", "0", "0", "0", "0"]
    assert row(lines, "all") == ["8", "7", "6", "1", "1", "0"]
    after.add(Outcome(id=1, outcome="found", test="a", is_same=True))
    after.add(Outcome(id=2, outcome="found", test="a"))
    after.add(Outcome(id=3, outcome="gone"))
    after.add(Outcome(id=4, outcome="survived"))
    after.add(Outcome(id=5, outcome="found", test="not checked yet"))
    lines = list(comparison(before, after, mutants))
    assert row(lines, "all") == ["6", "1", "1", "1", "1", "2"]
    assert lines[-1].startswith("| all")
