"""A server that breaks one rule fails the cases about that rule, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.testing import RunningBroker
from tests.conformance.proxy import behind, faults_of
from tests.conformance.scripted import ScriptedServer
from tests.effort import effort, selected, some

FAULTS = faults_of(
    *(
        import_module(f"tests.conformance.{path.stem}")
        for path in sorted(Path(__file__).parent.glob("broken_*.py"))
    )
)
#: Quick cases about all kinds of things. Each server has some of them, since most rules are kept
#: there; neighbours in the list of faults have others.
CONTROL = (
    "1.2/connect/connected-on-accept",
    "1.0/connected/session-header",
    "1.1/connected/version-required",
    "1.2/frame/null-terminator",
    "1.1/frame/blank-line",
    "1.0/receipt-frame/empty-body",
    "1.2/send/delivers",
    "1.2/send/body-is-message",
    "1.1/send/destination-required",
    "1.2/message/destination",
    "1.1/message/subscription",
    "1.1/message/content-length-should",
    "1.2/message/content-type-should",
    "1.2/subscribe/id-scope-connection",
    "1.1/subscribe/multiple-open",
    "1.1/unsubscribe/id-required",
    "1.1/begin/starts",
    "1.2/commit/names-transaction",
    "1.1/error/message-header",
    "1.2/nack/opposite-of-ack",
    "1.2/encoding/decode-colon",
    "1.1/bnf/empty-value",
    "1.1/disconnect/receipt-answered",
)
#: How many of them a server has; all in a campaign.
CONTROLS = effort(2, len(CONTROL))


def control_of(name: str) -> list[str]:
    """Return the cases of ``CONTROL`` that a server with this fault has."""
    first = list(FAULTS).index(name) * CONTROLS
    return [CONTROL[(first + number) % len(CONTROL)] for number in range(CONTROLS)]


def findings(name: str, host: str, port: int) -> set[str]:
    """Return the cases that are FAILED or NON-STRICT with a fault before that broker.

    Of all cases those are run that the fault names, and its controls; in a process of its own,
    which has the proxy as well: proxies that shared one would be slow, and time decides what comes.
    """
    fault = FAULTS[name]
    cases = {*fault.found_by, *control_of(name)}
    with ScriptedServer(behind(fault, host, port)) as server:
        address = Address("127.0.0.1", server.port, timeout_s=2.0, quiet_s=0.3)
        report = run(address, probe(address), Selection(tuple(sorted(cases))))
    assert not report.errors, report.errors
    # An id selects the cases, too, that cover the requirement beside others.
    results = [each for each in report.results if each.id in cases]
    assert len(results) == len(cases), report.cut_short
    return {each.id for each in results if each.verdict in ("FAILED", "NON-STRICT")}


@pytest.fixture(scope="module")
def found(
    request: pytest.FixtureRequest, broker: RunningBroker
) -> Iterator[dict[str, Future[set[str]]]]:
    """What was found about each server; the runs are made side by side."""
    wanted = selected(request, "name")
    # Each process makes many runs, for it takes longer to start one than to make a run.
    with ProcessPoolExecutor(max_workers=6, mp_context=get_context("spawn")) as pool:
        yield {name: pool.submit(findings, name, broker.host, broker.port) for name in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", some(FAULTS, 5))
def test_broken_rule_is_found(name: str, found: dict[str, Future[set[str]]]) -> None:
    """No case is missing, and none is there that is about something else."""
    assert found[name].result() == set(FAULTS[name].found_by), FAULTS[name].__doc__
