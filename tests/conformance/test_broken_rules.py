"""A server that breaks one rule fails the cases about that rule, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.run.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.testing import RunningBroker
from tests.conformance.command import processes
from tests.conformance.proxy import behind, faults_of
from tests.conformance.scripted import ScriptedServer
from tests.effort import effort, selected, some

FAULTS = faults_of(
    *(
        import_module(f"tests.conformance.{path.stem}")
        for path in sorted(Path(__file__).parent.glob("broken_*.py"))
    )
)
#: Fast cases about various rules. Each server runs some of them, because most rules are kept there;
#: neighbours in the list of faults run others.
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
#: Number of these cases for each server; all in a campaign.
CONTROLS = effort(2, len(CONTROL))


def control_of(name: str) -> list[str]:
    """Return the cases of ``CONTROL`` that a server with this fault has."""
    first = list(FAULTS).index(name) * CONTROLS
    return [CONTROL[(first + number) % len(CONTROL)] for number in range(CONTROLS)]


def findings(name: str, host: str, port: int) -> set[str]:
    """Return the cases that are FAILED or NON-STRICT with a fault in front of that broker.

    Only the cases that the fault names and its controls run. They run in a separate process
    together with the proxy: a shared proxy process would be slow, and many cases depend on timing.
    """
    fault = FAULTS[name]
    cases = {*fault.found_by, *control_of(name)}
    with ScriptedServer(behind(fault, host, port)) as server:
        address = Address("127.0.0.1", server.port, timeout_s=2.0, quiet_s=0.3)
        report = run(address, probe(address), Selection(tuple(sorted(cases))))
    assert not report.errors, report.errors
    # An id also selects the cases that cover the requirement besides others.
    results = [each for each in report.results if each.id in cases]
    assert len(results) == len(cases), report.cut_short
    return {each.id for each in results if each.verdict in ("FAILED", "NON-STRICT")}


@pytest.fixture(scope="module")
def found(
    request: pytest.FixtureRequest, broker: RunningBroker
) -> Iterator[dict[str, Future[set[str]]]]:
    """The results for each server; the runs are concurrent."""
    wanted = selected(request, "name")
    # Each process makes many runs, because starting a process takes longer than a run.
    with processes(6) as pool:
        yield {name: pool.submit(findings, name, broker.host, broker.port) for name in wanted}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", some(FAULTS, 5))
def test_broken_rule_is_found(name: str, found: dict[str, Future[set[str]]]) -> None:
    """All cases about the rule detect it, and no others."""
    assert found[name].result() == set(FAULTS[name].found_by), FAULTS[name].__doc__
