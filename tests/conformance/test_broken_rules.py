"""A server that breaks one rule fails the cases about that rule, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

import pytest

from stompkit.conformance.address import Address
from stompkit.conformance.runner import Selection, run
from stompkit.conformance.target import probe
from stompkit.testing import RunningBroker
from tests.conformance.proxy import Fault, behind, faults_of
from tests.conformance.scripted import ScriptedServer

FAULTS = faults_of(
    *(
        import_module(f"tests.conformance.{path.stem}")
        for path in sorted(Path(__file__).parent.glob("broken_*.py"))
    )
)
#: Quick cases about all kinds of things, run on each of the servers: most rules are kept there.
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


def findings(port: int, cases: list[str]) -> set[str]:
    """The cases that are FAILED or NON-STRICT; run in a process of its own."""
    address = Address("127.0.0.1", port, timeout_s=2.0, quiet_s=0.3)
    report = run(address, probe(address), Selection(tuple(cases)))
    assert not report.errors, report.errors
    # An id selects the cases, too, that cover the requirement beside others.
    results = [each for each in report.results if each.id in cases]
    assert len(results) == len(cases), report.cut_short
    return {each.id for each in results if each.verdict in ("FAILED", "NON-STRICT")}


@pytest.fixture(scope="module")
def wanted(request: pytest.FixtureRequest) -> dict[str, type[Fault]]:
    """The faults that somebody asks about: all, unless pytest was told to select."""
    tests = (item for item in request.session.items if isinstance(item, pytest.Function))
    names = {test.callspec.params["name"] for test in tests if "wanted" in test.fixturenames}
    return {name: fault for name, fault in FAULTS.items() if name in names}


@pytest.fixture(scope="module")
def found(
    broker: RunningBroker, wanted: dict[str, type[Fault]]
) -> Iterator[dict[str, Future[set[str]]]]:
    """What was found about each server; the runs are made side by side."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(ScriptedServer(behind(fault, broker.host, broker.port)))
            for name, fault in wanted.items()
        }
        # Each process makes many runs, for it takes longer to start one than to make a run.
        pool = stack.enter_context(
            ProcessPoolExecutor(max_workers=6, mp_context=get_context("spawn"))
        )
        yield {
            name: pool.submit(findings, servers[name].port, sorted({*fault.found_by, *CONTROL}))
            for name, fault in wanted.items()
        }


@pytest.mark.parametrize("name", FAULTS)
def test_broken_rule_is_found(name: str, found: dict[str, Future[set[str]]]) -> None:
    """No case is missing, and none is there that is about something else."""
    assert found[name].result() == set(FAULTS[name].found_by), FAULTS[name].__doc__
