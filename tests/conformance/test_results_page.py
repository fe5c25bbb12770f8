"""The published results: stored data of runs, and the page generated from it."""

from __future__ import annotations

import runpy
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stompkit.conformance.report import Report, to_json
from stompkit.conformance.verdict import CaseResult, Verdict, WireEvent
from tests.conformance.command import ROOT, read_report
from tests.conformance.reports import CLEAN, Page, a_report, result

SCRIPT = ROOT / "docs" / "make_results.py"
KNOWN = """
broker = "RabbitMQ"
versions = "3.10.8"
link = "https://example.org/mq"

[[deviation]]
cases = ["1.2/error/*"]
verdict = "FAILED"
reason = "keeps the connection *open*"
link = "https://example.org/1"

[[deviation]]
cases = ["1.2/gone/a"]
verdict = "FAILED"
reason = "no more"
"""

Make = Callable[..., int]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def run_on(server: str, *results: CaseResult) -> Report:
    """Return a complete run on a server."""
    report = a_report(CLEAN)
    report.target.server = server
    report.complete, report.cut_short, report.errors = True, "", []
    report.better_than_expected = []
    report.results = list(results)
    return report


@pytest.fixture
def make(script: dict[str, Any], tmp_path: Path) -> Make:
    """Runs the script in a folder with results of two brokers, and known deviations of one."""
    rabbitmq = run_on(
        "RabbitMQ/3.10.8",
        result("1.2/error/a", Verdict.FAILED, detail="open", expected="an old reason"),
        result("1.2/error/b", Verdict.FAILED, detail="still open", profile={"NACK": "re|queue"}),
        result("1.2/error/c", Verdict.NON_STRICT, detail="odd: a_ b*"),
        result("1.2/gone/a", Verdict.OK),
        result("behaviour/a", Verdict.UNSUPPORTED, detail="the target has none"),
    )
    ours = run_on("stompkit/1", result("1.2/error/a", Verdict.OK, profile={"NACK": "x", "y": "z"}))
    for name, report in (("rabbitmq-3", rabbitmq), ("stompkit", ours)):
        (tmp_path / f"{name}.json").write_bytes(to_json(report))
    (tmp_path / "rabbitmq.toml").write_text(KNOWN)
    folders = [f"--{name}={tmp_path}" for name in ("into", "comparison", "results", "known")]

    def run(*arguments: str) -> int:
        status: int = script["main"]([*folders, *arguments])
        return status

    return run


def test_page_has_counts_profiles_and_every_deviation(make: Make, tmp_path: Path) -> None:
    assert make() == 0
    text = (tmp_path / "conformance-results.rst").read_text()
    assert '   "stompkit 1", 2026-01-02, 1, 0, 0, 0, 0, 0\n' in text
    assert '   "RabbitMQ 3.10.8", 2026-01-02, 1, 1, 2, 1, 0, 1\n' in text
    profile = (
        "   * - About\n     - stompkit 1\n     - RabbitMQ 3.10.8\n"
        "   * - NACK\n     - x\n     - re\\|queue\n"
        "   * - y\n     - z\n     - -\n"
    )
    assert profile in text
    _, of_rabbitmq = text.split("\nRabbitMQ 3.10.8\n---------------\n")
    assert "What is known is of RabbitMQ 3.10.8: https://example.org/mq." in of_rabbitmq
    assert "   1.2, 1, 1, 2, 0, 0\n   behaviour, 0, 0, 0, 1, 0\n" in of_rabbitmq
    deviations = (
        "   * - FAILED\n     - ``1.2/error/a``, ``1.2/error/b``\n"
        "     - keeps the connection \\*open\\* (`more <https://example.org/1>`__)\n"
        "   * - NON-STRICT\n     - ``1.2/error/c``\n"
        "     - *no reason is known*: odd: a\\_ b\\*\n"
    )
    assert deviations in of_rabbitmq
    assert "* UNSUPPORTED, 1 case: the target has none\n" in of_rabbitmq
    better = "Listed as deviations, and came out better: ``1.2/error/c``, ``1.2/gone/a``.\n"
    assert better in of_rabbitmq
    matrix = Page((tmp_path / "matrix.html").read_bytes())
    assert matrix.text.index("stompkit1") < matrix.text.index("RabbitMQ3.10.8")
    assert "keeps the connection *open*" in matrix.text
    assert "an old reason" not in matrix.text


def test_page_of_comparisons_has_the_same_counts(make: Make, tmp_path: Path) -> None:
    """Only the rows of its table are made of the results."""
    page = tmp_path / "comparison.rst"
    begin = (
        "Compared\n\n.. csv-table::\n   :header: Target, OK, NON-STRICT, FAILED, UNSUPPORTED\n\n"
    )
    page.write_text(f'{begin}   "stompkit 1", 7, 7, 7, 7\n\nThroughput\n')
    assert make("--check") == 1
    assert make() == 0
    rows = '   "stompkit 1", 1, 0, 0, 0\n   "RabbitMQ 3.10.8", 1, 1, 2, 1\n'
    assert page.read_text() == f"{begin}{rows}\nThroughput\n"
    assert make("--check") == 0


def test_page_that_is_not_of_the_results_is_told(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make("--check") == 1
    assert "make_results.py" in capsys.readouterr().err
    assert make() == 0
    assert make("--check") == 0
    (tmp_path / "rabbitmq.toml").unlink()
    assert make("--check") == 1


def test_each_version_is_judged_by_its_own_list(make: Make, tmp_path: Path) -> None:
    newer = run_on("RabbitMQ/4.3.6", result("1.2/error/a", Verdict.FAILED, detail="open"))
    (tmp_path / "rabbitmq-4.json").write_bytes(to_json(newer))
    own = KNOWN.replace("3.10.8", "4.3.6").replace("keeps the connection", "does not close it")
    (tmp_path / "rabbitmq-4.toml").write_text(own)
    assert make() == 0
    text = (tmp_path / "conformance-results.rst").read_text()
    older, newest = text.split("\nRabbitMQ 4.3.6\n--------------\n")
    assert "keeps the connection" in older
    assert "does not close it" not in older
    assert "What is known is of RabbitMQ 4.3.6: https://example.org/mq." in newest
    assert "does not close it" in newest
    assert "keeps the connection" not in newest


def test_page_is_that_of_the_results(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script["main"](["--check"]) == 0, capsys.readouterr().err


def test_nothing_is_published_of_the_machine_or_of_the_time(script: dict[str, Any]) -> None:
    host = socket.gethostname()
    texts = [f"message-id:ID\\c{host}-41-1", f"ID:{host}-41", f"node rabbit@{host}.", host]
    others = [f"x{host}", f"{host}x"]
    wire = [WireEvent(1, 0, "<", text) for text in texts + others]
    bad = result("1.2/a/b", Verdict.FAILED, wire=wire, detail=host, notes=[host])
    bad.profile = {"name": f"({host})"}
    bad.violations = {"1.2/a/c": f"ERROR '{host}'"}
    report = script["published"](run_on(f"S/1 {host}", bad), "label")
    assert report.target.address == "label"
    assert report.target.server == "S/1 localhost"
    assert report.started == "2026-01-02T00:00:00+00:00"
    [kept] = report.results
    assert (kept.detail, kept.notes, kept.profile) == (
        "localhost",
        ["localhost"],
        {"name": "(localhost)"},
    )
    assert kept.violations == {"1.2/a/c": "ERROR 'localhost'"}
    assert [event.text for event in kept.wire] == [
        "message-id:ID\\clocalhost-41-1",
        "ID:localhost-41",
        "node rabbit@localhost.",
        "localhost",
        *others,
    ]


def test_wire_logs_that_are_published_are_short(script: dict[str, Any]) -> None:
    wire = [WireEvent(1, number, ">", "x" * 2_000) for number in range(100)]
    good, bad = result("1.2/a/b", Verdict.OK, wire=wire), result("1.2/a/c", Verdict.FAILED)
    bad.wire = list(wire)
    report = script["published"](run_on("S", good, bad), "label")
    assert report.results[0].wire == []
    kept = report.results[1].wire
    assert len(kept) == 41
    assert max(len(event.text) for event in kept) < 500
    assert kept[20].text == "(60 events left out)"
    assert [kept[0].at_ms, kept[-1].at_ms] == [0, 99]


def test_run_keeps_what_was_found(make: Make, tmp_path: Path) -> None:
    """A run of our broker stores its results; those of others stay unchanged."""
    other = (tmp_path / "rabbitmq-3.json").read_bytes()
    (tmp_path / "stompkit.json").unlink()
    assert make("--run", "stompkit", "--only", "1.2/send/destination-required") == 0
    report = read_report(tmp_path / "stompkit.json")
    assert [each.id for each in report.results] == ["1.2/send/destination-required"]
    assert report.target.address == "stompkit"
    assert "127.0.0.1:" not in msgspec.json.encode(report.target).decode()
    assert (tmp_path / "rabbitmq-3.json").read_bytes() == other
    assert (
        f'"stompkit {report.target.product()[1]}", '
        in (tmp_path / "conformance-results.rst").read_text()
    )


def test_some_cases_are_run_again(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The others stay as they were, unless the broker has become another one."""
    path = tmp_path / "stompkit.json"
    assert make("--run", "stompkit", "--only", "1.2/send/destination-required") == 1
    assert "stompkit is another version now: run all cases" in capfd.readouterr().err
    path.unlink()
    assert make("--run", "stompkit", "--only", "1.2/send/destination-required") == 0
    report = read_report(path)
    old = result("1.2/send/delivers", Verdict.OK)
    spoilt = result("1.2/send/destination-required", Verdict.FAILED, detail="was so")
    report.results = [old, spoilt]
    path.write_bytes(to_json(report))
    cases = ("1.2/send/destination-required", "1.2/subscribe/registers")
    assert make("--run", "stompkit", "--only", *cases) == 0
    report = read_report(path)
    assert [each.id for each in report.results] == [old.id, *cases]
    assert report.results[0] == old
    assert {each.verdict for each in report.results} == {Verdict.OK}
    assert report.selected == 3


def test_broker_that_can_not_be_tested_is_told(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stored results of that broker stay unchanged."""
    before = (tmp_path / "rabbitmq-3.json").read_bytes()
    with pytest.raises(SystemExit):
        make("--run", "nosuch")
    assert "invalid choice: 'nosuch'" in capfd.readouterr().err
    assert make("--run", "rabbitmq:3", "--only", "1.2/nosuch") == 1
    assert "rabbitmq:3 could not be tested" in capfd.readouterr().err
    assert (tmp_path / "rabbitmq-3.json").read_bytes() == before
