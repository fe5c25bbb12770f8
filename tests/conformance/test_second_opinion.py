"""An independent server is judged correctly: each of its faults is reported.

:mod:`tests.conformance.second_server` is the server. Each of its switches violates one statement.
Its module ``findings`` has the cases that detect it: these, and no others.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.run.overall import judge_run
from stompkit.conformance.run.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.conformance.verdict import CaseResult, Verdict
from tests.conformance.second_server.findings import FOUND, SEEN_IN
from tests.conformance.second_server.permitted import LACKING, PERMITTED, PROFILES
from tests.conformance.second_server.sockets import listening
from tests.conformance.second_server.switches import DEVIATIONS, LIBERTIES
from tests.conformance.test_broken_rules import CONTROL
from tests.conformance.virtual import (
    Network,
    own_broker,
    run_case,
    runnables,
    second_server,
    virtual,
)

#: Cases about extensions that this server lacks, and those that take long even in memory.
LEFT_OUT = (
    *("robustness/floods*", "robustness/slow*", "robustness/limits*", "robustness/splitting*"),
    *("robustness/fuzzing", "robustness/parser-faults*", "behaviour/transaction/large"),
    *("behaviour/transaction/number", "1.[12]/ack-mode/auto-no-ack-needed", "1.[12]/limits/*"),
    *("behaviour/durable*", "behaviour/expiry*", "behaviour/selector*", "behaviour/temporary*"),
    *("failover*", "behaviour/destination/wildcards"),
)


@pytest.fixture
def network() -> Iterator[Network]:
    """An in-memory network."""
    with virtual() as made:
        yield made


def selected(patterns: Iterable[str]) -> set[str]:
    """Return the cases that match the patterns."""
    names = tuple(patterns)
    return {id for id in runnables() if any(fnmatchcase(id, name) for name in names)}


#: For the test that each case fails on some server.
FOUND_BY = sorted(selected(itertools.chain.from_iterable(FOUND.values())))


def deviations(network: Network, switch: str, ids: Iterable[str]) -> list[CaseResult]:
    """Return the results of cases that are FAILED or NON-STRICT on that server."""
    results = judge_run([run_case(runnables()[id], network, second_server(switch)) for id in ids])
    return [each for each in results if each.verdict in (Verdict.FAILED, Verdict.NON_STRICT)]


def findings(network: Network, switch: str, ids: Iterable[str]) -> dict[str, str]:
    """Return the cases that are FAILED or NON-STRICT on that server, with the details."""
    return {each.id: each.detail for each in deviations(network, switch, ids)}


def test_tables_have_each_switch() -> None:
    """There are at least forty deviations; all switches have an entry, and all patterns match."""
    assert FOUND.keys() == DEVIATIONS
    assert len(FOUND) >= 40
    assert all(selected([pattern]) for patterns in FOUND.values() for pattern in patterns)
    assert PERMITTED.keys() | PROFILES.keys() | LACKING.keys() < LIBERTIES


@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found(switch: str, network: Network) -> None:
    """The cases of the table detect the deviation, and the control cases do not."""
    expected = selected(FOUND[switch])
    seen_in = selected(SEEN_IN.get(switch, ()))
    found = findings(network, switch, expected | seen_in | set(CONTROL))
    assert found.keys() == expected, found


@pytest.mark.matrix
@pytest.mark.parametrize("switch", sorted(FOUND))
def test_deviation_is_found_by_no_other_case(switch: str, network: Network) -> None:
    """Of all cases, exactly those of the table detect the deviation."""
    found = findings(network, switch, runnables().keys() - selected(LEFT_OUT))
    assert found.keys() == selected(FOUND[switch]), found


def test_server_that_keeps_the_rules_passes(network: Network) -> None:
    """No case reports a fault, including those about extensions and large ones."""
    assert not findings(network, "", runnables())


@pytest.mark.parametrize("switch", sorted(LIBERTIES))
def test_what_is_permitted_is_no_deviation(switch: str, network: Network) -> None:
    """No case reports a fault of a server that uses a liberty; some may advise against it."""
    results = deviations(network, switch, runnables().keys() - selected(LEFT_OUT))
    found = {each.id: each.detail for each in results}
    assert found.keys() == selected(PERMITTED.get(switch, ())), found
    failed = [each.id for each in results if each.verdict is Verdict.FAILED]
    assert not failed, failed


@pytest.mark.parametrize("switch", sorted(LACKING))
def test_case_about_something_else_needs_what_the_server_lacks(
    switch: str, network: Network
) -> None:
    """It is UNSUPPORTED, and says why, while cases that need nothing are judged."""
    id, reason = LACKING[switch]
    result = run_case(runnables()[id], network, second_server(switch))
    assert (result.verdict, result.detail) == (Verdict.UNSUPPORTED, reason)
    judged = run_case(runnables()["1.2/send/delivers"], network, second_server(switch))
    assert judged.verdict is Verdict.OK


def test_slow_server_gets_the_time_that_its_timeout_says(network: Network) -> None:
    """Without that time a case has no verdict: to be slow is no fault."""
    case = runnables()["1.2/ack-mode/auto-no-ack-needed"]
    slow = "confirms SEND a quarter of a second later"
    assert run_case(case, network, second_server(slow)).verdict is Verdict.UNSUPPORTED
    assert run_case(case, network, second_server(slow), timeout_s=10.0).verdict is Verdict.OK


@pytest.mark.parametrize("switch", sorted(PROFILES))
def test_profile_tells_what_is_permitted(switch: str, network: Network) -> None:
    """The profile differs for a server that uses a liberty."""
    id, about, words = PROFILES[switch]
    servers = (second_server(switch), second_server(), own_broker)
    said = [run_case(runnables()[id], network, each).profile.get(about) for each in servers]
    assert said[0] == words
    assert words not in said[1:]


def test_server_is_the_same_over_sockets() -> None:
    """Over a network, the suite as run by users reports the same as in memory."""
    switch = "changes CR LF in bodies"
    cases = {*selected(FOUND[switch]), *CONTROL}
    with listening(switch) as port:
        address = Address("127.0.0.1", port, timeout_s=10.0, quiet_s=0.2)
        report = run(address, probe(address), Selection(tuple(sorted(cases))))
    assert not report.errors, report.errors
    bad = {each.id for each in report.results if each.verdict in ("FAILED", "NON-STRICT")}
    assert bad == selected(FOUND[switch])
