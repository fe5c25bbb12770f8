"""The choice of test files for a mutant, and their order."""

from __future__ import annotations

from pathlib import Path

from coverage import CoverageData

from tests.mutants.choosing import Chooser, TestMap, covering, measured_files, seconds_of
from tests.mutants.test_mutant import QUEUE, mutant

TESTS = {
    "tests/server/domain/queues/test_queues.py": "from stompkit.server import Queue",
    "tests/server/domain/test_topics.py": "from stompkit.server import Topic",
    "tests/spark/test_jobs.py": "from stompkit.spark import Job",
    "tests/link/test_link.py": "from stompkit.link import Link",
    "tests/project/test_instructions.py": "Queue.give",
}


def tree(folder: Path) -> Path:
    for name, text in TESTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_the_mirror_is_first_and_spark_last(tmp_path: Path) -> None:
    known = TestMap(
        files={1: sorted(TESTS)},
        seconds={"tests/server/domain/queues/test_queues.py": 60, "tests/link/test_link.py": 3},
        measured=sorted(TESTS),
    )
    assert Chooser(tree(tmp_path), known).files(mutant()) == [
        "tests/server/domain/queues/test_queues.py",
        "tests/server/domain/test_topics.py",
        "tests/link/test_link.py",
        "tests/spark/test_jobs.py",
    ]


def test_without_coverage_names_decide(tmp_path: Path) -> None:
    chooser = Chooser(tree(tmp_path))
    assert chooser.files(mutant())[0] == "tests/server/domain/queues/test_queues.py"
    files = chooser.files(mutant(file="stompkit/link/_link.py", scope="Link.send", before="a"))
    assert files[0] == "tests/link/test_link.py"
    assert "tests/project/test_instructions.py" not in files


def test_what_was_measured_and_does_not_execute_it_is_left_out(tmp_path: Path) -> None:
    known = TestMap(
        files={1: ["tests/link/test_link.py"]},
        seconds={},
        measured=["tests/server/domain/queues/test_queues.py", "tests/link/test_link.py"],
    )
    assert Chooser(tree(tmp_path), known).files(mutant()) == [
        "tests/link/test_link.py",
        "tests/server/domain/test_topics.py",
        "tests/spark/test_jobs.py",
    ]


def test_coverage_says_who_executes_a_mutant(tmp_path: Path) -> None:
    measured = CoverageData(str(tmp_path / "data"))
    name = str(tmp_path / "stompkit/server/domain/queues/queue.py")
    # Imported for the first test, so that its definitions are recorded for that one only.
    measured.set_context("none|tests/test_a.py")
    measured.add_lines({name: [1, 2, 3, 4, 5, 7]})
    measured.set_context("tests/test_b.py")
    measured.add_lines({name: [8, 9, 10]})
    measured.set_context("none")
    measured.add_lines({name: [8]})
    measured.write()
    mutants = [
        mutant(),
        mutant(id=2, scope="Queue.take", line=3),
        mutant(id=3, before="    def give(self, n):", after="    def give(self, n=1):"),
        mutant(id=4, before="no more"),
    ]
    sources = {"stompkit/server/domain/queues/queue.py": QUEUE}
    assert covering(mutants, tmp_path / "data", tmp_path, sources) == {
        1: ["tests/test_b.py"],
        2: ["tests/test_a.py"],
        3: ["tests/test_b.py"],
    }
    assert measured_files(tmp_path / "data") == ["tests/test_a.py", "tests/test_b.py"]


def test_times_of_a_report(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.server.test_a" name="x" time="1.5"/>'
        '<testcase classname="tests.server.test_a.TestB" name="x" time="0.5"/>'
        '<testcase classname="tests.test_c" name="x" time="3"/>'
        "</testsuite></testsuites>"
    )
    assert seconds_of(report) == {"tests/server/test_a.py": 2.0, "tests/test_c.py": 3.0}
