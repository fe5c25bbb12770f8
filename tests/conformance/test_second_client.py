"""An independent client is judged correctly: each of its faults is reported.

:mod:`tests.conformance.second_client` is the client. Each of its switches violates one statement.
Its module ``findings`` has the cases that detect it: these, and no others.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from stompkit.conformance.clients.cases import all_cases
from stompkit.conformance.clients.client import Patience
from stompkit.conformance.clients.trials import Trials
from stompkit.conformance.verdict import CaseResult, Verdict
from tests.conformance.command import read_report
from tests.conformance.conftest import Suite
from tests.conformance.minimal_client import thread_launcher
from tests.conformance.second_client.client import Client
from tests.conformance.second_client.findings import FOUND, NOT_JUDGED, PERMITTED
from tests.conformance.second_client.switches import DEVIATIONS, LIBERTIES

Runs = dict[str, Future[dict[str, str]]]

CASES = {case.id: case for case in all_cases()}
#: Shorter than the defaults for users, but long for events within one process.
PATIENCE = Patience(timeout_s=2.0, quiet_s=0.3)
#: For a second attempt without concurrency: on a busy machine, a correct client may have been late.
LONG_PATIENCE = Patience(timeout_s=10.0, quiet_s=1.0)
BAD = (Verdict.FAILED, Verdict.NON_STRICT)


def selected(patterns: Iterable[str]) -> set[str]:
    """Return the cases that match the patterns."""
    names = tuple(patterns)
    return {id for id in CASES if any(fnmatchcase(id, name) for name in names)}


#: For the test that each case fails on some client.
FAILED_HERE = sorted(selected(itertools.chain.from_iterable(FOUND.values())))


def results(
    switch: str, ids: Collection[str], patience: Patience = PATIENCE, jobs: int = 4
) -> dict[str, CaseResult]:
    """Return the results of cases on that client."""
    trials = Trials(
        thread_launcher(lambda nodes: Client(nodes, switch)), patience=patience, jobs=jobs
    )
    trials.run([CASES[id] for id in CASES if id in ids])
    assert not trials.errors, trials.errors
    return {each.id: each for each in trials.results}


def verdicts(switch: str, wanted: dict[str, tuple[Verdict, ...]]) -> dict[str, str]:
    """Return the cases with another verdict than the wanted ones, with the reason."""
    found = results(switch, wanted)
    other = {id for id in wanted if found[id].verdict not in wanted[id]}
    if other:
        found |= results(switch, other, LONG_PATIENCE, jobs=1)
    return {
        id: f"{found[id].verdict}: {found[id].detail}"
        for id in other
        if found[id].verdict not in wanted[id]
    }


def deviation(switch: str, ids: Iterable[str]) -> dict[str, str]:
    """Return differences from the table, among cases on a client that violates a statement."""
    bad, unknown = selected(FOUND[switch]), selected(NOT_JUDGED.get(switch, ()))
    good = (Verdict.OK, Verdict.INFORMATIONAL)
    wanted: dict[str, tuple[Verdict, ...]] = {
        id: BAD if id in bad else (*good, Verdict.UNSUPPORTED) if id in unknown else good
        for id in ids
    }
    return verdicts(switch, wanted)


def liberty(switch: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the same for a client that uses a liberty."""
    patterns, verdict = PERMITTED.get(switch, ((), Verdict.OK))
    concerned = selected(patterns)
    good = (Verdict.OK, Verdict.INFORMATIONAL)
    return verdicts(switch, {id: (verdict,) if id in concerned else good for id in ids})


@contextmanager
def side_by_side(*, everywhere: bool) -> Iterator[Runs]:
    """Judge all clients, in all cases or in those concerned, concurrently: they mostly wait."""
    with ThreadPoolExecutor(6) as pool:
        runs = {}
        for name, patterns in FOUND.items():
            runs[name] = pool.submit(deviation, name, CASES if everywhere else selected(patterns))
        for name, (patterns, _) in PERMITTED.items():
            runs[name] = pool.submit(liberty, name, CASES if everywhere else selected(patterns))
        yield runs
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def found() -> Iterator[Runs]:
    """Differences from the tables in the cases concerned."""
    with side_by_side(everywhere=False) as runs:
        yield runs


@pytest.fixture(scope="module")
def found_anywhere() -> Iterator[Runs]:
    """Differences from the tables in any case."""
    with side_by_side(everywhere=True) as runs:
        yield runs


def test_tables_have_each_switch() -> None:
    """There are at least forty deviations; all switches have an entry, and all patterns match."""
    assert FOUND.keys() == DEVIATIONS
    assert len(FOUND) >= 40
    assert PERMITTED.keys() == LIBERTIES
    patterns = [*FOUND.values(), *(some for some, _ in PERMITTED.values())]
    assert all(selected([pattern]) for some in patterns for pattern in some)


@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found(switch: str, found: Runs) -> None:
    """The cases of the table detect the deviation."""
    assert not found[switch].result()


@pytest.mark.matrix
@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found_by_no_other_case(switch: str, found_anywhere: Runs) -> None:
    """Of all cases, exactly those of the table detect the deviation."""
    assert not found_anywhere[switch].result()


def test_client_that_keeps_the_rules_passes() -> None:
    """All cases run, and none reports a fault."""
    assert not liberty("", CASES)


@pytest.mark.parametrize("switch", sorted(PERMITTED))
def test_what_is_permitted_is_no_deviation(switch: str, found: Runs) -> None:
    """The cases about the permitted behaviour report no fault."""
    assert not found[switch].result()


@pytest.mark.matrix
@pytest.mark.parametrize("switch", sorted(PERMITTED))
def test_what_is_permitted_is_no_deviation_in_any_case(switch: str, found_anywhere: Runs) -> None:
    """No case reports a fault of a client that uses a liberty."""
    assert not found_anywhere[switch].result()


def test_profile_tells_what_is_permitted() -> None:
    """The profile differs for a client that uses a liberty."""
    id, about = "client/negotiation/not-offered", "CONNECTED with a version that was not offered"
    switches = ("takes a version that it has not offered", "")
    said = [results(switch, [id])[id].profile[about] for switch in switches]
    assert said == ["goes on", "ends the session"]


def test_command_finds_the_same(suite: Suite, tmp_path: Path) -> None:
    """The command, run as by users, reports the same for a process as for a client in a thread."""
    switch = "changes CR LF in bodies"
    program = shlex.join([sys.executable, "-m", "tests.conformance.second_client"])
    command = f"{program} {{host}} {{port}} {shlex.quote(switch)}"
    cases = (*selected(FOUND[switch]), "client/connect/host", "client/disconnect/ends")
    done = suite("--exec", command, "--json", "report.json", *cases)
    assert done.status == 1, done.told
    report = read_report(tmp_path / "report.json")
    assert {each.id for each in report.results if each.verdict in BAD} == selected(FOUND[switch])
