"""Every test is in exactly one part of its lane, and a failure in a part fails the suite."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.suite import lanes
from tests.suite.__main__ import main
from tests.suite.costs import is_costly, mark, read_costly, slow_tests, unknown_tests
from tests.suite.costs import main as print_slow_tests
from tests.suite.memory import files_in_memory
from tests.suite.parts import ROOT, Part, SuiteFile, divide, suite_files
from tests.suite.progress import summarise
from tests.suite.running import Outcome, Runner

FILES = [each.path for each in suite_files({})]


def files_of(parts: Sequence[Part]) -> Counter[str]:
    """Count how often commands name each file of tests."""
    return Counter(word for part in parts for word in part.command if word in FILES)


def run(tmp_path: Path, *parts: Part) -> list[Outcome]:
    return Runner(tmp_path / "logs", 2).run(parts, lambda outcome: None, lambda: None)


def part_of(tmp_path: Path, text: str) -> Part:
    """Return a part with a file of tests."""
    path = tmp_path / "test_it.py"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(path)]
    # Loading plug-ins takes longer than running the tests.
    return Part("it", command, 1, environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


@pytest.mark.parametrize("times", [{}, dict.fromkeys(FILES, 40.0)], ids=["unknown", "long"])
def test_each_file_is_in_one_part_of_the_quick_lane(times: dict[str, float]) -> None:
    parts = list(lanes.quick(times, []))
    compiled = files_of([each for each in parts if each.name.startswith("compiled")])
    as_python = files_of([each for each in parts if each.name == "as Python"])
    every = files_of(parts)
    for path in FILES:
        # The part "as Python" has those of these files that have tests for it, too.
        has_pure = "mark.pure" in (ROOT / path).read_text("utf-8")
        assert as_python[path] == (compiled[path] and has_pure), path
        assert every[path] - as_python[path] == 1, path
    assert any(part.name == "frames" and "tests/frames" in part.command[-1] for part in parts)
    assert len({part.name for part in parts}) == len(parts)


def test_what_runs_compiled_runs_as_python_in_the_matrix() -> None:
    compiled = files_of([each for each in lanes.quick({}, []) if each.name.startswith("compiled")])
    parts = [each for each in lanes.matrix({}, []) if each.name.endswith("as Python")]
    wanted = {path for path in compiled if not path.startswith("tests/frames/")}
    assert dict(files_of(parts)) == dict.fromkeys(wanted, 1)


def test_commands_that_are_forked_are_started_in_the_matrix() -> None:
    parts = [each for each in lanes.matrix({}, []) if each.name.endswith("started")]
    assert {"tests/commands/test_mistakes.py"} <= set(files_of(parts))
    assert all(each.environment == {"STOMPKIT_NO_FORK": "1"} for each in parts)


def test_properties_have_all_their_examples_in_the_matrix() -> None:
    parts = [each for each in lanes.matrix({}, []) if "--hypothesis-profile=few" in each.command]
    assert not parts
    known = files_of(list(lanes.matrix({}, [])))
    drawing = [path for path in FILES if "import given" in (ROOT / path).read_text("utf-8")]
    assert drawing
    assert [path for path in drawing if not known[path]] == []


def test_each_part_of_the_matrix_has_its_turn() -> None:
    parts = list(lanes.matrix({}, []))
    turns = [lanes.turn(parts, day, 20.0, 1) for day in range(len(parts))]
    assert all(turns)
    assert {each.name for turn in turns for each in turn} == {part.name for part in parts}


def test_a_part_that_hangs_is_ended_and_says_so(tmp_path: Path) -> None:
    part = Part("it", [sys.executable, "-c", "import time; time.sleep(1e6)"], 1, has_tests=False)
    runner = Runner(tmp_path / "logs", 1, limit_s=0.5)
    [outcome] = runner.run([part], lambda outcome: None, lambda: None)
    assert outcome.status != 0
    assert "ended after 0.5 seconds" in outcome.log.read_text(encoding="utf-8")


def test_turns_take_the_same_time() -> None:
    parts = [Part(f"part {number}", [], number) for number in range(1, 30)]
    turns = [lanes.turn(parts, day, 40.0, 3) for day in range(4)]
    names = [each.name for turn in turns for each in turn]
    assert sorted(names) == sorted(part.name for part in parts)
    times = [sum(each.expected_s for each in turn) for turn in turns]
    assert max(times) - min(times) <= 5
    assert lanes.turn(parts, 4, 40.0, 3) == turns[0]


def test_the_matrix_has_every_file_with_marked_tests() -> None:
    text = {path: (ROOT / path).read_text(encoding="utf-8") for path in FILES}
    marks = ("mark.matrix", "in_matrix(", "some(FAULTS", "some(ROWS")
    marked = {path for path in FILES if any(each in text[path] for each in marks)}
    # The fixtures of this folder are marked.
    assert set(files_of(list(lanes.matrix({}, [])))) >= marked | {"tests/kombu/test_transport.py"}


def test_listed_tests_exist() -> None:
    assert read_costly()
    assert unknown_tests(read_costly()) == []


@pytest.mark.parametrize("name", ["test_nothing_of_this_name", "TestNothing::runTest"])
def test_a_listed_test_that_does_not_exist_is_named(name: str) -> None:
    here = "tests/suite/test_suite.py"
    wrong = {here: frozenset([name, "test_listed_tests_exist"]), "tests/no.py": frozenset(["test"])}
    assert unknown_tests(wrong) == ["tests/no.py::test", f"{here}::{name}"]


def test_the_matrix_has_every_file_with_costly_tests() -> None:
    parts = [part for part in lanes.matrix({}, []) if any("not matrix" in w for w in part.command)]
    assert set(files_of(parts)) >= set(read_costly())


def test_costly_tests_are_listed_with_their_parameters_or_without(tmp_path: Path) -> None:
    path = tmp_path / "costly.txt"
    path.write_text("# Why\ntests/a.py\n    test_b[x y-1] # 9.1 s\n    test_c\n", encoding="utf-8")
    costly = read_costly(path)
    nodes = ["test_b[x y-1]", "test_b[x y-2]", "test_b", "test_c", "test_c[1]", "test_d"]
    assert [node for node in nodes if is_costly(f"tests/a.py::{node}", costly)] == [
        "test_b[x y-1]",
        "test_c",
        "test_c[1]",
    ]
    assert not is_costly("tests/b.py::test_c", costly)


class OneItem(pytest.Item):
    """An item with a given identifier."""

    def runtest(self) -> None:
        """Do nothing."""


def test_costly_tests_are_marked(request: pytest.FixtureRequest) -> None:
    file, names = next(iter(read_costly().items()))
    costly, other = (
        OneItem.from_parent(request.session, name=name, nodeid=f"{file}::{name}")
        for name in (next(iter(names)), "test_of_no_list")
    )
    mark([costly, other])
    assert costly.get_closest_marker("costly")
    assert not other.get_closest_marker("costly")


def test_slow_tests_of_a_run_are_printed_as_they_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "it.xml"
    cases = [
        ("tests.a.test_b", "test_c[1]", "tests/a/test_b.py", 7.0),
        ("tests.a.test_b.TestD", "runTest", "tests/a/test_b.py", 9.0),
        ("tests.a.test_b", "test_fast", "tests/a/test_b.py", 0.1),
    ]
    lines = (
        f'<testcase classname="{a}" name="{b}" file="{c}" line="1" time="{s}" />'
        for a, b, c, s in cases
    )
    report.write_text(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>")
    assert list(slow_tests(report, 5.0)) == [
        ("tests/a/test_b.py", "test_c[1]", 7.0),
        ("tests/a/test_b.py", "TestD::runTest", 9.0),
    ]
    assert print_slow_tests([str(report), "--least", "8"]) == 0
    assert capsys.readouterr().out == "tests/a/test_b.py\n    TestD::runTest # 9.0 s\n"


def test_durations_of_lanes_are_recorded_apart() -> None:
    kinds = Counter(
        (part.kind, word)
        for part in [*lanes.quick({}, []), *lanes.matrix({}, [])]
        for word in part.command
        if word in FILES
    )
    # Tests of the broker run as Python where they don't run compiled.
    assert [each for each, count in kinds.items() if count > 1] == []


def test_parts_are_of_about_the_same_duration() -> None:
    files = [SuiteFile(f"tests/server/test_{number}.py", 2 * number) for number in range(1, 41)]
    durations = [sum(each.expected_s for each in part) for _, part in divide(files)]
    assert len(durations) > 1
    assert max(durations) - min(durations) <= 40


def test_files_of_a_small_folder_stay_together() -> None:
    files = [SuiteFile(f"tests/{number % 8}/test_{number}.py", 30.0) for number in range(40)]
    parts = [part for _, part in divide(files, 400.0)]
    assert len(parts) == 3
    folders = [{each.path.split("/")[1] for each in part} for part in parts]
    assert sorted(name for each in folders for name in each) == sorted("01234567")


def test_a_part_in_the_background_takes_no_slot(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    os.mkfifo(meeting)
    # Each waits for the other one.
    commands = (f"echo here > {meeting}", f"cat {meeting}")
    parts = [
        Part(f"{number}", ["sh", "-c", command], 1.0, has_tests=False, is_background=not number)
        for number, command in enumerate(commands)
    ]
    first, second = Runner(tmp_path, 1).run(parts[::-1], lambda outcome: None, lambda: None)
    log = next(each.log for each in (first, second) if each.part.name == "1")
    assert log.read_text(encoding="ascii") == "here\n"


def test_parts_leave_the_processors_to_urgent_ones(tmp_path: Path) -> None:
    part = Part("0", ["nice"], 1.0, has_tests=False)
    parts = [replace(part, name="1", is_urgent=True), part, replace(part, is_background=True)]
    levels = []
    for each in parts:
        [outcome] = Runner(tmp_path, 1).run([each], lambda outcome: None, lambda: None)
        levels.append(int(outcome.log.read_text(encoding="ascii")))
    assert levels[0] == os.nice(0)
    assert levels == sorted(levels)
    assert levels[0] == 19 or levels[0] < levels[1]


def test_outcomes_are_counted(tmp_path: Path) -> None:
    part = part_of(
        tmp_path,
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_absent(): pytest.skip('no server')\n",
    )
    (outcome,) = run(tmp_path, part)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, {"no server": 1})
    assert not outcome.is_good
    assert "assert False" in outcome.log.read_text(encoding="utf-8")


def test_a_file_that_can_not_be_imported_is_a_failure(tmp_path: Path) -> None:
    part = part_of(tmp_path, "import a_module_that_there_is_not\n")
    [outcome] = Runner(tmp_path / "logs", 1).run([part], lambda outcome: None, lambda: None)
    assert not outcome.is_good
    assert outcome.failed == 1


def test_a_part_without_tests_for_the_options_is_good(tmp_path: Path) -> None:
    part = part_of(tmp_path, "")
    (outcome,) = run(tmp_path, part)
    assert (outcome.passed, outcome.is_good) == (0, True)


def test_a_part_that_dies_fails_the_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dying = Part("dying", [sys.executable, "-c", "import os; os.abort()"], 1, has_tests=False)
    outcomes = run(tmp_path, dying, part_of(tmp_path, "def test_good(): pass\n"))
    assert summarise(outcomes, 1.0, tmp_path) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_temporary_files_are_in_memory_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    with files_in_memory() as is_done:
        if not is_done:
            pytest.skip("there is not enough memory, or no /dev/shm")
        folder = Path(os.environ["TMPDIR"])
        (folder / "file").write_bytes(b"x")
        assert folder.parent == Path("/dev/shm")
    assert not folder.exists()
    assert "TMPDIR" not in os.environ


def test_a_folder_for_temporary_files_that_was_set_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with files_in_memory() as is_done:
        assert not is_done
        assert os.environ["TMPDIR"] == str(tmp_path)


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no such part"]) == 2
    assert "--list" in capsys.readouterr().err
