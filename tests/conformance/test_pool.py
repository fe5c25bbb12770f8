"""Concurrent cases: the verdicts are the same, and every error is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.run.pool import Pool, Task
from stompkit.conformance.run.runner import Selection, all_cases
from stompkit.conformance.target import Capabilities
from stompkit.conformance.verdict import CaseResult
from stompkit.frames import VERSIONS
from tests.conformance.command import read_report
from tests.conformance.conftest import Serve, Suite
from tests.conformance.scripted import Line, receipts

QUICKLY = ("--quiet-time", "0.1")

IMPORTS = """
from pathlib import Path

from stompkit.conformance import Peer, case, trial

"""
ORDINARY = '''
@trial("behaviour/{name}", "Is connected.", level="FACT", section="none")
def test_{name}(peer: Peer) -> None:
    """Connect."""
    {does}
'''
NAMES = ("a", "b", "c", "d", "e", "f")


def cases(folder: Path, **does: str) -> None:
    """Write cases that do nothing, except for those in *does*."""
    texts = [ORDINARY.format(name=name, does=does.get(name, "pass")) for name in NAMES]
    (folder / "test_it.py").write_text(IMPORTS + "".join(texts))


def test_verdicts_are_those_of_one_after_the_other(suite: Suite, mq: str, tmp_path: Path) -> None:
    found = []
    for jobs in ("1", "5"):
        done = suite("--mq", mq, "1.?/nack", "1.?/begin", *QUICKLY, "--jobs", jobs, "--json", "r")
        assert done.status == 0, done.told
        report = read_report(tmp_path / "r")
        assert report.complete
        assert len(report.results) == report.selected > 5
        found.append([(each.id, each.verdict, each.version) for each in report.results])
    assert found[0] == found[1]


def test_case_that_wants_to_be_alone(suite: Suite, mq: str, tmp_path: Path) -> None:
    """Robustness runs last, when no other case is running."""
    log = tmp_path / "log"
    writes = f'with Path({str(log)!r}).open("a") as log: log.write("{{word}} ")'
    cases(tmp_path, **{name: writes.format(word=name) for name in NAMES})
    alone = ORDINARY.format(name="z", does=writes.format(word="z")).replace("behaviour", "failover")
    with (tmp_path / "test_it.py").open("a") as file:
        file.write(alone)
    done = suite("--mq", mq, "--cases", ".", "--jobs", "3", "--json", "r.json")
    assert done.status == 0, done.told
    words = log.read_text().split()
    assert sorted(words) == [*NAMES, "z"]
    assert words[-1] == "z"
    results = read_report(tmp_path / "r.json").results
    assert [each.id for each in results] == [*(f"behaviour/{name}" for name in NAMES), "failover/z"]


@pytest.mark.parametrize("jobs", [1, 3])
def test_target_lost_in_the_middle(jobs: int, serve: Serve, suite: Suite, tmp_path: Path) -> None:
    """With several concurrent cases, the report says that the responsible case is unknown."""

    def behaviour(line: Line) -> None:
        if line.number == 6:
            server.stop_listening()
        receipts(line)

    cases(tmp_path)
    server = serve(behaviour)
    patience = ("--timeout", "5", "--quiet-time", "0.1")
    done = suite(
        *("--mq", server.address, *patience, "--cases", ".", "--jobs", jobs, "--json", "r.json")
    )
    assert done.status == 3, done.told
    report = read_report(tmp_path / "r.json")
    assert not report.complete
    assert report.cut_short == "the target no longer answers CONNECT"
    lost = [each for each in report.results if "no longer answers" in each.detail]
    assert lost and all(each.verdict == "FAILED" for each in lost)
    assert any("see --jobs 1" in each.detail for each in lost) == (jobs > 1)


def test_case_that_ends_its_process(suite: Suite, mq: str, tmp_path: Path) -> None:
    """The other cases have verdicts, and the suite reports an error."""
    cases(tmp_path, b="import os; os._exit(1)")
    done = suite("--mq", mq, "--cases", ".", "--jobs", "2", "--json", "r.json")
    assert done.status == 4, done.told
    assert "the process that ran behaviour/b has ended" in done.err
    found = {each.id for each in read_report(tmp_path / "r.json").results}
    assert found == {f"behaviour/{name}" for name in NAMES if name != "b"}


def test_case_that_prints(suite: Suite, mq: str, tmp_path: Path) -> None:
    """The text is written to stderr, and does not disturb the report."""
    cases(tmp_path, b='print("hello")')
    done = suite("--mq", mq, "--cases", ".", "--jobs", "2")
    assert done.status == 0, done.told
    assert "6 cases, none failed" in done.out
    assert done.err == "hello\n"


@pytest.mark.matrix
def test_case_that_does_not_end(mq: str, tmp_path: Path) -> None:
    """Only the result of that case is lost; its process is ended."""
    cases(tmp_path, b="while True: pass")
    host, _, port = mq.partition(":")
    address = Address(host, int(port), timeout_s=0.5, case_timeout_s=1.0)
    results: list[CaseResult] = []
    pool = Pool(
        Task(address, Capabilities(VERSIONS, ""), str(tmp_path)),
        jobs=2,
        slack_s=10.0,
        on_case=lambda case: None,
        on_result=results.append,
    )
    pool.run(all_cases(Selection(folder=tmp_path)))
    assert pool.errors == ["behaviour/b does not end"]
    assert {each.id for each in results} == {f"behaviour/{name}" for name in NAMES if name != "b"}


@pytest.mark.parametrize("jobs", ["0", "65", "many", "-1"])
def test_number_of_jobs_that_makes_no_sense(jobs: str, suite: Suite) -> None:
    done = suite(f"--jobs={jobs}")
    assert done.status == 2
    assert f"--jobs: '{jobs}' is not a number from 1 to 64" in done.err
