"""The chapter failover on real brokers: on pairs of brokers, and on other targets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.nodes import LaunchedNodes, Nodes
from stompkit.conformance.report import Report
from stompkit.conformance.verdict import CaseResult
from stompkit.testing import LaunchConfig, launch
from tests.conformance.clusters import NAMES, NODES, SHARED, STORAGE, verdicts
from tests.conformance.command import Finished, read_report, run_command
from tests.conformance.conftest import Suite
from tests.effort import in_matrix


def result_of(report: Report, name: str) -> CaseResult:
    """Return the result of one case."""
    return next(each for each in report.results if each.id == name)


# Pairs of brokers, and single brokers.


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[str]:
    """The addresses of two independent brokers, as an argument of --mq."""
    with launch(LaunchConfig()) as first, launch(LaunchConfig()) as second:
        yield f"{first.host}:{first.port},{second.host}:{second.port}"


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, two_brokers: str, mq: str
) -> Iterator[dict[str, Future[tuple[Finished, Report]]]]:
    """Runs of the chapter on several targets, concurrently."""
    arguments: dict[str, tuple[str, ...]] = {
        "launched": (),
        "one broker": ("--mq", mq),
        "two brokers": ("--mq", two_brokers),
        "said to have one store": (
            "--mq",
            two_brokers,
            "--one-store",
            "--strict",
            "--timeout",
            "2",
        ),
    }
    cwd = tmp_path_factory.mktemp("runs")

    def run_one(name: str) -> tuple[Finished, Report]:
        report = cwd / f"{name}.json"
        done = run_command(
            *arguments[name], "--quiet-time", "0.3", "failover", "--json", report, cwd=cwd
        )
        return done, read_report(report)

    with ThreadPoolExecutor(max_workers=4) as pool:
        yield {name: pool.submit(run_one, name) for name in arguments}


Runs = dict[str, Future[tuple[Finished, Report]]]


def test_a_launched_pair_on_one_store_loses_nothing(runs: Runs) -> None:
    done, report = runs["launched"].result()
    assert verdicts(report) == {
        **dict.fromkeys((*NODES, *STORAGE), "OK"),
        SHARED: "INFORMATIONAL",
        NAMES: "UNSUPPORTED",
    }, done.told
    assert result_of(report, SHARED).profile == {"messages after fail-over": "kept"}
    assert done.status == 0


def test_a_single_node_is_told_how_to_get_another(runs: Runs) -> None:
    done, report = runs["one broker"].result()
    assert set(verdicts(report).values()) == {"UNSUPPORTED"}
    assert set(verdicts(report)) == {*NODES, *STORAGE, SHARED, NAMES}
    told = " ".join(done.out.split())
    assert "the target has one node: --mq HOST:PORT,HOST:PORT gives several, --broker" in told
    assert "by --mq NAME:PORT all addresses of the name are tried" in told
    assert done.status == 1


def test_two_brokers_without_a_store_in_common_are_not_judged_by_one(runs: Runs) -> None:
    """The suite cannot stop the brokers, and connects to one after the other."""
    done, report = runs["two brokers"].result()
    hanging = "failover/nodes/hanging"
    assert verdicts(report) == {
        **dict.fromkeys(set(NODES) - {hanging}, "OK"),
        **dict.fromkeys((*STORAGE, NAMES, hanging), "UNSUPPORTED"),
        SHARED: "INFORMATIONAL",
    }, done.told
    assert result_of(report, SHARED).profile == {
        "messages after fail-over": "left at the other node"
    }
    assert "no store in common" in result_of(report, STORAGE[0]).detail
    assert "can pause only what it has launched" in result_of(report, hanging).detail
    assert done.status == 0


def test_nodes_that_are_said_to_have_one_store_have_to_have_it(runs: Runs) -> None:
    done, report = runs["said to have one store"].result()
    lost = (
        *("receipted", "unacknowledged", "transaction-committed", "durable-subscription"),
        "old-node",
    )
    deviating = {name for name, verdict in verdicts(report).items() if verdict == "NON-STRICT"}
    assert deviating == {f"failover/storage/{name}" for name in lost}, done.told
    assert done.status == 1


def test_nodes_are_ended_and_started_by_commands(tmp_path: Path) -> None:
    """A pair has one store; the first node serves again after the run."""
    with ExitStack() as stack:
        nodes = LaunchedNodes(LaunchConfig(persistent=True), Address("127.0.0.1", 1))
        stack.callback(nodes.close)
        ended = stack.enter_context(_Operator(nodes, tmp_path)).ended
        cases = ("failover/nodes/served", "failover/storage/receipted", "1.2/send/delivers")
        done = run_command(
            *("--mq", nodes.address, "--one-store", *cases, "--json", "r.json"),
            *("--stop", "echo $STOMPKIT_NODE > stop; cat stopped"),
            *("--start", "echo $STOMPKIT_NODE $STOMPKIT_HOST:$STOMPKIT_PORT >> started"),
            cwd=tmp_path,
        )
    found = verdicts(read_report(tmp_path / "r.json"))
    assert done.status == 0, done.told
    assert {found[name] for name in cases} == {"OK"}
    assert ended == [1, 2, 1, 2]
    names = {number: str(nodes.address.node(number - 1)) for number in (1, 2)}
    started = (tmp_path / "started").read_text("utf-8").splitlines()
    assert started == [f"{number} {names[number]}" for number in ended]


class _Operator:
    """Stops the nodes whose numbers it reads from a pipe, and reports that to another pipe."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.ended: list[int] = []
        self._nodes = nodes
        self._asked, self._done = folder / "stop", folder / "stopped"
        for pipe in (self._asked, self._done):
            os.mkfifo(pipe)
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while number := self._asked.read_text("utf-8").strip():
            self._nodes.end(int(number) - 1)
            self.ended.append(int(number))
            self._done.write_text("done\n", "utf-8")

    def __enter__(self) -> _Operator:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._asked.write_text("\n", "utf-8")
        self._thread.join()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--mq", "a:1,b:2", "--stop", "true"), "--stop and --start are about the same nodes"),
        (("--mq", "a:1", "--one-store"), "--stop, --start and --one-store are for nodes"),
        (("--stop", "true", "--start", "true"), "--stop, --start and --one-store are for nodes"),
    ],
)
def test_options_about_nodes_that_make_no_sense(
    arguments: tuple[str, ...], told: str, suite: Suite
) -> None:
    done = suite(*arguments)
    assert done.status == 2
    assert told in done.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"--stop": "echo down; echo no passcode-1 >&2; exit 3", "--start": "true"},
            "the command of --stop ended with status 3: no ***",
        ),
        in_matrix(
            {"--stop": "sleep 0 & exit 4", "--start": "true"},
            "--stop ended with status 4. Correct",
        ),
        in_matrix(
            {"--stop": "true", "--start": "true"},
            "the command of --stop ended well, but has not stopped node 1, {first}",
        ),
        ({"--restart": "exit 5"}, "the command of --restart ended with status 5"),
    ],
)
def test_command_that_fails_is_an_error_of_its_user(
    options: dict[str, str], told: str, two_brokers: str, suite: Suite, tmp_path: Path
) -> None:
    """No verdict rests on it: the run ends, and the reports have the results so far."""
    cases = ("1.2/send/delivers", "behaviour/persistence/receipted", *NODES[2:4])
    words = [word for option in options.items() for word in option]
    done = suite(
        *("--mq", two_brokers, "--passcode", "passcode-1", "--timeout", "3", "--json", "r.json"),
        *words,
        *cases,
    )
    told = told.format(first=two_brokers.partition(",")[0])
    assert done.status == 2, done.told
    assert told in " ".join(done.err.split())
    report = read_report(tmp_path / "r.json")
    assert told.removesuffix(". Correct") in report.failed_command
    assert report.cut_short == report.failed_command
    assert not report.errors
    assert not report.complete
    assert {each.verdict for each in report.results} <= {"OK", "UNSUPPORTED"}
    assert "1.2/send/delivers" in {each.id for each in report.results}


def test_failing_command_of_start_is_reported(suite: Suite, tmp_path: Path) -> None:
    """It runs after the other node has taken over."""
    with ExitStack() as stack:
        nodes = LaunchedNodes(LaunchConfig(persistent=True), Address("127.0.0.1", 1))
        stack.callback(nodes.close)
        stack.enter_context(_Operator(nodes, tmp_path))
        done = suite(
            *("--mq", nodes.address, NODES[2]),
            *("--stop", "echo $STOMPKIT_NODE > stop; cat stopped", "--start", "no-such-program"),
        )
    assert done.status == 2, done.told
    assert "the command of --start ended with status 127: " in done.err
    assert "no-such-program" in done.err
