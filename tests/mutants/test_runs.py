"""Mutants of a small product are run, found or not, and confirmed in a later tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.choosing import Chooser
from tests.mutants.confirming import Lane
from tests.mutants.mutant import Mutant
from tests.mutants.results import Check, Outcome, Results
from tests.mutants.running import Runner, Settings, in_groups
from tests.mutants.test_mutant import mutant

FILE = "stompkit/thing.py"
THING = """\
def larger(a, b):
    if a > b:
        return a
    return b


def steps(n):
    while n:
        n -= 1
    return "done"
"""
TESTS = """\
import os
import pathlib
import subprocess
import sys

import stompkit.thing as thing


def test_fails_always():
    assert os.environ.get("NOTHING")


def test_fails_first():
    path = pathlib.Path(__file__).with_name("was-run")
    is_first = not path.exists()
    path.touch()
    assert not is_first


def test_larger():
    assert thing.larger(2, 1) == 2


def test_in_another_process():
    code = "import stompkit.thing as thing; print(thing.steps(3))"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"done\\n"
"""
GOOD_TESTS = TESTS.replace("assert os", "os").replace("not is_first", "True")
NEGATED = mutant(
    file=FILE, scope="larger", before="    if a > b:", after="    if not (a > b):", above="x"
)
EQUAL = mutant(
    id=2, file=FILE, scope="larger", before="    if a > b:", after="    if a >= b:", above="x"
)
ENDLESS = mutant(
    id=3, file=FILE, scope="steps", before="        n -= 1", after="        pass", above="x"
)
GONE = mutant(id=4, file=FILE, before="not there")
NOT_DONE = mutant(
    id=5, file=FILE, scope="steps", before='    return "done"', after="    return None", above="x"
)


def commit(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Change"]):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *command],
            cwd=tree,
            check=True,
        )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    commit(
        folder,
        {
            "stompkit/__init__.py": "",
            FILE: THING,
            # Sessions make pytest load it.
            "stompkit/testing/__init__.py": "",
            "stompkit/testing/plugin.py": "",
            "tests/test_thing.py": TESTS,
            "pytest.ini": "[pytest]\n",
        },
    )
    return folder


def settings(tree: Path, tmp_path: Path) -> Settings:
    return Settings(
        tree=tree, python=Path(sys.executable), scratch=tmp_path / "scratch", hang_s=5.0, attempts=1
    )


def run(tree: Path, tmp_path: Path, *mutants: Mutant) -> tuple[Results, list[str]]:
    results = Results(tmp_path / "before.jsonl")
    said: list[str] = []
    runner = Runner(settings(tree, tmp_path), results, said.append)
    chooser = Chooser(tree)
    runner.run(mutants, lambda each: in_groups(chooser.files(each)), found_by={})
    assert (runner.copy.folder / FILE).read_text() == THING
    return results, said


@pytest.mark.matrix
def test_mutants_are_found_or_not(tree: Path, tmp_path: Path) -> None:
    (tree / FILE).write_text("not committed")
    results, said = run(tree, tmp_path, NEGATED, EQUAL, GONE)
    found = results.outcomes[1]
    assert (found.outcome, found.test) == ("found", "tests/test_thing.py::test_larger")
    assert results.is_found(1)
    assert (results.outcomes[2].outcome, results.outcomes[2].passed) == ("survived", 3)
    assert results.outcomes[4].outcome == "gone"
    # A failure without a mutant, or at random, is not a finding.
    assert results.failing() == {"tests/test_thing.py::test_fails_always"}
    assert any("mutant 1 found by tests/test_thing.py::test_larger" in line for line in said)
    assert (tree / FILE).read_text() == "not committed"


@pytest.mark.matrix
def test_a_test_that_does_not_end_has_found_it(tree: Path, tmp_path: Path) -> None:
    commit(tree, {"tests/test_thing.py": GOOD_TESTS})
    results, _ = run(tree, tmp_path, ENDLESS)
    found = results.outcomes[3]
    assert (found.outcome, found.test) == (
        "timeout",
        "tests/test_thing.py::test_in_another_process",
    )
    assert results.is_found(3)


@pytest.mark.matrix
def test_what_was_found_is_found_in_a_later_tree_or_not(tree: Path, tmp_path: Path) -> None:
    before = Results(tmp_path / "before.jsonl")
    for number, test in ((1, "larger"), (2, "of_equals"), (5, "in_another_process")):
        name = f"tests/test_thing.py::test_{test}"
        before.add(Outcome(id=number, outcome="found", test=name))
        before.add(Check(test=name, passes=True))
    head, parted, moved = GOOD_TESTS.partition("def test_in_another_process")
    commit(
        tree,
        {
            FILE: f"import os\n\n\n{THING}",
            "tests/test_thing.py": head,
            "tests/test_moved.py": f"import subprocess\nimport sys\n\n\n{parted}{moved}",
            "tests/test_not_in_the_lane.py": "def test_of_equals():\n    assert False\n",
        },
    )
    after = Results(tmp_path / "after.jsonl")
    runner = Runner(settings(tree, tmp_path), after, lambda _: None)
    tests = runner.collect(["--ignore=tests/test_not_in_the_lane.py", "-k", "larger or process"])
    assert tests == [
        "tests/test_moved.py::test_in_another_process",
        "tests/test_thing.py::test_larger",
    ]
    lane = Lane(tests, before, Chooser(tree))
    known = {number: outcome.test for number, outcome in before.outcomes.items()}
    runner.run([NEGATED, EQUAL, NOT_DONE], lane.plan, found_by=known)
    assert after.is_found(1)
    assert after.outcomes[1].is_same
    assert after.outcomes[2].outcome == "survived"
    assert after.is_found(5)
    assert after.outcomes[5].test == "tests/test_moved.py::test_in_another_process"
    assert not after.outcomes[5].is_same


def test_a_python_that_imports_another_product_is_refused(tree: Path, tmp_path: Path) -> None:
    commit(tree, {"stompkit/__init__.py": "__file__ = '/elsewhere/stompkit/__init__.py'\n"})
    with pytest.raises(RuntimeError, match="imports stompkit from /elsewhere"):
        Runner(settings(tree, tmp_path), Results(tmp_path / "results.jsonl"), print)


def test_a_check_that_an_interrupted_run_has_left_is_made(tree: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    tests = [f"tests/test_thing.py::test_{name}" for name in ("larger", "fails_always", "gone")]
    for number, test in enumerate((*tests, "tests/test_thing.py"), 1):
        results.add(Outcome(id=number, outcome="found", test=test))
    Runner(settings(tree, tmp_path), results, lambda _: None).check()
    assert [results.is_found(number) for number in range(1, 5)] == [True, False, False, True]


def test_files_are_run_in_groups() -> None:
    files = [f"tests/test_{number}.py" for number in range(15)]
    assert [len(group) for group in in_groups(files)] == [1, 3, 8, 3]
    assert [each for group in in_groups(files) for each in group] == files
    assert list(in_groups([])) == []
